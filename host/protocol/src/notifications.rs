//! Notifications of the host: progress, logs, a task's status, a changed list.

use std::time::Duration;

use serde::Serialize;

use crate::jsonrpc::notification;
use crate::wire::{MetaView, Number, OnlyRelated, Raw, RelatedTask, TaskView, level_name};
use bulkhead_calls::ListKind;
use bulkhead_domain::Json;
use bulkhead_domain::call::LogLevel;
use bulkhead_domain::task::Task;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    progress_token: Raw<'a>,
    progress: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<MetaView<'a>>,
}

/// The progress of one request, under the token that it came with.
#[derive(Debug)]
pub(crate) struct ProgressReports {
    token: Option<Json>,
    related: Option<RelatedTask>,
    last: Option<f64>,
}

impl ProgressReports {
    /// Without a token nothing is ever reported.
    pub(crate) fn new(token: Option<Json>, related: Option<RelatedTask>) -> Self {
        Self { token, related, last: None }
    }

    /// The next report; `None` when the client did not ask for progress, or when it does not advance.
    pub(crate) fn report(&mut self, progress: f64, total: Option<f64>, message: Option<&str>) -> Option<String> {
        let token = self.token.as_ref()?;
        if !progress.is_finite() || self.last.is_some_and(|last| progress <= last) {
            return None;
        }
        self.last = Some(progress);
        let params = Progress {
            progress_token: Raw(token),
            progress: Number(progress),
            total: total.filter(|total| total.is_finite()).map(Number),
            message,
            meta: related(self.related.as_ref()),
        };
        notification("notifications/progress", Some(&params))
    }
}

#[derive(Serialize)]
struct Log<'a> {
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logger: Option<&'a str>,
    data: Raw<'a>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<MetaView<'a>>,
}

/// A log record.
pub(crate) fn log(level: LogLevel, logger: Option<&str>, data: &Json, task: Option<&RelatedTask>) -> Option<String> {
    let params = Log { level: level_name(level), logger, data: Raw(data), meta: related(task) };
    notification("notifications/message", Some(&params))
}

/// A task of SEP-1686 was created, and can be asked for.
pub(crate) fn created(task: &Task) -> Option<String> {
    notification("notifications/tasks/created", Some(&OnlyRelated::from(task)))
}

/// A task's whole state as the core shows it; without the metadata that would name it once more.
pub(crate) fn status(task: &Task) -> Option<String> {
    notification("notifications/tasks/status", Some(&TaskView::from(task)))
}

/// A plugin that is replaced changes its lists several times in a row: who listens is told once, this long after the
/// first time.
pub(crate) const LIST_CHANGED_AFTER: Duration = Duration::from_millis(100);

/// A list is different now.
pub(crate) fn list_changed(kind: ListKind) -> Option<String> {
    notification::<()>(list_changed_method(kind), None)
}

/// The same, without what an era puts around it.
pub(crate) fn list_changed_method(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "notifications/tools/list_changed",
        ListKind::Resources => "notifications/resources/list_changed",
        ListKind::Prompts => "notifications/prompts/list_changed",
    }
}

/// A resource holds something else now.
pub(crate) fn resource_updated(uri: &str) -> Option<String> {
    #[derive(Serialize)]
    struct Updated<'a> {
        uri: &'a str,
    }
    notification("notifications/resources/updated", Some(&Updated { uri }))
}

fn related(task: Option<&RelatedTask>) -> Option<MetaView<'_>> {
    task.map(|_| MetaView { meta: &[], related: task })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::task::TaskId;
    use serde_json::{Value, json};

    #[test]
    fn progress_notification_only_grows_and_keeps_its_token() {
        let mut reports = ProgressReports::new(Some(Json::new("\"t\"")), Some(RelatedTask::core(TaskId([0xcd; 16]))));
        let first: Value = serde_json::from_str(&reports.report(1.0, Some(4.0), Some("one")).unwrap()).unwrap();
        let expected = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
            "progressToken": "t", "progress": 1, "total": 4, "message": "one",
            "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "cd".repeat(16)}}}});
        assert_eq!(first, expected);
        assert!(reports.report(1.0, None, None).is_none());
        assert!(reports.report(f64::NAN, None, None).is_none());
        assert!(reports.report(1.5, None, None).is_some());
        assert!(ProgressReports::new(None, None).report(1.0, None, None).is_none());
    }

    #[test]
    fn log_notification_with_invalid_json_is_dropped() {
        assert!(log(LogLevel::Info, None, &Json::new("{"), None).is_none());
        let line = log(LogLevel::Warning, Some("l"), &Json::new("{\"a\":\n1}"), None).unwrap();
        let expected = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"l","data":{"a": 1}}}"#;
        assert_eq!(line, expected);
    }
}
