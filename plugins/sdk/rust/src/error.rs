//! Why a tool did not succeed.

use std::any::Any;
use std::fmt;

use crate::ask::AskError;
use crate::bindings::bulkhead::plugin::types::{CallError, CustomError};
use crate::output::Output;

/// What a tool returns when it does not succeed.
///
/// Most errors are *the tool's own*: it ran, and the answer is that it did not work. The client gets a result with
/// `isError` and the error's text, sources included, and a model may try something else. `?` makes this kind out of
/// every [`std::error::Error`].
///
/// The constructors [`invalid_params`](Error::invalid_params), [`not_found`](Error::not_found),
/// [`internal`](Error::internal) and [`custom`](Error::custom) make *errors of the call* instead: the client sees a
/// JSON-RPC error, and a model usually nothing. One error changes its kind by itself: a question that the client cannot
/// show becomes [`CallError::MissingCapability`].
///
/// ```
/// use bulkhead_plugin::Error;
///
/// fn parse(text: &str) -> Result<u32, Error> {
///     let number: u32 = text.trim().parse()?;
///     if number == 0 {
///         return Err(Error::new("zero is not a quantity"));
///     }
///     Ok(number)
/// }
///
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct Error(Kind);

enum Kind {
    Tool(String),
    Call(CallError),
}

impl Error {
    /// The tool did not succeed, for this reason.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Kind::Tool(message.to_string()))
    }

    /// The request itself is wrong in a way that the schema cannot say.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self(Kind::Call(CallError::InvalidParams(message.into())))
    }

    /// What the request names does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self(Kind::Call(CallError::NotFound(message.into())))
    }

    /// Something broke. The text goes to the operator's log; the client sees a fixed one.
    pub fn internal(message: impl Into<String>) -> Self {
        Self(Kind::Call(CallError::Internal(message.into())))
    }

    /// A JSON-RPC error with a code of your own, outside -32768 to -32000.
    pub fn custom(code: i32, message: impl Into<String>, data: Option<&serde_json::Value>) -> Self {
        let data = data.map(ToString::to_string);
        Self(Kind::Call(CallError::Custom(CustomError { code, message: message.into(), data, meta: Vec::new() })))
    }

    /// For requests whose results cannot say that something did not work: the text goes to the operator's log.
    pub(crate) fn into_call_error(self) -> CallError {
        match self.0 {
            Kind::Tool(message) => CallError::Internal(message),
            Kind::Call(error) => error,
        }
    }

    pub(crate) fn into_output(self) -> Result<Output, CallError> {
        match self.0 {
            Kind::Tool(message) => Ok(Output::text(message).failed()),
            Kind::Call(error) => Err(error),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        if let Some(AskError::Unsupported(feature)) = (&error as &dyn Any).downcast_ref::<AskError>() {
            return Self(Kind::Call(CallError::MissingCapability(*feature)));
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self(Kind::Tool(text))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tool(message) => formatter.write_str(message),
            Kind::Call(
                CallError::InvalidParams(message) | CallError::NotFound(message) | CallError::Internal(message),
            ) => formatter.write_str(message),
            Kind::Call(CallError::MissingCapability(feature)) => write!(formatter, "the client lacks {feature:?}"),
            Kind::Call(CallError::Custom(custom)) => formatter.write_str(&custom.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_includes_its_sources() {
        #[derive(Debug)]
        struct Outer(std::num::ParseIntError);
        impl fmt::Display for Outer {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("no quantity")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer("x".parse::<u8>().unwrap_err()));
        assert_eq!(error.to_string(), "no quantity: invalid digit found in string");
    }

    #[test]
    fn unsupported_input_request_is_a_missing_capability() {
        let error = Error::from(AskError::Unsupported(crate::ClientFeature::Sampling));
        assert!(matches!(error.into_output(), Err(CallError::MissingCapability(crate::ClientFeature::Sampling))));
    }
}
