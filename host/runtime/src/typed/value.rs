//! From JSON to the values of a component and back.
//!
//! Owns the form of every value, as [`super::schema`] describes it. Invariant: what is read fits the schema, what is
//! written fits it too, and writing what was read gives the same JSON, numbers and the order of members apart.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use wasmtime::component::Val;

use super::schema::{ERR, OK, PAYLOAD, SAFE_MAX, TAG};
use super::shape::{Case, Field, Integer, Shape};
use bulkhead_domain::text::{beginning, escaped};

/// Values in all arguments of one call. Each costs some forty bytes of the host, however short its JSON is. Stops
/// arguments that are small as text and large as values.
pub(super) const VALUES_MAX: usize = 256 << 10;

/// Bytes of a wrong value in a message.
const SHOWN_BYTES_MAX: usize = 64;

/// Where JSON does not fit a type, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArgumentMismatch {
    /// From the innermost outwards.
    steps: Vec<String>,
    problem: String,
}

impl ArgumentMismatch {
    fn new(problem: impl Into<String>) -> Self {
        Self { steps: Vec::new(), problem: problem.into() }
    }

    fn inside(mut self, step: impl ToString) -> Self {
        self.steps.push(step.to_string());
        self
    }
}

/// A JSON Pointer and the problem.
impl fmt::Display for ArgumentMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.steps.iter().rev() {
            write!(f, "/{}", step.replace('~', "~0").replace('/', "~1"))?;
        }
        if self.steps.is_empty() { f.write_str(&self.problem) } else { write!(f, ": {}", self.problem) }
    }
}

/// A wrong value, for a message.
fn shown(value: &Value) -> String {
    let text = escaped(&value.to_string());
    let beginning = beginning(&text, SHOWN_BYTES_MAX);
    if beginning.len() < text.len() { format!("{beginning}…") } else { text }
}

fn not(value: &Value, wanted: impl fmt::Display) -> ArgumentMismatch {
    ArgumentMismatch::new(format!("{} is not {wanted}", shown(value)))
}

/// The arguments of a function, in the order of its parameters.
///
/// # Errors
///
/// The first place that does not fit.
pub(super) fn arguments(parameters: &[Field], value: &Value) -> Result<Vec<Val>, ArgumentMismatch> {
    let mut reader = Reader { values_left: VALUES_MAX };
    let fields = reader.fields(parameters, value)?;
    Ok(fields.into_iter().map(|(_, value)| value).collect())
}

/// Reads the arguments of one call.
struct Reader {
    values_left: usize,
}

impl Reader {
    fn take(&mut self, values: usize) -> Result<(), ArgumentMismatch> {
        self.values_left = self
            .values_left
            .checked_sub(values)
            .ok_or_else(|| ArgumentMismatch::new(format!("the arguments hold more than {VALUES_MAX} values")))?;
        Ok(())
    }

    fn read(&mut self, shape: &Shape, value: &Value) -> Result<Val, ArgumentMismatch> {
        self.take(1)?;
        Ok(match shape {
            Shape::Bool => Val::Bool(value.as_bool().ok_or_else(|| not(value, "true or false"))?),
            Shape::Integer(integer) => self::integer(*integer, value)?,
            Shape::F64 => Val::Float64(float(value)?),
            Shape::F32 => {
                let wide = float(value)?;
                let narrow = wide as f32;
                if narrow.is_infinite() && wide.is_finite() {
                    return Err(not(value, "a number of 32 bits: it is too large"));
                }
                Val::Float32(narrow)
            }
            Shape::Char => {
                let mut characters = value.as_str().unwrap_or_default().chars();
                match (characters.next(), characters.next()) {
                    (Some(character), None) => Val::Char(character),
                    _ => return Err(not(value, "a string of one character")),
                }
            }
            Shape::Text => Val::String(text(value)?.to_owned()),
            Shape::Bytes => {
                let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
                let bytes = bytes.ok_or_else(|| not(value, "base64 with padding"))?;
                self.take(bytes.len())?;
                Val::List(bytes.into_iter().map(Val::U8).collect())
            }
            Shape::List(item) => {
                let items = array(value)?.iter().enumerate();
                Val::List(
                    items
                        .map(|(at, value)| self.read(item, value).map_err(|wrong| wrong.inside(at)))
                        .collect::<Result<_, _>>()?,
                )
            }
            Shape::Tuple(items) => {
                let values = array(value)?;
                if values.len() != items.len() {
                    return Err(not(value, format_args!("an array of {}", items.len())));
                }
                let items = items.iter().zip(values).enumerate();
                let read = items.map(|(at, (item, value))| self.read(item, value).map_err(|wrong| wrong.inside(at)));
                Val::Tuple(read.collect::<Result<_, _>>()?)
            }
            Shape::Record(fields) => Val::Record(self.fields(fields, value)?),
            Shape::Option(inner) => Val::Option(match (value, inner.is_nullable()) {
                (Value::Null, _) => None,
                (value, false) => Some(Box::new(self.read(inner, value)?)),
                (value, true) => {
                    let some = only_members(value, &["some"])?.get("some");
                    let some = some.ok_or_else(|| not(value, "null or an object with the member some"))?;
                    Some(Box::new(self.read(inner, some).map_err(|wrong| wrong.inside("some"))?))
                }
            }),
            Shape::Enum(names) => Val::Enum(one_of(names, value)?.clone()),
            Shape::Flags(names) => {
                let mut chosen: Vec<String> = Vec::new();
                for (at, value) in array(value)?.iter().enumerate() {
                    let name = one_of(names, value).map_err(|wrong| wrong.inside(at))?;
                    if chosen.contains(name) {
                        return Err(ArgumentMismatch::new(format!("{name:?} is there twice")).inside(at));
                    }
                    chosen.push(name.clone());
                }
                Val::Flags(chosen)
            }
            Shape::Variant(cases) => {
                let (tag, payload) =
                    self.case(cases.iter().map(|Case { name, payload }| (name.as_str(), payload.as_ref())), value)?;
                Val::Variant(tag.to_owned(), payload)
            }
            Shape::Result { ok, error } => {
                let cases = [(OK, ok.as_deref()), (ERR, error.as_deref())];
                let (tag, payload) = self.case(cases.into_iter(), value)?;
                Val::Result(if tag == OK { Ok(payload) } else { Err(payload) })
            }
        })
    }

    /// An object whose members are the fields; in the order of the fields.
    fn fields(&mut self, fields: &[Field], value: &Value) -> Result<Vec<(String, Val)>, ArgumentMismatch> {
        let members = value.as_object().ok_or_else(|| not(value, "an object"))?;
        if let Some(name) = members.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
            return Err(ArgumentMismatch::new(format!(
                "there is no member {:?}",
                escaped(beginning(name, SHOWN_BYTES_MAX))
            )));
        }
        let read = fields.iter().map(|field| {
            let value = match (&field.shape, members.get(&field.name)) {
                (Shape::Option(_), None) => self.take(1).map(|()| Val::Option(None)),
                (Shape::Option(inner), Some(value)) => {
                    self.read(inner, value).map(|some| Val::Option(Some(Box::new(some))))
                }
                (shape, Some(value)) => self.read(shape, value),
                (_, None) => return Err(ArgumentMismatch::new(format!("the member {:?} is missing", field.name))),
            };
            Ok((field.name.clone(), value.map_err(|wrong| wrong.inside(&field.name))?))
        });
        read.collect()
    }

    /// An object with a tag and, for the cases that have one, a payload.
    fn case<'a>(
        &mut self,
        mut cases: impl Iterator<Item = (&'a str, Option<&'a Shape>)> + Clone,
        value: &Value,
    ) -> Result<(&'a str, Option<Box<Val>>), ArgumentMismatch> {
        let members = only_members(value, &[TAG, PAYLOAD])?;
        let tag = members.get(TAG).ok_or_else(|| ArgumentMismatch::new(format!("the member {TAG:?} is missing")))?;
        let names: Vec<_> = cases.clone().map(|(name, _)| name).collect();
        let wanted = cases.find(|(name, _)| tag.as_str() == Some(name));
        let (name, shape) = wanted.ok_or_else(|| not(tag, format_args!("one of {}", names.join(", "))).inside(TAG))?;
        let payload = match (shape, members.get(PAYLOAD)) {
            (None, None) => None,
            (Some(shape), Some(value)) => {
                Some(Box::new(self.read(shape, value).map_err(|wrong| wrong.inside(PAYLOAD))?))
            }
            (None, Some(_)) => return Err(ArgumentMismatch::new(format!("the case {name} has no {PAYLOAD:?}"))),
            (Some(_), None) => return Err(ArgumentMismatch::new(format!("the member {PAYLOAD:?} is missing"))),
        };
        Ok((name, payload))
    }
}

fn text(value: &Value) -> Result<&str, ArgumentMismatch> {
    value.as_str().ok_or_else(|| not(value, "a string"))
}

fn array(value: &Value) -> Result<&Vec<Value>, ArgumentMismatch> {
    value.as_array().ok_or_else(|| not(value, "an array"))
}

fn one_of<'a>(names: &'a [String], value: &Value) -> Result<&'a String, ArgumentMismatch> {
    let found = value.as_str().and_then(|text| names.iter().find(|name| *name == text));
    found.ok_or_else(|| not(value, format_args!("one of {}", names.join(", "))))
}

fn only_members<'a>(value: &'a Value, names: &[&str]) -> Result<&'a Map<String, Value>, ArgumentMismatch> {
    let members = value.as_object().ok_or_else(|| not(value, "an object"))?;
    match members.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(members),
        Some(name) => {
            Err(ArgumentMismatch::new(format!("there is no member {:?}", escaped(beginning(name, SHOWN_BYTES_MAX)))))
        }
    }
}

fn integer(integer: Integer, value: &Value) -> Result<Val, ArgumentMismatch> {
    let (smallest, largest) = integer.bounds();
    let wanted = |value| not(value, format_args!("an integer from {smallest} to {largest}"));
    let number = match value {
        Value::Number(number) => {
            let number = whole(number).ok_or_else(|| wanted(value))?;
            if integer.is_wide() && number.unsigned_abs() > SAFE_MAX.unsigned_abs().into() {
                return Err(not(value, "safe as a number: write it as a string of digits"));
            }
            number
        }
        Value::String(text) if integer.is_wide() => {
            let number = text.parse::<i128>().ok().filter(|number| number.to_string() == *text);
            number.ok_or_else(|| wanted(value))?
        }
        _ => return Err(wanted(value)),
    };
    let read = match integer {
        Integer::S8 => number.try_into().map(Val::S8),
        Integer::U8 => number.try_into().map(Val::U8),
        Integer::S16 => number.try_into().map(Val::S16),
        Integer::U16 => number.try_into().map(Val::U16),
        Integer::S32 => number.try_into().map(Val::S32),
        Integer::U32 => number.try_into().map(Val::U32),
        Integer::S64 => number.try_into().map(Val::S64),
        Integer::U64 => number.try_into().map(Val::U64),
    };
    read.map_err(|_| wanted(value))
}

/// A number without a fraction: JSON Schema takes 1.0 for an integer.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= SAFE_MAX as f64).then_some(float as i128)
}

fn float(value: &Value) -> Result<f64, ArgumentMismatch> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| not(value, "a number, \"NaN\", \"Infinity\" or \"-Infinity\""))
}

/// A value as JSON; `None` if it is not of this shape.
pub(super) fn write(shape: &Shape, value: &Val) -> Option<Value> {
    Some(match (shape, value) {
        (Shape::Bool, Val::Bool(value)) => Value::Bool(*value),
        (Shape::Integer(Integer::S8), Val::S8(value)) => (*value).into(),
        (Shape::Integer(Integer::U8), Val::U8(value)) => (*value).into(),
        (Shape::Integer(Integer::S16), Val::S16(value)) => (*value).into(),
        (Shape::Integer(Integer::U16), Val::U16(value)) => (*value).into(),
        (Shape::Integer(Integer::S32), Val::S32(value)) => (*value).into(),
        (Shape::Integer(Integer::U32), Val::U32(value)) => (*value).into(),
        (Shape::Integer(Integer::S64), Val::S64(value)) => write_wide(*value),
        (Shape::Integer(Integer::U64), Val::U64(value)) => write_wide(*value),
        (Shape::F64, Val::Float64(value)) => write_float(*value),
        (Shape::F32, Val::Float32(value)) => {
            // The shortest digits that mean this number, not those of its 64-bit neighbour.
            let short = value.to_string().parse().ok().filter(|wide: &f64| *wide as f32 == *value);
            write_float(short.unwrap_or(f64::from(*value)))
        }
        (Shape::Char, Val::Char(value)) => value.to_string().into(),
        (Shape::Text, Val::String(value)) => value.as_str().into(),
        (Shape::Bytes, Val::List(values)) => {
            let byte = |value: &Val| if let Val::U8(byte) = value { Some(*byte) } else { None };
            STANDARD.encode(values.iter().map(byte).collect::<Option<Vec<_>>>()?).into()
        }
        (Shape::List(item), Val::List(values)) => {
            values.iter().map(|value| write(item, value)).collect::<Option<Vec<_>>>()?.into()
        }
        (Shape::Tuple(items), Val::Tuple(values)) if items.len() == values.len() => {
            items.iter().zip(values).map(|(item, value)| write(item, value)).collect::<Option<Vec<_>>>()?.into()
        }
        (Shape::Record(fields), Val::Record(values)) => write_fields(fields, values)?,
        (Shape::Option(_), Val::Option(None)) => Value::Null,
        (Shape::Option(inner), Val::Option(Some(value))) => {
            let some = write(inner, value)?;
            if inner.is_nullable() { Map::from_iter([("some".to_owned(), some)]).into() } else { some }
        }
        (Shape::Enum(_), Val::Enum(name)) => name.as_str().into(),
        (Shape::Flags(names), Val::Flags(chosen)) => {
            names.iter().filter(|name| chosen.contains(name)).map(String::as_str).collect()
        }
        (Shape::Variant(cases), Val::Variant(name, payload)) => {
            let case = cases.iter().find(|case| case.name == *name)?;
            write_case(name, case.payload.as_ref(), payload.as_deref())?
        }
        (Shape::Result { ok, .. }, Val::Result(Ok(payload))) => write_case(OK, ok.as_deref(), payload.as_deref())?,
        (Shape::Result { error, .. }, Val::Result(Err(payload))) => {
            write_case(ERR, error.as_deref(), payload.as_deref())?
        }
        _ => return None,
    })
}

fn write_wide(value: impl Copy + Into<i128> + Into<Value> + ToString) -> Value {
    let is_safe = Into::<i128>::into(value).unsigned_abs() <= SAFE_MAX.unsigned_abs().into();
    if is_safe { value.into() } else { value.to_string().into() }
}

fn write_float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

fn write_fields(fields: &[Field], values: &[(String, Val)]) -> Option<Value> {
    let mut members = Map::new();
    for (field, (name, value)) in fields.iter().zip(values) {
        let written = match (&field.shape, value) {
            (Shape::Option(_), Val::Option(None)) => continue,
            (Shape::Option(inner), Val::Option(Some(value))) => write(inner, value)?,
            (shape, value) => write(shape, value)?,
        };
        if field.name != *name {
            return None;
        }
        members.insert(name.clone(), written);
    }
    Some(members.into())
}

fn write_case(name: &str, shape: Option<&Shape>, payload: Option<&Val>) -> Option<Value> {
    let mut members = Map::from_iter([(TAG.to_owned(), Value::from(name))]);
    match (shape, payload) {
        (None, None) => {}
        (Some(shape), Some(payload)) => {
            members.insert(PAYLOAD.to_owned(), write(shape, payload)?);
        }
        _ => return None,
    }
    Some(members.into())
}
