//! What the command line shows of each answer, as text and as JSON: the snapshots in `answers.txt`.
//!
//! A snapshot is the name of a request, the JSON of an answer, which `--json` prints as it stands, and the text for
//! people.

use std::collections::BTreeSet;

use bulkhead_console::table::{Layout, cell, fields_at};
use bulkhead_control::Request;
use bulkhead_control::commands::*;
use bulkhead_control::views::PluginOutcome;

use super::limits::LimitOrder;
use super::{audit, dashboard, limits, plugin_changes, plugin_usage, plugins, running, secrets, tasks, tenant, tokens};

/// When the answers are looked at.
const NOW: u64 = 1_800_000_000_000;

/// An answer as `--json` prints it, and as text.
fn shown<R: Request>(json: &str, text: impl FnOnce(&R::Answer) -> String) -> (String, String) {
    let view: R::Answer = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    (serde_json::to_string(&view).unwrap(), text(&view))
}

fn members<R: Request>(json: &str) -> (String, String) {
    shown::<R>(json, |view| fields_at(view, NOW))
}

/// What is refused is text on stderr.
fn outcome<R, T>(json: &str, text: impl FnOnce(&T) -> String) -> (String, String)
where
    R: Request<Answer = PluginOutcome<T>>,
{
    shown::<R>(json, |outcome| match outcome {
        PluginOutcome::Refused(_) => String::new(),
        PluginOutcome::Result(result) => text(result),
    })
}

fn answer(request: &str, json: &str) -> (String, String) {
    let layout = &Layout::plain(NOW);
    match request {
        "TokenCreate" => shown::<TokenCreate>(json, |view| cell(view.token.as_str())),
        "TokenList" => shown::<TokenList>(json, |view| tokens::token_table(view, layout)),
        "TokenRevoke" => members::<TokenRevoke>(json),
        "SecretSet" => members::<SecretSet>(json),
        "SecretList" => shown::<SecretList>(json, |view| secrets::secret_table(view, layout)),
        "SecretRemove" => members::<SecretRemove>(json),
        "SecretRotate" => members::<SecretRotate>(json),
        "StoreCheck" => members::<StoreCheck>(json),
        "StoreExport" => members::<StoreExport>(json),
        "StoreRebuild" => members::<StoreRebuild>(json),
        "StoreBackup" => members::<StoreBackup>(json),
        "StoreRekey" => members::<StoreRekey>(json),
        "TenantList" => shown::<TenantList>(json, |view| tenant::tenant_table(view, layout)),
        "TenantUsage" => shown::<TenantUsage>(json, |view| tenant::usage_table(view, layout)),
        "TenantPurge" => members::<TenantPurge>(json),
        "TenantNames" => members::<TenantNames>(json),
        "TasksList" => shown::<TasksList>(json, |view| tasks::task_list(view, layout)),
        "TasksShow" => shown::<TasksShow>(json, |view| tasks::details(view, layout)),
        "TasksCancel" => members::<TasksCancel>(json),
        "TasksPause" => members::<TasksPause>(json),
        "TasksResume" => members::<TasksResume>(json),
        "TasksHold" => members::<TasksHold>(json),
        "TasksRelease" => members::<TasksRelease>(json),
        "TasksFail" => members::<TasksFail>(json),
        "TasksJournal" => shown::<TasksJournal>(json, |view| tasks::journal(view, layout)),
        "TasksPage" => shown::<TasksPage>(json, |view| tasks::task_page(view, layout)),
        "LimitsInUse" => shown::<LimitsInUse>(json, |view| limits::limits_table(view, LimitOrder::Owner, layout)),
        "DrainBegin" => shown::<DrainBegin>(json, running::left),
        "DrainEnd" => members::<DrainEnd>(json),
        "DrainShow" => members::<DrainShow>(json),
        "ActivityShow" => members::<ActivityShow>(json),
        "HistoryShow" => members::<HistoryShow>(json),
        "AuditPage" => shown::<AuditPage>(json, |view| audit::page(view, NOW)),
        "DashboardLogin" => shown::<DashboardLogin>(json, dashboard::link),
        "HostShow" => members::<HostShow>(json),
        "HealthShow" => members::<HealthShow>(json),
        "ConfigReload" => shown::<ConfigReload>(json, running::reloaded),
        "PluginList" => shown::<PluginList>(json, |view| plugins::list(view, layout)),
        "PluginVersions" => shown::<PluginVersions>(json, |view| plugins::versions(view, layout)),
        "PluginUsage" => shown::<PluginUsage>(json, |view| plugin_usage::usage_table(view, layout)),
        "PluginChanges" => shown::<PluginChanges>(json, |view| plugin_changes::changes(view, layout)),
        "PluginGrants" => shown::<PluginGrants>(json, |view| plugin_changes::grants(view, layout)),
        "PluginStage" => outcome::<PluginStage, _>(json, plugins::staged),
        "PluginAdd" => outcome::<PluginAdd, _>(json, plugins::switched),
        "PluginUpdate" => outcome::<PluginUpdate, _>(json, plugins::updated),
        "PluginActivate" => outcome::<PluginActivate, _>(json, plugins::switched),
        "PluginCanary" => outcome::<PluginCanary, _>(json, plugins::switched),
        "PluginPromote" => outcome::<PluginPromote, _>(json, plugins::switched),
        "PluginRollback" => outcome::<PluginRollback, _>(json, plugins::switched),
        "PluginRemove" => outcome::<PluginRemove, _>(json, plugins::removed),
        "PluginDurable" => shown::<PluginDurable>(json, plugins::durable),
        "PluginVerify" => shown::<PluginVerify>(json, plugins::verified),
        other => panic!("nothing shows the answer to {other}"),
    }
}

#[test]
fn answers_are_shown_as_in_their_snapshots() {
    let mut requests = BTreeSet::new();
    for snapshot in include_str!("answers.txt").split("## ").skip(1) {
        let (request, rest) = snapshot.split_once('\n').unwrap();
        let (json, text) = rest.split_once('\n').unwrap();
        let (shown_json, shown_text) = answer(request, json);
        assert_eq!(shown_json, json, "{request}");
        assert_eq!(shown_text.trim_end(), text.trim_end(), "{request}");
        requests.insert(request);
    }
    assert_eq!(requests.len(), 52, "one at least for each request that is answered");
}

#[test]
fn orders_for_several_tasks_show_what_was_done_and_what_was_refused() {
    let task = r#"{"id":"01","status":"running","tool":"work","requestor":"alice","tenant":"acme","created_at":1799999940000,"updated_at":1,"expires_at":null,"status_message":null,"purged":true}"#;
    let refused = vec![tasks::RefusedTask { id: "02".to_owned(), why: "it is over already".to_owned() }];
    let purged: Vec<<TasksPurge as Request>::Answer> = vec![serde_json::from_str(task).unwrap()];
    let orders = tasks::Orders { tasks: purged, refused };
    let expected = format!(r#"{{"tasks":[{task}],"refused":[{{"id":"02","why":"it is over already"}}]}}"#);
    assert_eq!(serde_json::to_string(&orders).unwrap(), expected);
    let table = "ID  STATUS   TOOL  REQUESTOR  TENANT  CREATED  MESSAGE\n\
        01  running  work  alice      acme    60s ago  -\n\
        02: it is over already";
    assert_eq!(orders.text(&Layout::plain(NOW)), table);
}
