//! The audit log, read for operators.
//!
//! Owns the names in place of ids. Must not show what the log does not have. Invariant: one command reads a bounded part of the log.

use std::collections::{BTreeMap, HashSet};

use super::ControlError;
use super::commands::AuditPage;
use super::operator::HostOperator;
use super::views::{AuditChainView, AuditLineView, AuditPageView};
use bulkhead_audit::{Broken, LogLine, LogPage, PageFilter, PagePosition, read_page};

/// Lines of the audit log in one answer.
const LINES_MAX: usize = 1_000;

impl HostOperator {
    /// A page of the log.
    pub(super) async fn audit_page(&self, request: AuditPage) -> Result<AuditPageView, ControlError> {
        let AuditPage { events, tenant, after, count_max, lines_only } = request;
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
        let reading = tokio::task::spawn_blocking(move || read_page(&folder, &filter, before, count_max)).await;
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
