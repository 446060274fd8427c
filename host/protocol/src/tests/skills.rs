//! What clients are told of skills.

use super::*;

const SKILLS: &str = "io.modelcontextprotocol/skills";
const REVIEW: &str = "skill://first/review/SKILL.md";

/// The entry of the skill that a scripted plugin carries.
fn review() -> Value {
    json!({
        "uri": REVIEW,
        "frontmatter": {"name": "review", "description": "Reviews.", "metadata": {"version": "1"}},
        "resources": [
            {"uri": REVIEW, "digest": format!("sha256:{}", "01".repeat(32)), "size": 40},
            {"uri": "skill://first/review/style.md", "digest": format!("sha256:{}", "02".repeat(32)), "size": 6},
        ],
    })
}

#[tokio::test]
async fn skills_are_listed_and_got_in_both_eras() {
    let world = world_offering();
    let anna = world.anna().await;
    let older = world.client(ANNA, "2025-03-26", json!({})).await;
    let modern = world.plain();
    for client in [&anna, &older] {
        assert_eq!(client.result("skills/list", json!({})).await, json!({"skills": [review()]}));
        assert_eq!(client.result("skills/get", json!({"uri": REVIEW})).await, json!({"skill": review()}));
    }
    let listed = modern.result("skills/list", json!({})).await;
    let got = modern.result("skills/get", json!({"uri": REVIEW})).await;
    assert_eq!((&listed["skills"], &got["skill"]), (&json!([review()]), &review()));
    for result in [listed, got] {
        let cached = [&result["resultType"], &result["ttlMs"], &result["cacheScope"]];
        assert_eq!(cached, [&json!("complete"), &json!(60_000), &json!("public")]);
    }
    // A file of a skill is none, and neither is what no plugin carries.
    for uri in ["skill://first/review/style.md", "skill://second/review/SKILL.md", "a://0"] {
        for refused in [
            anna.error("skills/get", json!({"uri": uri})).await,
            modern.ask("skills/get", json!({"uri": uri})).await["error"].clone(),
        ] {
            assert_eq!(refused["code"], -32602);
            assert!(refused["message"].as_str().unwrap().starts_with(&format!("Unknown skill: {uri}")), "{refused}");
        }
    }
    for refused in [
        anna.error("skills/list", json!({"cursor": "x"})).await,
        modern.ask("skills/list", json!({"cursor": "x"})).await["error"].clone(),
    ] {
        assert_eq!(refused["code"], -32602);
    }
}

#[tokio::test]
async fn extension_is_announced_where_a_plugin_carries_a_skill() {
    for (world, has_skills) in [(world_offering(), true), (world(), false)] {
        let [newest, first, modern] = apps::announced(&world).await;
        let declared = if has_skills { json!({}) } else { Value::Null };
        assert_eq!((&newest["extensions"][SKILLS], &modern["extensions"][SKILLS]), (&declared, &declared));
        assert_eq!((newest["resources"].is_object(), modern["resources"].is_object()), (has_skills, has_skills));
        assert_eq!(first["extensions"], Value::Null, "of a revision without extensions");
        if !has_skills {
            let anna = world.anna().await;
            assert_eq!(anna.error("skills/list", json!({})).await["code"], -32601);
            assert_eq!(world.plain().ask("skills/get", json!({"uri": REVIEW})).await["error"]["code"], -32601);
        }
    }
}

/// A requestor with scopes sees the skills of the plugins that it may use, and no others exist for it.
#[tokio::test]
async fn skill_of_a_plugin_out_of_scope_is_absent() {
    use bulkhead_domain::rights::{Rights, ScopeBook, ScopeRule};
    let world = world_offering();
    let anna = world.anna().await;
    for (plugin, expected) in [("first", json!([review()])), ("second", Value::Null)] {
        let rule = ScopeRule { name: "some".to_owned(), plugins: vec![plugin.to_owned()], ..ScopeRule::default() };
        let rights: Rights = ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "tenant", "requestor", false);
        let ask = async |method: &str, params: Value| {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
            let peer = Peer { rights: rights.clone(), ..anna.peer() };
            let Received::Exchange(mut exchange) = world.receive(peer, &message).await else { panic!("no exchange") };
            serde_json::from_str::<Value>(&exchange.next().await.unwrap().message.text()).unwrap()
        };
        assert_eq!(ask("skills/list", json!({})).await["result"]["skills"], expected, "{plugin}");
        assert_eq!(ask("skills/get", json!({"uri": REVIEW})).await["error"].is_null(), expected.is_array(), "{plugin}");
    }
}
