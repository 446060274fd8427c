use proptest::prelude::*;
use serde_json::json;

use super::*;
use Direction::{Added, Narrowed, Widened};

/// The places and directions, in order.
fn found(old: &Value, new: &Value) -> Vec<(String, Direction)> {
    compare(old, new).into_iter().map(|difference| (difference.path, difference.direction)).collect()
}

fn check(old: Value, new: Value, expected: &[(&str, Direction)]) {
    let expected: Vec<_> = expected.iter().map(|(path, direction)| ((*path).to_owned(), *direction)).collect();
    assert_eq!(found(&old, &new), expected, "{old} -> {new}");
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn schema_annotations_are_no_difference() {
    check(json!({"type": "string"}), json!({"description": "x", "type": "string", "title": "y"}), &[]);
    check(json!(true), json!({"description": "anything"}), &[]);
    check(object(json!({"a": {"default": 1}})), object(json!({"a": {"default": 2}})), &[]);
    check(json!({"minLength": 0}), json!({}), &[("", Widened)]);
    check(json!({"enum": [1.0, "a"]}), json!({"enum": ["a", 1]}), &[]);
    check(json!({"type": ["integer", "number"]}), json!({"type": "number"}), &[]);
}

#[test]
fn schema_type_and_enum_differences_are_classified() {
    check(json!({"type": "integer"}), json!({"type": "number"}), &[("/type", Widened)]);
    check(json!({"type": "number"}), json!({"type": "integer"}), &[("/type", Narrowed)]);
    check(json!({"type": "string"}), json!({"type": ["string", "null"]}), &[("/type", Widened)]);
    check(json!({"type": "string"}), json!({"type": "integer"}), &[("/type", Narrowed), ("/type", Widened)]);
    check(json!({"enum": ["a"]}), json!({"enum": ["a", "b"]}), &[("/enum", Widened)]);
    check(json!({"enum": ["a", "b"]}), json!({"const": "a"}), &[("/enum", Narrowed)]);
    check(json!({"type": "string", "enum": ["a"]}), json!({"type": "string"}), &[("/enum", Widened)]);
}

#[test]
fn bounds() {
    for (keyword, low, high) in [("minimum", 1, 2), ("minLength", 1, 2), ("minItems", 1, 2), ("exclusiveMinimum", 1, 2)]
    {
        let place = format!("/{keyword}");
        check(json!({"type": "x", keyword: low}), json!({"type": "x", keyword: high}), &[(&place, Narrowed)]);
        check(json!({"type": "x", keyword: high}), json!({"type": "x", keyword: low}), &[(&place, Widened)]);
        check(json!({"type": "x"}), json!({"type": "x", keyword: low}), &[(&place, Narrowed)]);
    }
    for keyword in ["maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"] {
        let place = format!("/{keyword}");
        check(json!({"type": "x", keyword: 1}), json!({"type": "x", keyword: 2}), &[(&place, Widened)]);
        check(json!({"type": "x", keyword: 2}), json!({"type": "x", keyword: 1}), &[(&place, Narrowed)]);
        check(json!({"type": "x", keyword: 1}), json!({"type": "x"}), &[(&place, Widened)]);
    }
    check(json!({"type": "string"}), json!({"type": "string", "minLength": 0}), &[]);
}

#[test]
fn schema_property_differences_are_classified() {
    let one = object(json!({"a": {"type": "string"}}));
    check(one.clone(), object(json!({"a": {"type": "string"}, "b": {"type": "string"}})), &[("/properties/b", Added)]);
    check(one.clone(), object(json!({})), &[("/properties/a", Narrowed)]);
    check(
        one.clone(),
        object(json!({"a": {"type": "integer"}})),
        &[("/properties/a/type", Narrowed), ("/properties/a/type", Widened)],
    );
    let required = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    check(one.clone(), required.clone(), &[("/required", Narrowed)]);
    check(required, one.clone(), &[("/required", Widened)]);
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
    check(one.clone(), closed.clone(), &[("/additionalProperties", Narrowed)]);
    check(closed, one, &[("/additionalProperties", Widened)]);
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {"a/b": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
        &[("/properties/a~1b/type", Narrowed), ("/properties/a~1b/type", Widened)],
    );
}

#[test]
fn schema_array_and_alternative_differences_are_classified() {
    let list = |items: Value| json!({"type": "array", "items": items});
    check(
        list(json!({"type": "string"})),
        list(json!({"type": "string", "maxLength": 3})),
        &[("/items/maxLength", Narrowed)],
    );
    check(json!({"type": "array"}), list(json!({"type": "string"})), &[("/items", Narrowed)]);
    let forms = |forms: Value| json!({"anyOf": forms});
    check(
        forms(json!([{"type": "null"}])),
        forms(json!([{"type": "string"}, {"type": "null"}])),
        &[("/anyOf", Widened)],
    );
    check(
        forms(json!([{"type": "string"}, {"type": "null"}])),
        forms(json!([{"type": "null"}])),
        &[("/anyOf", Narrowed)],
    );
    check(json!({"type": "string"}), json!({"type": "string", "pattern": "^a"}), &[("/pattern", Narrowed)]);
    check(
        json!({"type": "string", "pattern": "^b"}),
        json!({"type": "string", "pattern": "^a"}),
        &[("/pattern", Narrowed), ("/pattern", Widened)],
    );
    check(json!({"type": "string"}), json!({"type": "string", "not": {"const": "a"}}), &[("/not", Narrowed)]);
}

#[test]
fn schema_references_are_followed_recursively() {
    let tree = |leaf: Value| {
        json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "leaf": leaf}}}})
    };
    check(tree(json!({"type": "string"})), tree(json!({"type": "string"})), &[]);
    let place = "/properties/root/properties/leaf/maxLength";
    check(tree(json!({"type": "string"})), tree(json!({"type": "string", "maxLength": 3})), &[(place, Narrowed)]);
    // A schema of one's own instead of a reference to the same.
    let inline = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let named =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}});
    assert!(!found(&inline, &named).is_empty() && !found(&named, &inline).is_empty(), "said rather than missed");
}

/// Small schemas over a few names, so that two of them have something in common.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({"type": "string"})),
        (0..4u32, 2..6u32).prop_map(|(min, max)| json!({"type": "string", "minLength": min, "maxLength": max})),
        (-3..3i32, 0..5i32).prop_map(|(min, max)| json!({"type": "integer", "minimum": min, "maximum": max})),
        (-3..3i32).prop_map(|min| json!({"type": "number", "exclusiveMinimum": min})),
        Just(json!({"type": ["integer", "null"]})),
        prop::sample::subsequence(vec!["a", "b", "c"], 1..=3).prop_map(|names| json!({"enum": names})),
        Just(json!({"const": "a"})),
        Just(json!({"type": "string", "pattern": "^a"})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let properties = prop::collection::btree_map(prop::sample::select(vec!["p", "q", "r"]), inner.clone(), 0..3);
        let required = prop::sample::subsequence(vec!["p", "q", "r"], 0..=2);
        prop_oneof![
            // Closed: what a new name of an open object means is the exception of the module.
            (properties, required).prop_map(|(properties, required)| {
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }),
            (inner.clone(), 0..3u32).prop_map(|(items, min)| json!({"type": "array", "items": items, "minItems": min})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|forms| json!({"anyOf": forms})),
            prop::collection::vec(inner, 1..3).prop_map(|parts| json!({"allOf": parts})),
        ]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        prop::sample::select(vec!["", "a", "b", "c", "ab", "abcdef"]).prop_map(Value::from),
        (-4..6i32).prop_map(Value::from),
        Just(json!(0.5)),
        Just(json!(true)),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::btree_map(prop::sample::select(vec!["p", "q", "r"]), inner.clone(), 0..3)
                .prop_map(|members| json!(members)),
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn schema_not_narrowed_accepts_every_former_value(
        old in schemas(),
        new in schemas(),
        values in prop::collection::vec(values(), 16),
    ) {
        let differences = compare(&old, &new);
        let says = |wanted| differences.iter().any(|difference| difference.direction == wanted);
        let was = jsonschema::validator_for(&old).unwrap();
        let is = jsonschema::validator_for(&new).unwrap();
        for value in &values {
            if was.is_valid(value) && !is.is_valid(value) {
                prop_assert!(says(Narrowed), "{} -> {}: {}", old, new, value);
            }
            if !was.is_valid(value) && is.is_valid(value) {
                prop_assert!(says(Widened) || says(Added), "{} -> {}: {}", old, new, value);
            }
        }
    }

    #[test]
    fn schema_equals_itself(schema in schemas()) {
        prop_assert_eq!(compare(&schema, &schema), Vec::new());
    }
}
