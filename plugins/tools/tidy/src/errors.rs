//! The page of errors has a heading for each code and each HTTP status that the host sends, and for no other.

use std::collections::BTreeSet;

use quote::ToTokens as _;
use syn::visit::Visit;

use crate::Finding;
use crate::code::Source;
use crate::repository::Repository;

const PAGE: &str = "host/docs/reference/errors.md";
/// Crates that write codes, or answer MCP clients over HTTP.
const CRATES: [&str; 2] = ["protocol/", "transport/"];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let sources: Vec<_> =
        repository.host().filter(|source| CRATES.iter().any(|name| source.name.starts_with(name))).collect();
    Ok(wrong_headings(&repository.text(PAGE)?, &sources))
}

fn wrong_headings(page: &str, sources: &[&Source]) -> Vec<Finding> {
    let headings: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).map(subject).collect();
    let sent: BTreeSet<_> =
        sources.iter().flat_map(|source| codes(&source.file).into_iter().chain(statuses(source))).collect();
    let missing = sent.difference(&headings).map(|sent| format!("{PAGE} says nothing about {sent}"));
    let gone =
        headings.difference(&sent).map(|heading| format!("{PAGE} is about {heading}, which the host never sends"));
    missing.chain(gone).collect()
}

/// The code or the name of the status that a heading is about: `1010` of `1010 quota`, `NOT_FOUND` of `404 Not Found`.
fn subject(heading: &str) -> String {
    let (number, name) = heading.split_once(' ').unwrap_or((heading, ""));
    match number.parse::<u16>() {
        Ok(100..600) => name.to_uppercase().replace([' ', '-'], "_"),
        _ => number.to_owned(),
    }
}

/// The JSON-RPC codes of a file: its large constants of type `i32`.
fn codes(file: &syn::File) -> Vec<String> {
    struct Codes(Vec<String>);
    impl<'a> Visit<'a> for Codes {
        fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
            let code = item.expr.to_token_stream().to_string().replace([' ', '_'], "");
            // Smaller numbers count something else.
            let is_code = code.parse::<i32>().is_ok_and(|code| code.abs() >= 1_000);
            if is_code && item.ty.to_token_stream().to_string() == "i32" {
                self.0.push(code);
            }
        }
    }
    let mut codes = Codes(Vec::new());
    codes.visit_file(file);
    codes.0
}

/// The statuses that a file names, as `StatusCode` calls them.
fn statuses(source: &Source) -> Vec<String> {
    let tokens: Vec<_> = source.tokens().iter().map(|token| token.text.as_str()).collect();
    let named = tokens.windows(4).filter_map(|window| match window {
        ["StatusCode", ":", ":", status] => Some((*status).to_owned()),
        _ => None,
    });
    named.filter(|status| status.len() > 1 && !status.contains(|letter: char| letter.is_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_invented_headings_are_found() {
        let text = "const A: i32 = -32_700;\nconst B: i32 = 1010;\nconst C: u32 = 5_000;\nconst D: i32 = 5;\n\
            fn f() { refuse(StatusCode::NOT_FOUND); refuse(http::StatusCode::OK); StatusCode::from_u16(3) }";
        let source = crate::code::source("transport/a.rs", text);
        let page = "# Errors\n### 1010 quota\n### 404 Not Found\n### 410 Gone\n### 1999 never\n";
        assert_eq!(
            wrong_headings(page, &[&source]),
            [
                format!("{PAGE} says nothing about -32700"),
                format!("{PAGE} says nothing about OK"),
                format!("{PAGE} is about 1999, which the host never sends"),
                format!("{PAGE} is about GONE, which the host never sends"),
            ]
        );
    }
}
