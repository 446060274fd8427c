//! Pages of the audit log.

use super::*;
use crate::views::AuditPageView;
use bulkhead_audit::{Audit, Entry, Options};

fn page_of(events: &[&str], tenant: Option<&str>, after: Option<String>, count_max: usize) -> AuditPage {
    let events = events.iter().map(|event| (*event).to_owned()).collect();
    AuditPage { events, tenant: tenant.map(str::to_owned), after, count_max, lines_only: false, changes_only: false }
}

#[tokio::test]
async fn audit_page_has_names_for_ids_and_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    principals.create_token("anna", "acme", None, 1).await.unwrap();
    principals.create_token("ben", "globex", None, 1).await.unwrap();
    let named = principals.names().await.unwrap();
    let options = Options { folder: folder.path().join("audit"), file_bytes_max: 1 << 20, files_max: 0 };
    let mut operator = operator(&store);
    operator.audit = Audit::open(options, || 1_000).unwrap();
    for number in 0..3 {
        for named in &named {
            operator.audit.note(|| Entry::new("call.refused").by(&named.requestor).tool(&format!("tool {number}")));
        }
    }
    let page: AuditPageView = loop {
        let page = operator.execute(page_of(&["call."], None, None, 100)).await.unwrap();
        if page.lines.len() == 6 {
            break page;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let mut names: Vec<_> = page.names.values().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!((names, page.next), (vec!["acme", "anna", "ben", "globex"], None));
    assert!(page.chain.sound && page.chain.whole && page.chain.first == 1, "{:?}", page.chain);

    let first = operator.execute(page_of(&["call.refused"], Some("acme"), None, 2)).await.unwrap();
    let second = operator.execute(page_of(&["call.refused"], Some("acme"), first.next.clone(), 2)).await.unwrap();
    let tools: Vec<_> =
        first.lines.iter().chain(&second.lines).map(|line| line.facts["tool"].as_str().unwrap()).collect();
    assert_eq!((tools, second.next), (vec!["tool 2", "tool 1", "tool 0"], None));
    for (tenant, after) in [(Some("none"), None), (None, Some("1.1")), (None, Some("x")), (None, Some("1.9999999"))] {
        let refused = operator.execute(page_of(&[], tenant, after.map(str::to_owned), 2)).await.unwrap_err();
        assert!(matches!(refused, ControlError::NotFound(_) | ControlError::Invalid(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn without_an_audit_log_there_is_no_page_of_it() {
    let operator = operator(&Arc::new(MemoryStore::new()));
    let refused = operator.execute(page_of(&[], None, None, 2)).await.unwrap_err();
    assert!(matches!(&refused, ControlError::Invalid(why) if why.contains("audit.enabled")), "{refused:?}");
}

#[tokio::test]
async fn same_look_of_an_operator_is_one_line_a_minute_and_everything_else_a_line_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    principals.create_token("anna", "acme", None, 1).await.unwrap();
    let options = Options { folder: folder.path().join("audit"), file_bytes_max: 1 << 20, files_max: 0 };
    let mut operator = operator(&store);
    operator.audit = Audit::open(options, || 1_000).unwrap();
    let page = |tenant: Option<&str>| TasksPage {
        filter: TaskFilter { tenant: tenant.map(str::to_owned), ..TaskFilter::default() },
        after: None,
        count_max: 1,
    };
    let absent = TasksShow { id: "none".to_owned() };
    let spec = |name: &str| TokenRevoke { id: name.to_owned() };
    for who in ["ann", "ben"] {
        for _ in 0..3 {
            operator.execute_for(who, TokenList {}.into()).await.unwrap();
            operator.execute_for(who, page(None).into()).await.unwrap();
            operator.execute_for(who, page(Some("acme")).into()).await.unwrap();
            operator.execute_for(who, absent.clone().into()).await.unwrap_err();
            operator.execute_for(who, spec("none").into()).await.unwrap_err();
        }
    }
    operator.audit.close();
    let lines = operator.execute(page_of(&["operator.command"], None, None, 100)).await.unwrap().lines;
    let count = |part: &str| lines.iter().filter(|line| line.facts["name"].as_str().unwrap().contains(part)).count();
    let counted = ["token_list", "\"tenant\":null", "acme", "tasks_show", "token_revoke"].map(count);
    assert_eq!(counted, [2, 2, 6, 6, 6], "{lines:?}");
}
