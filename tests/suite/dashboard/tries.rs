//! What a requestor tries in the dashboard: plain calls, resources and prompts.

use reqwest::StatusCode;

use super::browser::{Browser, setup};
use super::own::{signed_in, task_of};

#[tokio::test]
async fn tool_is_called_plainly_and_both_messages_are_shown() {
    let setup = setup(&["probe", "text"]).config("[call]\npromote_after_ms = 60000\n");
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let call = async |tool: &str, fields: &[(&str, &str)]| {
        browser.press(&format!("/tools/{tool}"), &format!("/tools/{tool}/try"), fields).await
    };
    let json = |arguments: &'static str| [("as", "json"), ("arguments", arguments)];
    let done = call("echo", &[("field.text", "<b>hi</b>")]).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text);
    for part in ["Done in ", "<pre tabindex=\"0\">&lt;b&gt;hi&lt;/b&gt;</pre>", "tools/call", "<h3>Response</h3>"] {
        assert!(done.text.contains(part), "{part} is not in {}", done.text);
    }
    assert!(!done.text.contains("<b>hi"), "{}", done.text);
    // What was filled in is there to be called again.
    let again = browser.post("/tools/echo/try", &done.token("/tools/echo/try"), &[("field.text", "more")]).await;
    assert!(again.text.contains(">more</pre>"), "{}", again.text);
    // An image and files are in the page, and an SVG is no image.
    let blocks = call("contents", &json("{}")).await.text;
    assert!(blocks.contains("src=\"data:image/png;base64,") && blocks.contains("download=\"result.bin\""), "{blocks}");
    for (arguments, status, part) in [
        ("{", StatusCode::UNPROCESSABLE_ENTITY, "role=\"alert\""),
        ("{\"text\": 1}", StatusCode::OK, "do not fit the input schema of echo"),
        ("{\"text\": \"a\", \"text\": \"b\"}", StatusCode::OK, "role=\"alert\""),
    ] {
        let refused = call("echo", &json(arguments)).await;
        assert_eq!(refused.status, status, "{arguments}: {}", refused.text);
        assert!(refused.text.contains(part), "{arguments}: {}", refused.text);
    }
    assert!(own.tasks().await.is_empty(), "a plain call makes no task");
    // One that becomes a task goes on as one, and one that asks is to be called as one.
    let long = call("detach", &json("{\"ms\": 1}")).await;
    let (_, rest) = long.text.split_once("goes on as a task: <a href=\"").unwrap_or_else(|| panic!("{}", long.text));
    own.until_status(&task_of(rest.split('"').next().expect("an address")), "completed").await;
    let asked = call("ask_many", &json("{\"count\": 1}")).await.text;
    assert!(asked.contains("Call the tool as a task to answer it") && asked.contains("A value for q1?"), "{asked}");
    // Another person's form is no form of this one.
    let ben = Browser::with_token(&host, &setup.token("ben", "acme").await).await;
    let token = browser.get("/tools/echo").await.token("/tools/echo/try");
    assert_eq!(ben.post("/tools/echo/try", &token, &[]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn resource_is_read_and_prompt_is_filled_in() {
    let setup = setup(&["conformance"]);
    let host = setup.start().await;
    let (_, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let listed = browser.get("/resources").await;
    assert_eq!(listed.status, StatusCode::OK, "{}", listed.text);
    let (_, rest) = listed.text.split_once("name=\"uri\" value=\"").unwrap_or_else(|| panic!("{}", listed.text));
    let uri = rest.split('"').next().expect("an address");
    let read = browser.press("/resources", "/resources/read", &[("address", ""), ("uri", uri)]).await;
    assert!(read.status == StatusCode::OK && read.text.contains("Done in "), "{}", read.text);
    let none = browser.press("/resources", "/resources/read", &[("address", "none://x")]).await;
    assert!(none.text.contains("Resource not found"), "{}", none.text);
    let prompts = browser.get("/prompts").await.text;
    let (_, rest) = prompts.split_once("name=\"prompt\" value=\"").unwrap_or_else(|| panic!("{prompts}"));
    let prompt = rest.split('"').next().expect("a name");
    let filled = browser.press("/prompts", "/prompts/get", &[("prompt", prompt)]).await;
    assert!(filled.status == StatusCode::OK && filled.text.contains("prompts/get"), "{}", filled.text);
    // A host without any says so.
    let bare = self::setup(&["text"]);
    let host = bare.start().await;
    let browser = Browser::with_token(&host, &bare.token("anna", "acme").await).await;
    assert!(browser.get("/resources").await.text.contains("No plugin lists a resource"));
    assert!(browser.get("/prompts").await.text.contains("No plugin has a prompt"));
}
