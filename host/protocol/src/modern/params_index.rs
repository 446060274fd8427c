//! The members of a request's params that more than one of its checks looks at, found in one pass.
//!
//! Owns which they are, not what they mean. Invariant: of a member that is there twice neither is taken: a check that
//! needs it refuses the request.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::meta::RawMeta;
use crate::error::RpcError;
use crate::{jsonrpc, reader};

/// A member by its name on the wire.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    #[serde(rename = "_meta")]
    Meta,
    Name,
    TaskId,
    Uri,
    Arguments,
    InputResponses,
    RequestState,
    #[serde(other)]
    Other,
}

/// What is there, as it stands there; `null` is there.
#[derive(Default)]
pub(super) struct Members<'a> {
    pub(super) meta: Option<RawMeta<'a>>,
    /// Of a tool or a prompt.
    pub(super) name: Member<'a>,
    pub(super) task_id: Member<'a>,
    pub(super) uri: Member<'a>,
    pub(super) arguments: Member<'a>,
    pub(super) input_responses: Member<'a>,
    pub(super) request_state: Member<'a>,
}

impl<'a> Members<'a> {
    /// # Errors
    ///
    /// If there is no object, or its `_meta` is none or there twice.
    pub(super) fn read(params: &'a str) -> Result<Self, String> {
        reader::read(params, "params")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Members::default();
                while let Some(key) = map.next_key()? {
                    let member = match key {
                        Key::Meta if members.meta.is_some() => return Err(A::Error::duplicate_field("_meta")),
                        Key::Meta => {
                            members.meta = map.next_value()?;
                            continue;
                        }
                        Key::Other => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                        Key::Name => &mut members.name,
                        Key::TaskId => &mut members.task_id,
                        Key::Uri => &mut members.uri,
                        Key::Arguments => &mut members.arguments,
                        Key::InputResponses => &mut members.input_responses,
                        Key::RequestState => &mut members.request_state,
                    };
                    let value = map.next_value()?;
                    *member = match member {
                        Member::Absent => Member::Once(value),
                        Member::Once(_) | Member::Twice => Member::Twice,
                    };
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// One of them.
#[derive(Default)]
pub(super) enum Member<'a> {
    #[default]
    Absent,
    Once(&'a RawValue),
    Twice,
}

impl<'a> Member<'a> {
    /// As it stands there, or nothing.
    ///
    /// # Errors
    ///
    /// When it is there twice; `path` names it.
    pub(super) fn raw(&self, path: &str) -> Result<Option<&'a RawValue>, RpcError> {
        match self {
            Self::Absent => Ok(None),
            Self::Once(value) => Ok(Some(value)),
            Self::Twice => Err(RpcError::invalid_params(format!("{path} is there twice"))),
        }
    }

    /// Its value. `null` is a value.
    ///
    /// # Errors
    ///
    /// When it is there twice, or of another type.
    pub(super) fn value<T: Deserialize<'a>>(&self, path: &str) -> Result<Option<T>, RpcError> {
        self.raw(path)?.map(|raw| jsonrpc::member(raw.get(), path)).transpose()
    }

    /// The text that must be there.
    ///
    /// # Errors
    ///
    /// When it is absent too.
    pub(super) fn required(&self, path: &str) -> Result<String, RpcError> {
        let value = self.value(path)?;
        value.ok_or_else(|| RpcError::invalid_params(reader::missing(path, "a string")))
    }

    /// Its text, if it is one.
    pub(super) fn text(&self) -> Option<std::borrow::Cow<'a, str>> {
        match self {
            Self::Once(raw) => jsonrpc::text(raw),
            Self::Absent | Self::Twice => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Option<Members<'_>> {
        Members::read(text).ok()
    }

    #[test]
    fn params_members_are_found_in_any_order() {
        let text = r#"{"x":[{"name":1}],"na\u006de":"a\nb","_meta":{},"arguments":null,"uri":7}"#;
        let members = members(text).unwrap();
        assert!(members.meta.is_some());
        assert_eq!(members.name.text().unwrap(), "a\nb");
        assert_eq!(members.name.required("params.name").unwrap(), "a\nb");
        assert_eq!(members.arguments.raw("params.arguments").unwrap().unwrap().get(), "null");
        assert!(members.arguments.value::<Option<String>>("params.arguments").unwrap().unwrap().is_none());
        assert!(members.uri.text().is_none());
        assert_eq!(
            members.uri.value::<String>("params.uri").unwrap_err().message,
            "params.uri must be a string, not a number"
        );
        assert!(members.task_id.required("params.taskId").unwrap_err().message.contains("params.taskId is missing"));
    }

    #[test]
    fn duplicate_params_member_is_refused_when_read() {
        let twice = members(r#"{"name":"a","name":"a","uri":"b"}"#).unwrap();
        assert!(twice.name.text().is_none());
        assert_eq!(twice.name.raw("params.name").unwrap_err().message, "params.name is there twice");
        assert_eq!(twice.uri.text().unwrap(), "b");
        assert!(members(r#"{"_meta":{},"_meta":{}}"#).is_none());
    }

    #[test]
    fn non_object_params_have_no_members() {
        assert!(members("[{}]").is_none());
        assert!(members(r#"{"_meta":7}"#).is_none());
    }
}
