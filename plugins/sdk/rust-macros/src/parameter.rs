//! The one parameter of a tool: the type of its whole arguments object.
//!
//! Owns what can be said about that type by its name alone. A macro sees no definitions: of a type that the plugin
//! defines or renames, the schema says the rest, and the host refuses one that takes no object.

use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, GenericArgument, Ident, Pat, PatType, PathArguments, Type};

use crate::words;

/// Types of the standard library whose JSON is a text, a number, a truth value or a list.
const NO_OBJECTS: [&str; 29] = [
    "String",
    "str",
    "char",
    "bool",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "f32",
    "f64",
    "NonZeroU32",
    "NonZeroU64",
    "NonZeroUsize",
    "Vec",
    "VecDeque",
    "HashSet",
    "BTreeSet",
    "PathBuf",
    "Path",
    "IpAddr",
    "SocketAddr",
];

/// Refuses a type that no arguments object can be read into, in words about tools.
pub(crate) fn check(function: &Ident, parameter: &PatType) -> Result<(), Error> {
    if !is_no_object(&parameter.ty) {
        return Ok(());
    }
    let ty = written(&parameter.ty);
    let field = match &*parameter.pat {
        Pat::Ident(pattern) => words::plain(&pattern.ident),
        _ => "value".to_owned(),
    };
    let name = camel(&words::plain(function));
    let owned = ty.replace("&'static ", "&").replace("&str", "String");
    let problem = format!(
        "the parameter of a tool is its whole arguments object, and `{ty}` is no object: write \
         `#[derive(serde::Deserialize, schemars::JsonSchema)] struct {name} {{ {field}: {owned} }}` and take `{name} {{ {field} }}: {name}`"
    );
    Err(Error::new(parameter.ty.span(), problem))
}

/// An item that says at the type itself which derive it lacks. The bounds of `Tool::new` would be named at the
/// function, as a trait that functions do not implement.
pub(crate) fn bounds(parameter: &PatType) -> Tokens {
    let ty = &parameter.ty;
    quote_spanned!(ty.span()=> const _: () = ::bulkhead_plugin::__arguments::<#ty>();)
}

fn is_no_object(ty: &Type) -> bool {
    let path = match ty {
        Type::Paren(inner) => return is_no_object(&inner.elem),
        Type::Group(inner) => return is_no_object(&inner.elem),
        Type::Reference(_) | Type::Slice(_) | Type::Array(_) | Type::Tuple(_) => return true,
        Type::Path(ty) if ty.qself.is_none() => &ty.path,
        _ => return false,
    };
    let is_std = |name: &Ident| ["std", "alloc", "core"].iter().any(|krate| name == krate);
    let (Some(first), Some(last)) = (path.segments.first(), path.segments.last()) else { return false };
    if path.segments.len() > 1 && !is_std(&first.ident) {
        return false;
    }
    // These are what is inside of them.
    let is_wrapper = ["Option", "Box"].iter().any(|name| last.ident == name);
    match &last.arguments {
        PathArguments::AngleBracketed(inside) if is_wrapper => {
            inside.args.iter().any(|argument| matches!(argument, GenericArgument::Type(ty) if is_no_object(ty)))
        }
        _ => NO_OBJECTS.iter().any(|name| last.ident == name),
    }
}

/// A type as people write it.
fn written(ty: &Type) -> String {
    let tokens = ty.to_token_stream().to_string();
    [
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("& ", "&"),
        (" :: ", "::"),
        ("( ", "("),
        (" )", ")"),
        ("[ ", "["),
        (" ]", "]"),
    ]
    .iter()
    .fold(tokens, |text, (spaced, plain)| text.replace(spaced, plain))
}

/// `sort_lines` as `SortLines`.
fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    };
    name.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use syn::{FnArg, parse_quote};

    use super::*;

    fn problem(parameter: FnArg) -> String {
        let FnArg::Typed(parameter) = parameter else { return String::new() };
        let function = parse_quote!(sort_lines);
        check(&function, &parameter).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn non_object_tool_parameter_is_refused_with_suggestion() {
        assert_eq!(
            problem(parse_quote!(text: String)),
            "the parameter of a tool is its whole arguments object, and `String` is no object: write \
             `#[derive(serde::Deserialize, schemars::JsonSchema)] struct SortLines { text: String }` and take `SortLines { text }: SortLines`"
        );
        assert!(problem(parse_quote!(lines: Vec<String>)).contains("{ lines: Vec<String> }"));
        assert!(problem(parse_quote!(text: &str)).contains("`&str` is no object: write"));
        assert!(problem(parse_quote!((a, b): (u8, u8))).contains("{ value: (u8, u8) }"));
        let refused: [FnArg; 5] = [
            parse_quote!(x: Option<u64>),
            parse_quote!(x: Box<std::path::PathBuf>),
            parse_quote!(x: ()),
            parse_quote!(x: [f64; 3]),
            parse_quote!(x: Option<Vec<Trip>>),
        ];
        for parameter in refused {
            assert!(problem(parameter.clone()).contains("is no object"), "{}", parameter.to_token_stream());
        }
    }

    #[test]
    fn possible_object_tool_parameter_is_accepted() {
        let taken: [FnArg; 6] = [
            parse_quote!(trip: Trip),
            parse_quote!(trip: Option<Trip>),
            parse_quote!(trip: mine::String),
            parse_quote!(all: std::collections::HashMap<String, u8>),
            parse_quote!(all: serde_json::Value),
            parse_quote!(Trip { city }: Trip),
        ];
        for parameter in taken {
            assert_eq!(problem(parameter.clone()), "", "{}", parameter.to_token_stream());
        }
    }
}
