//! What the columns of the dashboard's lists are called.
//!
//! Must not draw a list. Invariant: the head of a list and the names of the values on its cards are made of one table.

use std::fmt::Write as _;

/// A column with the key that sorts by it, if there is one.
pub(crate) type Column = (&'static str, Option<&'static str>);

/// A list of many; in the style sheet, `class` is how it is found.
pub(crate) struct List {
    pub(crate) class: &'static str,
    pub(crate) label: &'static str,
    pub(crate) columns: &'static [Column],
}

/// Everybody's tasks.
pub(crate) const TASKS: List = List {
    class: "of-tasks",
    label: "Tasks",
    columns: &[
        ("Task", Some("tool")),
        ("Status", Some("status")),
        ("Requestor", Some("requestor")),
        ("Tenant", Some("tenant")),
        ("Message", None),
        ("Changed", Some("changed")),
    ],
};
/// A requestor's own.
pub(crate) const OWN_TASKS: List = List {
    class: "of-own",
    label: "My tasks",
    columns: &[("Task", None), ("Status", None), ("Message", None), ("Changed", None)],
};
/// Those of a tenant, for its lead.
pub(crate) const LED_TASKS: List = List {
    class: "of-led",
    label: "Tasks of the tenant",
    columns: &[("Task", None), ("Status", None), ("Requestor", None), ("Message", None), ("Changed", None)],
};
pub(crate) const PLUGINS: List = List {
    class: "of-plugins",
    label: "Plugins",
    columns: &[
        ("Plugin", Some("name")),
        ("State", Some("state")),
        ("Active", None),
        ("Tools", Some("tools")),
        ("Calls", Some("calls")),
        ("Tasks", Some("tasks")),
        ("Canary", None),
        ("Health", None),
    ],
};
pub(crate) const TENANTS: List = List {
    class: "of-tenants",
    label: "Tenants",
    columns: &[
        ("Tenant", Some("name")),
        ("Requestors", Some("requestors")),
        ("Tokens", Some("tokens")),
        ("Tasks", Some("tasks")),
        ("Stored", Some("stored")),
        ("Fullest limits", None),
    ],
};
pub(crate) const TOOLS: List = List {
    class: "of-tools",
    label: "Tools",
    columns: &[("Tool", None), ("Plugin", None), ("Description", None), ("As a task", None)],
};

/// All that become cards.
const LISTS: [&List; 6] = [&TASKS, &OWN_TASKS, &LED_TASKS, &PLUGINS, &TENANTS, &TOOLS];

/// The rules that say on a card what a value is, for the end of the style sheet.
pub(crate) fn card_rules() -> String {
    let mut rules = "@media (max-width: 40rem) {\n".to_owned();
    for List { class, columns, .. } in LISTS {
        for (index, (name, _)) in columns.iter().enumerate().skip(1) {
            // Writing to a String cannot fail.
            let _ = writeln!(rules, ".{class} td:nth-child({})::before {{ content: \"{name}\"; }}", index + 1);
        }
    }
    rules + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_on_a_card_has_the_name_of_its_column() {
        let rules = card_rules();
        assert!(rules.contains(".of-tenants td:nth-child(5)::before { content: \"Stored\"; }"), "{rules}");
        let columns: usize = LISTS.iter().map(|list| list.columns.len() - 1).sum();
        assert_eq!(rules.matches("::before").count(), columns);
    }
}
