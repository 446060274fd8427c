//! The tools that a plugin declares, checked as a whole: everything wrong is found at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::app_views;
use super::bindings::exports::bulkhead::plugin::tools as wit;
use super::content::{check_extras, icons};
use super::header_params;
use super::json::{accept, accept_meta};
use super::plugin_source::{ToolPolicy, UnknownTools};
use bulkhead_calls::schema::{Validator, portable};
use bulkhead_calls::{JournalPolicy, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::names::TOOL_NAME_CHARS_MAX;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::text::{escaped, is_control};
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations};
use bulkhead_domain::tool_names;
use bulkhead_metrics::{Metrics, PluginMetrics};

/// Tools of one plugin. Stops a plugin that fills every client's context.
const TOOLS_MAX: usize = 512;
/// Regular expressions in the schemas of one plugin. Stops hundreds of tools with the largest ones each.
const PATTERNS_MAX: usize = 512;
/// Bytes of a title.
const TITLE_BYTES_MAX: usize = 256;
/// Bytes of a description.
const DESCRIPTION_BYTES_MAX: usize = 32 << 10;

/// What the operator says about all tools of one plugin.
pub(super) struct DeclarationPolicy<'a> {
    pub(super) version: &'a PluginVersion,
    pub(super) prefix: &'a str,
    pub(super) limits: &'a CallLimits,
    pub(super) tools: &'a BTreeMap<String, ToolPolicy>,
    pub(super) unknown_tools: UnknownTools,
    pub(super) rerun: bool,
    pub(super) journal: Option<JournalPolicy>,
    /// What is counted, and of its plugin.
    pub(super) metrics: (&'a Metrics, &'a PluginMetrics),
}

/// Checks the list and applies the operator's terms.
///
/// # Errors
///
/// Everything that is wrong, each with the tool's name.
pub(super) fn entries(
    declared: Vec<wit::Tool>,
    terms: &DeclarationPolicy<'_>,
) -> Result<Vec<Arc<ToolEntry>>, Vec<String>> {
    let mut problems = Vec::new();
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    if declared.len() > TOOLS_MAX {
        return Err(vec![format!("it offers {} tools; {TOOLS_MAX} is the most", declared.len())]);
    }
    let base_names = base_names(&declared);
    problems.extend(wrong_policies(&declared, &base_names, terms));
    for (tool, base_name) in declared.into_iter().zip(base_names) {
        let shown = escaped(&tool.name);
        if !seen.insert(tool.name.clone()) {
            problems.push(format!("tool {shown:?}: its name is used twice"));
        }
        match entry(tool, base_name, terms) {
            Ok(entry) => entries.push(Arc::new(entry)),
            Err(wrong) => problems.extend(wrong.into_iter().map(|wrong| format!("tool {shown:?}: {wrong}"))),
        }
    }
    let patterns =
        |entry: &Arc<ToolEntry>| entry.input.patterns() + entry.output.as_ref().map_or(0, Validator::patterns);
    let patterns: usize = entries.iter().map(patterns).sum();
    if patterns > PATTERNS_MAX {
        problems.push(format!("its schemas have {patterns} patterns; {PATTERNS_MAX} is the most"));
    }
    problems.extend(same_names(&entries));
    if problems.is_empty() { Ok(entries) } else { Err(problems) }
}

/// The names that every client takes, of tools in their order: without the operator's prefix.
pub(super) fn base_names(tools: &[wit::Tool]) -> Vec<String> {
    tool_names::portable(&tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>())
}

/// What the configuration says of tools that are not there. What says the name inside the plugin is meant for a tool
/// that is, and is never passed over.
fn wrong_policies(tools: &[wit::Tool], base_names: &[String], terms: &DeclarationPolicy<'_>) -> Vec<String> {
    let is_strict = terms.unknown_tools == UnknownTools::Refuse;
    let unknown = terms.tools.keys().filter(|name| !base_names.contains(name));
    let problem = |name: &String| match tools.iter().zip(base_names).find(|(tool, _)| tool.name == *name) {
        Some((_, base_name)) => {
            Some(format!("the configuration names a tool {name:?}, which is {base_name:?} for clients: write that"))
        }
        None => is_strict.then(|| format!("the configuration names a tool {name:?} that the plugin does not offer")),
    };
    unknown.filter_map(problem).collect()
}

/// Tools that the operator calls like another one of the same plugin. What no client sees may be called anything.
fn same_names(entries: &[Arc<ToolEntry>]) -> Vec<String> {
    let mut owners = HashMap::new();
    let shown = entries.iter().filter(|entry| !entry.hidden);
    let clash = |entry: &Arc<ToolEntry>| {
        let name = entry.tool.name.clone();
        let own = Arc::clone(&entry.plugin_tool);
        let other = owners.insert(name.clone(), Arc::clone(&own)).filter(|other| *other != own)?;
        Some(format!(
            "its tools {other:?} and {own:?} would both be called {name:?}: choose another `name` for one of them"
        ))
    };
    shown.filter_map(clash).collect()
}

fn entry(tool: wit::Tool, base_name: String, terms: &DeclarationPolicy<'_>) -> Result<ToolEntry, Vec<String>> {
    let mut wrong = Vec::new();
    let name = tool_names::prefixed(terms.prefix, &base_name, &tool.name);
    check_name(&tool.name, &tool.name, &mut wrong);
    check_line("title", tool.title.as_deref().unwrap_or_default(), TITLE_BYTES_MAX, &mut wrong);
    check_description(&tool.description, &mut wrong);

    let input = schema("input schema", &tool.input_schema, Validator::compile, &mut wrong);
    if let Some((text, _)) = &input {
        let problems = header_params::problems(&serde_json::from_str(text.as_str()).unwrap_or_default());
        wrong.extend(problems.into_iter().map(|problem| format!("input schema: {problem}")));
    }
    let output = tool.output_schema.as_ref();
    let output = output.and_then(|text| schema("output schema", text, Validator::compile_any, &mut wrong));
    check_extras(&tool.icons, &tool.meta, &mut wrong);
    let meta = accept_meta(tool.meta).map_err(|problem| wrong.push(problem)).unwrap_or_default();
    let policy = terms.tools.get(&base_name);
    let task_support = narrowed(tool.task_support, policy.and_then(|policy| policy.task_support), &mut wrong);
    let annotations = tool.annotations.map(|hints| {
        check_line("annotation title", hints.title.as_deref().unwrap_or_default(), TITLE_BYTES_MAX, &mut wrong);
        ToolAnnotations {
            title: hints.title,
            read_only: hints.read_only_hint,
            destructive: hints.destructive_hint,
            idempotent: hints.idempotent_hint,
            open_world: hints.open_world_hint,
        }
    });

    let Some((input_schema, input)) = input else { return Err(wrong) };
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let idempotent = annotations.as_ref().is_some_and(|hints| hints.idempotent == Some(true));
    let (output_schema, output) = output.map_or((None, None), |(text, validator)| (Some(text), Some(validator)));
    let own = Tool {
        name,
        title: tool.title,
        description: tool.description,
        input_schema,
        output_schema,
        annotations,
        task_support,
        icons: icons(tool.icons),
        meta,
    };
    let mut shown = listed(overridden(&own, policy)?);
    app_views::name_view(&mut shown.meta, terms.prefix);
    let declared = (shown != own).then(|| Box::new(own));
    let (all, of_plugin) = terms.metrics;
    let metrics = all.tool(of_plugin, &shown.name);
    let activity = all.activity().tool(&terms.version.name, &shown.name);
    Ok(ToolEntry {
        tool: shown,
        declared,
        hidden: policy.is_some_and(|policy| policy.hidden),
        plugin: terms.version.clone(),
        plugin_tool: tool.name.into(),
        base_name: base_name.into(),
        limits: policy.map_or(terms.limits, |policy| &policy.limits).clone(),
        rerun_on_restart: terms.rerun && idempotent,
        journal: terms.journal.clone(),
        input,
        output,
        metrics,
        activity,
    })
}

/// The tool with its schemas in the form that the most model interfaces take.
fn listed(tool: Tool) -> Tool {
    let form = |text: &Json| {
        // It was read when it was compiled.
        let schema = serde_json::from_str(text.as_str()).ok()?;
        Some(Json::new(portable(&schema)?.to_string()))
    };
    let input_schema = form(&tool.input_schema).unwrap_or_else(|| tool.input_schema.clone());
    let output_schema = tool.output_schema.as_ref().map(|own| form(own).unwrap_or_else(|| own.clone()));
    Tool { input_schema, output_schema, ..tool }
}

/// The tool in the operator's words, where there are any.
fn overridden(own: &Tool, policy: Option<&ToolPolicy>) -> Result<Tool, Vec<String>> {
    let mut shown = own.clone();
    let Some(ToolPolicy { name, presentation, .. }) = policy else { return Ok(shown) };
    let mut wrong = Vec::new();
    if let Some(name) = name {
        check_name(name, name, &mut wrong);
        shown.name.clone_from(name);
    }
    if let Some(title) = &presentation.title {
        check_line("title", title, TITLE_BYTES_MAX, &mut wrong);
        shown.title = Some(title.clone());
    }
    if let Some(description) = &presentation.description {
        check_description(description, &mut wrong);
        shown.description.clone_from(description);
    }
    let in_words = |problem| format!("as the configuration presents it, {problem}");
    if wrong.is_empty() { Ok(shown) } else { Err(wrong.into_iter().map(in_words).collect()) }
}

pub(super) fn check_name(own: &str, full: &str, wrong: &mut Vec<String>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if own.is_empty() {
        wrong.push("its name is empty".to_owned());
    } else if !own.bytes().all(is_plain) {
        wrong.push("its name holds other characters than [A-Za-z0-9_.-]".to_owned());
    }
    if full.len() > TOOL_NAME_CHARS_MAX {
        let with_prefix = if own == full { "" } else { " with prefix" };
        wrong.push(format!("its name{with_prefix} has {} characters; {TOOL_NAME_CHARS_MAX} is the most", full.len()));
    }
}

pub(super) fn check_line(what: &str, text: &str, bytes_max: usize, wrong: &mut Vec<String>) {
    if text.len() > bytes_max {
        wrong.push(format!("its {what} has {} bytes; {bytes_max} is the most", text.len()));
    }
    if text.contains(is_control) {
        wrong.push(format!("its {what} holds control characters"));
    }
}

/// A description may have paragraphs.
pub(super) fn check_description(text: &str, wrong: &mut Vec<String>) {
    if text.len() > DESCRIPTION_BYTES_MAX {
        wrong.push(format!("its description has {} bytes; {DESCRIPTION_BYTES_MAX} is the most", text.len()));
    }
    if text.contains(|character| is_control(character) && !matches!(character, '\n' | '\r' | '\t')) {
        wrong.push("its description holds control characters".to_owned());
    }
}

fn schema(
    what: &str,
    text: &str,
    compile: fn(&str) -> Result<Validator, Vec<String>>,
    wrong: &mut Vec<String>,
) -> Option<(Json, Validator)> {
    match (compile(text), accept(text)) {
        (Ok(validator), Ok(text)) => Some((text, validator)),
        (Err(problems), _) => {
            wrong.extend(problems.into_iter().map(|problem| format!("{what}: {problem}")));
            None
        }
        (Ok(_), Err(problem)) => {
            wrong.push(format!("{what}: {problem}"));
            None
        }
    }
}

/// The operator may take away a choice that the plugin leaves, never add one.
fn narrowed(declared: wit::TaskSupport, wanted: Option<TaskSupport>, wrong: &mut Vec<String>) -> TaskSupport {
    let declared = TaskSupport::from(declared);
    match wanted {
        None => declared,
        Some(wanted) if wanted == declared || declared == TaskSupport::Optional => wanted,
        Some(wanted) => {
            wrong
                .push(format!("the configuration makes its task support {wanted:?}, but the plugin says {declared:?}"));
            declared
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::bulkhead::plugin::types as wit_types;

    fn icon(src: &str) -> wit_types::Icon {
        wit_types::Icon { src: src.to_owned(), mime_type: None, sizes: Vec::new(), theme: None }
    }

    fn declare(input_schema: &str) -> Result<Vec<Arc<ToolEntry>>, Vec<String>> {
        declare_all(vec![tool(input_schema)])
    }

    fn declare_all(tools: Vec<wit::Tool>) -> Result<Vec<Arc<ToolEntry>>, Vec<String>> {
        declare_under("", &BTreeMap::new(), UnknownTools::Refuse, tools)
    }

    fn declare_under(
        prefix: &str,
        policies: &BTreeMap<String, ToolPolicy>,
        unknown_tools: UnknownTools,
        tools: Vec<wit::Tool>,
    ) -> Result<Vec<Arc<ToolEntry>>, Vec<String>> {
        let limits = CallLimits::generous();
        let version = PluginVersion { name: "p".to_owned(), digest: [0; 32] };
        let terms = DeclarationPolicy {
            version: &version,
            prefix,
            limits: &limits,
            tools: policies,
            metrics: (&Metrics::off(), &PluginMetrics::default()),
            unknown_tools,
            rerun: false,
            journal: None,
        };
        entries(tools, &terms)
    }

    fn named(names: &[&str]) -> Vec<wit::Tool> {
        let tool = |name: &&str| wit::Tool { name: (*name).to_owned(), ..tool(r#"{"type":"object"}"#) };
        names.iter().map(tool).collect()
    }

    fn hiding(name: &str) -> BTreeMap<String, ToolPolicy> {
        let policy = ToolPolicy {
            task_support: None,
            hidden: true,
            name: None,
            presentation: Default::default(),
            limits: CallLimits::generous(),
        };
        BTreeMap::from([(name.to_owned(), policy)])
    }

    fn tool(input_schema: &str) -> wit::Tool {
        wit::Tool {
            name: "marked".to_owned(),
            title: None,
            description: "d".to_owned(),
            input_schema: input_schema.to_owned(),
            output_schema: None,
            annotations: None,
            task_support: wit::TaskSupport::Forbidden,
            icons: [
                "https://a.example/i.png",
                "javascript:alert(1)",
                "data:image/png;base64,AA==",
                "http://a",
                "file:///a",
            ]
            .map(icon)
            .into(),
            meta: Vec::new(),
        }
    }

    #[test]
    fn tool_is_named_for_every_client_and_keeps_its_own_name_inside() {
        let own = ["acme.a/b".replace('/', "."), "acme_a_b".to_owned(), "plain".to_owned(), "x.".repeat(60)];
        let own: Vec<_> = own.iter().map(String::as_str).collect();
        let kept = declare_all(named(&own)).unwrap();
        let names: Vec<_> = kept.iter().map(|entry| entry.tool.name.as_str()).collect();
        assert_eq!(names[1..3], ["acme_a_b", "plain"]);
        assert!(names.iter().all(|name| tool_names::is_portable(name)), "{names:?}");
        assert!(names[0].starts_with("acme_a_b-") && names[3].len() == 64, "{names:?}");
        assert!(
            kept.iter().map(|entry| &*entry.plugin_tool).eq(own),
            "the definition that was accepted is that of this name"
        );
        let prefixed = declare_under("t_", &BTreeMap::new(), UnknownTools::Refuse, named(&["a.b"])).unwrap();
        assert_eq!((&*prefixed[0].tool.name, &*prefixed[0].base_name), ("t_a_b", "a_b"));
    }

    #[test]
    fn configuration_by_the_name_inside_the_plugin_is_refused_with_the_new_name() {
        let of = |policy: &str, unknown_tools| declare_under("", &hiding(policy), unknown_tools, named(&["a.b"]));
        for unknown_tools in [UnknownTools::Refuse, UnknownTools::Ignore] {
            let wrong = of("a.b", unknown_tools).unwrap_err();
            assert_eq!(wrong, ["the configuration names a tool \"a.b\", which is \"a_b\" for clients: write that"]);
            assert!(of("a_b", unknown_tools).unwrap()[0].hidden);
        }
        assert!(of("c", UnknownTools::Refuse).unwrap_err()[0].contains("does not offer"));
        assert!(!of("c", UnknownTools::Ignore).unwrap()[0].hidden);
    }

    #[test]
    fn unloadable_tool_icons_are_dropped() {
        let kept = declare(r#"{"type":"object"}"#).unwrap();
        let sources: Vec<_> = kept[0].tool.icons.iter().map(|icon| icon.src.as_str()).collect();
        assert_eq!(sources, ["https://a.example/i.png", "data:image/png;base64,AA=="]);
    }

    #[test]
    fn tool_icons_and_meta_are_bounded() {
        let refusals = |icons: usize, source: usize, members: usize, value: usize| {
            let mut tool = tool(r#"{"type":"object"}"#);
            tool.icons = (0..icons).map(|_| icon(&format!("data:{}", "x".repeat(source)))).collect();
            tool.meta = (0..members).map(|at| (format!("a{at}"), format!("\"{}\"", "x".repeat(value)))).collect();
            declare_all(vec![tool]).err().unwrap_or_default()
        };
        assert!(refusals(16, 1_000, 64, 100).is_empty());
        assert_eq!(refusals(17, 10, 0, 0), ["tool \"marked\": it has 17 icons; 16 is the most"]);
        assert_eq!(refusals(0, 0, 65, 10), ["tool \"marked\": it has 65 members of meta; 64 is the most"]);
        let large = refusals(2, 40_000, 1, 20_000);
        assert!(large.len() == 2 && large[0].ends_with("bytes of icons; 65536 is the most"), "{large:?}");
        assert!(large[1].ends_with("bytes of meta; 16384 is the most"), "{large:?}");
    }

    #[test]
    fn schemas_are_listed_in_portable_form_and_kept_as_they_were_declared() {
        let own = r#"{"type":"object","additionalProperties":false}"#;
        let output = r#"{"type":"object","properties":{"n":{"type":["number","string"]}}}"#;
        let kept = declare_all(vec![wit::Tool { output_schema: Some(output.to_owned()), ..tool(own) }]).unwrap();
        let value = |text: &Json| serde_json::from_str::<serde_json::Value>(text.as_str()).unwrap();
        let shown = &kept[0].tool;
        let expected = serde_json::json!({"type": "object", "properties": {}, "additionalProperties": false});
        assert_eq!(value(&shown.input_schema), expected);
        let number = &value(shown.output_schema.as_ref().unwrap())["properties"]["n"];
        assert_eq!(*number, serde_json::json!({"anyOf": [{"type": "number"}, {"type": "string"}]}));
        let declared = kept[0].declared();
        assert_eq!((declared.input_schema.as_str(), declared.output_schema.as_ref().unwrap().as_str()), (own, output));
    }

    #[test]
    fn tool_with_invalid_header_mark_is_refused() {
        let schema = |name: &str| {
            format!(r#"{{"type":"object","properties":{{"a":{{"type":"string","x-mcp-header":"{name}"}}}}}}"#)
        };
        let kept = declare(&schema("Region")).unwrap();
        assert!(kept[0].tool.input_schema.as_str().contains("x-mcp-header"), "it is listed as it was declared");
        let wrong = declare(&schema("no token")).unwrap_err();
        assert!(wrong[0].contains("\"marked\": input schema: x-mcp-header"), "{wrong:?}");
    }
}
