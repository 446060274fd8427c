//! Requests of a page of the host itself.

use super::*;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};

fn rights(tools: &[&str], tasks: bool) -> Rights {
    let tools = tools.iter().map(|name| (*name).to_owned()).collect();
    let rule = ScopeRule { name: "some".into(), tools, tasks, ..ScopeRule::default() };
    ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "tenant", "requestor", false)
}

/// What a call is answered, as JSON.
async fn call(world: &World, rights: &Rights, name: &str, arguments: &str, may: MayBecomeTask) -> Value {
    let request = PageRequest::call_tool(name, arguments, may).unwrap();
    let answer = world.protocol.page_client().send(&ANNA, rights, &request).await;
    let response: Value = serde_json::from_str(&answer.response.text()).unwrap();
    if response["result"]["resultType"] == "complete" {
        official::check("2026-07-28", "tools/call", &response);
    }
    response
}

#[tokio::test]
async fn page_calls_a_tool_plainly_by_the_rules_of_every_client() {
    let world = world();
    let all = Rights::default();
    let no = MayBecomeTask::No;
    let done = call(&world, &all, "echo", r#"{"text": "hi"}"#, no).await;
    assert_eq!(done["result"]["content"][0]["text"], "hi");
    let unfit = call(&world, &all, "echo", r#"{"text": 7}"#, no).await;
    assert_eq!(unfit["result"]["isError"], true);
    for (rights, name, arguments, code) in [
        (&all, "none", "{}", -32602),
        (&rights(&["quick"], true), "echo", "{}", -32602),
        // What is there twice is not read as one of the two.
        (&all, "echo", r#"{"text": "a", "text": "b"}"#, -32602),
        (&all, "echo", "[]", -32602),
        // Only as a task, by a client that has none.
        (&all, "only_task", "{}", -32021),
    ] {
        assert_eq!(call(&world, rights, name, arguments, no).await["error"]["code"], code, "{name} {arguments}");
    }
    assert!(PageRequest::call_tool("echo", "{", no).is_err());
    assert!(world.tasks.list(&ANNA, None, 10).await.unwrap().is_empty(), "a plain call makes no task");
}

#[tokio::test]
async fn long_call_of_a_page_goes_on_as_a_task_where_it_may() {
    let world = world();
    let may = MayBecomeTask::Yes;
    let promoted = call(&world, &Rights::default(), "slow", "{}", may).await;
    assert_eq!(promoted["result"]["resultType"], "task");
    let task = world.tasks.list(&ANNA, None, 10).await.unwrap().remove(0);
    assert_eq!(promoted["result"]["taskId"], task.id.to_string());
    let plain = call(&world, &rights(&["slow"], false), "slow", "{}", may).await;
    assert_eq!(plain["result"]["content"][0]["text"], "slowly done", "without the right to tasks it stays a call");
    let asking = call(&world, &Rights::default(), "form", "{}", may).await;
    assert_eq!(asking["result"]["resultType"], "input_required");
    let unasked = call(&world, &Rights::default(), "form", "{}", MayBecomeTask::No).await;
    assert!(unasked["error"]["code"] == -32021 || unasked["result"]["isError"] == true, "{unasked}");
}

#[tokio::test]
async fn page_is_given_the_first_reports_and_dropping_its_request_stops_the_call() {
    let world = world();
    let client = world.protocol.page_client();
    let all = Rights::default();
    let request = PageRequest::call_tool("count", "{}", MayBecomeTask::No).unwrap();
    let answer = client.send(&ANNA, &all, &request).await;
    assert_eq!((answer.reports.len(), answer.reports_left_out), (4, 0), "{:?}", answer.reports);
    assert!(answer.reports.iter().all(|report| !report.contains("\"debug\"")), "{:?}", answer.reports);
    let request = PageRequest::call_tool("forever", "{}", MayBecomeTask::No).unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(50), client.send(&ANNA, &all, &request)).await;
    assert!(waited.is_err());
    for _ in 0..1_000 {
        if world.guests.living.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the guest of a call that nobody waits for runs on");
}

#[tokio::test]
async fn page_reads_resources_and_prompts() {
    let world = world_nowhere();
    let client = world.protocol.page_client();
    let all = Rights::default();
    let send = async |request: PageRequest| {
        let answer = client.send(&ANNA, &all, &request).await;
        serde_json::from_str::<Value>(&answer.response.text()).unwrap()
    };
    for list in [PageList::Resources, PageList::ResourceTemplates, PageList::Prompts] {
        let listed = send(PageRequest::list(list, None)).await;
        assert!(listed["result"][list.member()].as_array().is_some_and(|all| !all.is_empty()), "{listed}");
    }
    let read = send(PageRequest::read_resource("a://0")).await;
    assert!(read["result"]["contents"][0]["uri"].is_string(), "{read}");
    let rendered = send(PageRequest::get_prompt("x_plain", &[("needed".into(), "yes".into())])).await;
    assert!(rendered["result"]["messages"].is_array(), "{rendered}");
    let lacking = send(PageRequest::get_prompt("x_plain", &[])).await;
    assert_eq!(lacking["error"]["code"], -32602, "{lacking}");
    // A host without any has no such method.
    let none = self::world().protocol.page_client();
    let answer = none.send(&ANNA, &all, &PageRequest::list(PageList::Prompts, None)).await;
    assert!(answer.response.text().contains("-32601") && answer.rejection == Some(Rejection::UnknownMethod));
}
