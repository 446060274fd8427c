//! What the host is compared with.

use std::process::Stdio;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// A server to compare with.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Peer {
    Bare,
    Native,
}

/// A peer in a process of its own. Dropping it ends it.
pub(crate) struct Served {
    pub(crate) url: String,
    _child: Child,
}

/// Starts a peer.
pub(crate) async fn start(peer: Peer) -> anyhow::Result<Served> {
    let name = match peer {
        Peer::Bare => "bare",
        Peer::Native => "native",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--peer", name]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().context("a pipe")?;
    let line = BufReader::new(stdout).lines().next_line().await?;
    Ok(Served { url: line.context("the peer does not serve")?, _child: child })
}

/// Serves a peer until the process is killed.
pub(crate) async fn serve(peer: Peer) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let router = match peer {
        Peer::Bare => Router::new().route("/mcp", post(bare)),
        Peer::Native => native::router()?,
    };
    // Without it, small replies wait for the acknowledgement of the ones before.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await?;
    Ok(())
}

/// The request, as any server has to read it.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    arguments: Option<Echo<'a>>,
}

#[derive(Deserialize)]
struct Echo<'a> {
    #[serde(borrow, default)]
    text: std::borrow::Cow<'a, str>,
}

async fn bare(body: Bytes) -> impl IntoResponse {
    let reply = match serde_json::from_slice::<Request<'_>>(&body) {
        Ok(request) => {
            let text = request.params.arguments.map(|echo| echo.text).unwrap_or_default();
            let text = serde_json::to_string(&text).unwrap_or_default();
            let id = request.id.get();
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#)
        }
        Err(error) => format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32700,"message":"{error}"}}}}"#),
    };
    ([(CONTENT_TYPE, "application/json")], reply)
}

#[cfg(not(feature = "bench"))]
mod native {
    pub(super) fn router() -> anyhow::Result<axum::Router> {
        anyhow::bail!("the native server is built with `--features bench`")
    }
}

#[cfg(feature = "bench")]
mod native {
    //! An echo tool as the official Rust SDK serves it: no sandbox, no schema check, JSON replies.

    use std::sync::Arc;

    use rmcp_modern::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ServerCapabilities,
        ServerConfig,
    };
    use rmcp_modern::service::RequestContext;
    use rmcp_modern::transport::streamable_http_server::session::local::LocalSessionManager;
    use rmcp_modern::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
    use rmcp_modern::{RoleServer, ServerHandler};

    #[derive(Clone)]
    struct Echo;

    impl ServerHandler for Echo {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            _context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let text = request.arguments.as_ref().and_then(|arguments| arguments.get("text"));
            let text = text.and_then(|text| text.as_str()).unwrap_or_default();
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        }
    }

    pub(super) fn router() -> anyhow::Result<axum::Router> {
        let mut config = StreamableHttpServerConfig::default();
        config.legacy_session_mode = false;
        config.json_response = true;
        let service = StreamableHttpService::new(|| Ok(Echo), Arc::new(LocalSessionManager::default()), config);
        Ok(axum::Router::new().nest_service("/mcp", service))
    }
}
