//! The form of a tool's call, made of the tool's input schema.
//!
//! Must not judge arguments: the protocol does that, for clients and browsers alike. Invariant: a schema that a form
//! would show only in part gets a field for the arguments as JSON in its place, so whatever the tool takes can be sent.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::fields::{self, FIELDS_SHOWN_MAX, Kind};
use crate::request::Form;

/// Bytes of an input schema that the dashboard makes a form of.
const FORM_SCHEMA_BYTES_MAX: usize = 32 << 10;
/// What says that the arguments come as one JSON text, and the field with that text.
pub(crate) const AS_JSON: (&str, &str) = ("as", "json");
pub(crate) const JSON_FIELD: &str = "arguments";

/// Members of a schema that say more about an object than what each of its properties is.
const BEYOND_PROPERTIES: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "dependentRequired"];

/// The schema, if a form can show all of it.
fn of_fields(schema: &str) -> Option<Value> {
    let schema: Value = (schema.len() <= FORM_SCHEMA_BYTES_MAX).then(|| serde_json::from_str(schema).ok()).flatten()?;
    let properties = schema.get("properties").and_then(Value::as_object);
    let count = properties.map_or(0, Map::len);
    // Where nothing is said of an object, it may be anything.
    let is_empty = count == 0 && schema.get("additionalProperties") == Some(&Value::Bool(false));
    let is_flat = !BEYOND_PROPERTIES.iter().any(|name| schema.get(name).is_some());
    (is_flat && (is_empty || (1..=FIELDS_SHOWN_MAX).contains(&count))).then_some(schema)
}

/// The fields; `None`: only JSON will do.
pub(crate) fn show(schema: &str, filled: Option<&Form>) -> Option<Markup> {
    let schema = of_fields(schema)?;
    Some(html! {
        @for (name, field) in fields::properties(&schema) {
            (fields::show_field(name, &merged(field), &kind(field), fields::is_required(&schema, name), filled))
        }
    })
}

/// What was filled in, as the text of a JSON object, or why it is none.
pub(crate) fn read(schema: &str, form: &Form) -> Result<String, String> {
    let (name, json) = AS_JSON;
    let schema = if form.get(name) == Some(json) { None } else { of_fields(schema) };
    let Some(schema) = schema else {
        let text = form.filled(JSON_FIELD).unwrap_or("{}");
        return match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(_)) => Ok(text.to_owned()),
            Ok(_) => Err("The arguments must be a JSON object.".to_owned()),
            Err(why) => Err(format!("The arguments are no JSON: {why}")),
        };
    };
    let mut arguments = Map::new();
    for (name, field) in fields::properties(&schema) {
        let id = fields::input_name(name);
        let required = fields::is_required(&schema, name);
        let value = match kind(field) {
            Kind::Json => match form.filled(&id) {
                Some(text) => Some(serde_json::from_str(text).map_err(|why| format!("{name} is no JSON: {why}"))?),
                None => None,
            },
            // What nobody touched is left to the tool.
            Kind::Switch
                if form.get(&id).is_none() && !required && field.get("default") != Some(&Value::Bool(true)) =>
            {
                None
            }
            kind => fields::filled_in(&kind, &id, required, form),
        };
        if let Some(value) = value {
            arguments.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(arguments).to_string())
}

fn kind(field: &Value) -> Kind {
    let inner = without_null(field);
    let choices = fields::choices(inner);
    let all = choices.len() == alternatives(inner);
    match type_of(inner) {
        None | Some("string") if !choices.is_empty() && all => Kind::One(choices),
        _ if alternatives(inner) > 0 || inner.get("$ref").is_some() || inner.get("const").is_some() => Kind::Json,
        Some("boolean") => Kind::Switch,
        Some("integer") => Kind::Number { whole: true },
        Some("number") => Kind::Number { whole: false },
        Some("string") => match fields::text_of(inner, "format") {
            Some("email") => Kind::Text("email"),
            Some("uri") => Kind::Text("url"),
            Some("date") => Kind::Text("date"),
            Some(_) => Kind::Text("text"),
            None => Kind::Multiline,
        },
        Some("array") => {
            let items = inner.get("items").unwrap_or(&Value::Null);
            let choices = fields::choices(items);
            if !choices.is_empty() && choices.len() == alternatives(items) { Kind::Some(choices) } else { Kind::Json }
        }
        _ => Kind::Json,
    }
}

/// How many entries a schema's choices have, whatever they are.
fn alternatives(field: &Value) -> usize {
    ["enum", "oneOf", "anyOf", "allOf"]
        .iter()
        .filter_map(|name| field.get(name).and_then(Value::as_array))
        .map(Vec::len)
        .sum()
}

/// The one type beside null.
pub(crate) fn type_of(field: &Value) -> Option<&str> {
    match field.get("type")? {
        Value::Array(types) => {
            let mut types = types.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            types.next().filter(|_| types.next().is_none())
        }
        other => other.as_str(),
    }
}

/// Of a schema that allows another one or null, the other one.
pub(crate) fn without_null(field: &Value) -> &Value {
    let is_null = |schema: &Value| fields::text_of(schema, "type") == Some("null");
    let lists = ["anyOf", "oneOf"].iter().filter_map(|name| field.get(name).and_then(Value::as_array));
    for list in lists {
        match list.as_slice() {
            [one, other] if is_null(other) => return one,
            [one, other] if is_null(one) => return other,
            _ => {}
        }
    }
    field
}

/// The same with what is said around it: its title, its description and its default.
fn merged(field: &Value) -> Value {
    let mut inner = without_null(field).clone();
    if let (Value::Object(inner), Value::Object(outer)) = (&mut inner, field) {
        for (name, value) in outer.iter().filter(|(name, _)| !["anyOf", "oneOf"].contains(&name.as_str())) {
            inner.insert(name.clone(), value.clone());
        }
    }
    inner
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> String {
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "<i>What</i> it is"},
                "mail": {"type": ["string", "null"], "format": "email"},
                "count": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": 3, "title": "How many"},
                "class": {"oneOf": [{"const": "a", "title": "First"}, {"const": "b"}]},
                "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
                "fast": {"type": "boolean"},
                "safe": {"type": "boolean", "default": true},
                "list": {"type": "array", "items": {"type": "integer"}},
                "mixed": {"enum": ["a", 1]},
                "other": {"$ref": "#/$defs/other"},
            },
            "required": ["text"],
        })
        .to_string()
    }

    #[test]
    fn argument_form_has_an_input_for_every_member() {
        let shown = show(&schema(), None).unwrap().into_string();
        for part in [
            r#"<textarea name="field.text" rows="3" required>"#,
            "&lt;i&gt;What&lt;/i&gt; it is",
            r#"type="email" name="field.mail""#,
            r#"How many"#,
            r#"type="number" name="field.count" value="3" step="1" min="1""#,
            r#"<option value="a">First</option>"#,
            r#"type="checkbox" name="field.colours" value="blue""#,
            r#"type="checkbox" name="field.safe" value="true" checked"#,
            r#"<textarea class="json" name="field.list""#,
            r#"<textarea class="json" name="field.mixed""#,
            r#"<textarea class="json" name="field.other""#,
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert!(!shown.contains("<i>"));
    }

    #[test]
    fn filled_form_becomes_arguments_and_comes_back() {
        let body =
            "field.text=a%0D%0Ab&field.count=5&field.class=b&field.colours=red&field.list=%5B1%2C+2%5D&field.mixed=1";
        let form = Form::parse(body.as_bytes());
        let arguments: Value = serde_json::from_str(&read(&schema(), &form).unwrap()).unwrap();
        let expected = json!({
            "text": "a\nb", "count": 5, "class": "b", "colours": ["red"], "safe": false, "list": [1, 2], "mixed": 1,
        });
        assert_eq!(arguments, expected);
        let again = show(&schema(), Some(&form)).unwrap().into_string();
        assert!(again.contains(r#"value="b" selected"#) && again.contains("[1, 2]</textarea>"), "{again}");
        let wrong = read(&schema(), &Form::parse(b"field.list=%5B")).unwrap_err();
        assert!(wrong.starts_with("list is no JSON"), "{wrong}");
    }

    #[test]
    fn arguments_as_json_are_taken_as_they_are() {
        let form = |text: &str| Form::parse(format!("as=json&arguments={text}").as_bytes());
        assert_eq!(read(&schema(), &form("%7B%22a%22%3A+1%7D")), Ok(r#"{"a": 1}"#.to_owned()));
        assert_eq!(read(&schema(), &form("")), Ok("{}".to_owned()));
        for wrong in ["%5B%5D", "1", "%7B"] {
            assert!(read(&schema(), &form(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn schema_that_no_form_shows_takes_json() {
        let many: Map<_, _> = (0..=FIELDS_SHOWN_MAX).map(|number| (number.to_string(), json!({}))).collect();
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}}),
            json!({"properties": {"a": {}}, "oneOf": []}),
            json!({"$ref": "#/$defs/a", "properties": {"a": {}}}),
            json!({"properties": many}),
            json!({"properties": {"a": {"description": "x".repeat(FORM_SCHEMA_BYTES_MAX)}}}),
            json!([]),
        ] {
            assert!(show(&schema.to_string(), None).is_none(), "{schema}");
            assert_eq!(read(&schema.to_string(), &Form::parse(b"arguments=%7B%7D")), Ok("{}".to_owned()));
        }
        assert!(show("{", None).is_none());
        let none = json!({"type": "object", "additionalProperties": false}).to_string();
        assert_eq!(show(&none, None).unwrap().into_string(), "");
        assert_eq!(read(&none, &Form::default()), Ok("{}".to_owned()));
    }
}
