//! What the columns of the dashboard's lists and tables are called.
//!
//! Must not draw one. Invariant: its head, and the names of the values on the cards that it is on a narrow screen, are
//! of one place.

use std::fmt::Write as _;

/// A column with the key that sorts by it, if there is one.
pub(crate) type Column = (&'static str, Option<&'static str>);

/// What the columns of a table are called that is no list.
pub(crate) type Columns = &'static [&'static str];

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

/// Lines of the audit log, for operators.
pub(crate) const AUDIT: Columns = &["Line", "When", "Event", "Who", "What"];
/// The same for leads: the number of a line counts what others do as well.
pub(crate) const LED_AUDIT: Columns = &["When", "Event", "Who", "What"];
/// What plugins and requestors were denied.
pub(crate) const DENIALS: Columns = &["Event", "Whose", "Plugin or tool", "Why", "Times", "Last"];
/// Tokens, for operators.
pub(crate) const TOKENS: Columns =
    &["Name", "Requestor", "Tenant", "State", "Good for", "Created", "Expires", "Last used", "Do"];
/// Versions of a plugin.
pub(crate) const VERSIONS: Columns =
    &["Version", "Stage", "From", "Signed by", "Staged", "Size", "Tools", "Calls", "Tasks"];
/// What a version may reach.
pub(crate) const GRANTS: Columns = &["Grant", "Asked", "Granted", "Effective"];
/// The same in calls of a tenant.
pub(crate) const TENANT_GRANTS: Columns = &["Grant", "Asked", "Granted", "Left to the tenant", "Effective"];
/// How that differs from the active version.
pub(crate) const GRANT_CHANGES: Columns = &["Grant", "Asked", "Effective"];
/// Tools of a plugin.
pub(crate) const PLUGIN_TOOLS: Columns =
    &["Tool", "Calls, 7 days", "Errors, 7 days", "Calls lately", "Errors lately", "p99 lately"];
/// Plugins, for leads.
pub(crate) const LED_PLUGINS: Columns = &["Plugin", "State", "Active", "Since", "Canary"];
/// What a tenant used.
pub(crate) const USAGE: Columns = &["Day", "Calls", "CPU time", "Came in", "Went out", "Stored at most"];
/// What requestors of a tenant use.
pub(crate) const REQUESTORS: Columns = &["Requestor", "Limit", "In use"];
/// How full limits are.
pub(crate) const LIMITS: Columns = &["Limit", "In use"];
/// How much of the limits of a tenant is one requestor's.
pub(crate) const OWN_PART: Columns = &["Limit", "Your part"];
/// Rates of a requestor.
pub(crate) const RATES: Columns = &["Limit", "You", "Your tenant"];
/// The fullest limits of all.
pub(crate) const FULLEST: Columns = &["Whose", "Limit", "In use"];
/// Refusals by limit.
pub(crate) const REFUSALS: Columns = &["Limit", "Refusals"];
/// Resources of plugins.
pub(crate) const RESOURCES: Columns = &["Resource", "Address", "Type", "Description", "Read"];
/// Families of resources.
pub(crate) const FAMILIES: Columns = &["Family", "Address", "Type", "Description"];
/// Members of a schema.
pub(crate) const MEMBERS: Columns = &["Name", "Type", "Required", "Default", "Bounds", "Description"];
/// What many orders came to.
pub(crate) const DONE: Columns = &["Task", "What came of it"];

/// All lists.
const LISTS: [&List; 6] = [&TASKS, &OWN_TASKS, &LED_TASKS, &PLUGINS, &TENANTS, &TOOLS];
/// All tables that are no lists; the position of one is in its class.
const TABLES: [Columns; 21] = [
    AUDIT,
    LED_AUDIT,
    DENIALS,
    TOKENS,
    VERSIONS,
    GRANTS,
    TENANT_GRANTS,
    GRANT_CHANGES,
    PLUGIN_TOOLS,
    LED_PLUGINS,
    USAGE,
    REQUESTORS,
    LIMITS,
    OWN_PART,
    RATES,
    FULLEST,
    REFUSALS,
    RESOURCES,
    FAMILIES,
    MEMBERS,
    DONE,
];

/// How a table is found in the style sheet.
pub(crate) fn class_of(columns: Columns) -> String {
    TABLES.iter().position(|known| *known == columns).map(|position| format!("t{position}")).unwrap_or_default()
}

/// The most columns of a list or table.
const WIDEST_COLUMNS: usize = 9;

/// The rules that say on a card what a value is, for the end of the style sheet: each class has the names, and one rule
/// shows them.
pub(crate) fn card_rules() -> String {
    let lists = LISTS.iter().map(|list| (list.class.to_owned(), list.columns.iter().map(|(name, _)| *name).collect()));
    let tables = TABLES.iter().map(|columns| (class_of(columns), columns.to_vec()));
    let all: Vec<(String, Vec<&str>)> = lists.chain(tables).collect();
    let mut rules = "@media (max-width: 40rem) {\n".to_owned();
    // Writing to a String cannot fail. The first value is the card's head.
    for position in 2..=WIDEST_COLUMNS {
        let _ = writeln!(rules, ".cards td:nth-child({position})::before{{content:var(--{position})}}");
    }
    for (class, names) in all {
        let named = names.iter().enumerate().skip(1);
        let named = named.fold(String::new(), |all, (index, name)| all + &format!("--{}:\"{name}\";", index + 1));
        let _ = writeln!(rules, ".{class}{{{named}}}");
    }
    rules + "}\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_value_on_a_card_has_the_name_of_its_column() {
        let rules = card_rules();
        assert!(rules.contains(".of-tenants{--2:\"Requestors\";--3:\"Tokens\";"), "{rules}");
        let lists = LISTS.iter().map(|list| list.columns.len());
        let columns: Vec<usize> = lists.chain(TABLES.iter().map(|columns| columns.len())).collect();
        assert_eq!(columns.iter().max(), Some(&WIDEST_COLUMNS));
        assert_eq!(rules.matches(":\"").count(), columns.iter().map(|columns| columns - 1).sum::<usize>());
        assert_eq!(rules.matches("::before").count(), WIDEST_COLUMNS - 1);
    }

    #[test]
    fn every_table_has_a_class_of_its_own() {
        let classes: BTreeSet<_> = TABLES.iter().map(|columns| class_of(columns)).collect();
        assert_eq!((classes.len(), class_of(&["of", "another"])), (TABLES.len(), String::new()));
    }
}
