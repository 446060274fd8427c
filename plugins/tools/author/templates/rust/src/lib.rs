//! Greets people, and counts down.

use std::time::Duration;

use bulkhead_plugin::{Error, Json, task, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted.
    name: String,
}

/// Greets someone by name.
#[tool(read_only)]
fn greet(who: Greet) -> String {
    format!("Hello, {}!", who.name)
}

#[derive(Deserialize, JsonSchema)]
struct Countdown {
    /// How long it takes.
    #[schemars(range(min = 1, max = 3600))]
    seconds: u32,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    /// Seconds that were left when it ended.
    left: u32,
    /// The messages that arrived meanwhile.
    messages: Vec<String>,
}

/// Counts down. As a task it takes messages: `stop` ends it.
#[tool(task = "optional", read_only)]
fn countdown(Countdown { seconds }: Countdown) -> Result<Json<Counted>, Error> {
    let mut messages = Vec::new();
    for left in (1..=seconds).rev() {
        task::progress(f64::from(seconds - left), Some(f64::from(seconds)), Some(&format!("{left} s left")));
        task::sleep(Duration::from_secs(1));
        task::checkpoint()?;
        messages.extend(task::steering());
        if messages.iter().any(|message| message == "stop") {
            return Ok(Json(Counted { left: left - 1, messages }));
        }
    }
    Ok(Json(Counted { left: 0, messages }))
}

bulkhead_plugin::manifest!(include_str!("../manifest.toml"));
bulkhead_plugin::export!([greet, countdown]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_names_who_is_greeted() {
        assert_eq!(greet(Greet { name: "Ada".to_owned() }), "Hello, Ada!");
    }
}
