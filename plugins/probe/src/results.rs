//! Every kind of content, and every kind of failure.

use bulkhead_plugin::{CallError, ClientFeature, Error, IntoOutput, Json, Output};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The smallest PNG: one transparent pixel.
const PIXEL: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\0\x01\
    \0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

pub(crate) fn contents() -> Output {
    Output::text("a text")
        .image(PIXEL, "image/png")
        .audio(*b"RIFF\x04\0\0\0WAVE", "audio/wav")
        .link("file:///a/link", "link")
        .resource("file:///embedded", "text/plain", "an embedded text")
        .structured(&json!({ "blocks": 5 }))
        .meta("dev.bulkhead/probe", &json!({ "nested": [1, 2.5, null] }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Squares {
    /// How many.
    count: u32,
}

pub(crate) fn squares(Squares { count }: Squares) -> Json<Vec<u64>> {
    Json((1..=u64::from(count)).map(|number| number * number).collect())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Way {
    Tool,
    InvalidParams,
    NotFound,
    MissingCapability,
    Internal,
    Custom,
    CustomReserved,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Failure {
    /// In which way.
    way: Way,
}

/// The one error that the SDK only makes itself, out of a question that the client cannot show.
pub(crate) enum Failed {
    With(Error),
    MissingCapability,
}

impl IntoOutput for Failed {
    fn into_output(self) -> Result<Output, CallError> {
        match self {
            Self::With(error) => Err::<(), Error>(error).into_output(),
            Self::MissingCapability => Err(CallError::MissingCapability(ClientFeature::Sampling)),
        }
    }
}

pub(crate) fn fail(Failure { way }: Failure) -> Failed {
    let data = json!({ "why": "asked for" });
    Failed::With(match way {
        Way::Tool => Error::new("the tool did not succeed"),
        Way::InvalidParams => Error::invalid_params("the params are wrong"),
        Way::NotFound => Error::not_found("there is no such thing"),
        Way::MissingCapability => return Failed::MissingCapability,
        Way::Internal => Error::internal("an internal text that no client may see"),
        Way::Custom => Error::custom(4001, "a code of its own", Some(&data)),
        Way::CustomReserved => Error::custom(-32601, "a code that belongs to JSON-RPC", Some(&data)),
    })
}
