//! Commands and web services as tools, with the guests of `plugins/fixtures/foreign`.

use serde_json::{Value, json};

use super::*;
use bulkhead_calls::policy::Grants;

async fn house(name: &str) -> Option<House> {
    let source = sample(name)?;
    let house = House::new();
    house.publish(PluginSource { name: Some("tool".to_owned()), ..source }).await;
    Some(house)
}

fn structured(output: &ToolOutput) -> Value {
    serde_json::from_str(output.structured.as_ref().expect("structured content").as_str()).unwrap()
}

fn args(args: &[&str]) -> String {
    json!({"args": args}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_one_tool_with_text_and_json_output() {
    let Some(house) = house("foreign_command").await else { return };
    let catalog = house.sandbox.catalog();
    let names: Vec<_> = catalog.tools().iter().map(|entry| entry.tool.name.as_str()).collect();
    assert_eq!(names, ["tool"]);
    let counted = json!({"args": ["count", "x"], "stdin": "one two\nthree"});
    for _ in 0..2 {
        let output = house.call("tool", &counted.to_string()).await.unwrap();
        assert_eq!((output.is_error, text(&output)), (false, "2 lines, 3 words, 1 arguments\n"));
    }
    let counted = json!({"args": ["count", "--json"], "stdin": "a"});
    let output = house.call("tool", &counted.to_string()).await.unwrap();
    assert_eq!(structured(&output), json!({"program": "tool", "lines": 1, "words": 1}));
    assert!(house.call("tool", "{}").await.unwrap().content.is_empty());
    let output = house.call("tool", &args(&["bytes"])).await.unwrap();
    assert!(matches!(output.content[0].kind, ContentKind::Resource(_)), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_exit_code_is_a_tool_error_with_stderr() {
    let Some(house) = house("foreign_command").await else { return };
    for (arguments, code) in [(&["exit", "1"][..], 1), (&["nonsense"], 2)] {
        let output = house.call("tool", &args(arguments)).await.unwrap();
        assert!(output.is_error);
        let told = text(&output);
        // The libraries of many compilers can say success or failure only.
        let codes =
            [code, 1].map(|code| format!("The program ended with exit code {code}. The end of its standard error:"));
        assert!(codes.iter().any(|begin| told.starts_with(begin)), "{told}");
    }
    let output = house.call("tool", &args(&["exit-with-code", "7"])).await.unwrap();
    assert_eq!((output.is_error, text(&output)), (true, "The program ended with exit code 7."));
    let output = house.call("tool", &args(&["exit", "7"])).await.unwrap();
    assert!(text(&output).ends_with("it ends with 7"), "{}", text(&output));
    let ContentKind::Text(stdout) = &output.content[1].kind else { panic!("{output:?}") };
    assert_eq!(stdout, "half of it\n");
    assert!(!house.call("tool", &args(&["exit", "0"])).await.unwrap().is_error, "an exit with 0 is none");
    let (kind, reason) = fault(house.call("tool", &args(&["panic"])).await);
    assert_eq!(kind, FaultKind::Trap);
    assert!(reason.contains("the end of its standard error") && reason.contains("has lost its way"), "{reason}");
}

/// What the error of a call says that crashes in a plugin of this configuration.
async fn crash(source: PluginSource, in_results: Option<bool>, tool: &str, arguments: &str) -> String {
    let house = House::new();
    let config = [("phrase".to_owned(), Json::new("\"lost its way\""))].into();
    house
        .publish(PluginSource { name: Some("tool".to_owned()), stderr_in_results: in_results, config, ..source })
        .await;
    let (kind, reason) = fault(house.call(tool, arguments).await);
    assert_eq!(kind, FaultKind::Trap, "{reason}");
    reason
}

#[tokio::test(flavor = "multi_thread")]
async fn last_words_are_in_the_result_where_the_operator_allows_it() {
    const NUMBER: &str = "acme_numbers_of-u8_bare-out";
    let guests = ["foreign_command", "foreign_numbers", "hostile"].map(sample);
    let [Some(command), Some(typed), Some(plugin)] = guests else { return };
    let panic = args(&["panic"]);
    let crashed = "the tool crashed: it panicked or aborted";
    for (source, tool, arguments, words, is_told_by_itself) in [
        (command, "tool", panic.as_str(), "has [value of phrase]", true),
        (typed, NUMBER, r#"{"text": "x"}"#, "a number of the type: ParseIntError { kind: InvalidDigit }", true),
        (plugin, "trap", "{}", "this plugin traps on purpose", false),
    ] {
        for in_results in [None, Some(true), Some(false)] {
            let reason = crash(source.clone(), in_results, tool, arguments).await;
            assert!(reason.starts_with(crashed), "{reason}");
            assert_eq!(reason.contains(words), in_results.unwrap_or(is_told_by_itself), "{in_results:?}: {reason}");
            assert!(!reason.contains("lost its way"), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_is_told_without_standard_error_where_the_operator_forbids_it() {
    let Some(source) = sample("foreign_command") else { return };
    let house = House::new();
    house.publish(PluginSource { name: Some("tool".to_owned()), stderr_in_results: Some(false), ..source }).await;
    let output = house.call("tool", &args(&["exit", "7"])).await.unwrap();
    assert!(output.is_error && !text(&output).contains("it ends with"), "{output:?}");
    let ContentKind::Text(stdout) = &output.content[1].kind else { panic!("{output:?}") };
    assert_eq!(stdout, "half of it\n", "standard output is the result");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_under_call_limits() {
    let Some(house) = house("foreign_command").await else { return };
    let running = house.start_with("tool", &args(&["flood"]), |spec| spec.limits.result_bytes = 100_000);
    let (kind, reason) = fault(finished(running).await);
    assert_eq!(kind, FaultKind::Limit);
    assert!(reason.contains("standard output is longer than 100000 bytes, which is call.result_bytes"), "{reason}");
    let running = house.start_with("tool", &args(&["spin"]), |spec| spec.limits.cpu_ms = 50);
    assert_eq!(fault(finished(running).await).0, FaultKind::Limit);
    let running = house.start_with("tool", &args(&["sleep"]), |spec| spec.limits.wall_ms = 100);
    assert_eq!(fault(finished(running).await).0, FaultKind::Deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn command_sees_granted_variables_only() {
    let Some(source) = sample("foreign_command") else { return };
    let house = House::new();
    let named = PluginSource { name: Some("tool".to_owned()), ..source };
    house.publish(named.clone()).await;
    assert!(house.call("tool", &args(&["env", "GRANTED"])).await.unwrap().is_error);
    let grants = Grants { env: vec!["GRANTED".to_owned()], ..Grants::default() };
    house.publish(PluginSource { grants, ..named }).await;
    assert_eq!(text(&house.call("tool", &args(&["env", "GRANTED"])).await.unwrap()), "yes\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn service_answers_requests_with_text_and_bytes() {
    let Some(house) = house("foreign_service").await else { return };
    let request = json!({"method": "POST", "path": "/echo?a=b", "headers": {"X-Colour": "blue"}, "body": "hello"});
    let output = house.call("request", &request.to_string()).await.unwrap();
    let expected = json!({
        "status": 200,
        "headers": {"content-type": "text/plain", "x-part": ["one", "two"]},
        "body": "POST /echo?a=b for localhost, colour blue, 5 bytes announced: hello",
        "body_encoding": "text",
    });
    assert_eq!((output.is_error, structured(&output)), (false, expected));
    let output = house.call("request", r#"{"path": "/image"}"#).await.unwrap();
    assert_eq!(
        (&structured(&output)["body"], &structured(&output)["body_encoding"]),
        (&json!("iVBOR/8="), &json!("base64"))
    );
    let output = house.call("request", "{}").await.unwrap();
    assert_eq!((output.is_error, &structured(&output)["status"]), (false, &json!(404)), "a status is an answer");
    let output = house.call("request", r#"{"path": "none"}"#).await.unwrap();
    assert!(output.is_error && text(&output).starts_with("path: "), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_does_not_answer_is_a_failure_that_says_how() {
    let Some(house) = house("foreign_service").await else { return };
    let ask = async |path: &str| house.call("request", &json!({"path": path}).to_string()).await;
    let output = ask("/error").await.unwrap();
    assert!(output.is_error && text(&output).contains("out of ink"), "{output:?}");
    for path in ["/silent", "/leaking"] {
        let (kind, reason) = fault(ask(path).await);
        assert_eq!(
            (kind, reason.as_str()),
            (FaultKind::InvalidOutput, "the service ended without a response"),
            "{path}"
        );
    }
    let (kind, reason) = fault(ask("/unfinished").await);
    assert_eq!((kind, reason.as_str()), (FaultKind::InvalidOutput, "the service broke off the body of its response"));
    for path in ["/twice", "/trap"] {
        assert_eq!(fault(ask(path).await).0, FaultKind::Trap, "{path}");
    }
    assert_eq!(structured(&ask("/open").await.unwrap())["body"], "", "what nobody writes to any more has an end");
    // None of it is left for the next request.
    assert_eq!(structured(&ask("/image").await.unwrap())["status"], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn service_runs_under_call_limits() {
    let Some(house) = house("foreign_service").await else { return };
    let ask =
        |path: &str, change: fn(&mut CallSpec)| house.start_with("request", &json!({"path": path}).to_string(), change);
    let (kind, reason) = fault(finished(ask("/endless", |spec| spec.limits.result_bytes = 50_000)).await);
    assert_eq!(kind, FaultKind::Limit);
    assert!(reason.contains("response body is longer than 50000 bytes, which is call.result_bytes"), "{reason}");
    assert_eq!(fault(finished(ask("/spin", |spec| spec.limits.cpu_ms = 50)).await).0, FaultKind::Limit);
    // Stopped by being dropped, in the middle of its body.
    let running = ask("/endless", |spec| spec.limits.result_bytes = u64::MAX);
    let control = running.control.clone();
    drop(running);
    settled(|| control.cpu_ms()).await;
}
