//! The attribute `#[tool]`. `bulkhead_plugin` offers it and documents it.
//!
//! Owns the way from a function with a doc comment to the words of `bulkhead_plugin::Tool`, and nothing that a plugin
//! does when it runs. Invariant: the function stays exactly as it was written, also beside an error.

mod options;
mod parameter;
mod result;
mod words;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Error, FnArg, ItemFn, Signature, parse_macro_input};

use crate::options::Options;

#[doc(hidden)]
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    let function = parse_macro_input!(function as ItemFn);
    let beside = Options::read(options.into()).and_then(|options| beside(&options, &function));
    let beside = beside.unwrap_or_else(Error::into_compile_error);
    quote!(#function #beside).into()
}

/// What stands beside the function: a type of the same name, which lives in another namespace, so that whoever imports
/// the function imports it as well.
fn beside(options: &Options, function: &ItemFn) -> Result<Tokens, Error> {
    check(&function.sig)?;
    let description = match &options.description {
        Some(said) => said.value(),
        None => words::of(&function.attrs),
    };
    let ItemFn { vis, sig, .. } = function;
    let ident = &sig.ident;
    if description.is_empty() {
        let problem = "write a doc comment: it is what a model reads to decide whether to call the tool";
        return Err(Error::new(ident.span(), problem));
    }
    let name = options.name.as_ref().map_or_else(|| words::plain(ident), syn::LitStr::value);
    let calls = options.calls();
    let bounds = match sig.inputs.first() {
        Some(FnArg::Typed(parameter)) => parameter::bounds(parameter),
        _ => Tokens::new(),
    };
    let result = result::bounds(&sig.output);
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "it is found under the function's own name")]
        #vis enum #ident {}

        impl #ident {
            #[allow(unreachable_pub, reason = "it is as visible as the function")]
            pub fn tool() -> ::bulkhead_plugin::Tool {
                ::bulkhead_plugin::Tool::new(#name, #description, #ident) #(#calls)*
            }
        }

        #bounds
        #result
    })
}

/// Says early, and in words about tools, what would be an error about traits.
fn check(signature: &Signature) -> Result<(), Error> {
    if let Some(keyword) = &signature.asyncness {
        return Err(Error::new(
            keyword.span(),
            "a tool is a plain function: the host waits for it, `async` is not needed",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(
            signature.generics.span(),
            "a tool has no generic parameters: its schema is that of its types",
        ));
    }
    if let Some(FnArg::Receiver(receiver)) = signature.inputs.first() {
        return Err(Error::new(receiver.span(), "a tool is a function, not a method"));
    }
    if let Some(second) = signature.inputs.iter().nth(1) {
        let problem =
            "a tool has at most one parameter, whose type is that of the whole arguments object: put its fields there";
        return Err(Error::new(second.span(), problem));
    }
    match signature.inputs.first() {
        Some(FnArg::Typed(only)) => parameter::check(&signature.ident, only),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn made(function: ItemFn) -> Result<String, String> {
        beside(&Options::default(), &function).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn documented_function_becomes_a_tool_of_its_name() {
        let function = parse_quote! {
            /// Adds.
            pub(crate) fn r#in(numbers: Numbers) -> String {}
        };
        let tool = made(function).unwrap();
        assert!(tool.contains("pub (crate) enum r#in") && tool.contains("new (\"in\" , \"Adds.\" , r#in)"), "{tool}");
    }

    #[test]
    fn function_that_cannot_be_a_tool_is_refused() {
        let wrong = |function: ItemFn| made(function).unwrap_err();
        assert!(
            wrong(parse_quote!(
                fn silent() {}
            ))
            .contains("doc comment")
        );
        assert!(
            wrong(parse_quote!(
                async fn later() {}
            ))
            .contains("async")
        );
        assert!(
            wrong(parse_quote!(
                fn any<T>(t: T) {}
            ))
            .contains("generic")
        );
        assert!(
            wrong(parse_quote!(
                fn two(a: u8, b: u8) {}
            ))
            .contains("at most one")
        );
        assert!(
            wrong(parse_quote!(
                fn method(&self) {}
            ))
            .contains("method")
        );
        assert!(
            wrong(parse_quote!(
                /// Greets.
                fn greet(name: String) -> String {}
            ))
            .contains("struct Greet { name: String }")
        );
    }
}
