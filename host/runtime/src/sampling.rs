//! What a guest may ask the client's model.
//!
//! Owns the order of messages that the protocol demands; what the messages say is between the guest and the model.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Checks the parameters of `sampling/createMessage`.
///
/// # Errors
///
/// What is wrong, in words for the plugin's author.
pub(super) fn check(params: &Map<String, Value>) -> Result<(), String> {
    let Some(Value::Array(messages)) = params.get("messages") else {
        return Err("sampling parameters have \"messages\"".to_owned());
    };
    if !params.get("maxTokens").is_some_and(Value::is_u64) {
        return Err("sampling parameters have \"maxTokens\", a whole number".to_owned());
    }
    let mut open = HashSet::new();
    for message in messages {
        let role = message.get("role").and_then(Value::as_str);
        let Some(role @ ("user" | "assistant")) = role else {
            return Err("the role of a sampling message is \"user\" or \"assistant\"".to_owned());
        };
        let results = named(message, "tool_result", "toolUseId");
        let only_results = blocks(message).len() == results.len();
        if !open.is_empty() || !results.is_empty() {
            let answers: HashSet<_> = results.iter().copied().collect();
            if role != "user" || !only_results || answers.len() != results.len() || answers != open {
                return Err(
                    "after a message with tool_use comes one of the user with a tool_result for each of them, and nothing else"
                        .to_owned(),
                );
            }
        }
        open =
            if role == "assistant" { named(message, "tool_use", "id").into_iter().collect() } else { HashSet::new() };
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err("the last sampling message has a tool_use without its tool_result".to_owned())
    }
}

/// One block or several.
fn blocks(message: &Value) -> &[Value] {
    match message.get("content") {
        Some(Value::Array(blocks)) => blocks,
        Some(block) => std::slice::from_ref(block),
        None => &[],
    }
}

/// This member of each block of this type; a block without it counts with an empty one.
fn named<'a>(message: &'a Value, kind: &str, member: &str) -> Vec<&'a str> {
    let of_kind = blocks(message).iter().filter(|block| block.get("type").is_some_and(|is| is == kind));
    of_kind.map(|block| block.get(member).and_then(Value::as_str).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(messages: &Value) -> Result<(), String> {
        let Value::Object(params) = json!({"messages": messages, "maxTokens": 5}) else { unreachable!() };
        check(&params)
    }

    fn says(role: &str, content: &Value) -> Value {
        json!({"role": role, "content": content})
    }

    fn uses(id: &str) -> Value {
        json!({"type": "tool_use", "id": id, "name": "t", "input": {}})
    }

    fn gives(id: &str) -> Value {
        json!({"type": "tool_result", "toolUseId": id, "content": []})
    }

    #[test]
    fn sampling_tool_uses_need_matching_results() {
        let text = json!({"type": "text", "text": "x"});
        let asks = says("user", &text);
        let both = says("assistant", &json!([text, uses("a"), uses("b")]));
        assert_eq!(of(&json!([asks, both, says("user", &json!([gives("b"), gives("a")])), asks])), Ok(()));
        assert_eq!(of(&json!([asks, says("assistant", &uses("a")), says("user", &gives("a"))])), Ok(()));
        for after in [
            json!([]),
            json!([asks]),
            json!([says("user", &gives("a"))]),
            json!([says("user", &json!([gives("a"), gives("c")]))]),
            json!([says("user", &json!([gives("a"), gives("b"), gives("b")]))]),
            json!([says("user", &json!([gives("a"), gives("b"), text]))]),
            json!([says("assistant", &json!([gives("a"), gives("b")]))]),
        ] {
            let mut messages = vec![asks.clone(), both.clone()];
            messages.extend(after.as_array().unwrap().iter().cloned());
            assert!(of(&json!(messages)).is_err(), "{after}");
        }
        assert!(of(&json!([says("user", &gives("a"))])).is_err(), "nobody used a tool");
    }

    #[test]
    fn sampling_request_needs_its_required_members() {
        assert!(of(&json!("x")).is_err() && of(&json!([{"content": []}])).is_err());
        assert!(of(&json!([says("system", &json!([]))])).is_err());
        assert!(check(json!({"messages": []}).as_object().unwrap()).is_err());
        assert!(check(json!({"messages": [], "maxTokens": 1.5}).as_object().unwrap()).is_err());
    }
}
