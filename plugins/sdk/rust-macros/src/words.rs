//! Doc comments as texts, and identifiers as names.

use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta};

/// A doc comment, without the space that everybody writes after the slashes.
pub(crate) fn of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(line).collect::<Vec<_>>();
    lines.join("\n").trim().to_owned()
}

fn line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(said) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &said.value else { return None };
    let text = said.path.is_ident("doc").then(|| text.value())?;
    Some(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
}

/// An identifier without the mark of a raw one.
pub(crate) fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn a_doc_comment_keeps_its_paragraphs_and_its_code() {
        let function: syn::ItemFn = parse_quote! {
            /// Counts.
            ///
            ///     code
            #[inline]
            /// Ends.
            fn r#match() {}
        };
        assert_eq!(of(&function.attrs), "Counts.\n\n    code\nEnds.");
        assert_eq!(plain(&function.sig.ident), "match");
    }
}
