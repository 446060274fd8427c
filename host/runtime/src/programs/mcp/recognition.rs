//! Whether a web service or a command is an MCP server, of which era, and what it lists.
//!
//! Owns what is asked at load. The era is what `server/discover` says, never that a list succeeds: some servers answer
//! lists of an era that they do not speak. Invariant: a server whose calls could not work is refused in words, and what
//! is none is left to be what it was.

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use serde::Deserialize;

use super::content::parsed;
use super::exchange::Answer;
use super::features::{self, Page};
use super::messages::{Members, Reply, RpcError};
use super::requests::Request;
use super::tools::{self, ToolPage};
use super::{McpEra, McpFeatures, McpServer};
use crate::bindings::exports::bulkhead::plugin::prompts::Prompt;
use crate::bindings::exports::bulkhead::plugin::resources::{ResourceInfo, ResourceTemplate};
use crate::bindings::exports::bulkhead::plugin::tools::Tool;
use crate::exports::LISTED_PAGES_MAX;
use crate::load::Wrong;
use crate::plugin_source::{McpMode, McpSettings};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::text::{beginning, escaped};

/// Where a server answers that the operator says nothing of.
const PATHS: [&str; 2] = ["/mcp", "/"];
/// Bytes of a server's words in a message.
const QUOTED_BYTES_MAX: usize = 256;
/// Things that were dropped and are named.
const DROPPED_MAX: usize = 64;

/// Has one fresh instance answer each request.
pub(crate) trait Ask: Send {
    /// # Errors
    ///
    /// It did not answer.
    fn ask(&mut self, request: Request) -> impl Future<Output = Result<Answer, CallError>> + Send;
}

/// A server and its tools.
pub(crate) struct Found {
    pub(crate) server: McpServer,
    pub(crate) tools: Vec<Tool>,
    pub(crate) templates: Vec<ResourceTemplate>,
    /// As far as some pages go.
    pub(crate) resources: Vec<ResourceInfo>,
    pub(crate) prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Members,
    instructions: Option<String>,
    #[serde(rename = "_meta", default)]
    meta: Members,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: Option<String>,
    server_info: Option<ServerInfo>,
    instructions: Option<String>,
    #[serde(default)]
    capabilities: Members,
}

#[derive(Deserialize)]
struct ServerInfo {
    name: String,
    #[serde(default)]
    version: String,
}

/// Looks for a server. `None`: there is none.
///
/// # Errors
///
/// There is one that cannot be a plugin, or none where the operator says that there is.
pub(crate) async fn recognize(
    ask: &mut impl Ask,
    settings: &McpSettings,
    transport: Transport,
) -> Result<Option<Found>, Wrong> {
    let named = match settings.mode {
        Some(McpMode::Http) => Some("http"),
        Some(McpMode::Stdio) => Some("stdio"),
        Some(McpMode::Auto | McpMode::Off) | None => None,
    };
    let paths: Vec<_> = match (transport, settings.path.as_deref()) {
        (Transport::Stdio, _) => vec![None],
        (Transport::Http, Some(path)) => vec![Some(path)],
        (Transport::Http, None) => PATHS.map(Some).to_vec(),
    };
    let mut why = Vec::new();
    for path in paths {
        let mut search = Search { ask, path, is_named: named.is_some() };
        match search.server().await? {
            Ok(found) => return Ok(Some(found)),
            Err(answered) => why.push(format!("{} {answered}", path.unwrap_or("what it writes"))),
        }
    }
    if let Some(mode) = named {
        return Err(vec![format!(
            "the configuration says `mcp = \"{mode}\"`, and no MCP server answers: {}",
            why.join("; ")
        )]
        .into());
    }
    Ok(None)
}

/// By what a component may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Stdio,
}

/// The search at one path, or over standard input and output.
struct Search<'a, A> {
    ask: &'a mut A,
    path: Option<&'a str>,
    /// Whether the operator says that there is one.
    is_named: bool,
}

impl<A: Ask> Search<'_, A> {
    /// `Err` in it: what is there instead.
    async fn server(&mut self) -> Result<Result<Found, String>, Wrong> {
        let discover = Request::new(McpEra::Modern, self.path, "server/discover");
        let answer = match self.answer(discover).await? {
            Ok(answer) => answer,
            Err(failed) => return Ok(Err(failed)),
        };
        let discovered = answer.result().and_then(|result| parsed::<Discovered>(result.as_str()).ok());
        let speaks = |version: &String| version == McpEra::Modern.revision();
        if let Some(discovered) = discovered.filter(|discovered| discovered.supported_versions.iter().any(speaks)) {
            return self.modern(discovered).await.map(Ok);
        }
        match self.path {
            Some(_) => self.legacy().await,
            None => self.greeted().await,
        }
    }

    /// `Err` in it: it does not answer, and what it does instead.
    async fn answer(&mut self, request: Request) -> Result<Result<Answer, String>, Wrong> {
        let answer = match self.ask.ask(request).await {
            Ok(answer) => answer,
            Err(CallError::Interrupted) => return Err(Wrong::passing("the host is shutting down")),
            // On a machine that is busy otherwise; a tool that depended on it would come and go.
            Err(CallError::Fault { kind: FaultKind::Deadline, reason }) => {
                return Err(Wrong::passing(format!(
                    "it did not say whether it is an MCP server: {reason} (`mcp = \"off\"` in [[plugin]] does not ask)"
                )));
            }
            Err(error) => return Ok(Err(format!("failed ({error})"))),
        };
        if answer.headers.contains_key("mcp-session-id") {
            return Err(self.without_sessions("it answers with a session id"));
        }
        let authorizes = matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let says = answer.headers.get(WWW_AUTHENTICATE).map_or(&b""[..], |value| value.as_bytes());
        let is_server =
            self.is_named || answer.reply.is_some() || String::from_utf8_lossy(says).contains("resource_metadata");
        if authorizes && is_server {
            return Err(vec![format!(
                "its MCP server at {} answers {} to a request without credentials: it authorizes its callers by itself, \
                 which is the host's part; turn that off in the server",
                self.path.unwrap_or_default(),
                answer.status.as_u16()
            )]
            .into());
        }
        Ok(Ok(answer))
    }

    async fn modern(&mut self, discovered: Discovered) -> Result<Found, Wrong> {
        let Discovered { capabilities, instructions, meta, .. } = discovered;
        let info = meta.0.iter().find(|(key, _)| key == "io.modelcontextprotocol/serverInfo");
        let info = info.and_then(|(_, info)| parsed::<ServerInfo>(info.get()).ok());
        let has_tools = capabilities.0.iter().any(|(name, _)| name == "tools");
        let page = if has_tools { self.tools(McpEra::Modern, None).await? } else { ToolPage::default() };
        let mut found = self.found(McpEra::Modern, info, instructions, page);
        self.beside(&mut found, &capabilities).await?;
        Ok(found)
    }

    async fn legacy(&mut self) -> Result<Result<Found, String>, Wrong> {
        let answer = match self.answer(Request::new(McpEra::Legacy, self.path, "tools/list")).await? {
            Ok(answer) => answer,
            Err(failed) => return Ok(Err(failed)),
        };
        if let Some(Reply::Error(error)) = &answer.reply
            && answer.status.is_client_error()
            && is_of_server(error)
        {
            let reason = quoted(&error.message);
            return Err(self.without_sessions(&format!("it refuses a request without a session ({reason})")));
        }
        let Some(result) = answer.result() else { return Ok(Err(format!("is none ({})", answer.status))) };
        let first = match tools::page(result) {
            Ok(first) => first,
            Err(wrong) => return Ok(Err(format!("is none (tools/list: {wrong})"))),
        };
        let page = self.tools(McpEra::Legacy, Some(first)).await?;
        let greeted = self.answer(Request::initialize(self.path)).await?;
        let result = greeted.as_ref().ok().and_then(Answer::result);
        let greeting = result.and_then(|result| parsed::<Initialized>(result.as_str()).ok());
        let Initialized { server_info, instructions, capabilities, .. } = greeting.unwrap_or_default();
        let mut found = self.found(McpEra::Legacy, server_info, instructions, page);
        self.beside(&mut found, &capabilities).await?;
        Ok(Ok(found))
    }

    /// A server that answers nothing before a handshake.
    async fn greeted(&mut self) -> Result<Result<Found, String>, Wrong> {
        let answer = match self.answer(Request::initialize(None)).await? {
            Ok(answer) => answer,
            Err(failed) => return Ok(Err(failed)),
        };
        let greeting = answer.result().and_then(|result| parsed::<Initialized>(result.as_str()).ok());
        let Some(greeting) = greeting.filter(|greeting| greeting.protocol_version.is_some()) else {
            return Ok(Err(format!("is none ({})", answer.failure())));
        };
        let Initialized { server_info, instructions, capabilities, .. } = greeting;
        let has_tools = capabilities.0.iter().any(|(name, _)| name == "tools");
        let page = if has_tools { self.tools(McpEra::Legacy, None).await? } else { ToolPage::default() };
        let mut found = self.found(McpEra::Legacy, server_info, instructions, page);
        self.beside(&mut found, &capabilities).await?;
        Ok(Ok(found))
    }

    /// All pages of its tools, after a first one that is there already.
    async fn tools(&mut self, era: McpEra, first: Option<ToolPage>) -> Result<ToolPage, Wrong> {
        let mut all = ToolPage::default();
        let read =
            |result: &Json| tools::page(result).map(|mut page| Page { next: page.next.take(), items: vec![page] });
        let first = first.map(|mut page| Page { next: page.next.take(), items: vec![page] });
        for page in self.pages(era, "tools/list", first, read).await? {
            all.tools.extend(page.tools);
            all.dropped.extend(page.dropped);
            all.problems.extend(page.problems);
        }
        if all.problems.is_empty() { Ok(all) } else { Err(all.problems.into()) }
    }

    /// All pages of a list.
    async fn pages<T: Send>(
        &mut self,
        era: McpEra,
        method: &'static str,
        first: Option<Page<T>>,
        read: impl Fn(&Json) -> Result<Page<T>, String> + Send,
    ) -> Result<Vec<T>, Wrong> {
        let wrong =
            |what: String| Wrong::from(vec![format!("{method} of its MCP server ({}): {what}", era.revision())]);
        let mut pages = usize::from(first.is_some());
        let mut page = match first {
            Some(page) => page,
            None => Page { items: Vec::new(), next: None },
        };
        let mut items = Vec::new();
        loop {
            items.append(&mut page.items);
            if pages > 0 && page.next.is_none() {
                return Ok(items);
            }
            if pages >= LISTED_PAGES_MAX {
                return Err(wrong(format!("it has more than {LISTED_PAGES_MAX} pages")));
            }
            pages += 1;
            let answer = self.answer(Request::new(era, self.path, method).at_cursor(page.next.as_deref())).await?;
            let answer = answer.map_err(wrong)?;
            let result = answer.result().ok_or_else(|| wrong(answer.failure()))?;
            page = read(result).map_err(wrong)?;
        }
    }

    /// What it has beside its tools.
    async fn beside(&mut self, found: &mut Found, capabilities: &Members) -> Result<(), Wrong> {
        let has = |name: &str| capabilities.0.iter().any(|(capability, _)| capability == name);
        let features =
            McpFeatures { resources: has("resources"), prompts: has("prompts"), completions: has("completions") };
        let era = found.server.era;
        found.server.features = features;
        if features.resources {
            // Many servers with resources have no templates, and say so by an error.
            let templates = self.pages(era, "resources/templates/list", None, features::template_page).await;
            found.templates = templates.or_else(|wrong| if wrong.passing { Err(wrong) } else { Ok(Vec::new()) })?;
            // What cannot be listed now may well be listed in a call.
            let resources = self.pages(era, "resources/list", None, features::resource_page).await;
            found.resources = resources.or_else(|wrong| if wrong.passing { Err(wrong) } else { Ok(Vec::new()) })?;
        }
        if features.prompts {
            found.prompts = self.pages(era, "prompts/list", None, features::prompt_page).await?;
        }
        Ok(())
    }

    fn found(
        &self,
        era: McpEra,
        info: Option<ServerInfo>,
        instructions: Option<String>,
        ToolPage { tools, dropped: of_tools, .. }: ToolPage,
    ) -> Found {
        let instructions = instructions.map(|text| format!("instructions: {}", quoted(&text)));
        let mut dropped: Vec<_> = instructions.into_iter().chain(of_tools).collect();
        if let Some(more) = dropped.len().checked_sub(DROPPED_MAX).filter(|more| *more > 0) {
            dropped.truncate(DROPPED_MAX);
            dropped.push(format!("and {more} more"));
        }
        let named = |info: ServerInfo| {
            let text = format!("{} {}", info.name, info.version);
            escaped(beginning(text.trim(), QUOTED_BYTES_MAX)).to_string()
        };
        let features = McpFeatures::default();
        let server = McpServer { era, path: self.path.map(str::to_owned), server: info.map(named), dropped, features };
        Found { server, tools, templates: Vec::new(), resources: Vec::new(), prompts: Vec::new() }
    }

    fn without_sessions(&self, what: &str) -> Wrong {
        vec![format!(
            "its MCP server at {} keeps sessions: {what}. A session is in memory, and each call has a fresh one: have the \
             server answer without sessions",
            self.path.unwrap_or_default()
        )]
        .into()
    }
}

impl Answer {
    fn result(&self) -> Option<&Json> {
        match &self.reply {
            Some(Reply::Result(result)) => Some(result),
            _ => None,
        }
    }

    /// What it is instead of a result.
    fn failure(&self) -> String {
        match &self.reply {
            Some(Reply::Error(error)) => format!("error {}: {}", error.code, quoted(&error.message)),
            _ if self.status.is_success() => "no answer of the protocol".to_owned(),
            _ => format!("status {} without an answer", self.status),
        }
    }
}

/// Whether a server of MCP refuses a request by this, rather than another one of JSON-RPC a method.
fn is_of_server(error: &RpcError) -> bool {
    (-32099..=-32000).contains(&error.code) || error.message.to_ascii_lowercase().contains("session")
}

fn quoted(text: &str) -> String {
    format!("{:?}", escaped(beginning(text, QUOTED_BYTES_MAX)).to_string())
}
