//! Calls as tasks by a page of the host itself.

use super::*;
use crate::TaskCallError;
use bulkhead_domain::call::ClientFeature;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};
use bulkhead_domain::toolset::{ToolFilter, Toolset, Toolsets};

fn rights(tools: &[&str], tasks: bool) -> Rights {
    let tools = tools.iter().map(|name| (*name).to_owned()).collect();
    let rule = ScopeRule { name: "some".into(), tools, tasks, ..ScopeRule::default() };
    ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "tenant", "requestor", false)
}

fn names(world: &World, rights: &Rights) -> Vec<String> {
    let tools = world.protocol.task_calls().tools(&ANNA, rights);
    tools.iter().map(|offered| offered.tool().name.clone()).collect()
}

#[tokio::test]
async fn page_offers_the_tools_of_the_list() {
    let world = world();
    assert_eq!(names(&world, &rights(&["quick", "only_task", "echo"], true)), ["echo", "only_task", "quick"]);
    assert_eq!(names(&world, &rights(&["quick", "only_task"], false)), ["quick"], "what is a task only needs tasks");
    assert!(names(&world, &rights(&[], true)).is_empty());
    let exclude = ToolFilter { tools: vec!["quick".to_owned()], ..ToolFilter::default() };
    let sets = vec![Toolset { exclude, ..Toolset::default() }];
    world
        .protocol
        .set_tool_listing(ToolListing { toolsets: Toolsets { sets, tool_search: true }, ..ToolListing::default() });
    let all = names(&world, &Rights::default());
    assert!(all.contains(&"slow".to_owned()) && !all.contains(&"quick".to_owned()), "{all:?}");
    let calls = world.protocol.task_calls();
    assert!(calls.tool(&ANNA, &Rights::default(), "quick").is_none());
    let refused = calls.call(&ANNA, &Rights::default(), "quick", "{}").await;
    assert!(matches!(refused, Err(TaskCallError::Absent)), "{refused:?}");
}

#[tokio::test]
async fn call_of_a_page_is_checked_like_any_other() {
    let world = world();
    let calls = world.protocol.task_calls();
    let all = Rights::default();
    let call = async |rights: &Rights, name: &str, arguments: &str| calls.call(&ANNA, rights, name, arguments).await;
    assert!(matches!(call(&all, "none", "{}").await, Err(TaskCallError::Absent)));
    assert!(matches!(call(&rights(&["slow"], true), "quick", "{}").await, Err(TaskCallError::Absent)));
    assert!(matches!(call(&rights(&["quick"], false), "quick", "{}").await, Err(TaskCallError::NoTasks(_))));
    assert!(matches!(call(&all, "echo", "{}").await, Err(TaskCallError::NoTasks(_))));
    for arguments in ["", "[]", "{", r#"{"a": 1, "a": 2}"#] {
        let refused = call(&all, "quick", arguments).await;
        assert!(matches!(refused, Err(TaskCallError::Malformed(_))), "{arguments}: {refused:?}");
    }
    assert!(world.tasks.list(&ANNA, None, 10).await.unwrap().is_empty(), "what was refused made no task");
    let task = call(&all, "quick", "{}").await.unwrap();
    assert_eq!((task.requestor, task.work.label()), (ANNA, "quick"));
    let features = task.origin.features;
    assert!(features.contains(ClientFeature::ElicitationForm) && features.contains(ClientFeature::ElicitationUrl));
    assert!(!features.contains(ClientFeature::Sampling) && !features.contains(ClientFeature::Roots));
    assert_eq!(world.tasks.list(&BOB, None, 10).await.unwrap().len(), 0);
}
