//! Messages to a run.

use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Phase, Task};
use maud::{Markup, html};

use super::token;
use crate::sessions::Session;

/// The form for a message, as long as there is a run to read it.
pub(super) fn steering(session: &Session, task: &Task, rights: &Rights) -> Markup {
    let action = format!("/tasks/{}/steer", task.id);
    let is_over = matches!(task.phase, Phase::Ended(_));
    html! {
        @if !is_over && rights.has(Need::Steer) {
            h2 { "Message to the run" }
            form method="post" action=(action) {
                (token(session, &action))
                label { "Message" textarea name="message" rows="2" required {} }
                button type="submit" { "Send" }
            }
            p.note {
                (task.steering_delivered) " read by the plugin, " (task.steering.len()) " waiting. A plugin reads them when it looks, if it does."
            }
        }
    }
}
