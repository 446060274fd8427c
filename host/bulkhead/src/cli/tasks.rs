//! `bulkhead tasks`: everybody's tasks.
//!
//! Must not show what belongs to a requestor alone. Invariant: one task that is named is answered as itself, several as
//! a list of what was done and what was refused.

use std::process::ExitCode;

use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_config::amounts;
use bulkhead_console::table::{Layout, cell, fields_at, now};
use bulkhead_control::commands::{
    TaskFilter, TasksCancel, TasksFail, TasksHold, TasksJournal, TasksList, TasksPage, TasksPause, TasksPurge,
    TasksRelease, TasksReplay, TasksResume, TasksShow,
};
use bulkhead_control::views::{
    JournalEntryView, JournalView, ReplayView, TaskDetailsView, TaskListView, TaskPageView, TaskView,
    TimelineEntryView, TimelineView, TransitionView,
};
use bulkhead_control::{ControlError, Request};
use bulkhead_domain::timestamp::iso8601;
use bulkhead_workbench::replay::EXIT_DIFFERENT;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::operate::{Absent, OperateArguments, execute, show, show_answer, show_fields};
use super::values::moment_ms;

/// Tasks that are asked for at once.
const PAGE: usize = 500;

/// Works with a running host and without, on this machine or, with --url, from afar.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List tasks; of one tenant or requestor, the newest of each requestor first, else in the order of the store
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        max: usize,
        /// Say where the next page begins, for --after
        #[arg(long)]
        page: bool,
        /// Go on where a page ended, as it said
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Show one task; arguments, answers and results stay with their requestor
    Show {
        /// Its id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Cancel tasks
    Cancel(TasksArguments),
    /// Stop tasks for a while; they keep their memory and use no CPU
    Pause {
        /// What requestors read as the status, in clients that know of pauses [default: paused by the operator]
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        #[command(flatten)]
        tasks: TasksArguments,
    },
    /// Let paused tasks go on, no matter who paused them; not those that are held
    Resume(TasksArguments),
    /// Stop tasks until they are released, also paused ones; their requestors read that they are held
    Hold {
        /// Why, for their requestors
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        #[command(flatten)]
        tasks: TasksArguments,
    },
    /// Let tasks go on that the host or an operator holds
    #[command(
        after_long_help = "The host holds a task by itself in three cases, and says which in its message: it was brought back three \
        times after its host had ended and never came further, it was begun by another version of the host and its call does \
        something else now, or the host was started with --hold-tasks. A release lets it go on; `bulkhead tasks fail` ends the task.\n\n\
        Examples:\n  \
        bulkhead tasks release 3f2a…\n  \
        bulkhead tasks release --status paused"
    )]
    Release(TasksArguments),
    /// End tasks as failed, whatever they are doing
    Fail {
        /// What requestors read as the reason [default: ended by the operator]
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        #[command(flatten)]
        tasks: TasksArguments,
    },
    /// Show the journal of a task, with which it goes on after its host ended; what it says stays with its requestor
    #[command(
        after_long_help = "The journal of a task goes with its end. Steps are calls of imports, counted from the begin of the call; \
        up to the mark a task that is brought back sees what it saw before, and does nothing outside.\n\n\
        Examples:\n  \
        bulkhead tasks journal 3f2a…\n  \
        bulkhead tasks journal 3f2a… --entries --from 100 --max 50"
    )]
    Journal {
        /// The task's id
        #[arg(value_name = "ID")]
        id: String,
        /// List its entries: what each is, at which step, of which import where that is known, and how long it is
        #[arg(long)]
        entries: bool,
        /// At most so many of them
        #[arg(long, value_name = "COUNT", default_value_t = 1_000, requires = "entries")]
        max: usize,
        /// From this entry on
        #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "entries")]
        from: u32,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Replay the journal of a task, and say whether its call does again what it did
    #[command(
        after_long_help = "The tool runs again in a sandbox of its own, in the running host, up to the mark of its journal. It is shown what \
        the call saw, and reaches no clock, no network, no store and no client. The task and a run of it notice nothing. The replay has the \
        limits of a call that is brought back, and takes the turns of the task's tenant; one runs at a time.\n\n\
        So a held task can be looked at before it is released, and a waiting one after a change of its plugin's grants or in a host of \
        another version.\n\n\
        Exit codes:\n  \
        0  it agrees: the task can be brought back to where it is\n  \
        1  there is nothing to replay, or the replay was stopped by a limit: the reason is said\n  \
        5  it does something else: the entry, what was recorded and what was asked for are said, never what an entry holds\n\n\
        Example:\n  \
        bulkhead tasks replay 3f2a… --check"
    )]
    Replay {
        /// The task's id
        #[arg(value_name = "ID")]
        id: String,
        /// Only compare: nothing is done outside. There is no other replay
        #[arg(long, required = true)]
        check: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Remove tasks with everything that belongs to them, whatever they are doing
    Purge(TasksArguments),
}

/// Which tasks: all of this must apply.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FilterArguments {
    /// Only those of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only those of the requestors of this name
    #[arg(long, value_name = "NAME")]
    requestor: Option<String>,
    /// Only those of this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// Only those that are queued, running, input_required, paused, succeeded, tool_error, failed or cancelled
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those of this tool, by its name in the catalog
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only those that were created then or later: how long ago (2h), or 2026-11-28, 2026-11-28T10:00 or 10:00, in UTC
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Only those that were created before that
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
}

fn moment(text: &str) -> Result<u64, String> {
    moment_ms(text, now())
}

impl FilterArguments {
    fn filter(self) -> TaskFilter {
        let Self { tenant, requestor, plugin, status, tool, since, until } = self;
        TaskFilter { tenant, requestor, plugin, status, tool, since, until }
    }
}

/// Tasks by their ids, or all that a filter means.
#[derive(Args, Clone, Debug)]
pub(crate) struct TasksArguments {
    /// Their ids
    #[arg(value_name = "ID", required_unless_present_any = ["tenant", "requestor", "plugin", "status", "tool", "since", "until", "all", "batch"])]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Everybody's, if there is no filter
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Answer a single ID as several are answered: with what was done and what was refused
    #[arg(long)]
    batch: bool,
    #[command(flatten)]
    operate: OperateArguments,
}

pub(crate) async fn run(command: TasksCommand) -> anyhow::Result<ExitCode> {
    match command {
        TasksCommand::List { filter, max, page, after, operate } => {
            let page = page || after.is_some();
            let filter = filter.filter();
            let TaskFilter { tenant, requestor, .. } = filter.clone();
            let owners = TaskFilter { tenant, requestor, ..TaskFilter::default() };
            // The newest first, which pages cannot be; hosts elsewhere know pages only.
            if !page && filter == owners && !operate.far.is_named() {
                let TaskFilter { tenant, requestor, .. } = filter;
                return show_answer(&operate, TasksList { requestor, tenant, count_max: max }, task_list).await;
            }
            let view = list(&operate, &filter, after, max).await?;
            if page {
                return show(&operate, &view, |layout| task_page(&view, layout));
            }
            let view = TaskListView { tasks: view.tasks, more: view.more };
            show(&operate, &view, |layout| task_list(&view, layout))
        }
        TasksCommand::Show { id, operate } => show_answer(&operate, TasksShow { id }, details).await,
        TasksCommand::Cancel(tasks) => each(tasks, |id| TasksCancel { id }).await,
        TasksCommand::Pause { message, tasks } => each(tasks, |id| TasksPause { id, message: message.clone() }).await,
        TasksCommand::Resume(tasks) => each(tasks, |id| TasksResume { id }).await,
        TasksCommand::Hold { message, tasks } => each(tasks, |id| TasksHold { id, message: message.clone() }).await,
        TasksCommand::Release(tasks) => each(tasks, |id| TasksRelease { id }).await,
        TasksCommand::Fail { message, tasks } => each(tasks, |id| TasksFail { id, message: message.clone() }).await,
        TasksCommand::Journal { id, entries, max, from, operate } => {
            let request = TasksJournal { id, entries_max: entries.then_some(max), from };
            show_answer(&operate, request, journal).await
        }
        TasksCommand::Replay { id, check: _, operate } => {
            let view = execute(&operate, TasksReplay { id }, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| replay(&view))?;
            Ok(if view.agrees { code } else { ExitCode::from(EXIT_DIFFERENT) })
        }
        TasksCommand::Purge(tasks) => each(tasks, |id| TasksPurge { id }).await,
    }
}

/// As many pages as it takes.
async fn list(
    operate: &OperateArguments,
    filter: &TaskFilter,
    after: Option<String>,
    max: usize,
) -> anyhow::Result<TaskPageView> {
    let mut tasks = Vec::new();
    let mut after = after;
    loop {
        let count_max = (max - tasks.len()).clamp(1, PAGE);
        let request = TasksPage { filter: filter.clone(), after, count_max };
        let page = execute(operate, request, Absent::Refuse).await?;
        tasks.extend(page.tasks);
        after = page.next;
        if after.is_none() || tasks.len() >= max {
            return Ok(TaskPageView { tasks, more: after.is_some(), next: after });
        }
    }
}

/// Gives one order for each task. What cannot be done to one does not keep it from the others.
async fn each<R>(arguments: TasksArguments, order: impl Fn(String) -> R) -> anyhow::Result<ExitCode>
where
    R: Request<Answer: AsRef<TaskView>>,
{
    let TasksArguments { ids, filter, all, batch, operate } = arguments;
    let filter = filter.filter();
    let ids = match (<[String; 1]>::try_from(ids), filter == TaskFilter::default()) {
        (Ok([id]), true) if !batch => return show_fields(&operate, order(id)).await,
        (Ok([id]), true) => vec![id],
        (Err(ids), true) if !ids.is_empty() => ids,
        (Err(_), true) if !all => anyhow::bail!("name tasks by their ids or by a filter, or say --all"),
        (Err(ids), _) if ids.is_empty() => {
            let listed = list(&operate, &filter, None, usize::MAX).await?;
            listed.tasks.into_iter().map(|task| task.id).collect()
        }
        _ => anyhow::bail!("name tasks by their ids or by a filter, not by both"),
    };
    let mut done = Vec::new();
    let mut refused = Vec::new();
    for id in ids {
        match execute(&operate, order(id.clone()), Absent::Refuse).await {
            Ok(task) => done.push(task),
            Err(error) if error.is::<ControlError>() => {
                refused.push(RefusedTask { id, why: error.root_cause().to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) };
    let orders = Orders { tasks: done, refused };
    show(&operate, &orders, |layout| orders.text(layout))?;
    Ok(code)
}

/// What came of one order for each of several tasks.
#[derive(Serialize)]
pub(super) struct Orders<T> {
    pub(super) tasks: Vec<T>,
    pub(super) refused: Vec<RefusedTask>,
}

/// A task of which an order was not carried out.
#[derive(Serialize)]
pub(super) struct RefusedTask {
    pub(super) id: String,
    pub(super) why: String,
}

impl<T: AsRef<TaskView>> Orders<T> {
    pub(super) fn text(&self, layout: &Layout) -> String {
        let tasks: Vec<_> = self.tasks.iter().map(|task| task.as_ref().clone()).collect();
        let refused = self.refused.iter().map(|RefusedTask { id, why }| format!("\n{}: {}", cell(&**id), cell(&**why)));
        task_table(&tasks, layout) + &refused.collect::<String>()
    }
}

/// One task, and below it what happened to it.
pub(super) fn details(view: &TaskDetailsView, layout: &Layout) -> String {
    let task = TaskDetailsView { timeline: None, durable: None, held: false, dormant_since: None, ..view.clone() };
    let mut members = serde_json::to_value(&task).unwrap_or_default();
    if let Some(members) = members.as_object_mut() {
        let held = view.held.then(|| HELD.replace("ID", &view.task.id));
        let durable = view.durable.as_ref().map(|durable| durable.to_string());
        let dormant = view.dormant_since.map(|at| format!("since {}", iso8601(at)));
        let notes = [("held", held), ("durable", durable), ("dormant", dormant)].into_iter();
        members.extend(notes.filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
    }
    let timeline = view.timeline.as_ref().map(|timeline| format!("\n\n{}", timeline_table(timeline, layout)));
    fields_at(&members, layout.now) + &timeline.unwrap_or_default()
}

/// What can be done about a task that is held.
const HELD: &str = "yes: `bulkhead tasks release ID` lets it try again, `bulkhead tasks fail ID` ends it";

/// A journal's head, and below it its entries.
pub(super) fn journal(view: &JournalView, layout: &Layout) -> String {
    let attempt = view.attempt.map(|attempt| format!("\nattempt  {attempt}")).unwrap_or_default();
    let head = format!("id       {}\ndurable  {}{attempt}", cell(&*view.id), cell(&*view.durable.to_string()));
    let row = |entry: &JournalEntryView| {
        let JournalEntryView { number, step, kind, import, bytes } = entry;
        vec![number.to_string(), step.to_string(), cell(&**kind), amounts::bytes(*bytes), cell(import.as_deref())]
    };
    let Some(listed) = &view.entries_listed else { return head };
    let rows: Vec<_> = listed.iter().map(row).collect();
    let next = listed.last().filter(|_| view.more).map(|last| u64::from(last.number) + 1);
    let more = next.map(|next| format!("\n(there are more: --from {next})")).unwrap_or_default();
    format!("{head}\n\n{}{more}", layout.table(&["ENTRY", "STEP", "KIND", "SIZE", "IMPORT"], &rows))
}

/// What came of a replay.
fn replay(view: &ReplayView) -> String {
    let ReplayView { id, agrees: _, entries, bytes, mark, divergence } = view;
    let verdict = match divergence {
        None => "yes".to_owned(),
        Some(divergence) => format!("no, {}", cell(&*divergence.to_string())),
    };
    format!(
        "id       {}\njournal  {entries} entries, {}, mark at step {mark}\nagrees   {verdict}",
        cell(&**id),
        amounts::bytes(*bytes)
    )
}

fn timeline_table(timeline: &TimelineView, layout: &Layout) -> String {
    let row = |entry: &TimelineEntryView| vec![iso8601(entry.at), transition(&entry.transition)];
    let mut rows: Vec<_> = timeline.entries.iter().map(row).collect();
    if let Some(left_out) = timeline.left_out {
        let gap = vec!["-".to_owned(), format!("({} more, which were not kept)", left_out.count)];
        rows.insert(left_out.after.min(rows.len()), gap);
    }
    layout.table(&["TIME", "TRANSITION"], &rows)
}

fn transition(transition: &TransitionView) -> String {
    match transition {
        TransitionView::Started { attempt } => format!("started, run {attempt}"),
        TransitionView::InputRequested { requests } => format!("input requested, requests: {requests}"),
        TransitionView::Answered { open } => format!("answered, still open: {open}"),
        TransitionView::Paused => "paused".to_owned(),
        TransitionView::Resumed => "resumed".to_owned(),
        TransitionView::Interrupted => "interrupted by the end of its host".to_owned(),
        TransitionView::Cancelled { from } => format!("cancelled, was {}", from.name()),
        TransitionView::Succeeded => "succeeded".to_owned(),
        TransitionView::ToolError => "tool_error".to_owned(),
        TransitionView::Failed => "failed".to_owned(),
        TransitionView::Dormant => "left memory until it goes on".to_owned(),
        TransitionView::Woken { attempt, cause } => format!("went on: {cause} (attempt {attempt})"),
        TransitionView::Continued { attempt } => {
            format!("the host ended; the task went on (attempt {attempt})")
        }
    }
}

pub(super) fn task_list(view: &TaskListView, layout: &Layout) -> String {
    let more = if view.more { "\n(there are more: use --max, or --page and --after)" } else { "" };
    task_table(&view.tasks, layout) + more
}

pub(super) fn task_page(view: &TaskPageView, layout: &Layout) -> String {
    let next = view.next.iter().map(|next| format!("\n(there are more: --after {next})"));
    task_table(&view.tasks, layout) + &next.collect::<String>()
}

fn task_table(tasks: &[TaskView], layout: &Layout) -> String {
    let row = |task: &TaskView| {
        vec![
            cell(&*task.id),
            task.status.name().to_owned(),
            cell(&*task.tool),
            cell(task.requestor.as_deref()),
            cell(task.tenant.as_deref()),
            layout.when(task.created_at),
            cell(task.status_message.as_deref()),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    layout.table(&["ID", "STATUS", "TOOL", "REQUESTOR", "TENANT", "CREATED", "MESSAGE"], &rows)
}
