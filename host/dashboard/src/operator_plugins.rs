//! What an operator sees of plugins, and what they order of them.
//!
//! Must not order anything that the operator API would not take from a browser. Invariants: an order names the version
//! that its page was about, and is refused if that stands elsewhere by now; definitions are accepted as they were
//! shown, or not at all.

use bulkhead_control::ControlError;
use bulkhead_control::commands::{
    ActivityShow, PluginActivate, PluginCanary, PluginChanges, PluginGrants, PluginList, PluginPromote, PluginRemove,
    PluginRollback, PluginStage, PluginTarget, PluginUpdate, PluginUsage, PluginVersions,
};
use bulkhead_control::views::{PluginOutcome, PluginRemoveView, PluginUpdateView, PluginVersionsView, StagedView};
use bulkhead_domain::hex;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_plugins::{
    CanaryThresholdOverrides, Digest, PluginState, PluginView, Stage, SwitchEffect, SwitchResult, VersionChanges,
};
use bulkhead_tasks::ActivityGroup;
use http::StatusCode;
use sha2::{Digest as _, Sha256};

use crate::operators::{OperatorClient, OperatorPages};
use crate::orders::{Busy, Order, Outcome, Work};
use crate::own_tasks::absent;
use crate::pages::lists::ListPosition;
use crate::pages::{
    self, ChangesPage, PluginPage, PluginTools, PluginsPage, USAGE_DAYS, digits, message, plugin_path, version_path,
};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::text;

/// Lines that are kept of what became of an order from the dashboard.
const SAID_MAX: usize = 20;
/// Tenants that a form of the dashboard names for a canary.
const TENANTS_MAX: usize = 50;
/// A requestor that is in no canary and has no terms of its own: what it is offered is what all are.
const NOBODY: Requestor = Requestor { tenant: TenantId([0; 16]), id: RequestorId([0; 16]) };
/// When to load a page again that was not ready.
const AGAIN_MS: u64 = 5_000;

impl OperatorPages<'_> {
    pub(crate) async fn plugins(&self, query: &Form) -> Result<Answer, ControlError> {
        let view = self.read(PluginList {}).await?;
        let page =
            PluginsPage { view: &view, orders: &self.orders.list(None), position: ListPosition::read(query, "name") };
        Ok(respond::page(StatusCode::OK, pages::plugins(&self.frame, self.session, &page)))
    }

    pub(crate) async fn plugin(&self, parts: &DashboardParts, name: &str) -> Result<Answer, ControlError> {
        let listed = self.read(PluginList {}).await?;
        let plugin = listed.plugins.into_iter().find(|plugin| plugin.name == name);
        let versions = match self.read(PluginVersions { name: name.to_owned() }).await {
            // It is pinned, or its component never came: there is something to say of it all the same.
            Err(ControlError::NotFound(_)) if plugin.is_some() => {
                PluginVersionsView { name: name.to_owned(), versions: Vec::new() }
            }
            versions => versions?,
        };
        let serves = |plugin: &PluginView| {
            matches!(plugin.state, PluginState::Active | PluginState::Pinned | PluginState::Quarantined)
        };
        let grants = match plugin.as_ref().is_some_and(serves) {
            // It may be gone by now.
            true => self.read(PluginGrants { name: name.to_owned(), version: None }).await.ok(),
            false => None,
        };
        let catalog = parts.tasks.catalog(&NOBODY);
        let offered = catalog.tools().iter().filter(|entry| entry.plugin.name == name);
        let offered: Vec<_> = offered.map(|entry| &entry.tool).collect();
        let tools = match offered.is_empty() {
            true => None,
            false => Some(PluginTools {
                offered,
                activity: self.read(ActivityShow { by: ActivityGroup::Tool }).await?,
                usage: self.read(PluginUsage { name: name.to_owned(), days: USAGE_DAYS }).await?,
            }),
        };
        let page = PluginPage {
            tools: tools.as_ref(),
            plugin: plugin.as_ref(),
            versions: &versions,
            grants: grants.as_ref(),
            orders: &self.orders.list(Some(name)),
        };
        Ok(respond::page(StatusCode::OK, pages::plugin(&self.frame, self.session, &page)))
    }

    /// A tool of a plugin, as those are told of it who are in no canary.
    pub(crate) fn plugin_tool(&self, parts: &DashboardParts, plugin: &str, name: &str) -> Answer {
        let catalog = parts.tasks.catalog(&NOBODY);
        match catalog.get(name).filter(|entry| entry.plugin.name == plugin) {
            Some(entry) => respond::page(StatusCode::OK, pages::plugin_tool(&self.frame, plugin, &entry.tool)),
            None => absent(&self.frame),
        }
    }

    /// A version, against the active one.
    pub(crate) async fn changes(&self, name: &str, version: &str, query: &Form) -> Result<Answer, ControlError> {
        let tool = query.filled("tool").map(str::to_owned);
        let client = self.client();
        let tool_name = tool.clone();
        let name = name.to_owned();
        let version = Some(version.to_owned());
        let reading = self.orders.read(async move {
            let versions = client.run(PluginVersions { name: name.clone() }).await?;
            let changes = client.run(PluginChanges { name, version, tool: tool_name }).await?;
            Ok::<_, ControlError>((changes, versions))
        });
        let Ok(read) = reading.await else { return Ok(self.not_ready()) };
        let (changes, versions) = read?;
        let page = ChangesPage {
            mark: &mark(&changes),
            changes: &changes,
            versions: &versions.versions,
            orders: &self.orders.list(Some(&changes.name)),
            tool: tool.as_deref(),
            after: query.filled("after"),
        };
        Ok(respond::page(StatusCode::OK, pages::changes(&self.frame, self.session, &page)))
    }

    fn not_ready(&self) -> Answer {
        let reason =
            "The version is being compiled, or too many are read at the same time. Load the page again in a while.";
        let page = message(&self.frame, "Not ready yet", reason);
        respond::retry_after(respond::page(StatusCode::SERVICE_UNAVAILABLE, page), AGAIN_MS)
    }

    /// Stages a component; which plugin it is of is not known before.
    pub(crate) async fn stage(&self, form: &Form) -> Result<Answer, ControlError> {
        let given = |name: &str| form.filled(name).map(str::to_owned);
        let source = given("source").unwrap_or_default();
        let what = format!("stage {source}");
        let request = PluginStage { source, sha256: given("sha256"), name: given("name") };
        let client = self.client();
        self.give(None, what, Box::pin(async move { settle(client.run(request).await, staged) })).await
    }

    /// Does something with a plugin.
    pub(crate) async fn act_on_plugin(&self, name: &str, action: &str, form: &Form) -> Result<Answer, ControlError> {
        let absent = || ControlError::NotFound("there is no such thing to do".to_owned());
        let (what, work) = work(self.client(), name.to_owned(), action, form)
            .ok_or_else(absent)?
            .map_err(|wrong| ControlError::Invalid(wrong.to_owned()))?;
        self.give(Some(name.to_owned()), what, work).await
    }

    /// Has it carried out, and leads to the page that shows what came of it or that it is under way.
    async fn give(&self, plugin: Option<String>, what: String, work: Work) -> Result<Answer, ControlError> {
        let home = plugin.as_deref().map_or_else(|| "/plugins".to_owned(), plugin_path);
        let what = text::line(&what);
        let who = self.client().who().to_owned();
        let order = Order { plugin, what, who, begun: self.frame.now, outcome: None };
        match self.orders.give(order, work).await {
            Ok(outcome) => {
                let address = outcome.and_then(|outcome| outcome.leads_to).unwrap_or(home);
                Ok(respond::see_other(&address))
            }
            Err(Busy) => {
                let reason =
                    "Another order is under way, for this plugin or for too many others. Wait until it is done.";
                let page = message(&self.frame, "That was not done", reason);
                Ok(respond::retry_after(respond::page(StatusCode::CONFLICT, page), AGAIN_MS))
            }
        }
    }
}

type PlannedOrder = Result<(String, Work), &'static str>;

/// What is to be done, and how it is called.
fn work(client: OperatorClient, name: String, action: &str, form: &Form) -> Option<PlannedOrder> {
    let version = form.filled("version").and_then(|text| Digest::try_from(text.to_owned()).ok());
    let of_version =
        |what: &str| version.map_or_else(|| what.to_owned(), |version| format!("{what} {}", digits(&version)));
    let missing = Err("the form names no version");
    let what = of_version(&action.replace('-', " "));
    let work: Work = match (action, version) {
        ("activate", Some(version)) => {
            let accepted = Accepted::of(form);
            let request = PluginActivate { targets: target(&name, version), accept: accepted.is_some() };
            Box::pin(async move {
                match client.has_read(&name, version, accepted).await {
                    Ok(()) => settle(client.run(request).await, |result| switched(result, version)),
                    Err(outcome) => outcome,
                }
            })
        }
        ("canary", Some(version)) => {
            let accepted = Accepted::of(form);
            let request = match canary(form, target(&name, version), accepted.is_some()) {
                Ok(request) => request,
                Err(wrong) => return Some(Err(wrong)),
            };
            Box::pin(async move {
                match client.has_read(&name, version, accepted).await {
                    Ok(()) => settle(client.run(request).await, |result| switched(result, version)),
                    Err(outcome) => outcome,
                }
            })
        }
        ("promote", Some(version)) => Box::pin(async move {
            match client.stands(&name, Some(version), None, Stage::Canary).await {
                Ok(()) => {
                    settle(client.run(PluginPromote { names: vec![name] }).await, |result| switched(result, version))
                }
                Err(outcome) => outcome,
            }
        }),
        ("take-back", Some(version)) => Box::pin(async move {
            match client.stands(&name, Some(version), None, Stage::Canary).await {
                Ok(()) => {
                    settle(client.run(PluginRollback { names: vec![name] }).await, |result| switched(result, version))
                }
                Err(outcome) => outcome,
            }
        }),
        // From the active version, or from none.
        ("rollback", version) => Box::pin(async move {
            match client.stands(&name, version, Some(Stage::Canary), Stage::Active).await {
                Ok(()) => settle(client.run(PluginRollback { names: vec![name] }).await, back),
                Err(outcome) => outcome,
            }
        }),
        ("remove", Some(version)) => Box::pin(async move {
            match client.stands(&name, Some(version), None, Stage::Active).await {
                Ok(()) => settle(client.run(PluginRemove { name, version: None }).await, removed),
                Err(outcome) => outcome,
            }
        }),
        ("remove-version", Some(version)) => {
            let request = PluginRemove { name: name.clone(), version: Some(version.to_string()) };
            Box::pin(async move {
                let outcome = settle(client.run(request).await, removed);
                // With its last version a plugin is gone.
                let is_left = client.run(PluginVersions { name }).await.is_ok();
                Outcome { leads_to: (!is_left).then(|| "/plugins".to_owned()), ..outcome }
            })
        }
        ("update", _) => Box::pin(async move {
            let request = PluginUpdate { name, activate: false, accept: false };
            settle(client.run(request).await, |update| match update {
                PluginUpdateView::Staged(view) => staged(view),
                PluginUpdateView::Switched(result) => back(result),
            })
        }),
        ("activate" | "canary" | "promote" | "take-back" | "remove" | "remove-version", None) => return Some(missing),
        _ => return None,
    };
    Some(Ok((what, work)))
}

fn target(name: &str, version: Digest) -> Vec<PluginTarget> {
    vec![PluginTarget { name: name.to_owned(), version: Some(version.to_string()) }]
}

/// What was shown when the operator said that they accept it.
struct Accepted(String);

impl Accepted {
    fn of(form: &Form) -> Option<Self> {
        form.get("accept").map(|_| Self(form.get("mark").unwrap_or_default().to_owned()))
    }
}

/// What was read of a version, as one text.
fn mark(changes: &VersionChanges) -> String {
    let VersionChanges { name, version, state: _, active, tools, imports_added, imports_removed, grants, held } =
        changes;
    let read = (name, version, active, tools, (imports_added, imports_removed), grants, held);
    hex(&<[u8; 32]>::from(Sha256::digest(serde_json::to_vec(&read).unwrap_or_default())))
}

impl OperatorClient {
    /// Whether a version changes what it changed when the operator read it; nothing has to be, where nothing is
    /// accepted.
    async fn has_read(&self, name: &str, version: Digest, accepted: Option<Accepted>) -> Result<(), Outcome> {
        let Some(Accepted(read)) = accepted else { return Ok(()) };
        let request = PluginChanges { name: name.to_owned(), version: Some(version.to_string()), tool: None };
        match self.run(request).await {
            Ok(changes) if mark(&changes) == read => Ok(()),
            Ok(_) => Err(Outcome {
                messages: vec!["what it changes is not what you have read any more: read it again".to_owned()],
                leads_to: Some(version_path(name, &version)),
                ..Outcome::default()
            }),
            Err(error) => Err(Outcome::refused(text::line(&error.to_string()))),
        }
    }

    /// Whether a version, or none, is in a stage, and no version in another one.
    async fn stands(
        &self,
        name: &str,
        version: Option<Digest>,
        not: Option<Stage>,
        stage: Stage,
    ) -> Result<(), Outcome> {
        let versions = match self.run(PluginVersions { name: name.to_owned() }).await {
            Ok(view) => view.versions,
            Err(error) => return Err(Outcome::refused(text::line(&error.to_string()))),
        };
        let in_stage = |stage: Stage| versions.iter().find(|row| row.state == stage).map(|row| row.version);
        if in_stage(stage) != version || not.is_some_and(|not| in_stage(not).is_some()) {
            return Err(Outcome::refused(
                "the versions stand otherwise than on the page that this came from: look again",
            ));
        }
        Ok(())
    }
}

/// Who is to get a canary, as it was filled in.
fn canary(form: &Form, targets: Vec<PluginTarget>, accept: bool) -> Result<PluginCanary, &'static str> {
    let share = match form.filled("percent") {
        None => None,
        Some(text) => Some(hundredths(text).ok_or("a share is a number of per cent from 0 to 100, such as 10 or 2.5")?),
    };
    let tenants = form.filled("tenants").into_iter().flat_map(|text| text.split([',', ' ']));
    let tenants: Vec<_> = tenants.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if tenants.len() > TENANTS_MAX {
        return Err("these are more tenants than a form takes");
    }
    let bounds = CanaryThresholdOverrides {
        fault_percent_max: number(form, "faults")?,
        latency_percent_max: None,
        window_ms: number::<u64>(form, "window")?.map(|minutes| minutes.saturating_mul(60_000)),
        calls_min: number(form, "calls")?,
    };
    Ok(PluginCanary { targets, share, tenants, bounds, accept })
}

fn number<T: std::str::FromStr>(form: &Form, name: &str) -> Result<Option<T>, &'static str> {
    let parse =
        |text: &str| text.parse().map_err(|_| "the bounds of a canary are whole numbers that are not too large");
    form.filled(name).map(parse).transpose()
}

/// Per cent with at most two digits behind the point, times a hundred.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 2 {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<2}").parse().ok()?;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(fraction).filter(|share| *share <= 10_000)
}

fn lines(messages: impl IntoIterator<Item = String>) -> Vec<String> {
    messages.into_iter().take(SAID_MAX).map(|line| text::line(&line)).collect()
}

/// What came of a command; what stands against it are the components themselves.
fn settle<T>(done: Result<PluginOutcome<T>, ControlError>, say: impl FnOnce(T) -> Outcome) -> Outcome {
    match done {
        Ok(PluginOutcome::Result(result)) => say(result),
        Ok(PluginOutcome::Refused(refused)) => {
            let problems = refused.refused.into_iter().flat_map(|one| one.problems);
            Outcome { messages: lines(problems), ..Outcome::default() }
        }
        Err(error) => Outcome::refused(text::line(&error.to_string())),
    }
}

fn staged(view: StagedView) -> Outcome {
    let version = digits(&view.version);
    let state = match view.state {
        Stage::Active => format!("nothing is new: {version} is active"),
        _ if view.held.is_empty() => format!("{version} is here, and can be switched to"),
        _ => format!("{version} is here, and changes what was accepted"),
    };
    let leads_to = (view.state != Stage::Active).then(|| version_path(&view.name, &view.version));
    Outcome { is_done: true, messages: lines([state]), plugin: Some(view.name), leads_to }
}

/// Where something is held back, its page is the one to go on with.
fn switched(result: SwitchResult, to: Digest) -> Outcome {
    let name = result.plugins.first().map(|plugin| plugin.name.clone()).unwrap_or_default();
    let leads_to = (!result.done).then(|| version_path(&name, &to));
    Outcome { leads_to, ..back(result) }
}

fn back(result: SwitchResult) -> Outcome {
    let SwitchResult { done, plugins, held } = result;
    if !done {
        let head = "nothing has changed: this needs your word".to_owned();
        return Outcome { messages: lines(std::iter::once(head).chain(held)), ..Outcome::default() };
    }
    let shown = |version: Option<Digest>| version.map_or_else(|| "no version".to_owned(), |version| digits(&version));
    let rows = plugins.iter().map(|plugin| {
        let to = shown(plugin.to);
        match plugin.turn {
            SwitchEffect::Switched | SwitchEffect::TakenBack => format!("everybody has {to} now"),
            SwitchEffect::Promoted => format!("everybody has {to} now, which was the canary"),
            SwitchEffect::CanaryBegun => format!("a part of the requestors has {to} now"),
            SwitchEffect::CanaryChanged => format!("another part of the requestors has {to} now"),
            SwitchEffect::CanaryEnded => format!("{} was taken back, and everybody has {to}", shown(plugin.from)),
        }
    });
    Outcome { is_done: true, messages: lines(rows), ..Outcome::default() }
}

fn removed(view: PluginRemoveView) -> Outcome {
    match view {
        PluginRemoveView::Plugin(result) => back(result),
        PluginRemoveView::Version(gone) => {
            let message = format!("{} is gone with its files", digits(&gone.removed));
            Outcome { is_done: gone.done, messages: lines([message]), ..Outcome::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_hundredths_of_a_percent() {
        for (text, share) in [("10", 1_000), ("2.5", 250), ("0.01", 1), ("100", 10_000), ("0", 0)] {
            assert_eq!(hundredths(text), Some(share), "{text}");
        }
        for wrong in ["", "100.01", "-1", "1e1", "0.001", "1.", ".5", "10 %", "99999"] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn canary_is_read_off_its_form() {
        let form = Form::parse(b"percent=2.5&tenants=acme,+globex&window=10&faults=5&calls=");
        let read = canary(&form, Vec::new(), true).unwrap();
        assert_eq!(
            (read.share, read.tenants, read.accept),
            (Some(250), vec!["acme".to_owned(), "globex".to_owned()], true)
        );
        let bounds = CanaryThresholdOverrides {
            fault_percent_max: Some(5),
            window_ms: Some(600_000),
            ..CanaryThresholdOverrides::default()
        };
        assert_eq!(read.bounds, bounds);
        let many = format!("tenants={}", vec!["a"; TENANTS_MAX + 1].join(","));
        for wrong in ["percent=x", "faults=300", "window=-1", "calls=many", &many] {
            assert!(canary(&Form::parse(wrong.as_bytes()), Vec::new(), false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn outcome_of_what_is_held_back_leads_to_what_it_changes() {
        let plugin = bulkhead_plugins::SwitchedPlugin {
            name: "csv".to_owned(),
            from: Some(Digest([1; 32])),
            to: Some(Digest([2; 32])),
            turn: SwitchEffect::Switched,
            changes: None,
        };
        let held = vec!["csv: the tool <b>a</b>\n is removed".to_owned(); 100];
        let result = SwitchResult { done: false, plugins: vec![plugin], held };
        let outcome = settle(Ok(PluginOutcome::Result(result.clone())), |result| switched(result, Digest([2; 32])));
        let expected = format!("/plugins/csv/{}/changes", "02".repeat(32));
        assert_eq!((outcome.is_done, outcome.leads_to), (false, Some(expected)));
        assert!(outcome.messages.len() == SAID_MAX && outcome.messages.iter().all(|line| !line.contains('\n')));
        let done = switched(SwitchResult { done: true, held: Vec::new(), ..result }, Digest([2; 32]));
        assert_eq!((done.is_done, done.leads_to), (true, None));
    }
}
