//! Pages of plugins whose every text is hostile: nothing of it is markup, and the pages stay small.

use bulkhead_control::views::{PluginGrantsView, PluginListView, PluginVersionsView, TenantGrantsView};
use bulkhead_plugins::{
    CallCounts, CanaryThresholds, CanaryView, Difference, DifferenceKind, Digest, Direction, FaultRecord,
    GrantDifference, GrantRow, PluginHealth, PluginState, PluginView, Signer, Stage, TextDifference, ToolDifference,
    ToolPart, VersionChanges, VersionView,
};

use super::lists::ListPosition;
use super::*;
use crate::orders::{Order, Outcome};
use crate::request::Form;

const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}\u{200b}\u{e0041}&";
const PAGE_BYTES: usize = 60 << 10;

fn hostile(length: usize) -> String {
    HOSTILE.repeat(length / HOSTILE.len() + 1)
}

fn frame(session: &Session) -> Frame<'_> {
    Frame { session: Some(session), here: "/plugins", address: "", now: 10_000 }
}

fn is_text(page: &str) {
    let page = page.replace(&format!("<script src=\"{}\" defer>", *crate::assets::SCRIPT_PATH), "");
    for raw in ["<script", "<img", "\"'>", "\u{202e}", "\u{200b}", "\u{e0041}"] {
        assert!(!page.contains(raw), "{raw:?} in {page}");
    }
}

fn version(number: u8, state: Stage) -> VersionView {
    VersionView {
        version: Digest([number; 32]),
        state,
        source: hostile(100),
        origin: hostile(100),
        signed_by: vec![hostile(20)],
        signers: vec![Signer { key: hostile(20), file: Some(hostile(20).into()), rule: Some(hostile(20)) }],
        bytes: 1,
        tools: 2,
        staged_at: 3,
        activated_at: Some(4),
        left_at: None,
        retired_at: None,
        taken_back: None,
        demoted: None,
        calls: 0,
        tasks: 0,
    }
}

fn health() -> PluginHealth {
    let fault = FaultRecord { at: 1, tool: hostile(1_000), reason: hostile(1_000) };
    PluginHealth { requestors_kept_away: 2, everyone_until: Some(11_000), last_faults: vec![fault; 8] }
}

fn canary(seen: Option<CallCounts>) -> CanaryView {
    CanaryView {
        version: Digest([2; 32]),
        percent: 2.5,
        tenants: vec![hostile(10)],
        since: 1,
        bounds: CanaryThresholds { latency_percent_max: 150, ..CanaryThresholds::default() },
        seen,
        health: PluginHealth::default(),
    }
}

fn plugin_view(canary: Option<CanaryView>) -> PluginView {
    PluginView {
        name: hostile(10),
        state: PluginState::Quarantined,
        active: Some(Digest([1; 32])),
        previous: Some(Digest([3; 32])),
        tools: 1,
        tools_hidden: None,
        versions: 3,
        source: Some(hostile(10)),
        activated_at: None,
        calls: 0,
        tasks: 0,
        problems: vec![hostile(1_000)],
        health: health(),
        canary,
        taken_back: None,
        demoted: None,
        waiting: None,
    }
}

fn row() -> GrantRow {
    let text = || hostile(1_000);
    GrantRow { grant: text(), wanted: text(), granted: text(), effective: text(), left: Some(text()) }
}

fn orders() -> Vec<Order> {
    let outcome =
        |is_done| Outcome { is_done, messages: vec![text::line(&hostile(300))], plugin: None, leads_to: None };
    let outcomes = [None, Some(outcome(true)), Some(outcome(false))];
    let order = |outcome| Order {
        plugin: Some(hostile(10)),
        what: text::line(&hostile(10)),
        who: "dashboard operator at 127.0.0.1".to_owned(),
        begun: 1,
        outcome,
    };
    outcomes.into_iter().map(order).collect()
}

#[test]
fn page_of_a_plugin_with_hostile_texts_is_text_and_small() {
    let session = Session::of_operator();
    let name = hostile(10);
    let mut versions: Vec<_> = (4..=103).map(|number| version(number, Stage::Checked)).collect();
    versions[0].state = Stage::Active;
    versions[1].state = Stage::Canary;
    let plugin_view = plugin_view(Some(canary(Some(CallCounts { calls: 3, faults: 1 }))));
    let view = PluginVersionsView { name, versions };
    let page = PluginPage { plugin: Some(&plugin_view), versions: &view, grants: None, tools: None, orders: &orders() };
    let shown = plugin(&frame(&session), &session, &page).into_string();
    is_text(&shown);
    assert!(shown.len() <= PAGE_BYTES, "{} bytes although every text is hostile", shown.len());
    for part in ["2.5 % of the requestors", "3 calls, 1 faults", "kept from everyone", "none yet: it takes 20 calls"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    // While there is a canary, nothing else is switched.
    assert!(shown.contains("/promote\"") && shown.contains("/take-back\""));
    assert!(!shown.contains("/rollback\"") && !shown.contains("/remove\""));

    let grants = PluginGrantsView {
        name: hostile(10),
        version: Digest([1; 32]),
        imports: vec![hostile(1_000); 1_000],
        everybody: vec![row(); 1_000],
        tenants: vec![TenantGrantsView { tenant: Some(hostile(10)), grants: Vec::new() }],
    };
    let page = PluginPage {
        plugin: Some(&plugin_view),
        versions: &view,
        grants: Some(&grants),
        tools: None,
        orders: &orders(),
    };
    let shown = plugin(&frame(&session), &session, &page).into_string();
    is_text(&shown);
    assert!(shown.contains("more: <code>bulkhead plugin grants</code> shows them."), "{shown}");
    assert!(shown.len() <= PAGE_BYTES, "{} bytes although every text is hostile", shown.len());

    let named = PluginVersionsView { name: "csv".to_owned(), versions: view.versions.clone() };
    let page = PluginPage { versions: &named, ..page };
    let shown = plugin(&frame(&session), &session, &page).into_string();
    assert!(shown.len() <= PAGE_BYTES, "{} bytes although every text is hostile", shown.len());
    assert_eq!(shown.matches("/changes\"").count(), 100, "each version has its page");

    let list = PluginListView { plugins: vec![plugin_view.clone(); 200] };
    let query = Form::default();
    let page = PluginsPage { view: &list, orders: &orders(), position: ListPosition::read(&query, "name") };
    let shown = plugins(&frame(&session), &session, &page).into_string();
    is_text(&shown);
    assert!(shown.contains("not done") && shown.contains("under way"), "{shown}");
    assert!(shown.len() <= PAGE_BYTES, "{} bytes although every text is hostile", shown.len());
}

fn tool(number: usize) -> ToolDifference {
    let part = |part| TextDifference { part, before: Some(hostile(400)), after: Some(hostile(400)) };
    let difference = Difference { path: hostile(100), direction: Direction::Narrowed, what: hostile(400) };
    ToolDifference {
        tool: format!("tool-{number:03}"),
        kind: DifferenceKind::Changed,
        parts: ToolPart::ALL.map(part).to_vec(),
        input: vec![difference; 8],
        output: Vec::new(),
        cut: true,
    }
}

fn changed(state: Stage) -> VersionChanges {
    let text = || hostile(100);
    let grant = GrantDifference {
        grant: text(),
        wanted_before: text(),
        wanted: text(),
        effective_before: text(),
        effective: text(),
    };
    VersionChanges {
        name: "csv".to_owned(),
        version: Digest([2; 32]),
        state,
        active: Some(Digest([1; 32])),
        tools: (0..512).map(tool).collect(),
        imports_added: vec![text(); 100],
        imports_removed: vec![text()],
        grants: vec![grant; 100],
        held: vec![text(); 100],
    }
}

#[test]
fn changes_go_on_over_pages_and_the_switch_is_behind_the_last() {
    let session = Session::of_operator();
    let view = changed(Stage::Checked);
    let versions = [version(1, Stage::Active), version(2, Stage::Checked)];
    let show = |after: Option<&str>, tool: Option<&str>| {
        let page =
            ChangesPage { changes: &view, mark: "the-mark", versions: &versions, orders: &orders(), tool, after };
        changes(&frame(&session), &session, &page).into_string()
    };
    let mut after = None::<String>;
    let mut seen = 0;
    loop {
        let shown = show(after.as_deref(), None);
        is_text(&shown);
        assert!(shown.len() <= PAGE_BYTES, "{} bytes although every text is hostile", shown.len());
        seen += shown.matches("Changed tool").count();
        let switches =
            ["/plugins/csv/activate\"", "/plugins/csv/canary\"", "/plugins/csv/remove-version\"", "the-mark"];
        let Some((before, _)) = shown.split_once("\" rel=\"next\"") else {
            assert!(switches.iter().all(|part| shown.contains(part)) && shown.contains("I have read"), "{shown}");
            break;
        };
        assert!(switches.iter().all(|part| !shown.contains(part)), "{shown}");
        after = before.rsplit_once("after=").map(|(_, after)| after.to_owned());
    }
    assert_eq!(seen, 512, "each tool once");
    let whole = show(None, Some("tool-007"));
    assert!(!whole.contains("/activate\"") && !whole.contains("The whole tool"), "{whole}");
}

#[test]
fn forms_are_those_of_the_stage() {
    let session = Session::of_operator();
    let show = |state: Stage, others: Stage, held: &[&str]| {
        let held = held.iter().map(|text| (*text).to_owned()).collect();
        let view = VersionChanges { tools: Vec::new(), held, ..changed(state) };
        let versions = [version(1, others), version(2, state)];
        let page = ChangesPage { changes: &view, mark: "m", versions: &versions, orders: &[], tool: None, after: None };
        let shown = changes(&frame(&session), &session, &page).into_string();
        let forms = ["activate", "canary", "remove-version"];
        (forms.map(|form| shown.contains(&format!("/plugins/csv/{form}\""))), shown.contains("I have read"))
    };
    assert_eq!(show(Stage::Checked, Stage::Active, &["a"]), ([true, true, true], true));
    assert_eq!(show(Stage::Retired, Stage::Active, &[]), ([true, true, true], false));
    assert_eq!(show(Stage::Active, Stage::Retired, &[]), ([false; 3], false));
    assert_eq!(show(Stage::Canary, Stage::Active, &[]), ([false; 3], false));
    assert_eq!(show(Stage::Checked, Stage::Canary, &["a"]), ([false, false, true], false));
}
