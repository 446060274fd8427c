//! `bulkhead plugin usage`: how the tools of a plugin were called, by day.

use std::process::ExitCode;

use bulkhead_console::print_error;
use bulkhead_console::table::{Layout, cell};
use bulkhead_control::commands::PluginUsage;
use bulkhead_control::views::{PluginUsageView, ToolDayView};

use super::operate::{Absent, OperateArguments, execute, show};

const MORE: &str = "there is more: ask for fewer days";
const COLUMNS: [&str; 4] = ["DAY", "TOOL", "CALLS", "ERRORS"];

pub(super) async fn run(name: String, days: u32, csv: bool, operate: &OperateArguments) -> anyhow::Result<ExitCode> {
    let view = execute(operate, PluginUsage { name, days }, Absent::Refuse).await?;
    let code = show(operate, &view, |layout| if csv { usage_csv(&view) } else { usage_table(&view, layout) })?;
    // A table says so itself, and JSON has a member for it.
    if csv && view.more {
        print_error(MORE);
    }
    Ok(code)
}

fn cells(day: &ToolDayView) -> Vec<String> {
    let ToolDayView { day, tool, calls, errors } = day;
    vec![cell(day.as_str()), cell(tool.as_deref()), calls.to_string(), errors.to_string()]
}

pub(super) fn usage_table(view: &PluginUsageView, layout: &Layout) -> String {
    let rows: Vec<_> = view.usage.iter().map(cells).collect();
    let more = if view.more { format!("\n({MORE})") } else { String::new() };
    layout.table(&COLUMNS, &rows) + &more
}

/// As RFC 4180 has it. The name of a tool holds nothing that separates values.
fn usage_csv(view: &PluginUsageView) -> String {
    let head = COLUMNS.join(",").to_lowercase();
    std::iter::once(head).chain(view.usage.iter().map(|day| cells(day).join(","))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_tools_is_a_line_for_each_tool_and_day() {
        let day = |tool: Option<&str>, calls| ToolDayView {
            day: "2026-11-25".to_owned(),
            tool: tool.map(str::to_owned),
            calls,
            errors: 1,
        };
        let usage = vec![day(Some("csv_query"), 12), day(None, 3)];
        let text = usage_csv(&PluginUsageView { name: "csv".to_owned(), usage, more: false });
        assert_eq!(text, "day,tool,calls,errors\n2026-11-25,csv_query,12,1\n2026-11-25,-,3,1");
    }
}
