//! What a tool gives back.

use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{ReturnType, Type};

/// An item that says at the type itself that it is no result of a tool. The bounds of `Tool::new` would be named at the
/// function, as a trait that functions do not implement.
pub(crate) fn bounds(output: &ReturnType) -> Tokens {
    match output {
        ReturnType::Type(_, ty) if has_name(ty) => {
            quote_spanned!(ty.span()=> const _: () = ::bulkhead_plugin::__result::<#ty>();)
        }
        _ => Tokens::new(),
    }
}

/// Whether the type can be written a second time: what `impl` stands for is known at the function alone.
fn has_name(ty: &Type) -> bool {
    fn is_impl(token: proc_macro2::TokenTree) -> bool {
        match token {
            proc_macro2::TokenTree::Ident(ident) => ident == "impl",
            proc_macro2::TokenTree::Group(group) => group.stream().into_iter().any(is_impl),
            _ => false,
        }
    }
    !matches!(ty, Type::Never(_)) && !ty.to_token_stream().into_iter().any(is_impl)
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn result_type_with_a_name_is_asked_for_its_trait() {
        let asked = |output: ReturnType| bounds(&output).to_string();
        assert!(
            asked(parse_quote!(-> Result<Json<Trip>, Error>))
                .contains("__result :: < Result < Json < Trip > , Error > >")
        );
        let nameless: [ReturnType; 4] = [
            parse_quote!(-> !),
            parse_quote!(-> impl IntoOutput),
            parse_quote!(-> Option<(impl Sized,)>),
            ReturnType::Default,
        ];
        for output in nameless {
            assert_eq!(asked(output), "");
        }
    }
}
