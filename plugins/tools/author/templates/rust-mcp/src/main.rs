//! An MCP server of the official SDK, which knows nothing of Bulkhead: it greets people, and counts down.

mod stdio;

use std::time::Duration;

use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{ProgressNotificationParam, RequestMetaObject};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Countdown {
    /// How long it takes.
    #[schemars(range(min = 1, max = 3600))]
    seconds: u32,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    /// Seconds that were left when it ended.
    left: u32,
}

struct Server;

#[tool_router]
impl Server {
    /// Greets someone by name.
    #[tool(annotations(read_only_hint = true))]
    fn greet(&self, Parameters(who): Parameters<Greet>) -> Result<String, String> {
        // The result of a tool that failed: the model reads why.
        if who.name.trim().is_empty() { Err("The name is blank.".to_owned()) } else { Ok(format!("Hello, {}!", who.name)) }
    }

    /// Counts down.
    #[tool(annotations(read_only_hint = true))]
    async fn countdown(
        &self,
        Parameters(Countdown { seconds }): Parameters<Countdown>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> Result<Json<Counted>, ErrorData> {
        for left in (1..=seconds).rev() {
            if let Some(token) = meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(seconds - left));
                // Nobody listens any more: the countdown goes on.
                let _ = client.notify_progress(progress.with_total(f64::from(seconds))).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(Json(Counted { left: 0 }))
    }
}

#[tool_handler(name = "{{name}}", version = "0.1.0")]
impl ServerHandler for Server {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Server.serve((stdio::Input::new(), stdio::Output)).await?.waiting().await?;
    Ok(())
}
