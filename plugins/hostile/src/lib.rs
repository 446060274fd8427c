//! Tests only: one tool for each attack on the host, on other callers, or on the protocol.
//!
//! The components that a host must refuse at load are the examples of the crate `broken`.

mod files;
mod outside;
mod requests;
mod results;

use std::hint::black_box;
use std::time::Duration;

use bulkhead_plugin::task::{self, LogLevel};
use bulkhead_plugin::{Handler, Plugin, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

/// Loops forever without a call to the host: only the host's clock can end it.
fn spin() {
    let mut turns = 0u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Recurses until the stack is full.
fn recurse() -> String {
    #[expect(unconditional_recursion, reason = "that is the attack")]
    fn deeper(depth: u64) -> u64 {
        black_box(deeper(black_box(depth) + 1)) + 1
    }
    deeper(0).to_string()
}

/// Takes memory and writes to it until there is none.
fn grow() -> String {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(black_box(vec![0xAA; 1 << 20]));
    }
}

#[derive(Deserialize, JsonSchema)]
struct Flood {
    /// How many times.
    #[serde(default = "million")]
    count: u32,
}

fn million() -> u32 {
    1_000_000
}

/// Sends a kilobyte to the log, over and over.
fn flood_log(Flood { count }: Flood) -> String {
    let record = "x".repeat(1024);
    for _ in 0..count {
        task::log(LogLevel::Error, &record);
    }
    "logged".to_owned()
}

/// Reports progress and status as fast as it can.
fn flood_progress(Flood { count }: Flood) -> String {
    for turn in 0..count {
        task::progress(f64::from(turn), None, Some("flood"));
        task::set_status(&format!("turn {turn}"));
    }
    "reported".to_owned()
}

/// Prints a kilobyte to stdout and stderr, over and over.
fn flood_stdout(Flood { count }: Flood) -> String {
    let line = "x".repeat(1024);
    for _ in 0..count {
        println!("{line}");
        eprintln!("{line}");
    }
    "printed".to_owned()
}

#[derive(Deserialize, JsonSchema)]
struct Words {
    /// What is said on every way out.
    text: String,
}

/// Says the same as progress, status, log record, logger's name, printed line and result.
fn speak(Words { text }: Words) -> String {
    task::progress(1.0, None, Some(&text));
    task::set_status(&text);
    task::log(LogLevel::Error, &text);
    println!("{text}");
    text
}

/// Executes `unreachable`.
fn trap() -> String {
    panic!("this plugin traps on purpose")
}

/// Looks whether it was cancelled, and goes on anyway.
fn ignore_cancel() -> String {
    loop {
        black_box(task::safe_point());
        task::sleep(Duration::from_millis(10));
    }
}

/// Every attack may run as a task, so that plain calls and tasks are tested with the same ones.
fn attack<Marker, H: Handler<Marker>>(name: &str, description: &str, handler: H) -> Tool {
    Tool::new(name, description, handler).task_optional()
}

fn plugin() -> Plugin {
    Plugin::new()
        .tool(attack("spin", "Loops forever without calling the host.", spin))
        .tool(attack("recurse", "Recurses until the stack is full.", recurse))
        .tool(attack("grow", "Takes memory until there is none.", grow))
        .tool(attack("flood_result", "Returns one huge text.", results::flood))
        .tool(attack("flood_log", "Sends a kilobyte to the log, over and over.", flood_log))
        .tool(attack("flood_progress", "Reports progress as fast as it can.", flood_progress))
        .tool(attack("flood_stdout", "Prints to stdout and stderr, over and over.", flood_stdout))
        .tool(attack("flood_handles", "Takes host resources and never returns them.", outside::flood_handles))
        .tool(attack("trap", "Executes an unreachable instruction.", trap))
        .tool(attack("read_file", "Reads a file and returns its text.", outside::read_file))
        .tool(attack("write_file", "Writes a file.", outside::write_file))
        .tool(attack("files", "Takes steps in a directory, with paths as they are.", files::run))
        .tool(attack("request", "Sends a request and says what came back.", requests::send))
        .tool(attack("speak", "Says a text on every way out.", speak))
        .tool(attack("environment", "Lists the environment variables that it sees.", outside::environment))
        .tool(attack("connect", "Opens a TCP connection.", outside::connect))
        .tool(attack("ignore_cancel", "Sees that it was cancelled and goes on.", ignore_cancel))
        .tool(attack("bad_output", "Returns what its own output schema forbids.", results::bad_output))
        .tool(attack("bad_json", "Returns structured content that is not JSON.", results::bad_json))
        .tool(attack("bad_utf8", "Returns a text that is not UTF-8.", results::bad_utf8))
}

bulkhead_plugin::manifest!(
    r#"
name = "hostile"
description = "Attacks its host. For tests only."

[grants]
directories = [{ guest = "/", write = true, reason = "to attack it" }]
http = ["*"]
env = ["*"]
"#
);
bulkhead_plugin::export!(plugin);
