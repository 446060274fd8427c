//! `bulkhead plugin changes|grants`.

use bulkhead_config::amounts::granted_amount;
use bulkhead_console::table::{Layout, cell, word};
use bulkhead_control::views::PluginGrantsView;
use bulkhead_plugins::{Difference, DifferenceKind, TextDifference, ToolDifference, VersionChanges};
use bulkhead_workbench::grants::columns;

use super::plugins::{digest, held};

/// What a switch would change: definitions as text, imports and grants.
pub(super) fn changes(view: &VersionChanges, _: &Layout) -> String {
    let against = match view.active {
        Some(active) => format!("against the active version {}", digest(active)),
        None => "against nothing: no version is active".to_owned(),
    };
    let mut lines = vec![format!("{} {} ({}), {against}", cell(&*view.name), digest(view.version), word(&view.state))];
    view.tools.iter().for_each(|tool| lines.extend(tool_lines(tool)));
    lines.extend(view.imports_added.iter().map(|name| format!("+ import {}", cell(&**name))));
    lines.extend(view.imports_removed.iter().map(|name| format!("- import {}", cell(&**name))));
    lines.extend(view.grants.iter().map(|row| {
        let wanted = (&row.wanted_before, &row.wanted);
        let effective = (&row.effective_before, &row.effective);
        let shown = |value: &str| granted_amount(&row.grant, value).unwrap_or_else(|| cell(value));
        let side = |(before, after): (&String, &String)| format!("{} -> {}", shown(before), shown(after));
        format!("~ {}: wanted {}, effective {}", cell(&*row.grant), side(wanted), side(effective))
    }));
    if lines.len() == 1 {
        lines.push("nothing differs".to_owned());
    }
    lines.extend(held(&view.held));
    if view.tools.iter().any(|tool| tool.cut) {
        lines.push("some of it is cut: --tool NAME shows one tool as a whole".to_owned());
    }
    lines.join("\n")
}

fn tool_lines(tool: &ToolDifference) -> Vec<String> {
    let mark = match tool.kind {
        DifferenceKind::Added => '+',
        DifferenceKind::Removed => '-',
        DifferenceKind::Changed => '~',
    };
    let mut lines = vec![format!("{mark} tool {}", cell(&*tool.tool))];
    for TextDifference { part, before, after } in &tool.parts {
        lines.push(format!("    {}", part.name()));
        for (mark, side) in [('-', before), ('+', after)] {
            let text = side.iter().flat_map(|text| text.lines());
            lines.extend(text.map(|line| format!("      {mark} {}", cell(line))));
        }
    }
    for (side, differences) in [("input", &tool.input), ("output", &tool.output)] {
        lines.extend(differences.iter().map(|Difference { path, direction, what }| {
            let path = if path.is_empty() { "/" } else { path };
            format!("    {side} {} {}: {}", word(direction), cell(path), cell(&**what))
        }));
    }
    lines
}

pub(super) fn grants(view: &PluginGrantsView, _: &Layout) -> String {
    let mut lines = vec![format!("{} {}", cell(&*view.name), digest(view.version)), "imports".to_owned()];
    lines.extend(view.imports.iter().map(|name| format!("  {}", cell(&**name))));
    lines.push("grants".to_owned());
    lines.extend(columns(&view.everybody));
    for tenant in &view.tenants {
        lines.push(format!("grants in calls of tenant {}", cell(tenant.tenant.as_deref())));
        lines.extend(columns(&tenant.grants));
    }
    lines.iter().map(|line| cell(line.as_str())).collect::<Vec<_>>().join("\n")
}
