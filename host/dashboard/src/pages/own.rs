//! A requestor's own tasks.

use bulkhead_control::views::{TaskStatus, TimelineView};
use bulkhead_domain::call::InputRequestKind;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Active, Input, Outcome, Phase, Task, TaskId, TaskOutput};
use bulkhead_domain::timeline::Transition;
use bulkhead_domain::tool::{Content, ContentKind, ResourceBody};
use maud::{Markup, html};

use super::lists::{Filter, ListAddress, counted, suggested};
use super::media::media;
use super::timeline::Lifetime;
use super::{Frame, button, copied, live, more, notice, status, status_choice, token};
use crate::columns::OWN_TASKS;
use crate::fields;
use crate::request::Form;
use crate::sessions::Session;
use crate::text;

/// A page of tasks.
pub(crate) struct OwnTasks<'a> {
    pub(crate) tasks: &'a [Task],
    pub(crate) status: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) next: Option<String>,
}

pub(crate) fn own_tasks(frame: &Frame<'_>, page: &OwnTasks<'_>) -> Markup {
    let is_filtered = page.status.is_some() || page.tool.is_some();
    let asks = |task: &&Task| TaskStatus::from(&task.phase) == TaskStatus::InputRequired;
    let open = page.tasks.iter().filter(asks).count();
    let first = page.tasks.iter().find(asks);
    let filters = [
        Filter { name: "status", label: "Status", value: page.status },
        Filter { name: "tool", label: "Tool", value: page.tool },
    ];
    let at = ListAddress { path: "/tasks", filters: &filters, sort: None };
    let [_, of_tool] = &filters;
    frame.show(
        "My tasks",
        html! {
            (at.chips(|_, value| html! { (text::line(value)) }))
            form.filter method="get" action="/tasks" {
                (status_choice(page.status))
                (suggested(of_tool, page.tasks.iter().map(|task| text::line(task.work.label()))))
                button type="submit" { "Filter" }
                a href="/tasks" { "Reload all" }
            }
            (live("tasks", html! {
            @if let Some(first) = first {
                p.notice.ask role="status" {
                    a href={ "/tasks/" (first.id) } {
                        @if open == 1 { "1 task waits for your answer: " } @else { (open) " tasks wait for your answer. The first: " }
                        (text::line(first.work.label()))
                    }
                }
            }
            @if page.tasks.is_empty() && page.next.is_none() {
                p {
                    @if is_filtered { "No task fits the filter." }
                    @else { "You have no tasks. Call one of your " a href="/tools" { "tools" } " here, or in your MCP client." }
                }
            } @else {
                (counted(page.tasks.len(), page.next.is_some(), "task", "tasks"))
                (OWN_TASKS.show(None, html! {
                    @for task in page.tasks {
                        tr {
                            td { a href={ "/tasks/" (task.id) } { (text::line(task.work.label())) } " " code { (format!("{:.8}", task.id.to_string())) } }
                            td { (status((&task.phase).into())) }
                            td { (text::line(task.status_message.as_deref().unwrap_or_default())) }
                            td { (frame.when(task.updated_at)) }
                        }
                    }
                }))
            }
            (more(page.next.as_deref()))
            }))
        },
    )
}

/// One task, with everything that is its requestor's.
pub(crate) struct OwnTask<'a> {
    pub(crate) task: &'a Task,
    pub(crate) arguments: Option<&'a str>,
    pub(crate) output: Option<&'a TaskOutput>,
    pub(crate) rights: &'a Rights,
    /// Why an answer was not taken, with the key of its question and what was filled in.
    pub(crate) refused: Option<(&'a str, &'a Form, &'a str)>,
}

pub(crate) fn own_task(frame: &Frame<'_>, session: &Session, page: &OwnTask<'_>) -> Markup {
    let task = page.task;
    frame.show(
        &text::line(task.work.label()),
        html! {
            (live("task", html! { dl {
                dt { "Status" } dd { (status((&task.phase).into())) }
                @if let Some(message) = &task.status_message { dt { "Message" } dd { (text::line(message)) } }
                dt { "Task" } dd { (copied(&task.id.to_string())) }
                dt { "Took" } dd { (lifetime(task, &(&task.timeline).into()).took(frame.now)) }
                dt { "Tool" } dd { a href={ "/tools/" (super::operators::path_segment(task.work.label())) } { (text::line(task.work.label())) } }
                dt { "Plugin" } dd { (text::line(&task.plugin.name)) }
                dt { "Created" } dd { (frame.when(task.created_at)) }
                dt { "Changed" } dd { (frame.when(task.updated_at)) }
                @if let Some(at) = task.expires_at() { dt { "Expires" } dd { (frame.when(at)) } }
            } }))
            (live("actions", actions(session, task, page.rights)))
            (live("inputs", html! { @for input in task.outstanding() { (question(session, page, input)) } }))
            (live("steering", steering(session, task, page.rights)))
            h2 { "Timeline" }
            (live("timeline", timeline(frame, task)))
            h2 { "Arguments" }
            p.note { "Nobody else sees them, nor the result." }
            @match page.arguments {
                Some(arguments) => pre tabindex="0" { (text::json(arguments)) },
                None => p { "They cannot be read." },
            }
            h2 { "Result" }
            (live("result", result(task, page.output)))
        },
    )
}

/// What can be done with the task as it stands.
fn actions(session: &Session, task: &Task, rights: &Rights) -> Markup {
    let action =
        |what: &str, label: &str, class: &str| button(session, &format!("/tasks/{}/{what}", task.id), label, class);
    let steers = rights.has(Need::Steer);
    html! {
        div.actions {
            @match &task.phase {
                Phase::Active(_) => {
                    @if steers { (action("pause", "Pause", "plain")) }
                    (action("cancel", "Cancel the task", "plain"))
                }
                Phase::Paused { .. } => {
                    @if steers && !task.is_held() { (action("resume", "Resume", "plain")) }
                    (action("cancel", "Cancel the task", "plain"))
                }
                Phase::Ended(_) => details { summary { "Delete…" }
                    p { "The task is removed with its arguments and its result." }
                    (action("delete", "Delete the task", "bad"))
                },
            }
            a href={ "/tasks/" (task.id) } { "Reload" }
        }
    }
}

/// The form for a message, as long as there is a run to read it.
fn steering(session: &Session, task: &Task, rights: &Rights) -> Markup {
    let action = format!("/tasks/{}/steer", task.id);
    let is_over = matches!(task.phase, Phase::Ended(_));
    html! {
        @if !is_over && rights.has(Need::Steer) {
            h2 { "Message to the run" }
            form method="post" action=(action) {
                (token(session, &action))
                label { "Message" textarea name="message" rows="2" required {} }
                button type="submit" { "Send" }
            }
            p.note {
                (task.steering_delivered) " read by the plugin, " (task.steering.len()) " waiting. A plugin reads them when it looks, if it does."
            }
        }
    }
}

/// A question that waits. What the plugin says is marked as the plugin's.
fn question(session: &Session, page: &OwnTask<'_>, input: &Input) -> Markup {
    let action = format!("/tasks/{}/answer", page.task.id);
    let refused = page.refused.filter(|(key, ..)| *key == input.issued_key);
    let (message, body) = match &input.request.kind {
        InputRequestKind::Form { message, requested_schema } => {
            (Some(message), fields::show(requested_schema.as_str(), refused.map(|(_, filled, _)| filled)))
        }
        InputRequestKind::Url { message, url, .. } => (Some(message), page_to_visit(url)),
        InputRequestKind::Sampling(_) | InputRequestKind::Roots => (None, html! {}),
    };
    let accepts = match &input.request.kind {
        InputRequestKind::Form { .. } => "Send the answer",
        _ => "I have done that",
    };
    html! {
        section.question aria-label="Question" {
            h2 { "The plugin " q { (text::line(&page.task.plugin.name)) } " asks" }
            @if let Some(message) = message {
                blockquote { (text::block(message)) }
                p.note { "The text above is the plugin's. Do not give it passwords or keys." }
                @if let Some((_, _, why)) = refused { p.notice.bad role="alert" { (text::line(why)) } }
                form method="post" action=(action) {
                    (token(session, &action))
                    input type="hidden" name="key" value=(input.issued_key);
                    (body)
                    button type="submit" name="do" value="accept" { (accepts) }
                    button.plain type="submit" name="do" value="decline" formnovalidate { "Decline" }
                    button.plain type="submit" name="do" value="cancel" formnovalidate { "Cancel the question" }
                }
            } @else {
                p { "It asks for something that only an MCP client can give, not a browser." }
            }
        }
    }
}

/// The address as a whole, and a link that says nothing about where it was clicked.
fn page_to_visit(url: &str) -> Markup {
    let is_page = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    html! {
        p { "It wants you to visit " code { (text::block(url)) } }
        @if is_page { p { a href=(url) target="_blank" rel="noopener noreferrer" { "Open that page" } } }
    }
}

fn timeline(frame: &Frame<'_>, task: &Task) -> Markup {
    let gap = task.timeline.gap_after();
    let view = TimelineView::from(&task.timeline);
    let lifetime = lifetime(task, &view);
    html! {
        (lifetime.drawn(frame.now))
        ol {
            li { (frame.when(task.created_at)) " created" }
            @for (index, entry) in task.timeline.entries().iter().enumerate() {
                @if gap == Some(index) { li { "… " (task.timeline.left_out()) " more, which are not kept" } }
                li { (frame.when(entry.at)) " " (happened(entry.transition)) (lifetime.lasted(index, frame.now)) }
            }
            @if task.timeline.is_empty() && task.updated_at > task.created_at {
                li { (frame.when(task.updated_at)) " " (status((&task.phase).into())) }
            }
        }
    }
}

fn lifetime<'a>(task: &Task, timeline: &'a TimelineView) -> Lifetime<'a> {
    Lifetime {
        created_at: task.created_at,
        updated_at: task.updated_at,
        status: (&task.phase).into(),
        timeline: Some(timeline),
    }
}

fn happened(transition: Transition) -> String {
    match transition {
        Transition::Started { attempt } => format!("started, run {attempt}"),
        Transition::InputRequested { requests: 1 } => "asked a question".to_owned(),
        Transition::InputRequested { requests } => format!("asked: {requests}"),
        Transition::Answered { open: 0 } => "a question was answered".to_owned(),
        Transition::Answered { open } => format!("a question was answered; {open} are open"),
        Transition::Paused => "paused".to_owned(),
        Transition::Resumed => "resumed".to_owned(),
        Transition::Interrupted => "the run was lost with its host".to_owned(),
        Transition::Cancelled { is_paused: true, .. } => "cancelled while it was paused".to_owned(),
        Transition::Cancelled { from: Active::Queued, .. } => "cancelled while it was queued".to_owned(),
        Transition::Cancelled { .. } => "cancelled".to_owned(),
        Transition::Succeeded => "succeeded".to_owned(),
        Transition::ToolError => "ended with an error of the tool".to_owned(),
        Transition::Failed => "failed".to_owned(),
        Transition::Dormant => "left memory until it goes on".to_owned(),
        Transition::Woken { attempt, .. } => format!("went on (attempt {attempt})"),
        Transition::Continued { attempt } => {
            format!("the host ended; the task went on (attempt {attempt})")
        }
    }
}

fn result(task: &Task, output: Option<&TaskOutput>) -> Markup {
    match (&task.phase, output) {
        (Phase::Ended(Outcome::Error(error)), _) => notice("bad", &text::line(&error.to_string())),
        (Phase::Ended(Outcome::Cancelled), _) => html! { p { "None: the task was cancelled." } },
        (Phase::Ended(Outcome::Output { .. }), Some(output)) => shown(task.id, output),
        _ => html! { p { "Not yet." } },
    }
}

fn shown(id: TaskId, output: &TaskOutput) -> Markup {
    match output {
        TaskOutput::Tool(output) => html! {
            @for (index, content) in output.content.iter().enumerate().take(BLOCKS_SHOWN_MAX) {
                (content_block(id, index, content))
            }
            @if output.content.len() > BLOCKS_SHOWN_MAX {
                p { (output.content.len() - BLOCKS_SHOWN_MAX) " more blocks: read them with an MCP client." }
            }
            @if let Some(structured) = &output.structured {
                h3 { "Structured" }
                pre tabindex="0" { (text::json(structured.as_str())) }
            }
        },
        TaskOutput::Answer(json) => html! { pre tabindex="0" { (text::json(json.as_str())) } },
        TaskOutput::Contents(_) | TaskOutput::Prompt(_) | TaskOutput::Completion(_) => html! {
            p { "It is not the result of a tool: read it with an MCP client." }
        },
    }
}

/// Blocks of a task's result that a page of the dashboard shows.
const BLOCKS_SHOWN_MAX: usize = 20;

/// A block as text. What is no text is named and never loaded.
fn content_block(id: TaskId, index: usize, content: &Content) -> Markup {
    match &content.kind {
        ContentKind::Text(text) => html! { pre tabindex="0" { (text::block(text)) } },
        ContentKind::Image { data, mime_type } => media(id, index, "An image", mime_type, data),
        ContentKind::Audio { data, mime_type } => media(id, index, "A sound", mime_type, data),
        ContentKind::ResourceLink(link) => html! { p { "A resource: " code { (text::line(&link.uri)) } } },
        ContentKind::Resource(resource) => html! {
            p { "The resource " code { (text::line(&resource.uri)) } }
            @match &resource.body {
                ResourceBody::Text(text) => pre tabindex="0" { (text::block(text)) },
                ResourceBody::Blob(data) => {
                    (media(id, index, "Bytes", resource.mime_type.as_deref().unwrap_or("no type"), data))
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

    use super::*;

    #[test]
    fn requestor_is_shown_no_button_that_releases_a_held_task() {
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
        let shown = |message: &str| {
            let phase = Phase::Paused { before: Active::Running };
            let status_message = Some(message.to_owned());
            let task = Task { phase, status_message, ..Task::sample(requestor, TaskId([3; 16])) };
            actions(&Session::of_operator(), &task, &Rights::default()).into_string()
        };
        assert!(shown("paused by request").contains("/resume"));
        let held = shown("it is held by the operator");
        assert!(!held.contains("/resume") && held.contains("/cancel"), "{held}");
    }
}
