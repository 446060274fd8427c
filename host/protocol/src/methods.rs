//! The methods that a client may call, of both eras, in one table.
//!
//! Owns their names, their eras, what each is about and the right that it needs. Must not carry out a request: each era
//! does. Invariant: every method has one row, and an era is never asked for a method that its rows do not have.

use super::skills;
use bulkhead_calls::Catalog;
use bulkhead_domain::rights::Need;
use bulkhead_domain::task::Era;

/// A method of either era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Initialize,
    Ping,
    SetLevel,
    Discover,
    ToolsList,
    ToolsCall,
    Listen,
    TasksGet,
    TasksResult,
    TasksList,
    TasksUpdate,
    TasksCancel,
    TasksDelete,
    TasksSteer,
    TasksPause,
    TasksResume,
    ResourcesList,
    ResourcesTemplatesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    PromptsList,
    PromptsGet,
    Complete,
    SkillsList,
    SkillsGet,
}

/// What a method is about, which decides who may call it and whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Handshake,
    Connection,
    Tools,
    Tasks,
    Steer,
    Pause,
    Resources,
    Prompts,
    Completion,
    Skills,
}

/// A row of the table.
struct MethodRow {
    name: &'static str,
    method: Method,
    eras: &'static [Era],
    subject: Subject,
    /// The eras in which a response, or what comes before it, may hold what a plugin made.
    long_answers: &'static [Era],
}

const NONE: &[Era] = &[];
const LEGACY: &[Era] = &[Era::Legacy];
const MODERN: &[Era] = &[Era::Modern];
const BOTH: &[Era] = &[Era::Legacy, Era::Modern];

const fn row(
    name: &'static str,
    method: Method,
    eras: &'static [Era],
    subject: Subject,
    long_answers: &'static [Era],
) -> MethodRow {
    MethodRow { name, method, eras, subject, long_answers }
}

static METHODS: [MethodRow; 26] = [
    row("initialize", Method::Initialize, LEGACY, Subject::Handshake, NONE),
    row("ping", Method::Ping, LEGACY, Subject::Connection, NONE),
    row("logging/setLevel", Method::SetLevel, LEGACY, Subject::Connection, NONE),
    row("server/discover", Method::Discover, MODERN, Subject::Connection, NONE),
    row("tools/list", Method::ToolsList, BOTH, Subject::Tools, NONE),
    row("tools/call", Method::ToolsCall, BOTH, Subject::Tools, BOTH),
    row("subscriptions/listen", Method::Listen, MODERN, Subject::Connection, MODERN),
    // The result of a task is in the answer of the modern era only: the other one has tasks/result.
    row("tasks/get", Method::TasksGet, BOTH, Subject::Tasks, MODERN),
    row("tasks/result", Method::TasksResult, LEGACY, Subject::Tasks, LEGACY),
    row("tasks/list", Method::TasksList, LEGACY, Subject::Tasks, NONE),
    row("tasks/update", Method::TasksUpdate, MODERN, Subject::Tasks, NONE),
    row("tasks/cancel", Method::TasksCancel, BOTH, Subject::Tasks, NONE),
    row("tasks/delete", Method::TasksDelete, LEGACY, Subject::Tasks, NONE),
    row("tasks/steer", Method::TasksSteer, BOTH, Subject::Steer, NONE),
    row("tasks/pause", Method::TasksPause, BOTH, Subject::Pause, NONE),
    row("tasks/resume", Method::TasksResume, BOTH, Subject::Pause, NONE),
    row("resources/list", Method::ResourcesList, BOTH, Subject::Resources, NONE),
    row("resources/templates/list", Method::ResourcesTemplatesList, BOTH, Subject::Resources, NONE),
    row("resources/read", Method::ResourcesRead, BOTH, Subject::Resources, BOTH),
    row("resources/subscribe", Method::ResourcesSubscribe, LEGACY, Subject::Resources, NONE),
    row("resources/unsubscribe", Method::ResourcesUnsubscribe, LEGACY, Subject::Resources, NONE),
    row("prompts/list", Method::PromptsList, BOTH, Subject::Prompts, NONE),
    row("prompts/get", Method::PromptsGet, BOTH, Subject::Prompts, BOTH),
    row("completion/complete", Method::Complete, BOTH, Subject::Completion, BOTH),
    row("skills/list", Method::SkillsList, BOTH, Subject::Skills, NONE),
    row("skills/get", Method::SkillsGet, BOTH, Subject::Skills, NONE),
];

/// The names of an era's methods.
pub fn method_names(era: Era) -> impl Iterator<Item = &'static str> {
    rows(era).map(|row| row.name)
}

/// The methods of an era, each with its name.
pub(crate) fn methods(era: Era) -> impl Iterator<Item = (&'static str, Method)> {
    rows(era).map(|row| (row.name, row.method))
}

fn rows(era: Era) -> impl Iterator<Item = &'static MethodRow> {
    METHODS.iter().filter(move |row| row.eras.contains(&era))
}

impl Method {
    /// The method of an era that has this name.
    pub(crate) fn named(name: &str, era: Era) -> Option<Self> {
        rows(era).find(|row| row.name == name).map(|row| row.method)
    }

    fn row(self) -> Option<&'static MethodRow> {
        METHODS.get(self as usize)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// What it is about.
    pub(crate) fn subject(self) -> Subject {
        self.row().map_or(Subject::Handshake, |row| row.subject)
    }

    /// The rights that it needs, whatever the params say. `tools/call` and `subscriptions/listen` check more
    /// themselves.
    pub(crate) fn needs(self) -> &'static [Need<'static>] {
        match self.subject() {
            Subject::Steer | Subject::Pause => &[Need::Steer],
            Subject::Tasks => &[Need::Tasks],
            Subject::Handshake
            | Subject::Connection
            | Subject::Tools
            | Subject::Resources
            | Subject::Prompts
            | Subject::Completion
            | Subject::Skills => &[],
        }
    }

    /// Whether a response in this era, or what comes before it, may hold what a plugin made.
    pub(crate) fn is_answered_at_length(self, era: Era) -> bool {
        self.row().is_some_and(|row| row.long_answers.contains(&era))
    }

    /// Whether a request is a task of SEP-1686 when its metadata asks for one; elsewhere the metadata is ignored, as
    /// SEP-1686 requires of servers that do not support tasks for a request. A handshake has no session yet that could
    /// read its task, and requests about tasks are answered out of their records. `tools/call` reads its metadata
    /// itself.
    pub(crate) fn is_augmentable(self) -> bool {
        !matches!(self.subject(), Subject::Handshake | Subject::Tasks | Subject::Steer | Subject::Pause)
    }

    /// Whether the host has something that the method is about.
    pub(crate) fn is_offered(self, catalog: &Catalog) -> bool {
        match self.subject() {
            Subject::Resources => catalog.has_resources(),
            Subject::Prompts => catalog.has_prompts(),
            Subject::Completion => catalog.has_completions(),
            Subject::Skills => skills::any_skill(catalog),
            Subject::Handshake
            | Subject::Connection
            | Subject::Tools
            | Subject::Tasks
            | Subject::Steer
            | Subject::Pause => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_one_row() {
        // Each variant's place in the enum is its row's place in the table.
        for (place, row) in METHODS.iter().enumerate() {
            assert_eq!(row.method as usize, place, "{}", row.name);
            assert!(!row.eras.is_empty(), "{}", row.name);
            assert!(row.long_answers.iter().all(|era| row.eras.contains(era)), "{}", row.name);
            assert_eq!(METHODS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
        }
        assert_eq!(Method::SkillsGet as usize, METHODS.len() - 1, "the last variant has the last row");
    }

    #[test]
    fn methods_of_the_other_era_are_unknown() {
        assert_eq!(Method::named("tasks/update", Era::Legacy), None);
        assert_eq!(Method::named("initialize", Era::Modern), None);
        assert_eq!(Method::named("tools/call", Era::Modern), Some(Method::ToolsCall));
        assert_eq!((method_names(Era::Legacy).count(), method_names(Era::Modern).count()), (23, 18));
    }
}
