//! The form of a plugin's question, made of the schema that it asks by.
//!
//! Must not judge an answer: the protocol does that, for clients and browsers alike. Invariant: what was filled in
//! comes back when it was refused; a schema that says nonsense makes a form with fewer fields and no markup.

use maud::{Markup, html};
use serde_json::{Map, Number, Value};

use crate::request::Form;
use crate::text;

/// Fields of a plugin's question that a page of the dashboard shows.
pub(crate) const FIELDS_SHOWN_MAX: usize = 100;
/// Choices of one field that a page of the dashboard shows.
const CHOICES_SHOWN_MAX: usize = 500;
/// In front of the names that the plugin chose, so that they are none of ours.
const PREFIX: &str = "field.";

/// What a field holds.
pub(crate) enum Kind {
    Text(&'static str),
    /// Text with lines; only arguments have it.
    Multiline,
    Number {
        whole: bool,
    },
    Switch,
    One(Vec<(String, String)>),
    Some(Vec<(String, String)>),
    /// Anything, as JSON; only arguments have it.
    Json,
}

/// What the input of a field is called.
pub(crate) fn input_name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// What was filled in under names that are not ours.
pub(crate) fn sent(form: &Form) -> impl Iterator<Item = (&str, &str)> {
    form.fields().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)))
}

pub(crate) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().take(FIELDS_SHOWN_MAX)
}

fn kind(field: &Value) -> Kind {
    match text_of(field, "type") {
        Some("boolean") => Kind::Switch,
        Some("integer") => Kind::Number { whole: true },
        Some("number") => Kind::Number { whole: false },
        Some("array") => Kind::Some(choices(field.get("items").unwrap_or(&Value::Null))),
        _ => {
            let choices = choices(field);
            match text_of(field, "format") {
                _ if !choices.is_empty() => Kind::One(choices),
                Some("email") => Kind::Text("email"),
                Some("uri") => Kind::Text("url"),
                Some("date") => Kind::Text("date"),
                _ => Kind::Text("text"),
            }
        }
    }
}

/// The values that a field may have, each with what it is called.
pub(crate) fn choices(field: &Value) -> Vec<(String, String)> {
    let list = |name: &str| field.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let titled = list("oneOf").iter().chain(list("anyOf")).filter_map(|choice| {
        let value = text_of(choice, "const")?;
        Some((value.to_owned(), text_of(choice, "title").unwrap_or(value).to_owned()))
    });
    let names = list("enumNames");
    let plain = list("enum").iter().enumerate().filter_map(|(index, value)| {
        let value = value.as_str()?;
        Some((value.to_owned(), names.get(index).and_then(Value::as_str).unwrap_or(value).to_owned()))
    });
    titled.chain(plain).take(CHOICES_SHOWN_MAX).collect()
}

pub(crate) fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

pub(crate) fn is_required(schema: &Value, name: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|it| it == name))
}

/// The fields, with their defaults or with what was filled in before.
pub(crate) fn show(schema: &str, filled: Option<&Form>) -> Markup {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    html! { @for (name, field) in properties(&schema) { (show_field(name, field, &kind(field), is_required(&schema, name), filled)) } }
}

/// One field.
pub(crate) fn show_field(name: &str, field: &Value, kind: &Kind, required: bool, filled: Option<&Form>) -> Markup {
    let title = text::line(text_of(field, "title").unwrap_or(name));
    let id = input_name(name);
    let about = text_of(field, "description").map(text::line);
    let default = field.get("default");
    let value = match filled {
        Some(filled) => filled.get(&id).unwrap_or_default().to_owned(),
        None => match default {
            Some(default) if matches!(kind, Kind::Json) => default.to_string(),
            Some(Value::String(default)) => default.clone(),
            Some(default @ Value::Number(_)) => default.to_string(),
            _ => String::new(),
        },
    };
    let is_chosen = |choice: &str| match filled {
        Some(filled) => filled.all(&id).any(|value| value == choice),
        None => default.is_some_and(|default| {
            default == choice || default.as_array().is_some_and(|list| list.iter().any(|value| value == choice))
        }),
    };
    let bound = |name: &str| field.get(name).and_then(Value::as_f64).map(|bound| bound.to_string());
    let about = html! { @if let Some(about) = about { small { (about) } } };
    let longest = field.get("maxLength").and_then(Value::as_u64);
    match kind {
        Kind::Text(media) => {
            html! {
                label { (title) (about) input type=(media) name=(id) value=(value) required[required] maxlength=[longest]; }
            }
        }
        // The newline is there for a text that begins with one: a browser drops the first.
        Kind::Multiline => html! {
            label { (title) (about)
                textarea name=(id) rows="3" required[required] maxlength=[longest] { "\n" (value) }
            }
        },
        Kind::Json => html! {
            label { (title) (about) small { "As JSON." }
                textarea.json name=(id) rows="3" required[required] spellcheck="false" { "\n" (value) }
            }
        },
        Kind::Number { whole } => html! {
            label { (title) (about)
                input type="number" name=(id) value=(value) required[required] step=(if *whole { "1" } else { "any" })
                    min=[bound("minimum")] max=[bound("maximum")];
            }
        },
        Kind::Switch => {
            let on = filled.map_or(default == Some(&Value::Bool(true)), |filled| filled.get(&id).is_some());
            html! { label.switch { input type="checkbox" name=(id) value="true" checked[on]; " " (title) (about) } }
        }
        Kind::One(choices) => html! {
            label { (title) (about)
                select name=(id) required[required] {
                    option value="" { "(none)" }
                    @for (value, called) in choices {
                        option value=(value) selected[is_chosen(value)] { (text::line(called)) }
                    }
                }
            }
        },
        Kind::Some(choices) => html! {
            fieldset { legend { (title) } (about)
                @for (value, called) in choices {
                    label.switch {
                        input type="checkbox" name=(id) value=(value) checked[is_chosen(value)]; " " (text::line(called))
                    }
                }
            }
        },
    }
}

/// What was filled in, as the content of an answer. What is empty is left out, and what is no number stays a text: the
/// check of the answer says what is wrong with that.
pub(crate) fn content(schema: &str, form: &Form) -> Value {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let mut content = Map::new();
    for (name, field) in properties(&schema) {
        if let Some(value) = filled_in(&kind(field), &input_name(name), is_required(&schema, name), form) {
            content.insert(name.clone(), value);
        }
    }
    Value::Object(content)
}

/// One field as it was filled in; `None`: it is left out.
pub(crate) fn filled_in(kind: &Kind, id: &str, required: bool, form: &Form) -> Option<Value> {
    let text = form.get(id).unwrap_or_default();
    match kind {
        Kind::Switch => Some(Value::Bool(form.get(id).is_some())),
        Kind::Some(_) => {
            let chosen: Vec<_> = form.all(id).map(Value::from).collect();
            (required || !chosen.is_empty()).then_some(Value::Array(chosen))
        }
        _ if text.is_empty() => None,
        Kind::Number { .. } => Some(number(text).map_or_else(|| Value::from(text), Value::Number)),
        // Browsers send the end of a line as two characters.
        Kind::Multiline => Some(Value::from(text.replace("\r\n", "\n"))),
        Kind::Text(_) | Kind::One(_) | Kind::Json => Some(Value::from(text)),
    }
}

fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> String {
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "<b>Name</b>", "maxLength": 9, "default": "\"><script>"},
                "mail": {"type": "string", "format": "email"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
                "ratio": {"type": "number"},
                "sure": {"type": "boolean", "default": true},
                "class": {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"], "default": "b"},
                "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
                "extras": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}, {"const": "y"}]}},
            },
            "required": ["name", "extras"],
        })
        .to_string()
    }

    #[test]
    fn every_kind_of_field_is_shown_and_its_text_is_text() {
        let shown = show(&schema(), None).into_string();
        for part in [
            "&lt;b&gt;Name&lt;/b&gt;",
            r#"type="text" name="field.name" value="&quot;&gt;&lt;script&gt;" required maxlength="9""#,
            r#"type="email" name="field.mail""#,
            r#"type="number" name="field.count" value="" step="1" min="1" max="9""#,
            r#"step="any""#,
            r#"type="checkbox" name="field.sure" value="true" checked"#,
            r#"<option value="b" selected>Second</option>"#,
            r#"<option value="r">Red</option>"#,
            r#"type="checkbox" name="field.extras" value="y">"#,
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert!(!shown.contains("<script>") && !shown.contains("<b>"));
    }

    #[test]
    fn what_was_filled_in_becomes_typed_content_and_comes_back() {
        let body =
            "field.name=Ann&field.count=3&field.ratio=1.5&field.class=a&field.extras=x&field.extras=y&field.mail=";
        let form = Form::parse(body.as_bytes());
        let expected = json!({
            "name": "Ann", "count": 3, "ratio": 1.5, "sure": false, "class": "a", "extras": ["x", "y"],
        });
        assert_eq!(content(&schema(), &form), expected);
        let again = show(&schema(), Some(&form)).into_string();
        for part in [r#"value="Ann""#, r#"value="3""#, r#"value="a" selected"#, r#"value="y" checked"#] {
            assert!(again.contains(part), "{part} is not in {again}");
        }
        assert!(!again.contains(r#"value="true" checked"#));
    }

    #[test]
    fn wrong_numbers_stay_text_and_missing_choices_are_an_empty_list() {
        let content = content(&schema(), &Form::parse(b"field.count=many"));
        assert_eq!(content, json!({"count": "many", "sure": false, "extras": []}));
    }

    #[test]
    fn nonsense_schema_makes_an_empty_form() {
        for schema in ["", "[]", r#"{"properties": 1}"#] {
            assert_eq!(show(schema, None).into_string(), "");
            assert_eq!(content(schema, &Form::default()), json!({}));
        }
    }
}
