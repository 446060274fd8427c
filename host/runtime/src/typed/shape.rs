//! The types of a component's functions, as far as JSON can carry their values.
//!
//! Owns which types typed mode knows. Invariant: a shape is a finite tree of bounded depth and size, and every value of
//! it has exactly one form in JSON.

use wasmtime::component::types::Type;

use bulkhead_domain::exports::NotJson;

/// Nesting of one type. Stops schemas and values that are deeper than any client reads.
const DEPTH_MAX: usize = 16;

/// Parts of all types of one function. Stops a type that names a smaller one twice, which names a smaller one twice,
/// and so on.
pub(super) const PARTS_MAX: usize = 4096;

/// Bytes of one name. Values carry the names of their fields with them, even of those that are absent: with names of
/// any length, short arguments would take all memory of the host.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Bool,
    Integer(Integer),
    F32,
    F64,
    Char,
    Text,
    /// `list<u8>`.
    Bytes,
    List(Box<Shape>),
    Tuple(Vec<Shape>),
    Record(Vec<Field>),
    Option(Box<Shape>),
    Enum(Vec<String>),
    Flags(Vec<String>),
    Variant(Vec<Case>),
    /// A result inside another type.
    Result {
        ok: Option<Box<Shape>>,
        error: Option<Box<Shape>>,
    },
}

/// The eight integer types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Integer {
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
}

/// A field of a record, or a parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) shape: Shape,
}

/// One alternative of a variant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) payload: Option<Shape>,
}

/// What a function returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Nothing,
    Value(Shape),
    /// A result at the outermost place: its error is the tool's own failure.
    Fallible {
        ok: Option<Shape>,
        error: Option<Shape>,
    },
}

impl Integer {
    /// The smallest and the largest value.
    pub(super) fn bounds(self) -> (i128, i128) {
        match self {
            Self::S8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::S16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::S32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::S64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
        }
    }

    /// Whether not every value survives readers that take JSON numbers for floating-point ones.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, Self::S64 | Self::U64)
    }
}

impl Shape {
    /// Whether a value can be `null`. Only an option outside of a record is.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

/// Reads the types of one function.
pub(super) struct Reader {
    parts_left: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { parts_left: PARTS_MAX }
    }

    /// The shape of a type.
    ///
    /// # Errors
    ///
    /// Why JSON cannot carry it, to be read after the name of a parameter.
    pub(super) fn shape(&mut self, ty: &Type) -> Result<Shape, String> {
        self.read(ty, 1)
    }

    /// The shape of what a function returns; a result there is not a value but the function's success or failure.
    ///
    /// # Errors
    ///
    /// As [`Self::shape`].
    pub(super) fn returns(&mut self, ty: Option<&Type>) -> Result<Returns, String> {
        Ok(match ty {
            None => Returns::Nothing,
            Some(Type::Result(result)) => Returns::Fallible {
                ok: result.ok().map(|ty| self.shape(&ty)).transpose()?,
                error: result.err().map(|ty| self.shape(&ty)).transpose()?,
            },
            Some(ty) => Returns::Value(self.shape(ty)?),
        })
    }

    fn read(&mut self, ty: &Type, depth: usize) -> Result<Shape, String> {
        if depth > DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX}"));
        }
        self.take(1)?;
        let inner = depth + 1;
        Ok(match ty {
            Type::Bool => Shape::Bool,
            Type::S8 => Shape::Integer(Integer::S8),
            Type::U8 => Shape::Integer(Integer::U8),
            Type::S16 => Shape::Integer(Integer::S16),
            Type::U16 => Shape::Integer(Integer::U16),
            Type::S32 => Shape::Integer(Integer::S32),
            Type::U32 => Shape::Integer(Integer::U32),
            Type::S64 => Shape::Integer(Integer::S64),
            Type::U64 => Shape::Integer(Integer::U64),
            Type::Float32 => Shape::F32,
            Type::Float64 => Shape::F64,
            Type::Char => Shape::Char,
            Type::String => Shape::Text,
            Type::List(list) => match list.ty() {
                Type::U8 => Shape::Bytes,
                ty => Shape::List(Box::new(self.read(&ty, inner)?)),
            },
            Type::Tuple(tuple) => {
                Shape::Tuple(tuple.types().map(|ty| self.read(&ty, inner)).collect::<Result<_, _>>()?)
            }
            Type::Record(record) => {
                let fields = record
                    .fields()
                    .map(|field| Ok(Field { name: name(field.name)?, shape: self.read(&field.ty, inner)? }));
                Shape::Record(fields.collect::<Result<_, String>>()?)
            }
            Type::Option(option) => Shape::Option(Box::new(self.read(&option.ty(), inner)?)),
            Type::Enum(names) => Shape::Enum(self.names(names.names())?),
            Type::Flags(names) => Shape::Flags(self.names(names.names())?),
            Type::Variant(variant) => {
                let cases = variant.cases().map(|case| {
                    self.take(1)?;
                    let payload = case.ty.map(|ty| self.read(&ty, inner)).transpose()?;
                    Ok(Case { name: name(case.name)?, payload })
                });
                Shape::Variant(cases.collect::<Result<_, String>>()?)
            }
            Type::Result(result) => Shape::Result {
                ok: result.ok().map(|ty| self.read(&ty, inner)).transpose()?.map(Box::new),
                error: result.err().map(|ty| self.read(&ty, inner)).transpose()?.map(Box::new),
            },
            other => return Err(not_json(other).to_string()),
        })
    }

    fn names<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a str>) -> Result<Vec<String>, String> {
        self.take(names.len())?;
        names.map(name).collect()
    }

    fn take(&mut self, parts: usize) -> Result<(), String> {
        self.parts_left = self
            .parts_left
            .checked_sub(parts)
            .ok_or_else(|| format!("makes the function's types larger than {PARTS_MAX} parts"))?;
        Ok(())
    }
}

/// A name of a parameter, a field, a case, a flag or an alternative.
///
/// # Errors
///
/// It is too long, to be read after the name of a parameter.
pub(super) fn name(name: &str) -> Result<String, String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("is or holds a name of {} bytes; {NAME_BYTES_MAX} is the most", name.len()));
    }
    Ok(name.to_owned())
}

/// Why a type has no form in JSON.
fn not_json(ty: &Type) -> NotJson {
    match ty {
        Type::Own(_) | Type::Borrow(_) => NotJson::Resource,
        Type::Stream(_) => NotJson::Stream,
        Type::Future(_) => NotJson::Future,
        Type::ErrorContext => NotJson::ErrorContext,
        _ => NotJson::Unknown,
    }
}
