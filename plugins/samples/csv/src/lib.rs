//! Profiles a CSV file: what is in each column. Reads from a directory that the operator grants, row by row, so that
//! the file's size does not matter.

mod column;
mod profile;

use std::fs::File;

use bulkhead_plugin::task::{self, Signals};
use bulkhead_plugin::{Error, Json, Plugin, Tool, config};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::profile::Profile;

#[derive(Deserialize, JsonSchema)]
struct Source {
    /// The file's path in a granted directory, such as `/data/airports.csv`.
    #[schemars(length(min = 1))]
    path: String,
}

fn csv_profile(Source { path }: Source) -> Result<Json<Profile>, Error> {
    let delimiter: char = config::get("delimiter")?.unwrap_or(',');
    let delimiter =
        u8::try_from(delimiter).map_err(|_| Error::internal("config.delimiter: it must be one ASCII character"))?;
    let file = File::open(&path).map_err(|error| Error::new(format!("{path} cannot be opened: {error}")))?;
    let bytes = file.metadata()?.len() as f64;
    let mut notes = Vec::new();
    let profile = profile::read(file, delimiter, |rows, position| {
        task::progress(position as f64, Some(bytes), Some(&format!("{rows} rows")));
        if task::checkpoint()?.contains(Signals::STEERING_PENDING) {
            for message in task::steering() {
                task::set_status(&format!("{rows} rows read; noted: {message}"));
                notes.push(message);
            }
        }
        // The only thing to steer: to stop here and tell what is known.
        Ok(!notes.iter().any(|note| note.trim().eq_ignore_ascii_case("stop")))
    })?;
    Ok(Json(profile))
}

fn plugin() -> Plugin {
    Plugin::new().tool(
        Tool::new(
            "csv_profile",
            "Profiles a CSV file with a header row: for each column its type, missing values, distinct values, and \
             smallest, largest and mean value. As a task it takes messages: `stop` ends the reading early with what is \
             known so far.",
            csv_profile,
        )
        .title("Profile a CSV file")
        .task_optional()
        .read_only()
        .idempotent()
        .open_world(false),
    )
}

bulkhead_plugin::manifest!(
    r#"
name = "csv"
description = "Profiles CSV files."

[grants]
directories = [{ guest = "/data", write = false, reason = "the files to profile" }]
"#
);
bulkhead_plugin::export!(plugin);
