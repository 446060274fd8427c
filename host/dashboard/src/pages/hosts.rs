//! The host: which one it is, whether it is healthy, and how it is drained.

use bulkhead_control::views::{AuditHealth, HealthView, HostIdentity, HostStatusView};
use maud::{Markup, html};

use super::{Frame, notice, token};
use crate::sessions::Session;
use crate::text;

/// Where the drain is ordered.
const DRAIN: &str = "/hosts/drain";

pub(crate) fn host(frame: &Frame<'_>, session: &Session, health: &HealthView, status: &HostStatusView) -> Markup {
    let HostStatusView { host, config, drain } = status;
    let yes = |is: bool| if is { "yes" } else { "no" };
    let audit = match health.audit {
        AuditHealth::Off => "off",
        AuditHealth::Written => "written",
        AuditHealth::Refused => "the disk does not take it",
    };
    frame.show("Host", html! {
        @if drain.draining {
            (notice("ask", match drain.still {
                true => "The host drains, and nothing goes on any more: it can be stopped.",
                false => "The host drains: it takes nothing new, and what has begun goes on to its end.",
            }))
        }
        dl {
            dt { "Healthy" } dd { (yes(health.healthy)) }
            dt { "Ready" } dd { (yes(health.ready)) }
            @for reason in &health.reasons { dt { "Why not" } dd { (text::line(reason)) } }
            dt { "Store" } dd { (health.store.problem.as_deref().map_or_else(|| "takes writes".to_owned(), text::line)) }
            dt { "Guests' threads" } dd { @if health.guests.running { "run" } @else { "stand still" } }
            dt { "Audit log" } dd { (audit) }
            @if let Some(free) = health.disk_free_bytes { dt { "Disk free" } dd { (text::bytes(free)) } }
            dt { "Clock" } dd { (clock(health.clock.ahead_of_system_ms)) }
        }
        h2 { "Program" }
        dl {
            dt { "Version" } dd { (text::line(&host.version)) }
            dt { "Running since" } dd { (frame.when(host.started_at)) }
            dt { "Process" } dd { (host.pid) }
            @for (name, value) in places(host) { dt { (name) } dd { (text::line(value)) } }
            @if let Some(config) = &config.config { dt { "Configuration" } dd { (text::line(config)) } }
            dt { "Its SHA-256" } dd { code { (text::line(&config.config_sha256)) } }
            dt { "Sealed" } dd { (yes(host.sealed)) }
            dt { "Wasmtime" } dd { (text::line(&host.wasmtime)) }
        }
        h2 { "Drain" }
        dl {
            dt { "Drains" } dd { (yes(drain.draining)) }
            dt { "Plain calls" } dd { (drain.plain_calls) }
            dt { "Tasks running" } dd { (drain.tasks_running) }
            dt { "Tasks that stay" } dd {
                (drain.tasks_queued) " queued, " (drain.tasks_waiting) " waiting, " (drain.tasks_paused) " paused"
            }
        }
        div.actions {
            @if drain.draining {
                form.button method="post" action=(DRAIN) {
                    (token(session, DRAIN))
                    button type="submit" name="do" value="end" { "Take new work again" }
                }
            } @else {
                details { summary { "Drain…" }
                    p { "From then on every new call and task is refused, for all tenants, until somebody ends it. What has begun goes on." }
                    form.button method="post" action=(DRAIN) {
                        (token(session, DRAIN))
                        button.bad type="submit" name="do" value="begin" { "Drain the host" }
                    }
                }
            }
            a href="/hosts" { "Reload" }
        }
    })
}

/// Where the host serves, and where it keeps what it has.
fn places(host: &HostIdentity) -> impl Iterator<Item = (&'static str, &str)> {
    let addresses = [
        ("Clients", &host.address),
        ("Administrators", &host.admin_address),
        ("Metrics", &host.metrics_address),
        ("Dashboard", &host.dashboard_address),
        ("Program", &host.program),
    ];
    let configured = addresses.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    configured.chain([("Data", &*host.data), ("Database", &*host.store)])
}

/// The host's time never goes back where the system's does.
fn clock(ahead_of_system_ms: u64) -> String {
    match ahead_of_system_ms {
        0 => "in step with the system's".to_owned(),
        ms => format!("{} ahead of the system's", text::duration(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_shown_by_how_far_it_is_ahead() {
        for (ahead_ms, expected) in [(0, "in step with the system's"), (3_000, "3 s ahead of the system's")] {
            assert_eq!(clock(ahead_ms), expected);
        }
    }
}
