//! The tools that a plugin declares, checked as a whole: everything wrong is found at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::bindings::exports::bulkhead::plugin::tools as wit;
use super::header_params;
use super::json::{accept, accept_meta};
use super::load::{ToolPolicy, UnknownTools};
use super::output::{check_extras, icons};
use super::schema::Validator;
use super::wasi_context::{escaped, is_control};
use super::{JournalPolicy, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::names::TOOL_NAME_CHARS_MAX;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations};
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
    for tool in declared {
        let shown = escaped(&tool.name);
        if !seen.insert(tool.name.clone()) {
            problems.push(format!("tool {shown:?}: its name is used twice"));
        }
        match entry(tool, terms) {
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
    let strict = terms.unknown_tools == UnknownTools::Refuse;
    for name in terms.tools.keys().filter(|name| strict && !seen.contains(*name)) {
        problems.push(format!("the configuration names a tool {name:?} that the plugin does not offer"));
    }
    if problems.is_empty() { Ok(entries) } else { Err(problems) }
}

/// Tools that the operator calls like another one of the same plugin. What no client sees may be called anything.
fn same_names(entries: &[Arc<ToolEntry>]) -> Vec<String> {
    let mut owners = HashMap::new();
    let shown = entries.iter().filter(|entry| !entry.hidden);
    let clash = |entry: &Arc<ToolEntry>| {
        let (name, own) = (entry.tool.name.clone(), Arc::clone(&entry.plugin_tool));
        let other = owners.insert(name.clone(), Arc::clone(&own)).filter(|other| *other != own)?;
        Some(format!(
            "its tools {other:?} and {own:?} would both be called {name:?}: choose another `name` for one of them"
        ))
    };
    shown.filter_map(clash).collect()
}

fn entry(tool: wit::Tool, terms: &DeclarationPolicy<'_>) -> Result<ToolEntry, Vec<String>> {
    let mut wrong = Vec::new();
    let name = format!("{}{}", terms.prefix, tool.name);
    check_name(&tool.name, &name, &mut wrong);
    check_line("title", tool.title.as_deref().unwrap_or_default(), TITLE_BYTES_MAX, &mut wrong);
    check_description(&tool.description, &mut wrong);

    let input = schema("input schema", &tool.input_schema, Validator::compile, &mut wrong);
    if let Some((text, _)) = &input {
        let marks = header_params::problems(&serde_json::from_str(text.as_str()).unwrap_or_default());
        wrong.extend(marks.into_iter().map(|problem| format!("input schema: {problem}")));
    }
    let output = tool.output_schema.as_ref();
    let output = output.and_then(|text| schema("output schema", text, Validator::compile_any, &mut wrong));
    check_extras(&tool.icons, &tool.meta, &mut wrong);
    let meta = accept_meta(tool.meta).map_err(|problem| wrong.push(problem)).unwrap_or_default();
    let policy = terms.tools.get(&tool.name);
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
    let shown = overridden(&own, policy)?;
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
        limits: policy.map_or(terms.limits, |policy| &policy.limits).clone(),
        rerun_on_restart: terms.rerun && idempotent,
        journal: terms.journal.clone(),
        input,
        output,
        metrics,
        activity,
    })
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
    let said = |problem| format!("as the configuration presents it, {problem}");
    if wrong.is_empty() { Ok(shown) } else { Err(wrong.into_iter().map(said).collect()) }
}

pub(super) fn check_name(own: &str, full: &str, wrong: &mut Vec<String>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if own.is_empty() {
        wrong.push("its name is empty".to_owned());
    } else if !own.bytes().all(is_plain) {
        wrong.push("its name holds other characters than [A-Za-z0-9_.-]".to_owned());
    }
    if full.len() > TOOL_NAME_CHARS_MAX {
        wrong.push(format!("its name with prefix has {} characters; {TOOL_NAME_CHARS_MAX} is the most", full.len()));
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
        let limits = CallLimits::generous();
        let version = PluginVersion { name: "p".to_owned(), digest: [0; 32] };
        let terms = DeclarationPolicy {
            version: &version,
            prefix: "",
            limits: &limits,
            tools: &BTreeMap::new(),
            metrics: (&Metrics::off(), &PluginMetrics::default()),
            unknown_tools: UnknownTools::Refuse,
            rerun: false,
            journal: None,
        };
        entries(tools, &terms)
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
