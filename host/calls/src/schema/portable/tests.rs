//! Rows of schemas with the forms that clients are listed, and values that fit both or neither.

use proptest::prelude::*;

use super::super::Validator;
use super::*;

/// Values of every type, small and large, that schemas of the table tell apart.
fn values() -> Vec<Value> {
    let plain = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(7),
        json!(-1),
        json!(2.5),
        json!(3.0),
        json!(""),
        json!("a"),
        json!("NaN"),
        json!("rgb"),
        json!([]),
        json!([1]),
        json!(["a", 1]),
        json!([null, null, null]),
        json!({}),
        json!({"a": 1}),
        json!({"a": "rgb", "b": null}),
        json!({"tag": "rgb", "val": 1}),
    ];
    let within = plain.iter().flat_map(|value| [json!({"a": value}), json!({"a": value, "b": value}), json!([value])]);
    plain.iter().cloned().chain(within).collect()
}

fn assert_same(schema: &Value, form: &Value) {
    let compiled = |schema: &Value| {
        Validator::compile_any(&schema.to_string()).unwrap_or_else(|wrong| panic!("{schema}: {wrong:?}"))
    };
    let own = compiled(schema);
    let portable = compiled(form);
    for value in values() {
        assert_eq!(own.check(&value).is_ok(), portable.check(&value).is_ok(), "{value} of {schema} and of {form}");
    }
}

#[test]
fn schema_that_a_model_interface_refuses_is_listed_in_a_form_that_means_the_same() {
    let table = [
        // What the SDKs say of tools without arguments.
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object"}}}),
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}),
        ),
        (json!({"type": "array"}), json!({"type": "array", "items": {}})),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, true], "maxItems": 2}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {}], "maxItems": 2, "items": {}}),
        ),
        // Tuples have no more items than those, so `items` may be what helps those that know no tuples.
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}], "minItems": 2, "maxItems": 2, "items": {"type": "string"}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "integer", "minimum": 0}, {"type": "string"}], "maxItems": 2}),
            json!({"type": "array", "prefixItems": [{"type": "integer", "minimum": 0}, {"type": "string"}], "maxItems": 2,
                "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}]}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}], "items": {}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"$anchor": "a", "type": "string"}], "maxItems": 1}),
            json!({"type": "array", "prefixItems": [{"$anchor": "a", "type": "string"}], "maxItems": 1, "items": {}}),
        ),
        // What is in levels would be written down twice for each of them.
        (
            json!({"type": "array", "maxItems": 1, "prefixItems": [
                {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1}]}),
            json!({"type": "array", "maxItems": 1, "items": {}, "prefixItems": [
                {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1, "items": {"type": "string"}}]}),
        ),
        // Numbers of typed components.
        (
            json!({"type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$", "description": "d"}),
            json!({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(NaN|-?Infinity)$"}], "description": "d"}),
        ),
        (
            json!({"type": ["integer", "string"], "minimum": 0, "maximum": 9, "pattern": "^[0-9]+$"}),
            json!({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "pattern": "^[0-9]+$"}]}),
        ),
        (json!({"type": ["string", "null"]}), json!({"anyOf": [{"type": "string"}, {"type": "null"}]})),
        (json!({"type": ["string"], "maxLength": 1}), json!({"type": "string", "maxLength": 1})),
        (json!({"type": ["integer", "number"], "minimum": 1}), json!({"type": "number", "minimum": 1})),
        (
            json!({"type": ["string", "null"], "enum": ["a", null, 7]}),
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ),
        (json!({"type": ["string", "null"], "enum": ["a"]}), json!({"type": "string", "enum": ["a"]})),
        (
            json!({"type": ["integer", "null"], "enum": [7, 3.0, 2.5, null]}),
            json!({"anyOf": [{"type": "integer", "enum": [7, 3.0]}, {"type": "null"}]}),
        ),
        (
            json!({"type": ["object", "null"], "required": ["a"], "additionalProperties": false, "properties": {"a": true}}),
            json!({"anyOf": [{"type": "object", "required": ["a"], "additionalProperties": false, "properties": {"a": {}}},
                {"type": "null"}]}),
        ),
        (
            json!({"type": ["array", "null"], "items": {"type": ["object", "null"]}}),
            json!({"anyOf": [{"type": "array", "items": {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]}},
                {"type": "null"}]}),
        ),
        // Cases of typed components.
        (json!({"const": "rgb"}), json!({"type": "string", "enum": ["rgb"]})),
        (json!({"const": "rgb", "type": "string"}), json!({"type": "string", "enum": ["rgb"]})),
        (json!({"const": "rgb", "type": ["string", "null"]}), json!({"type": "string", "enum": ["rgb"]})),
        (json!({"const": 7}), json!({"type": "integer", "const": 7})),
        (json!({"const": 2.5}), json!({"type": "number", "const": 2.5})),
        (json!({"const": {"a": 1}}), json!({"type": "object", "const": {"a": 1}, "properties": {}})),
        (json!({"properties": {"a": true}}), json!({"properties": {"a": {}}})),
        (
            json!({"oneOf": [{"type": "object", "properties": {"tag": {"const": "rgb"}}, "required": ["tag"]}]}),
            json!({"oneOf": [{"type": "object", "properties": {"tag": {"type": "string", "enum": ["rgb"]}}, "required": ["tag"]}]}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": ["string", "null"]}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}),
        ),
    ];
    for (schema, form) in table {
        assert_eq!(portable(&schema).unwrap_or_else(|| panic!("{schema} stays")), form, "{schema}");
        assert_same(&schema, &form);
        assert_eq!(portable(&form), None, "{form} is portable");
    }
}

#[test]
fn schema_stays_where_no_other_form_means_the_same() {
    for schema in [
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true}),
        json!({"properties": {"a": {"default": {"type": ["x", "y"]}, "examples": [{"const": 1}]}}}),
        json!({"enum": [{"type": "object"}, true]}),
        json!({"if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}, "not": {"const": 1}}),
        json!({"type": ["string", "null"], "anyOf": [{"minLength": 1}, {"type": "null"}]}),
        json!({"type": ["array", "null"], "items": {"type": "string"}, "unevaluatedItems": false}),
        json!({"type": "array", "contains": {"type": "string"}, "unevaluatedItems": false}),
        // Elsewhere it would not be found.
        json!({"properties": {"a": {"type": ["array", "null"], "items": {"type": "string"}},
            "b": {"$ref": "#/properties/a/items"}}}),
    ] {
        assert_eq!(portable(&schema), None, "{schema}");
    }
}

#[test]
fn what_model_interfaces_refuse_is_named_with_its_place() {
    let table = [
        (json!({"type": "object"}), "an object without `properties` (at the root), which OpenAI"),
        (
            json!({"properties": {"a": {"type": "array"}}}),
            "an array without `items` (at /properties/a), which OpenAI and Gemini refuse",
        ),
        (json!({"items": {"type": ["a", "b"]}}), "a list of types (at /items), which Gemini refuse"),
        (
            json!({"anyOf": []}),
            "`anyOf`, `oneOf`, `allOf`, `not` or `enum` beside the arguments, at the top (at the root)",
        ),
        (json!({"$defs": {"a": {"const": 1}}}), "`const` without a type (at /$defs/a)"),
        (json!({"properties": {"a": true}}), "`true` or `false` in the place of a schema (at the root)"),
        (json!({"properties": {"grüße": {}}}), "a property whose name is not"),
        (
            json!({"properties": {"_id": {}, "id_": {}}}),
            "a property whose name begins with `_` (at the root), which LlamaIndex and others that make a Pydantic model refuse",
        ),
        (json!({"properties": {"a": {"type": "object"}, "b": {"type": "object"}}}), "(at /properties/a and 1 more)"),
    ];
    for (schema, expected) in table {
        let found = refusals(&schema);
        assert!(found.len() == 1 && found[0].contains(expected), "{schema}: {found:?}");
    }
    let fine = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
        "additionalProperties": false});
    assert_eq!(refusals(&fine), Vec::<String>::new());
}

fn schemas() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["string", "number", "integer", "null", "boolean", "array", "object"]);
    let names = prop::collection::btree_set(name, 1..4).prop_map(|names| json!(names));
    let value = prop::sample::select(values());
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        value.clone().prop_map(|value| json!({"const": value})),
        (names.clone(), prop::collection::vec(value, 1..4))
            .prop_map(|(names, list)| json!({"type": names, "enum": list})),
        names
            .clone()
            .prop_map(|names| json!({"type": names, "minLength": 2, "minimum": 1, "maxItems": 1, "required": ["a"]})),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let one = inner.clone();
        let other = inner.clone();
        prop_oneof![
            (names.clone(), one, other, any::<bool>()).prop_map(|(names, one, other, closed)| json!({"type": names,
                "properties": {"a": one}, "items": other, "additionalProperties": closed})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|list| json!({"anyOf": list})),
            prop::collection::vec(inner.clone(), 1..3)
                .prop_map(|list| json!({"prefixItems": list, "type": ["array", "null"]})),
            inner.prop_map(|inner| json!({"not": inner, "unevaluatedProperties": false})),
        ]
    })
}

proptest! {
    #[test]
    fn portable_schema_takes_the_values_of_its_own(schema in schemas()) {
        prop_assume!(schema.is_object());
        if let Some(form) = portable(&schema) {
            assert_same(&schema, &form);
        }
    }
}
