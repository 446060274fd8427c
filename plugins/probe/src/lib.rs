//! Tests only: one tool for each function that a host offers, so that tests see every one of them from the outside.
//!
//! Well-behaved throughout; the attacks are in `hostile`.

mod keeping;
mod questions;
mod reports;
mod results;

use bulkhead_plugin::{Plugin, Tool};

fn plugin() -> Plugin {
    // The one tool that comes and goes: its name and description are in a file, if that is granted and there.
    let plugin = match reports::changing() {
        Some((name, description)) => Plugin::new().tool(Tool::new(name, description, || "changing")),
        None => Plugin::new(),
    };
    plugin
        .tool(Tool::new("facts", "Tells what is known about the call.", reports::facts).task_optional().read_only())
        .tool(Tool::new("settings", "Returns the operator's settings as JSON.", reports::settings).read_only())
        .tool(Tool::new("log", "Sends one log record.", reports::log).task_optional())
        .tool(Tool::new("steps", "Reports progress and status in steps.", reports::steps).task_optional().idempotent())
        .tool(Tool::new("required", "Waits; only as a task.", reports::wait).task_required())
        .tool(Tool::new("detach", "Asks to become a task, then waits.", reports::detach).task_optional())
        .tool(Tool::new("steered", "Waits for one message and returns it.", reports::steered).task_optional())
        .tool(Tool::new("change_tools", "Says that the list of tools changed.", reports::change_tools))
        .tool(Tool::new("contents", "Returns one block of every kind.", results::contents).task_optional())
        .tool(Tool::new("squares", "Returns a list, not an object.", results::squares).task_optional())
        .tool(Tool::new("fail", "Fails in the way that is asked for.", results::fail).task_optional())
        .tool(Tool::new("keep", "Keeps and finds bytes.", keeping::keep).task_optional())
        .tool(Tool::new("send", "Sends an HTTP request.", keeping::send).task_optional())
        .tool(Tool::new("ask_url", "Sends the user to a page.", questions::url).task_optional())
        .tool(Tool::new("ask_roots", "Lists the client's root folders.", questions::roots).task_optional())
        .tool(Tool::new("ask_sampling", "Asks the client's model.", questions::sampling).task_optional())
        .tool(Tool::new("ask_many", "Puts several questions at once.", questions::many).task_optional())
        .tool(Tool::new("ask_again", "Puts the same question several times.", questions::again).task_optional())
        .tool(Tool::new("ask_counted", "Asks, then counts that it went on.", questions::counted).task_optional())
        .tool(Tool::new("ask_wrongly", "Asks with a schema that is no form.", questions::wrongly).task_optional())
}

bulkhead_plugin::manifest!(
    r#"
name = "probe"
description = "Tries what a host offers. For tests only."

[grants]
http = ["*"]
kv = true
directories = [{ guest = "/lists", write = false, optional = true, reason = "what the lists hold" }]
"#
);
bulkhead_plugin::export!(plugin);
