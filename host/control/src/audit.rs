//! The audit log, read for operators.
//!
//! Owns the names in place of ids. Must not show what the log does not have. Invariant: one command reads a bounded
//! part of the log.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::commands::AuditPage;
use super::operator::HostOperator;
use super::views::{AuditChainView, AuditLineView, AuditPageView};
use super::{Command, ControlError};
use bulkhead_audit::{Broken, LogLine, LogPage, PageFilter, PagePosition, read_page};
use serde_json::{Map, Value};

/// Lines of the audit log in one answer.
const LINES_MAX: usize = 1_000;
/// Parts of the log that are read for one answer, when most of it says that operators looked.
const PARTS_MAX: usize = 8;

impl HostOperator {
    /// A page of the log.
    pub(super) async fn audit_page(&self, request: AuditPage) -> Result<AuditPageView, ControlError> {
        let AuditPage { events, tenant, after, count_max, lines_only, changes_only } = request;
        let Some(folder) = self.audit.folder().map(ToOwned::to_owned) else {
            return Err(ControlError::Invalid(
                "there is no audit log: `audit.enabled = true` makes a host keep one".to_owned(),
            ));
        };
        let no_place = || ControlError::Invalid(Broken::NoPlace.to_string());
        let before = after.map(|text| PagePosition::parse(&text).ok_or_else(no_place)).transpose()?;
        let tenant = match tenant {
            None => None,
            Some(name) => Some(self.tenant_named(&name).await?.to_string()),
        };
        let filter = PageFilter { events, tenant, lines_only };
        let count_max = count_max.clamp(1, LINES_MAX);
        let reading = tokio::task::spawn_blocking(move || match changes_only {
            true => read_changes(&folder, &filter, before, count_max),
            false => read_page(&folder, &filter, before, count_max),
        });
        let reading = reading.await;
        let LogPage { lines, next, chain } =
            reading.map_err(|error| ControlError::Failed(error.to_string()))?.map_err(|broken| match broken {
                Broken::NoPlace => no_place(),
                other => ControlError::Failed(other.to_string()),
            })?;
        let names = self.names_in(&lines).await?;
        let line = |LogLine { sequence, at_ms, event, facts, .. }| AuditLineView {
            seq: sequence,
            at_ms,
            event,
            facts: facts.into_iter().collect(),
        };
        Ok(AuditPageView {
            lines: lines.into_iter().map(line).collect(),
            names,
            next: next.map(|next| next.to_string()),
            chain: AuditChainView {
                sound: chain.problem.is_none(),
                problem: chain.problem,
                first: chain.first,
                last: chain.last,
                whole: chain.whole,
                anchor: chain.hash.map(|hash| format!("{}:{hash}", chain.last)),
            },
        })
    }

    async fn names_in(&self, lines: &[LogLine]) -> Result<BTreeMap<String, String>, ControlError> {
        let facts = lines.iter().flat_map(|line| ["tenant", "requestor"].map(|fact| line.facts.get(fact)));
        let ids: HashSet<_> = facts.flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        if ids.is_empty() { Ok(BTreeMap::new()) } else { Ok(self.names(&ids).await?.names.into_iter().collect()) }
    }
}

/// As `read_page`, without what says that an operator looked. The chain is said of the part with the newest lines.
fn read_changes(
    folder: &Path,
    filter: &PageFilter,
    before: Option<PagePosition>,
    count_max: usize,
) -> Result<LogPage, Broken> {
    let mut page = read_page(folder, filter, before, count_max)?;
    page.lines.retain(|line| is_change(&line.event, &line.facts));
    for _ in 1..PARTS_MAX {
        let left = count_max.saturating_sub(page.lines.len());
        let Some(next) = page.next.filter(|_| left > 0) else { break };
        let LogPage { mut lines, next, .. } = read_page(folder, filter, Some(next), left)?;
        lines.retain(|line| is_change(&line.event, &line.facts));
        page.lines.extend(lines);
        page.next = next;
    }
    Ok(page)
}

/// Whether a line says of more than an operator who looked.
fn is_change(event: &str, facts: &Map<String, Value>) -> bool {
    let text = |fact: &str| facts.get(fact).and_then(Value::as_str);
    match event {
        "dashboard.live" | "task.read" => false,
        "operator.command" if text("outcome") == Some("succeeded") => {
            let command = text("name").and_then(|name| serde_json::from_str::<Command>(name).ok());
            command.is_none_or(|command| !command.only_looks())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_of_operators_are_no_changes_and_refusals_are_kept() {
        for (event, name, outcome, expected) in [
            ("operator.command", r#"{"command":"tasks_show","id":"x"}"#, "succeeded", false),
            ("operator.command", r#"{"command":"tasks_show","id":"x"}"#, "failed", true),
            ("operator.command", r#"{"command":"tasks_cancel","id":"x"}"#, "succeeded", true),
            ("operator.command", r#"{"command":"reload","check":true}"#, "succeeded", false),
            ("operator.command", r#"{"command":"reload","check":false}"#, "succeeded", true),
            ("operator.command", r#"{"command":"of_another_version"}"#, "succeeded", true),
            ("dashboard.live", "/tasks", "succeeded", false),
            ("task.created", "", "", true),
        ] {
            let facts = [("name", name), ("outcome", outcome)].map(|(fact, text)| (fact.to_owned(), text.into()));
            assert_eq!(is_change(event, &facts.into_iter().collect()), expected, "{event} {name} {outcome}");
        }
    }
}
