//! A travel desk: asks the user, asks the client's model, and waits.

use std::time::Duration;

use bulkhead_plugin::ask::{self, Answer, Prompt};
use bulkhead_plugin::task::{self, Signals};
use bulkhead_plugin::{Error, Json, Plugin, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wait looks around this often.
const SLICE_MS: u64 = 100;

/// The first form.
#[derive(Deserialize, JsonSchema)]
struct Journey {
    /// Where you would like to go.
    #[schemars(length(min = 1, max = 80))]
    destination: String,
    /// How many people travel.
    #[schemars(range(min = 1, max = 9))]
    travellers: u32,
}

/// The second form.
#[derive(Deserialize, JsonSchema)]
struct Details {
    /// The class of the seats.
    class: Class,
    /// Whether to book now.
    confirm: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Class {
    Economy,
    Business,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Booking {
    /// Whether a trip was booked.
    booked: bool,
    /// What happened, in a sentence.
    summary: String,
}

fn book_trip() -> Result<Json<Booking>, Error> {
    task::set_status("Waiting for the destination");
    let journey = match ask::form::<Journey>("journey", "Where would you like to go, and how many are you?")? {
        Answer::Accepted(journey) => journey,
        Answer::Declined | Answer::Dismissed => return Ok(not_booked("No destination was given.")),
    };
    task::progress(1.0, Some(2.0), Some("The destination is known"));
    task::set_status("Waiting for the confirmation");
    let question = format!("Book {} seats to {}?", journey.travellers, journey.destination);
    let details = match ask::form::<Details>("details", &question)? {
        Answer::Accepted(details) if details.confirm => details,
        Answer::Accepted(_) | Answer::Declined | Answer::Dismissed => {
            return Ok(not_booked("The trip was not confirmed."));
        }
    };
    task::progress(2.0, Some(2.0), Some("Booked"));
    let class = match details.class {
        Class::Economy => "economy",
        Class::Business => "business",
    };
    let summary = format!("Booked {} {class} seats to {}.", journey.travellers, journey.destination);
    Ok(Json(Booking { booked: true, summary }))
}

fn not_booked(summary: &str) -> Json<Booking> {
    Json(Booking { booked: false, summary: summary.to_owned() })
}

#[derive(Deserialize, JsonSchema)]
struct Document {
    /// The text to summarize.
    #[schemars(length(min = 1))]
    text: String,
}

fn summarize(Document { text }: Document) -> Result<String, Error> {
    let prompt = Prompt::new(text, 200).system("Summarize the text in at most three sentences.");
    Ok(ask::sampling("summary", prompt)?.text)
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// Milliseconds.
    #[schemars(range(min = 0, max = 86_400_000))]
    ms: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Waited {
    /// Milliseconds.
    waited_ms: u64,
    /// The messages that arrived meanwhile.
    messages: Vec<String>,
}

fn wait(Wait { ms }: Wait) -> Result<Json<Waited>, Error> {
    let mut waited_ms = 0;
    let mut messages = Vec::new();
    let mut stopped = false;
    while waited_ms < ms && !stopped {
        let slice = SLICE_MS.min(ms - waited_ms);
        task::sleep(Duration::from_millis(slice));
        waited_ms += slice;
        task::progress(waited_ms as f64, Some(ms as f64), None);
        if task::checkpoint()?.contains(Signals::STEERING_PENDING) {
            for message in task::steering() {
                stopped |= message.trim().eq_ignore_ascii_case("stop");
                task::set_status(&format!("Still waiting; noted: {message}"));
                messages.push(message);
            }
        }
    }
    Ok(Json(Waited { waited_ms, messages }))
}

fn plugin() -> Plugin {
    Plugin::new()
        .tool(
            Tool::new(
                "book_trip",
                "Books a trip: asks the user for the destination, then for a confirmation, and returns what was booked.",
                book_trip,
            )
            .title("Book a trip")
            .task_optional()
            .destructive(false)
            .open_world(false),
        )
        .tool(
            Tool::new("summarize", "Summarizes a text with the client's own model.", summarize)
                .title("Summarize")
                .read_only()
                .open_world(false),
        )
        .tool(
            Tool::new(
                "wait",
                "Waits without using CPU time. As a task it takes messages: `stop` ends the wait early.",
                wait,
            )
            .title("Wait")
            .task_optional()
            .read_only()
            .idempotent()
            .open_world(false),
        )
}

bulkhead_plugin::manifest!(
    r#"
name = "desk"
description = "Books trips, summarizes texts, and waits."
"#
);
bulkhead_plugin::export!(plugin);
