//! Tool search: two tools of the host in the place of a long list.
//!
//! Owns `search_tools` and `call_tool`: what clients are told of them, what their arguments may be, and what a search
//! answers. Must not call anything: a call through `call_tool` becomes the call of the tool that it names before
//! anything else is asked about it, and is checked, limited, recorded and answered as that. Invariant: a search finds
//! what its requestor could have listed, and nothing else.

mod index;
mod words;

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::apps;
use super::reader;
use super::request_context::RequestContext;
use super::wire::{FoundTool, ToolMembers};
use crate::error::RpcError;
use bulkhead_calls::ToolEntry;
use bulkhead_domain::Json;
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations, ToolOutput};
use bulkhead_domain::toolset::{CALL_TOOL, HOST_TOOLS, SEARCH_TOOLS};

pub(crate) use index::ToolIndex;

/// Characters of a query: a few sentences.
const QUERY_CHARS_MAX: usize = 1000;
/// Tools in one answer.
const FOUND_MAX: usize = 20;
/// Tools in an answer to a client that does not say.
const FOUND_DEFAULT: usize = 5;
/// Bytes of the definitions in one answer. Tools with long schemas are left out at the end of it; the first is always
/// there.
const FOUND_BYTES_MAX: usize = 256 << 10;

/// What clients that search are listed.
static TOOLS: LazyLock<[Tool; 2]> = LazyLock::new(|| [call_tool(), search_tools()]);

/// The host's tools in the order of their names.
pub(crate) fn tools() -> &'static [Tool] {
    &*TOOLS
}

/// [`SEARCH_TOOLS`].
pub(crate) fn search_tool() -> &'static Tool {
    let [_, search_tool] = &*TOOLS;
    search_tool
}

/// The names of the host's tools that a name may have been meant for. One that is right is none: it was looked for
/// where plugins' are.
pub(crate) fn suggestions<'a>(searches: bool, name: &'a str) -> impl Iterator<Item = &'a str> {
    let own: &[&'a str] = if searches { &HOST_TOOLS } else { &[] };
    own.iter().copied().filter(move |own| *own != name)
}

fn search_tools() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": QUERY_CHARS_MAX,
                "description": "What is to be done, in a few words.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": FOUND_MAX,
                "default": FOUND_DEFAULT,
                "description": "How many tools at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    Tool {
        name: SEARCH_TOOLS.to_owned(),
        title: Some("Search tools".to_owned()),
        description: format!(
            "Finds the tools of this server that fit what is to be done, the best first: the name, description and input schema of \
             each. The server has more tools than it lists, so search before you give up. {CALL_TOOL} calls what was found."
        ),
        input_schema: Json::new(schema.to_string()),
        output_schema: None,
        annotations: Some(ToolAnnotations {
            read_only: Some(true),
            idempotent: Some(true),
            open_world: Some(false),
            ..ToolAnnotations::default()
        }),
        task_support: TaskSupport::Forbidden,
        icons: Vec::new(),
        meta: Vec::new(),
    }
}

fn call_tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": format!("The name of the tool, as {SEARCH_TOOLS} gives it.")},
            "arguments":
                {"type": "object", "description": "Its arguments, as its input schema wants them.", "properties": {}},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    Tool {
        name: CALL_TOOL.to_owned(),
        title: Some("Call tool".to_owned()),
        description: format!(
            "Calls a tool of this server by its name and answers what it answers. {SEARCH_TOOLS} finds names."
        ),
        input_schema: Json::new(schema.to_string()),
        output_schema: None,
        annotations: None,
        // That of the tool that is called decides.
        task_support: TaskSupport::Optional,
        icons: Vec::new(),
        meta: Vec::new(),
    }
}

/// What a `tools/call` is about where clients search for tools.
pub(crate) enum ToolRequest<'a> {
    /// The tool that it names, or the one that `call_tool` names.
    Call {
        name: String,
        arguments: Option<&'a str>,
        through: bool,
    },
    Search {
        index: Arc<ToolIndex>,
        query: Query,
    },
}

/// Looks whether a call is one of a tool of the host, which only a requestor that searches for tools has.
///
/// # Errors
///
/// What is wrong with the arguments, for a model to read.
pub(crate) fn resolve<'a>(
    search: Option<&Arc<ToolIndex>>,
    name: String,
    arguments: Option<&'a str>,
) -> Result<ToolRequest<'a>, String> {
    match (search, name.as_str()) {
        (Some(_), CALL_TOOL) => {
            let call: Call<'_> = read(CALL_TOOL, arguments)?;
            let arguments = call.arguments.map(RawValue::get).filter(|text| *text != "null");
            Ok(ToolRequest::Call { name: call.name, arguments, through: true })
        }
        (Some(index), SEARCH_TOOLS) => {
            Ok(ToolRequest::Search { index: Arc::clone(index), query: Query::read(arguments)? })
        }
        _ => Ok(ToolRequest::Call { name, arguments, through: false }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn read<'a, T: Deserialize<'a>>(tool: &str, arguments: Option<&'a str>) -> Result<T, String> {
    reader::read(arguments.unwrap_or("{}"), "").map_err(|problem| unfit(tool, &problem))
}

/// In the words in which arguments of any tool are refused.
fn unfit(tool: &str, problem: &str) -> String {
    format!("The arguments do not fit the input schema of {tool}:\n{problem}")
}

/// What is searched for.
pub(crate) struct Query {
    text: String,
    limit: usize,
}

impl Query {
    fn read(arguments: Option<&str>) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            query: String,
            limit: Option<u64>,
        }
        let Arguments { query: text, limit } = read(SEARCH_TOOLS, arguments)?;
        if text.is_empty() || text.chars().nth(QUERY_CHARS_MAX).is_some() {
            return Err(unfit(SEARCH_TOOLS, &format!("query must have 1 to {QUERY_CHARS_MAX} characters")));
        }
        let limit = limit.map_or(Some(FOUND_DEFAULT), |limit| usize::try_from(limit).ok());
        match limit.filter(|limit| (1..=FOUND_MAX).contains(limit)) {
            Some(limit) => Ok(Self { text, limit }),
            None => Err(unfit(SEARCH_TOOLS, &format!("limit must be an integer from 1 to {FOUND_MAX}"))),
        }
    }

    /// The answer, made on the message workers in the tenant's turn: it takes a look at every tool that there is.
    ///
    /// # Errors
    ///
    /// The host is going down.
    pub(crate) async fn answer(
        self,
        context: RequestContext,
        index: Arc<ToolIndex>,
        members: ToolMembers,
    ) -> Result<ToolOutput, RpcError> {
        let requestor = context.requestor;
        let shared = Arc::clone(&context.shared);
        let is_found = move |entry: &ToolEntry| {
            let is_offered = context.catalog.get(&entry.tool.name).is_some() && context.may_call(&entry.tool);
            is_offered && apps::is_for_model(&entry.tool)
        };
        let answered = shared.tasks.offload(&requestor, move || self.find(&index, members, is_found)).await;
        answered.unwrap_or_else(|_| Err(RpcError::host_failure(format_args!("tools could not be searched"))))
    }

    fn find(
        &self,
        index: &ToolIndex,
        members: ToolMembers,
        may: impl Fn(&ToolEntry) -> bool,
    ) -> Result<ToolOutput, RpcError> {
        let mut tools = String::new();
        for entry in index.search(&self.text, self.limit, may) {
            let shown = serde_json::to_string(&FoundTool { tool: &entry.tool, members })
                .map_err(|cause| RpcError::host_failure(format_args!("a tool cannot be written: {cause}")))?;
            if !tools.is_empty() {
                if tools.len() + shown.len() > FOUND_BYTES_MAX {
                    break;
                }
                tools.push(',');
            }
            tools.push_str(&shown);
        }
        let structured = Some(Json::new(format!("{{\"tools\":[{tools}]}}")));
        Ok(ToolOutput { structured, ..ToolOutput::default() })
    }
}
