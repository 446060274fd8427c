//! Prompt templates that clients offer to their users.

use std::collections::BTreeMap;

use crate::bindings::bulkhead::plugin::types::{CallError, Content, Role};
use crate::bindings::prompts::{Prompt as Info, PromptArgument, PromptMessage, PromptOutput};
use crate::complete::Completer;
use crate::listing::{completed, listed};
use crate::{Error, output};

/// What the user filled in.
#[derive(Debug, Clone, Default)]
pub struct Arguments(pub(crate) BTreeMap<String, String>);

impl Arguments {
    /// An argument's value; empty where it was left out.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// The messages that a prompt becomes.
///
/// ```
/// use bulkhead_plugin::Messages;
///
/// let messages = Messages::new().user("Who wrote Faust?").assistant("Goethe.").user("When?");
/// ```
#[derive(Debug, Clone)]
pub struct Messages(PromptOutput);

impl Messages {
    /// No messages yet.
    #[must_use]
    pub fn new() -> Self {
        Self(PromptOutput { description: None, messages: Vec::new(), meta: Vec::new() })
    }

    /// What the user says.
    #[must_use]
    pub fn user(self, text: impl Into<String>) -> Self {
        self.text(Role::User, text.into())
    }

    /// What the model says.
    #[must_use]
    pub fn assistant(self, text: impl Into<String>) -> Self {
        self.text(Role::Assistant, text.into())
    }

    /// An image that the user shows.
    #[must_use]
    pub fn image(self, data: impl Into<Vec<u8>>, mime_type: impl Into<String>) -> Self {
        self.content(Role::User, Content::Image(output::media(data.into(), mime_type.into())))
    }

    /// A text resource that the user shows.
    #[must_use]
    pub fn resource(self, uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        self.content(Role::User, output::text_resource(uri.into(), mime_type.into(), text.into()))
    }

    /// Any content block of the WIT package.
    #[must_use]
    pub fn content(mut self, role: Role, content: Content) -> Self {
        self.0.messages.push(PromptMessage { role, content });
        self
    }

    fn text(self, role: Role, text: String) -> Self {
        self.content(role, output::text(text))
    }
}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

/// A type that filling in a prompt may return.
pub trait IntoMessages {
    /// The messages.
    ///
    /// # Errors
    ///
    /// Those of the request.
    fn into_messages(self) -> Result<Messages, CallError>;
}

impl IntoMessages for Messages {
    fn into_messages(self) -> Result<Messages, CallError> {
        Ok(self)
    }
}

impl IntoMessages for String {
    fn into_messages(self) -> Result<Messages, CallError> {
        Ok(Messages::new().user(self))
    }
}

impl IntoMessages for &'static str {
    fn into_messages(self) -> Result<Messages, CallError> {
        Ok(Messages::new().user(self))
    }
}

impl<T: IntoMessages, E: Into<Error>> IntoMessages for Result<T, E> {
    fn into_messages(self) -> Result<Messages, CallError> {
        self.map_err(|error| error.into().into_call_error())?.into_messages()
    }
}

type FillIn = Box<dyn Fn(&Arguments) -> Result<Messages, CallError>>;

/// One prompt.
///
/// ```
/// use bulkhead_plugin::{Plugin, Prompt};
///
/// fn plugin() -> Plugin {
///     let review = Prompt::new("review", "Reviews a piece of code.", |arguments| {
///         format!("Review this {} code:\n{}", arguments.get("language"), arguments.get("code"))
///     });
///     Plugin::new().prompt(
///         review
///             .required_argument("code", "What is reviewed.")
///             .argument("language", "Its language.")
///             .complete("language", |_| vec!["Rust".to_owned(), "C".to_owned()]),
///     )
/// }
///
/// let output = plugin().get_prompt("review", vec![("code".to_owned(), "fn main() {}".to_owned())]).unwrap();
/// assert_eq!(output.messages.len(), 1);
/// ```
pub struct Prompt {
    pub(crate) info: Info,
    pub(crate) completers: Vec<(String, Completer)>,
    fill_in: FillIn,
}

impl Prompt {
    /// A prompt that `fill_in` turns into messages. The name has the grammar of tool names. The host has checked that
    /// required arguments are there.
    pub fn new<R: IntoMessages>(
        name: impl Into<String>,
        description: impl Into<String>,
        fill_in: impl Fn(&Arguments) -> R + 'static,
    ) -> Self {
        let info = Info {
            name: name.into(),
            title: None,
            description: Some(description.into()),
            arguments: Vec::new(),
            icons: Vec::new(),
            meta: Vec::new(),
        };
        Self { info, completers: Vec::new(), fill_in: Box::new(move |arguments| fill_in(arguments).into_messages()) }
    }

    /// An argument that may be left out.
    #[must_use]
    pub fn argument(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.add(name.into(), description.into(), false)
    }

    /// An argument that must be there.
    #[must_use]
    pub fn required_argument(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.add(name.into(), description.into(), true)
    }

    fn add(mut self, name: String, description: String, required: bool) -> Self {
        let description = Some(description);
        self.info.arguments.push(PromptArgument { name, title: None, description, required });
        self
    }
}

listed!(Prompt);
completed!(Prompt);

/// Fills in the prompt of this name.
pub(crate) fn get(prompts: &[Prompt], name: &str, arguments: Vec<(String, String)>) -> Result<PromptOutput, CallError> {
    let Some(prompt) = prompts.iter().find(|prompt| prompt.info.name == name) else {
        return Err(CallError::NotFound(format!("there is no prompt {name}")));
    };
    let Messages(mut output) = (prompt.fill_in)(&Arguments(arguments.into_iter().collect()))?;
    output.description = output.description.or_else(|| prompt.info.description.clone());
    Ok(output)
}
