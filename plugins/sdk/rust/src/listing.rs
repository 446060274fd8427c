//! What everything that a plugin lists has in common: how it is shown, and what is suggested for its arguments.
//!
//! The records of the lists are the WIT package's own and share no trait, so these are macros: each type has the
//! methods as its own.

use serde_json::Value;

/// The methods of types that clients see in a list. Their field `info` is the record.
macro_rules! listed {
    ($($type:ident),+) => {$(
        impl $type {
            /// A name for people.
            #[must_use]
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.info.title = Some(title.into());
                self
            }

            /// An image next to the name; see [`Icon`](crate::Icon).
            #[must_use]
            pub fn icon(mut self, icon: crate::Icon) -> Self {
                self.info.icons.push(icon);
                self
            }

            /// An entry of its `_meta`, that of a resource in the list and on what is read. Objects under one key
            /// become one object.
            #[must_use]
            pub fn meta(mut self, key: impl Into<String>, value: &serde_json::Value) -> Self {
                $crate::listing::add_meta(&mut self.info.meta, key.into(), value);
                self
            }
        }
    )+};
}

/// The method of types with arguments that are completed.
macro_rules! completed {
    ($($type:ident),+) => {$(
        impl $type {
            /// Suggests values for an argument of a prompt, or a variable of a template, best first.
            #[must_use]
            pub fn complete(
                mut self,
                argument: impl Into<String>,
                suggest: impl Fn(&crate::Partial) -> Vec<String> + 'static,
            ) -> Self {
                self.completers.push((argument.into(), Box::new(suggest)));
                self
            }
        }
    )+};
}

pub(crate) use {completed, listed};

/// Clients read one entry of a key: what is said of a view in two steps must not be two of them.
pub(crate) fn add_meta(meta: &mut Vec<(String, String)>, key: String, value: &Value) {
    let known = meta.iter().position(|(known, _)| *known == key).map(|at| meta.remove(at).1);
    let known = known.and_then(|json| serde_json::from_str(&json).ok());
    let merged = match (known, value) {
        (Some(Value::Object(mut members)), Value::Object(more)) => {
            members.extend(more.clone());
            Value::Object(members)
        }
        _ => value.clone(),
    };
    meta.push((key, merged.to_string()));
}
