//! What a tool gives back.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::bindings::bulkhead::plugin::types::{
    CallError, Content, EmbeddedResource, MediaContent, ResourceBody, ResourceContents, ResourceLink, TextContent,
};
use crate::bindings::exports::bulkhead::plugin::tools::ToolOutput;
use crate::{Error, schema};

/// A type that a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "a tool returns a text, `Json<T>`, `Output` or nothing, or a `Result` of these",
    note = "an object is returned as `Json<{Self}>`, where `{Self}` has `#[derive(serde::Serialize, schemars::JsonSchema)]`"
)]
pub trait IntoOutput {
    /// The JSON Schema of the structured content, where the type has any.
    #[must_use]
    fn output_schema() -> Option<Value> {
        None
    }

    /// The result as the client gets it.
    ///
    /// # Errors
    ///
    /// Those of the call itself; a tool that did not succeed returns an output that says so.
    fn into_output(self) -> Result<Output, CallError>;
}

/// A typed result: structured content with an output schema, and the same JSON as a text block.
///
/// A struct or a map is understood everywhere. A `T` that serializes to something else, such as a list, is structured
/// content for clients of 2026-07-28 and text for older ones.
pub struct Json<T>(pub T);

/// A result that is put together by hand.
///
/// ```
/// use bulkhead_plugin::Output;
///
/// let png: &[u8] = b"\x89PNG";
/// let output = Output::text("The chart of last week").image(png, "image/png");
/// ```
pub struct Output(ToolOutput);

impl Output {
    /// An output without content.
    #[must_use]
    pub fn new() -> Self {
        Self(ToolOutput { content: Vec::new(), structured: None, is_error: false, meta: Vec::new() })
    }

    /// An output with one text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().and_text(text)
    }

    /// One more text block.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.content(self::text(text.into()))
    }

    /// An image, by its bytes and media type.
    #[must_use]
    pub fn image(self, data: impl Into<Vec<u8>>, mime_type: impl Into<String>) -> Self {
        self.content(Content::Image(media(data.into(), mime_type.into())))
    }

    /// A sound, by its bytes and media type.
    #[must_use]
    pub fn audio(self, data: impl Into<Vec<u8>>, mime_type: impl Into<String>) -> Self {
        self.content(Content::Audio(media(data.into(), mime_type.into())))
    }

    /// A pointer to a resource that the client may read later.
    #[must_use]
    pub fn link(self, uri: impl Into<String>, name: impl Into<String>) -> Self {
        self.content(Content::ResourceLink(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            annotations: None,
            meta: Vec::new(),
        }))
    }

    /// A text resource inside the result.
    #[must_use]
    pub fn resource(self, uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        self.content(text_resource(uri.into(), mime_type.into(), text.into()))
    }

    /// Any content block of the WIT package.
    #[must_use]
    pub fn content(mut self, content: Content) -> Self {
        self.0.content.push(content);
        self
    }

    /// Structured content, as it is. A tool whose results always have the same shape returns [`Json`] instead, which
    /// also declares it.
    #[must_use]
    pub fn structured(self, value: &Value) -> Self {
        self.structured_text(value.to_string())
    }

    /// Structured content that is JSON text already. The host refuses what is not well-formed.
    #[must_use]
    pub fn structured_text(mut self, json: impl Into<String>) -> Self {
        self.0.structured = Some(json.into());
        self
    }

    /// An entry of the result's `_meta`.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: &Value) -> Self {
        self.0.meta.push((key.into(), value.to_string()));
        self
    }

    /// Marks the output as a failure of the tool (`isError`).
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.0.is_error = true;
        self
    }
}

/// A text block.
pub(crate) fn text(text: String) -> Content {
    Content::Text(TextContent { text, annotations: None, meta: Vec::new() })
}

/// A block with a text resource in it.
pub(crate) fn text_resource(uri: String, mime_type: String, text: String) -> Content {
    let body = ResourceBody::Text(text);
    let contents = ResourceContents { uri, mime_type: Some(mime_type), body, meta: Vec::new() };
    Content::Resource(EmbeddedResource { contents, annotations: None, meta: Vec::new() })
}

/// What an image and a sound are made of.
pub(crate) fn media(data: Vec<u8>, mime_type: String) -> MediaContent {
    MediaContent { data, mime_type, annotations: None, meta: Vec::new() }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Output> for ToolOutput {
    fn from(output: Output) -> Self {
        output.0
    }
}

impl IntoOutput for Output {
    fn into_output(self) -> Result<Output, CallError> {
        Ok(self)
    }
}

impl IntoOutput for String {
    fn into_output(self) -> Result<Output, CallError> {
        Ok(Output::text(self))
    }
}

impl IntoOutput for &'static str {
    fn into_output(self) -> Result<Output, CallError> {
        Ok(Output::text(self))
    }
}

impl IntoOutput for () {
    fn into_output(self) -> Result<Output, CallError> {
        Ok(Output::new())
    }
}

impl<T: Serialize + JsonSchema> IntoOutput for Json<T> {
    fn output_schema() -> Option<Value> {
        Some(schema::of_result::<T>())
    }

    fn into_output(self) -> Result<Output, CallError> {
        let json = serde_json::to_string(&self.0)
            .map_err(|error| CallError::Internal(format!("the result does not serialize: {error}")))?;
        let mut output = Output::text(json.clone());
        output.0.structured = Some(json);
        Ok(output)
    }
}

impl<T: IntoOutput, E: Into<Error>> IntoOutput for Result<T, E> {
    fn output_schema() -> Option<Value> {
        T::output_schema()
    }

    fn into_output(self) -> Result<Output, CallError> {
        match self {
            Ok(value) => value.into_output(),
            Err(error) => error.into().into_output(),
        }
    }
}
