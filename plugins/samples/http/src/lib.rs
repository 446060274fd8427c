//! Fetches a page through `wasi:http`. Which hosts it reaches is the operator's decision; the guest has no socket of
//! its own.

mod fetch;

use bulkhead_plugin::{Error, Json, Plugin, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a body that are returned; a model can do little with more.
const BODY_BYTES_MAX: usize = 256 * 1024;

#[derive(Deserialize, JsonSchema)]
struct Address {
    /// An absolute `https:` or `http:` URL.
    url: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Page {
    /// The HTTP status.
    status: u16,
    /// The media type, as the server gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    content_type: Option<String>,
    /// Where the server redirects to. Redirects are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    location: Option<String>,
    /// The body as text; what is not UTF-8 is replaced.
    body: String,
    /// True if the body was longer than 256 KiB and the rest is missing.
    truncated: bool,
}

fn http_get(Address { url }: Address) -> Result<Json<Page>, Error> {
    let uri: http::Uri = url.parse().map_err(|error| Error::new(format!("{url} is not a URL: {error}")))?;
    let response = fetch::get(&uri)?;
    let header =
        |name: &str| response.headers().get(name).first().map(|value| String::from_utf8_lossy(value).into_owned());
    let content_type = header("content-type");
    let location = header("location");
    let (body, truncated) = fetch::body(&response, BODY_BYTES_MAX)?;
    Ok(Json(Page {
        status: response.status(),
        content_type,
        location,
        body: String::from_utf8_lossy(&body).into_owned(),
        truncated,
    }))
}

fn plugin() -> Plugin {
    Plugin::new().tool(
        Tool::new(
            "http_get",
            "Fetches a URL with GET and returns the status and the first 256 KiB of the body as text. Only hosts that the \
             operator allows can be reached; redirects are returned, not followed.",
            http_get,
        )
        .title("Fetch a URL")
        .task_optional()
        .read_only()
        .open_world(true),
    )
}

bulkhead_plugin::manifest!(
    r#"
name = "http"
description = "Fetches pages from the hosts that the operator allows."

# Whatever the operator grants: the plugin has no use for one host more than for another.
[grants]
http = ["*"]
"#
);
bulkhead_plugin::export!(plugin);
