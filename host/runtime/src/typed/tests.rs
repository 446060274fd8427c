//! Types and values made at random: every value has one form in JSON, and its schema knows that form and no other.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use wasmtime::component::Val;

use super::glossary::Glossary;
use super::shape::{Case, Field, Integer, Returns, Shape};
use super::{schema, value};
use bulkhead_calls::schema::Validator;

const INTEGERS: [Integer; 8] =
    [Integer::S8, Integer::U8, Integer::S16, Integer::U16, Integer::S32, Integer::U32, Integer::S64, Integer::U64];

fn name(kind: &str, at: usize) -> String {
    format!("{kind}-{}", ["a", "b", "c", "d", "e", "f", "g", "h"][at % 8])
}

fn named<T>(kind: &'static str, items: Vec<T>) -> impl Iterator<Item = (String, T)> {
    items.into_iter().enumerate().map(move |(at, item)| (name(kind, at), item))
}

/// Any type that typed mode takes.
fn shapes() -> impl Strategy<Value = Shape> {
    let words = |kind: &'static str| (1..8usize).prop_map(move |count| (0..count).map(|at| name(kind, at)).collect());
    let leaf = prop_oneof![
        Just(Shape::Bool),
        select(&INTEGERS[..]).prop_map(Shape::Integer),
        Just(Shape::F32),
        Just(Shape::F64),
        Just(Shape::Char),
        Just(Shape::Text),
        Just(Shape::Bytes),
        words("word").prop_map(Shape::Enum),
        words("flag").prop_map(Shape::Flags),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let optional = prop::option::of(inner.clone());
        // A list of bytes is not a list.
        let item = inner.clone().prop_filter("bytes", |item| *item != Shape::Integer(Integer::U8));
        prop_oneof![
            item.prop_map(|item| Shape::List(Box::new(item))),
            inner.clone().prop_map(|some| Shape::Option(Box::new(some))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Shape::Tuple),
            prop::collection::vec(inner.clone(), 1..5).prop_map(|shapes| {
                Shape::Record(named("field", shapes).map(|(name, shape)| Field { name, shape }).collect())
            }),
            prop::collection::vec(optional.clone(), 1..4).prop_map(|payloads| {
                Shape::Variant(named("case", payloads).map(|(name, payload)| Case { name, payload }).collect())
            }),
            (optional.clone(), optional)
                .prop_map(|(ok, error)| Shape::Result { ok: ok.map(Box::new), error: error.map(Box::new) }),
        ]
    })
}

fn integers(integer: Integer) -> BoxedStrategy<Value> {
    let (smallest, largest) = integer.bounds();
    let any =
        prop_oneof![Just(smallest), Just(largest), smallest..=largest, -3..=3i128, Just(i128::from(schema::SAFE_MAX))];
    any.prop_map(move |number| {
        let number = number.clamp(smallest, largest);
        let is_safe = number.unsigned_abs() <= u128::from(schema::SAFE_MAX.unsigned_abs());
        if is_safe { json!(i64::try_from(number).unwrap()) } else { json!(number.to_string()) }
    })
    .boxed()
}

/// Any value of a type, in the form that it is written in.
fn values(shape: &Shape) -> BoxedStrategy<Value> {
    let not_finite = || select(vec![json!("NaN"), json!("Infinity"), json!("-Infinity")]);
    match shape {
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Integer(integer) => integers(*integer),
        Shape::F32 => {
            let finite = any::<f32>().prop_filter("finite", |float| float.is_finite());
            let short = finite.prop_map(|float| json!(float.to_string().parse::<f64>().unwrap()));
            prop_oneof![4 => short, 1 => not_finite()].boxed()
        }
        Shape::F64 => {
            let finite = any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from);
            prop_oneof![4 => finite, 1 => not_finite()].boxed()
        }
        Shape::Char => any::<char>().prop_map(|character| json!(character.to_string())).boxed(),
        Shape::Text => any::<String>().prop_map(Value::from).boxed(),
        Shape::Bytes => {
            use base64::Engine as _;
            let encode = |bytes: Vec<u8>| json!(base64::engine::general_purpose::STANDARD.encode(bytes));
            prop::collection::vec(any::<u8>(), 0..40).prop_map(encode).boxed()
        }
        Shape::List(item) => prop::collection::vec(values(item), 0..4).prop_map(Value::from).boxed(),
        Shape::Tuple(items) => items.iter().map(values).collect::<Vec<_>>().prop_map(Value::from).boxed(),
        Shape::Record(fields) => {
            let members: Vec<_> = fields
                .iter()
                .map(|field| {
                    let present = match &field.shape {
                        Shape::Option(inner) => prop::option::of(values(inner)).boxed(),
                        shape => values(shape).prop_map(Some).boxed(),
                    };
                    let name = field.name.clone();
                    present.prop_map(move |value| value.map(|value| (name.clone(), value)))
                })
                .collect();
            members.prop_map(|members| Value::Object(members.into_iter().flatten().collect())).boxed()
        }
        Shape::Option(inner) => {
            let wraps = inner.is_nullable();
            let some = values(inner).prop_map(move |value| if wraps { json!({"some": value}) } else { value });
            prop_oneof![Just(Value::Null), some].boxed()
        }
        Shape::Enum(names) => select(names.clone()).prop_map(Value::from).boxed(),
        Shape::Flags(names) => subsequence(names.clone(), 0..=names.len()).prop_map(Value::from).boxed(),
        Shape::Variant(cases) => {
            let cases = cases.iter().map(|case| case_values(&case.name, case.payload.as_ref()));
            proptest::strategy::Union::new(cases).boxed()
        }
        Shape::Result { ok, error } => {
            prop_oneof![case_values("ok", ok.as_deref()), case_values("err", error.as_deref())].boxed()
        }
    }
}

fn case_values(name: &str, payload: Option<&Shape>) -> BoxedStrategy<Value> {
    let name = name.to_owned();
    match payload {
        None => Just(json!({"tag": name})).boxed(),
        Some(shape) => values(shape).prop_map(move |value| json!({"tag": name, "val": value})).boxed(),
    }
}

fn shapes_with_values() -> impl Strategy<Value = (Shape, Value)> {
    shapes().prop_flat_map(|shape| {
        let values = values(&shape);
        (Just(shape), values)
    })
}

/// Any small JSON, and JSON that looks like that of typed mode.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-300..300i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9=+/-]{0,5}".prop_map(Value::from),
        select(vec!["NaN", "-Infinity", "01", "-0", "1.0", "99999999999999999999", "word-a", "case-a", "ok"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = select(vec!["field-a", "field-b", "tag", "val", "some", "x"]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A value with one place changed into something else.
fn damaged() -> impl Strategy<Value = (Shape, Value)> {
    (shapes_with_values(), anything(), any::<prop::sample::Index>()).prop_map(|((shape, mut value), other, index)| {
        let places = count(&value);
        replace(&mut value, &mut index.index(places), other);
        (shape, value)
    })
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

fn replace(value: &mut Value, left: &mut usize, other: Value) -> bool {
    if *left == 0 {
        *value = other;
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| replace(item, left, other.clone())),
        Value::Object(members) => members.values_mut().any(|member| replace(member, left, other.clone())),
        _ => false,
    }
}

fn parameter(shape: &Shape) -> Vec<Field> {
    vec![Field { name: "x".to_owned(), shape: Shape::Tuple(vec![shape.clone()]) }]
}

fn validator(schema: &Value) -> Validator {
    Validator::compile(&schema.to_string()).unwrap()
}

/// What no schema says: how base64 is written, and the last digits of the largest numbers.
const NOT_IN_SCHEMAS: [&str; 4] = [
    "is not base64",
    "is not a number of 32 bits",
    "is not an integer from -9223372036854775808 to 9223372036854775807",
    "is not an integer from 0 to 18446744073709551615",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn wit_value_round_trips_and_fits_its_schema((shape, json) in shapes_with_values()) {
        let parameters = parameter(&shape);
        let arguments = json!({"x": [json]});
        validator(&schema::input(&parameters, &Glossary::default())).check(&arguments).unwrap();
        let read = value::arguments(&parameters, &arguments).unwrap();
        let written = value::write(&parameters[0].shape, &read[0]).unwrap();
        prop_assert_eq!(&json!({"x": written}), &arguments);
        let output = schema::output(&Returns::Value(parameters[0].shape.clone()), &Glossary::default());
        validator(&output).check(&json!({"result": written})).unwrap();
    }

    #[test]
    fn wit_reader_and_schema_accept_the_same((shape, json) in damaged()) {
        let parameters = parameter(&shape);
        let arguments = json!({"x": [json]});
        let fits = validator(&schema::input(&parameters, &Glossary::default())).check(&arguments);
        match value::arguments(&parameters, &arguments) {
            Ok(read) => {
                prop_assert!(fits.is_ok(), "{:?} reads {}, its schema does not: {:?}", shape, arguments, fits);
                let written = value::write(&parameters[0].shape, &read[0]).unwrap();
                let again = value::arguments(&parameters, &json!({"x": written})).unwrap();
                prop_assert_eq!(read, again);
            }
            Err(argument_error) => {
                let argument_error = argument_error.to_string();
                prop_assert!(argument_error.starts_with("/x/0"), "{}", argument_error);
                prop_assert!(fits.is_err() || NOT_IN_SCHEMAS.iter().any(|known| argument_error.contains(known)), "{:?}: {}", shape, argument_error);
            }
        }
    }

    #[test]
    fn absent_record_options_are_omitted(present in any::<bool>()) {
        let inner = Shape::Option(Box::new(Shape::Text));
        let fields = [Field { name: "x".to_owned(), shape: Shape::Option(Box::new(inner)) }];
        let arguments = if present { json!({"x": null}) } else { json!({}) };
        validator(&schema::input(&fields, &Glossary::default())).check(&arguments).unwrap();
        let expected = if present { Some(Box::new(Val::Option(None))) } else { None };
        prop_assert_eq!(value::arguments(&fields, &arguments).unwrap(), vec![Val::Option(expected)]);
    }
}

#[test]
fn argument_mismatch_names_its_path() {
    let point = Shape::Record(vec![
        Field { name: "x".to_owned(), shape: Shape::Integer(Integer::U8) },
        Field { name: "y".to_owned(), shape: Shape::Option(Box::new(Shape::Integer(Integer::S64))) },
    ]);
    let shape = Shape::List(Box::new(Shape::Variant(vec![Case { name: "at".to_owned(), payload: Some(point) }])));
    let parameters = [Field { name: "points".to_owned(), shape }];
    let argument_error = |json: Value| value::arguments(&parameters, &json).unwrap_err().to_string();
    let point = |point: Value| json!({"points": [{"tag": "at", "val": {"x": 1}}, {"tag": "at", "val": point}]});
    for (json, expected) in [
        (json!({}), "the member \"points\" is missing"),
        (json!({"points": 3}), "/points: 3 is not an array"),
        (json!({"points": [{"tag": "on"}]}), "/points/0/tag: \"on\" is not one of at"),
        (json!({"points": [{"tag": "at"}]}), "/points/0: the member \"val\" is missing"),
        (point(json!({"x": 256})), "/points/1/val/x: 256 is not an integer from 0 to 255"),
        (point(json!({"x": 1, "z": 0})), "/points/1/val: there is no member \"z\""),
        (
            point(json!({"x": 1, "y": 9_007_199_254_740_993_i64})),
            "/points/1/val/y: 9007199254740993 is not safe as a number: write it as a string of digits",
        ),
        (
            point(json!({"x": 1, "y": "9223372036854775808"})),
            "/points/1/val/y: \"9223372036854775808\" is not an integer from -9223372036854775808 to 9223372036854775807",
        ),
    ] {
        assert_eq!(argument_error(json), expected);
    }
}

/// JSON Schema takes what has no fraction for an integer, and so does the function behind it.
#[test]
fn integer_spellings_are_equivalent() {
    let read = |integer: Integer, text: &str| {
        let parameters = [Field { name: "n".to_owned(), shape: Shape::Integer(integer) }];
        let arguments = serde_json::from_str(&format!(r#"{{"n":{text}}}"#)).unwrap();
        let fits = validator(&schema::input(&parameters, &Glossary::default())).check(&arguments).is_ok();
        let read = value::arguments(&parameters, &arguments);
        assert_eq!(read.is_ok(), fits, "{text}");
        read.map(|mut values| values.remove(0)).map_err(|argument_error| argument_error.to_string())
    };
    for text in ["2", "2.0", "0.2e1", "20e-1"] {
        assert_eq!(read(Integer::U32, text), Ok(Val::U32(2)), "{text}");
        assert_eq!(read(Integer::S8, &format!("-{text}")), Ok(Val::S8(-2)), "{text}");
        assert_eq!(read(Integer::U64, text), Ok(Val::U64(2)), "{text}");
    }
    assert_eq!(read(Integer::U8, "2.5").unwrap_err(), "/n: 2.5 is not an integer from 0 to 255");
    assert_eq!(read(Integer::U8, "256.0").unwrap_err(), "/n: 256.0 is not an integer from 0 to 255");
    assert_eq!(read(Integer::U32, "-1.0").unwrap_err(), "/n: -1.0 is not an integer from 0 to 4294967295");
}

#[test]
fn arguments_expanding_to_many_values_are_refused() {
    let parameters = [Field { name: "x".to_owned(), shape: Shape::List(Box::new(Shape::Bool)) }];
    let many = json!({"x": vec![true; value::VALUES_MAX]});
    assert!(value::arguments(&parameters, &many).unwrap_err().to_string().contains("more than"));
    let bytes = [Field { name: "x".to_owned(), shape: Shape::Bytes }];
    let many = json!({"x": "AAAA".repeat(value::VALUES_MAX / 3 + 1)});
    assert!(value::arguments(&bytes, &many).unwrap_err().to_string().contains("more than"));
}

/// How many further members make a tuple too large for the flat form of arguments and results, so that both are in
/// memory.
const PADDING: usize = 17;

/// A component with one function, `echo`, that gives back its argument, and a value for it.
pub(crate) fn echoes() -> impl Strategy<Value = (String, Value)> {
    shapes_with_values().prop_map(|(shape, value)| {
        let mut types = String::new();
        let ty = wat(&shape, &mut types);
        let padding = " u64".repeat(PADDING);
        let component = format!(
            "(component {types}
                (type $all (tuple {ty}{padding}))
                (core module $m
                    (memory (export \"memory\") 16)
                    (global $top (mut i32) (i32.const 1024))
                    (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) (local $at i32)
                        (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
                        (global.set $top (i32.add (local.get $at) (local.get 3)))
                        (local.get $at))
                    (func (export \"echo\") (param i32) (result i32) (local.get 0)))
                (core instance $i (instantiate $m))
                (func (export \"echo\") (param \"x\" $all) (result $all)
                    (canon lift (core func $i \"echo\") (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\")))))"
        );
        let padded = std::iter::once(value).chain((0..PADDING).map(Value::from)).collect();
        (component, Value::Array(padded))
    })
}

/// The type in the text format; types that need a name are defined and exported before.
fn wat(shape: &Shape, types: &mut String) -> String {
    let quoted = |names: &[String]| names.iter().map(|name| format!(" {name:?}")).collect::<String>();
    let (text, has_name) = match shape {
        Shape::Bool => ("bool".to_owned(), false),
        Shape::Integer(integer) => (format!("{integer:?}").to_lowercase(), false),
        Shape::F32 => ("f32".to_owned(), false),
        Shape::F64 => ("f64".to_owned(), false),
        Shape::Char => ("char".to_owned(), false),
        Shape::Text => ("string".to_owned(), false),
        Shape::Bytes => ("(list u8)".to_owned(), false),
        Shape::List(item) => (format!("(list {})", wat(item, types)), false),
        Shape::Tuple(items) => {
            (format!("(tuple{})", items.iter().map(|item| format!(" {}", wat(item, types))).collect::<String>()), false)
        }
        Shape::Record(fields) => {
            let fields = fields.iter().map(|field| format!(" (field {:?} {})", field.name, wat(&field.shape, types)));
            (format!("(record{})", fields.collect::<String>()), true)
        }
        Shape::Option(inner) => (format!("(option {})", wat(inner, types)), false),
        Shape::Enum(names) => (format!("(enum{})", quoted(names)), true),
        Shape::Flags(names) => (format!("(flags{})", quoted(names)), true),
        Shape::Variant(cases) => {
            let cases = cases.iter().map(|case| {
                let payload = case.payload.as_ref().map(|shape| wat(shape, types)).unwrap_or_default();
                format!(" (case {:?} {payload})", case.name)
            });
            (format!("(variant{})", cases.collect::<String>()), true)
        }
        Shape::Result { ok, error } => {
            let ok = ok.as_ref().map(|shape| wat(shape, types)).unwrap_or_default();
            let error = error.as_ref().map(|shape| format!("(error {})", wat(shape, types))).unwrap_or_default();
            (format!("(result {ok} {error})"), false)
        }
    };
    if !has_name {
        return text;
    }
    let at = types.matches("(export").count();
    writeln!(types, "(type $own{at} {text}) (export $t{at} \"t{at}\" (type $own{at}))").unwrap();
    format!("$t{at}")
}
