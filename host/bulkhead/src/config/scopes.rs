//! `[[auth.scope]]`: what each scope is good for.

use super::document::{Node, Reader};
use bulkhead_domain::names::{check_name, check_scope};
use bulkhead_domain::rights::ScopeRule;

/// Reads the rules; a rule that is wrong grants nothing.
pub(super) fn read_scopes(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<ScopeRule> {
    let nodes = reader.list("auth.scope", node);
    nodes.iter().filter_map(|node| read_scope(reader, node)).collect()
}

fn read_scope(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<ScopeRule> {
    let table = reader.table("auth.scope", node)?;
    let mut rule = ScopeRule::default();
    for (key, node) in table {
        let path = format!("auth.scope.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "name" => rule.name = reader.parsed(&path, node, check_scope).unwrap_or_default(),
            "tools" => rule.tools = reader.texts(&path, node, any),
            "plugins" => rule.plugins = reader.texts(&path, node, any),
            "tasks" => rule.tasks = reader.switch(&path, node),
            "steer" => rule.steer = reader.switch(&path, node),
            "basic" => rule.basic = reader.switch(&path, node),
            "includes" => rule.includes = reader.texts(&path, node, check_scope),
            "tenants" => rule.tenants = reader.texts(&path, node, name),
            "requestors" => rule.requestors = reader.texts(&path, node, any),
            _ => reader.refuse(
                key,
                format!(
                    "{path}: no such key; there are name, tools, plugins, tasks, steer, basic, includes, tenants and \
                     requestors"
                ),
            ),
        }
    }
    if rule.name.is_empty() {
        if !table.contains_key("name") {
            reader.refuse(node, "auth.scope.name: missing");
        }
        return None;
    }
    Some(rule)
}

fn any(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|wrong| format!("{text:?}: {wrong}"))
}
