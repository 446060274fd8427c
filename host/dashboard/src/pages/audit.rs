//! The audit log, and what of it says that something was denied.

use std::collections::BTreeMap;

use bulkhead_control::views::{AuditChainView, AuditLineView, AuditPageView, HistoryView};
use bulkhead_domain::UnixMs;
use bulkhead_domain::text::quoted_name;
use maud::{Markup, html};
use serde_json::Value;

use super::operators::ROWS_MAX;
use super::overview::refused_in_history;
use super::plugins::plugin_path;
use super::{Frame, address, filter_text, more, notice, table, task_path, words};
use crate::columns::{AUDIT, Columns, DENIALS, LED_AUDIT};
use crate::text;

/// Characters of an id, a digest or a version that tell it apart.
const ID_CHARS: usize = 12;

/// Who reads the log.
#[derive(Clone, Copy)]
pub(crate) enum LogReader<'a> {
    Operator {
        /// Only its lines.
        tenant: Option<&'a str>,
    },
    /// Of the tenant whose lines these are.
    Lead,
}

impl<'a> LogReader<'a> {
    pub(crate) fn tenant(self) -> Option<&'a str> {
        match self {
            Self::Operator { tenant } => tenant,
            Self::Lead => None,
        }
    }

    /// The number of a line counts what others do as well.
    fn columns(self) -> Columns {
        match self {
            Self::Operator { .. } => AUDIT,
            Self::Lead => LED_AUDIT,
        }
    }

    /// Whether a fact is on the reader's page. The digest of arguments tells short ones to who guesses them, and their
    /// sizes nearly do.
    fn is_shown(self, fact: &str) -> bool {
        let is_hidden = match self {
            Self::Operator { .. } => fact == "arguments_sha256",
            Self::Lead => ["arguments_sha256", "arguments_bytes", "result_bytes"].contains(&fact),
        };
        !is_hidden && !["operator", "requestor", "tenant"].contains(&fact)
    }

    /// The pages of the log and of what was denied.
    fn places(self) -> [&'static str; 2] {
        match self {
            Self::Operator { .. } => ["/audit", "/denials"],
            Self::Lead => ["/tenant/audit", "/tenant/denials"],
        }
    }
}

/// What the log is asked for.
#[derive(Clone, Copy)]
pub(crate) struct AuditFilter<'a> {
    pub(crate) event: Option<&'a str>,
    /// Without lines of operators who only looked.
    pub(crate) changes_only: bool,
    pub(crate) reader: LogReader<'a>,
}

impl AuditFilter<'_> {
    /// A lead sees each time that an operator looked at what is of its tenant.
    fn can_leave_out_reads(&self) -> bool {
        matches!(self.reader, LogReader::Operator { .. })
    }
}

pub(crate) fn audit(frame: &Frame<'_>, filter: AuditFilter<'_>, page: &Result<AuditPageView, String>) -> Markup {
    let [path, _] = filter.reader.places();
    frame.show(
        "Audit log",
        html! {
            form.filter method="get" action=(path) {
                (filter_text("event", "Event", filter.event))
                @if !filter.changes_only && filter.can_leave_out_reads() { input type="hidden" name="show" value="all"; }
                @if let LogReader::Operator { tenant } = filter.reader { (filter_text("tenant", "Tenant", tenant)) }
                button type="submit" { "Filter" }
                a href=(path) { "Reload all" }
            }
            @if filter.can_leave_out_reads() {
                @let all = [("event", filter.event), ("tenant", filter.reader.tenant()), ("show", Some("all"))];
                p {
                    @if filter.changes_only { "Changes and refusals, without what operators only looked at. " a href=(address(path, &all)) { "Show everything" } }
                    @else { "Everything, with what operators looked at. " a href=(address(path, &all[..2])) { "Changes only" } }
                }
            }
            p.note { "An event as " code { "task.created" } ", or how events begin, as " code { "task." } }
            @match page {
                Err(why) => (notice("bad", why)),
                Ok(page) => {
                    // What else is in it is not a lead's to know.
                    @if let LogReader::Operator { .. } = filter.reader { (chain(&page.chain)) }
                    @if page.lines.is_empty() { p { "No line here fits." } } @else {
                        (table("Audit log", filter.reader.columns(), html! {
                            @for line in &page.lines {
                                tr {
                                    @if let LogReader::Operator { .. } = filter.reader { td { (line.seq) } }
                                    td { (frame.when(line.at_ms)) }
                                    td { (text::line(&line.event)) }
                                    td { (text::line(&who(line, &page.names, filter.reader))) }
                                    td { (facts(line, filter.reader)) }
                                }
                            }
                        }))
                    }
                    @let show = (!filter.changes_only && filter.can_leave_out_reads()).then_some("all");
                    @let query = [
                        ("event", filter.event), ("tenant", filter.reader.tenant()), ("show", show), ("after", page.next.as_deref()),
                    ];
                    (more(page.next.as_ref().map(|_| address(path, &query)).as_deref()))
                }
            }
        },
    )
}

/// How the chain of the lines stands that were read.
fn chain(chain: &AuditChainView) -> Markup {
    if let Some(problem) = &chain.problem {
        return notice("bad", &text::line(&format!("The chain is broken: {problem}")));
    }
    html! {
        p.note {
            @if chain.last == 0 { "No line was read." } @else {
                "The chain holds from line " (chain.first) " to line " (chain.last)
                @if chain.whole { ", the oldest that is kept." } @else { "; " code { "bulkhead audit verify" } " follows all of it." }
            }
            @if let Some(anchor) = &chain.anchor { " Anchor: " code { (text::line(anchor)) } }
        }
    }
}

/// A requestor, an operator or a tenant. A lead is not told who an operator is and where.
fn who(line: &AuditLineView, names: &BTreeMap<String, String>, reader: LogReader<'_>) -> String {
    let named = |fact: &str| {
        let id = line.facts.get(fact)?.as_str()?;
        Some(names.get(id).cloned().unwrap_or_else(|| id.chars().take(ID_CHARS).collect()))
    };
    match (line.facts.get("operator").and_then(Value::as_str), named("requestor"), named("tenant")) {
        (Some(operator), ..) if matches!(reader, LogReader::Operator { .. }) => operator.to_owned(),
        (Some(_), ..) => "an operator".to_owned(),
        (None, Some(requestor), Some(tenant)) => format!("{}@{}", quoted_name(&requestor), quoted_name(&tenant)),
        (None, None, Some(tenant)) => format!("tenant {}", quoted_name(&tenant)),
        (None, requestor, None) => requestor.unwrap_or_else(|| "–".to_owned()),
    }
}

/// Everything else, by name, with links to the pages of what is named.
fn facts(line: &AuditLineView, reader: LogReader<'_>) -> Markup {
    let shown = line.facts.iter().filter(|(name, _)| reader.is_shown(name));
    html! {
        @for (place, (name, value)) in shown.enumerate() {
            @if place > 0 { "; " }
            (fact(name, value, line, reader))
        }
    }
}

/// One fact in words.
fn fact(name: &str, value: &Value, line: &AuditLineView, reader: LogReader<'_>) -> Markup {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let address = match (name, reader) {
        ("task", LogReader::Operator { .. }) => Some(task_path(&text)),
        ("task", LogReader::Lead) => Some(format!("/tenant{}", task_path(&text))),
        ("plugin", LogReader::Operator { .. }) => Some(plugin_path(&text)),
        _ => None,
    };
    let shown = match (name, &address) {
        ("version" | "task", _) => text.chars().take(ID_CHARS).collect(),
        ("name", _) if line.event == "operator.command" => return html! { (text::line(&command_in_words(&text))) },
        _ => text,
    };
    html! {
        (words(name)) " "
        @match &address { Some(address) => a href=(address) { (text::line(&shown)) }, None => (text::line(&shown)) }
    }
}

/// A command of the operator API as it is in the log.
fn command_in_words(json: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str::<Value>(json) else { return json.to_owned() };
    let Some(command) = members.get("command").and_then(Value::as_str) else { return json.to_owned() };
    let mut parts = Vec::new();
    for (name, value) in members.iter().filter(|(name, _)| *name != "command") {
        match value {
            Value::Object(inner) => parts.extend(inner.iter().filter_map(|(name, value)| member_in_words(name, value))),
            other => parts.extend(member_in_words(name, other)),
        }
    }
    if parts.is_empty() { words(command) } else { format!("{}: {}", words(command), parts.join(", ")) }
}

/// What was left open is not said.
fn member_in_words(name: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::Array(all) if all.is_empty() => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(format!("{} {text}", words(name)))
}

/// What was denied and refused.
pub(crate) struct Denials<'a> {
    pub(crate) reader: LogReader<'a>,
    /// The lines of the log about it, or why there are none.
    pub(crate) lines: Result<AuditPageView, String>,
    /// None: it is not theirs to see.
    pub(crate) history: Option<HistoryView>,
}

/// The same thing, however often it happened.
struct Denied {
    times: u64,
    last: UnixMs,
}

pub(crate) fn denials(frame: &Frame<'_>, page: &Denials<'_>) -> Markup {
    let [_, path] = page.reader.places();
    frame.show(
        "Denials",
        html! {
            @match page.reader {
                LogReader::Operator { tenant } => form.filter method="get" action=(path) {
                    (filter_text("tenant", "Tenant", tenant))
                    button type="submit" { "Filter" }
                    a href=(path) { "Reload all" }
                },
                LogReader::Lead => p { a href=(path) { "Reload" } },
            }
            @match &page.lines {
                Err(why) => (notice("bad", why)),
                Ok(lines) => (from_log(frame, page.reader, lines)),
            }
            @if let Some(history) = &page.history {
                h2 { "Limits" }
                (refused_in_history(history))
            }
        },
    )
}

fn from_log(frame: &Frame<'_>, reader: LogReader<'_>, page: &AuditPageView) -> Markup {
    let denied = denied(page);
    let [log, _] = reader.places();
    html! {
        @if denied.is_empty() { p { "The log says of nothing that was denied." } } @else {
            (table("Denials", DENIALS, html! {
                @for ((event, whose, of, why), denied) in denied.iter().take(ROWS_MAX) {
                    tr {
                        td { a href=(address(log, &[("event", Some(event)), ("tenant", reader.tenant())])) { (text::line(event)) } }
                        td { (text::line(whose)) }
                        td { (text::line(of)) }
                        td { (text::line(why)) }
                        td { (text::count(denied.times)) }
                        td { (frame.when(denied.last)) }
                    }
                }
            }))
        }
        p.note {
            "From " (page.lines.len()) " lines of the audit log"
            @if let Some(oldest) = page.lines.last() { ", the oldest of them " (frame.when(oldest.at_ms)) }
            @if page.next.is_some() { "; there are more before them" }
            "."
        }
    }
}

/// Event, tenant, plugin or tool, and reason.
type What = (String, String, String, String);

/// What was denied, with how often; the latest first.
fn denied(page: &AuditPageView) -> Vec<(What, Denied)> {
    let mut all = BTreeMap::<What, Denied>::new();
    for line in &page.lines {
        let fact = |name: &str| line.facts.get(name).and_then(Value::as_str);
        let whose = fact("tenant").map_or_else(
            || "–".to_owned(),
            |id| page.names.get(id).cloned().unwrap_or_else(|| id.chars().take(ID_CHARS).collect()),
        );
        let of = fact("plugin").or(fact("tool")).or(fact("name")).unwrap_or("–").to_owned();
        let what = (line.event.clone(), whose, of, fact("reason").unwrap_or_default().to_owned());
        let times = line.facts.get("count").and_then(Value::as_u64).unwrap_or(1);
        let denied = all.entry(what).or_insert(Denied { times: 0, last: 0 });
        denied.times += times;
        denied.last = denied.last.max(line.at_ms);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, denied)| std::cmp::Reverse(denied.last));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: LogReader<'_> = LogReader::Operator { tenant: None };

    fn page() -> AuditPageView {
        serde_json::from_str(
            r#"{"lines":[
            {"seq":9,"at_ms":900,"event":"call.refused","facts":{"tenant":"01","requestor":"02","tool":"echo","reason":"requests_per_second"}},
            {"seq":8,"at_ms":800,"event":"access.refused","facts":{"reason":"no credential","count":7}},
            {"seq":7,"at_ms":700,"event":"operator.command","facts":{"operator":"dashboard operator at ::1","name":"{}"}},
            {"seq":6,"at_ms":600,"event":"call.refused","facts":{"tenant":"01","requestor":"03","tool":"echo","reason":"requests_per_second"}}],
            "names":{"01":"acme","02":"anna"},"next":null,
            "chain":{"sound":true,"problem":null,"first":1,"last":9,"whole":true,"anchor":"9:aa"}}"#,
        )
        .unwrap()
    }

    #[test]
    fn lines_say_who_and_what_with_names_for_ids() {
        let page = page();
        let said: Vec<_> =
            page.lines.iter().map(|line| (who(line, &page.names, ALL), facts(line, ALL).into_string())).collect();
        let expected = [
            ("anna@acme", "reason requests_per_second; tool echo"),
            ("–", "count 7; reason no credential"),
            ("dashboard operator at ::1", "{}"),
            ("03@acme", "reason requests_per_second; tool echo"),
        ];
        let said: Vec<_> = said.iter().map(|(who, what)| (who.as_str(), what.as_str())).collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn lead_is_not_told_of_operators_and_of_the_rest_of_the_log() {
        let page = page();
        let now = 1_000;
        let shown = |reader| {
            let frame = Frame { session: None, here: "", address: "", now };
            audit(&frame, AuditFilter { event: None, changes_only: true, reader }, &Ok(page.clone())).into_string()
        };
        for part in ["dashboard operator at ::1", "The chain holds", "name=\"tenant\"", "Anchor"] {
            assert!(shown(ALL).contains(part) && !shown(LogReader::Lead).contains(part), "{part}");
        }
        assert!(shown(LogReader::Lead).contains("<td>an operator</td>"));
        // Numbers of lines count what others do.
        for part in ["<th", "<td>9</td>", ">Line</th>"] {
            assert!(shown(ALL).contains(part), "{part}");
        }
        assert!(!shown(LogReader::Lead).contains("<td>9</td>") && !shown(LogReader::Lead).contains(">Line</th>"));
    }

    #[test]
    fn pages_have_no_digest_of_arguments_and_those_of_leads_no_sizes() {
        let line: AuditLineView = serde_json::from_str(
            r#"{"seq":1,"at_ms":1,"event":"task.created","facts":{"arguments_bytes":34,"arguments_sha256":"65cc1b670899","result_bytes":3,
            "tool":"vote"}}"#,
        )
        .unwrap();
        assert_eq!(facts(&line, ALL).into_string(), "arguments bytes 34; result bytes 3; tool vote");
        assert_eq!(facts(&line, LogReader::Lead).into_string(), "tool vote");
    }

    #[test]
    fn commands_are_words_and_what_is_named_is_a_link() {
        for (json, expected) in [
            (
                r#"{"command":"limits_in_use","filter":{"tenant":null,"status":"paused"},"count_max":500}"#,
                "limits in use: status paused, count max 500",
            ),
            (r#"{"command":"plugin_promote","names":["csv"]}"#, r#"plugin promote: names ["csv"]"#),
            (r#"{"command":"token_list"}"#, "token list"),
            ("{}", "{}"),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(command_in_words(json), expected);
        }
        let line: AuditLineView = serde_json::from_str(
            r#"{"seq":1,"at_ms":1,"event":"task.created","facts":{"plugin":"<b>","task":"0123456789abcdef"}}"#,
        )
        .unwrap();
        let shown = facts(&line, ALL).into_string();
        let expected = "plugin <a href=\"/plugins/%3Cb%3E\">&lt;b&gt;</a>; task <a href=\"/tasks/0123456789abcdef\">0123456789ab</a>";
        assert_eq!(shown, expected);
        let led = facts(&line, LogReader::Lead).into_string();
        assert!(led.contains("/tenant/tasks/0123") && !led.contains("/plugins/"), "{led}");
    }

    #[test]
    fn operator_is_shown_changes_unless_everything_is_asked_for() {
        let shown = |changes_only| {
            let frame = Frame { session: None, here: "", address: "", now: 1_000 };
            let page = AuditPageView { next: Some("1.2".to_owned()), ..page() };
            audit(&frame, AuditFilter { event: None, changes_only, reader: ALL }, &Ok(page)).into_string()
        };
        let changes = shown(true);
        assert!(
            changes.contains("href=\"/audit?show=all\">Show everything")
                && changes.contains("href=\"/audit?after=1.2\"")
        );
        let all = shown(false);
        assert!(
            all.contains("href=\"/audit\">Changes only") && all.contains("href=\"/audit?show=all&amp;after=1.2\""),
            "{all}"
        );
    }

    #[test]
    fn the_same_denial_is_one_row_with_how_often() {
        let rows: Vec<_> =
            denied(&page()).into_iter().map(|(what, denied)| (what.0, what.1, denied.times, denied.last)).collect();
        let row = |event: &str, whose: &str, times, last| (event.to_owned(), whose.to_owned(), times, last);
        assert_eq!(
            rows,
            [
                row("call.refused", "acme", 2, 900),
                row("access.refused", "–", 7, 800),
                row("operator.command", "–", 1, 700)
            ]
        );
    }

    #[test]
    fn broken_chain_is_said_first() {
        let mut of = page().chain;
        assert!(chain(&of).into_string().contains("The chain holds from line 1 to line 9, the oldest that is kept."));
        of.problem = Some("line 3 follows line 1".to_owned());
        assert!(chain(&of).into_string().contains("notice bad"));
    }
}
