//! Rust sources without their tests, and their tokens.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::visit_mut::VisitMut;
use syn::{Attribute, Meta, punctuated::Punctuated};

use crate::repository;

/// A Rust file as it stands there, by its path below the folder that was read.
pub(crate) struct Parsed {
    pub(crate) path: PathBuf,
    pub(crate) file: syn::File,
}

/// Reads every Rust file below a folder.
pub(crate) fn parse(folder: &Path) -> anyhow::Result<Vec<Parsed>> {
    let mut parsed = Vec::new();
    for path in repository::files(folder)?.into_iter().filter(|path| path.extension().is_some_and(|is| is == "rs")) {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        parsed.push(Parsed { path: path.strip_prefix(folder)?.to_owned(), file });
    }
    Ok(parsed)
}

/// A source file without its tests.
pub(crate) struct Source {
    /// The crate's folder and the path below its `src`: `store/sled/head.rs`.
    pub(crate) name: String,
    pub(crate) file: syn::File,
    tokens: OnceCell<Vec<Token>>,
}

impl Source {
    pub(crate) fn new(name: String, file: syn::File) -> Self {
        Self { name, file: without_tests(file), tokens: OnceCell::new() }
    }

    /// Its tokens, which most checks look at.
    pub(crate) fn tokens(&self) -> &[Token] {
        self.tokens.get_or_init(|| tokens(&self.file))
    }
}

/// The sources of a crate, except the files of modules that only tests compile.
pub(crate) fn sources(parsed: Vec<Parsed>, crate_name: &str) -> Vec<Source> {
    let of_file = |Parsed { path, file }: &Parsed| {
        let folder = module_folder(path);
        test_modules(file).map(|module| folder.join(module)).collect::<Vec<_>>()
    };
    let only_tests: BTreeSet<_> = parsed.iter().flat_map(of_file).collect();
    let is_test = |path: &Path| {
        let module = path.with_extension("");
        module.ancestors().any(|above| only_tests.contains(above))
    };
    let kept = parsed.into_iter().filter(|parsed| !is_test(&parsed.path));
    kept.map(|Parsed { path, file }| Source::new(format!("{crate_name}/{}", path.display()), file)).collect()
}

/// The folder in which a file's modules lie.
fn module_folder(path: &Path) -> PathBuf {
    let is_root = path.file_stem().is_some_and(|stem| ["lib", "main", "mod"].iter().any(|root| stem == *root));
    if is_root { path.parent().unwrap_or(path).to_owned() } else { path.with_extension("") }
}

/// The modules in files of their own that this file declares for tests only.
fn test_modules(file: &syn::File) -> impl Iterator<Item = String> {
    file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_only_for_tests(&module.attrs) => {
            Some(module.ident.to_string())
        }
        _ => None,
    })
}

/// The code of a file without what only tests, their fixtures and the fuzzer compile. This is the one place that
/// decides it.
fn without_tests(mut file: syn::File) -> syn::File {
    TestRemover.visit_file_mut(&mut file);
    file
}

struct TestRemover;

impl VisitMut for TestRemover {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_only_for_tests(item_attributes(item)));
        syn::visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_only_for_tests(item_attributes(item)));
        }
        syn::visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, item: &mut syn::ItemImpl) {
        item.items.retain(|item| match item {
            syn::ImplItem::Const(item) => !is_only_for_tests(&item.attrs),
            syn::ImplItem::Fn(item) => !is_only_for_tests(&item.attrs),
            _ => true,
        });
        syn::visit_mut::visit_item_impl_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| match statement {
            syn::Stmt::Local(local) => !is_only_for_tests(&local.attrs),
            syn::Stmt::Item(item) => !is_only_for_tests(item_attributes(item)),
            _ => true,
        });
        syn::visit_mut::visit_block_mut(self, block);
    }
}

fn item_attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether one of the attributes says that no released program has the item.
fn is_only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_test = path.segments.last().is_some_and(|segment| segment.ident == "test");
        is_test
            || path.is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|predicate| holds_in_tests_only(&predicate))
    })
}

/// Whether a `cfg` predicate cannot hold in a released program.
fn holds_in_tests_only(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("fuzzing"),
        Meta::NameValue(pair) => {
            pair.path.is_ident("feature") && pair.value.to_token_stream().to_string() == "\"testing\""
        }
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated) else {
                return false;
            };
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("any") => parts.iter().all(holds_in_tests_only),
                Some("all") => parts.iter().any(holds_in_tests_only),
                _ => false,
            }
        }
    }
}

/// One token: a word, a sign, a literal or one half of a pair of brackets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// The text of a string literal.
    pub(crate) string: Option<String>,
    pub(crate) line: usize,
}

/// The tokens of a piece of code in order, without comments and documentation.
pub(crate) fn tokens(code: &impl quote::ToTokens) -> Vec<Token> {
    let mut found = Vec::new();
    flatten(code.to_token_stream(), &mut found);
    found
}

fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut rest = stream.into_iter().peekable();
    while let Some(tree) = rest.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                let is_documentation = matches!(rest.peek(), Some(TokenTree::Group(group)) if first_word(group.stream()).as_deref() == Some("doc"));
                if is_documentation {
                    rest.next();
                } else {
                    found.push(Token { text: "#".to_owned(), string: None, line });
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                found.push(Token { text: open.to_owned(), string: None, line });
                flatten(group.stream(), found);
                found.push(Token { text: close.to_owned(), string: None, line: group.span_close().end().line });
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let string = match syn::Lit::new(literal) {
                    syn::Lit::Str(string) => Some(string.value()),
                    _ => None,
                };
                found.push(Token { text, string, line });
            }
            other => found.push(Token { text: other.to_string(), string: None, line }),
        }
    }
}

fn first_word(stream: TokenStream) -> Option<String> {
    match stream.into_iter().next()? {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    }
}

/// The lines on which a sequence of tokens begins, written as code: `TcpStream::connect`.
pub(crate) fn lines_with(tokens: &[Token], code: &str) -> Vec<usize> {
    let Ok(pattern) = code.parse::<TokenStream>() else { return Vec::new() };
    let pattern = self::tokens(&pattern);
    let is_here = |window: &&[Token]| window.iter().zip(&pattern).all(|(token, wanted)| token.text == wanted.text);
    tokens.windows(pattern.len()).filter(is_here).filter_map(|window| Some(window.first()?.line)).collect()
}

/// Every path that a file imports, written out: `std::fs`.
pub(crate) fn imports(file: &syn::File) -> Vec<String> {
    struct Imports(Vec<String>);
    impl<'a> syn::visit::Visit<'a> for Imports {
        fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
            write_out(&item.tree, "", &mut self.0);
        }
    }
    let mut imports = Imports(Vec::new());
    syn::visit::Visit::visit_file(&mut imports, file);
    imports.0
}

fn write_out(tree: &syn::UseTree, above: &str, found: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => write_out(&path.tree, &format!("{above}{}::", path.ident), found),
        syn::UseTree::Name(name) => found.push(format!("{above}{}", name.ident)),
        syn::UseTree::Rename(name) => found.push(format!("{above}{}", name.ident)),
        syn::UseTree::Glob(_) => found.push(format!("{above}*")),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| write_out(tree, above, found)),
    }
}

/// The documentation of an item, as one text.
pub(crate) fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) fn source(name: &str, text: &str) -> Source {
    Source::new(name.to_owned(), syn::parse_file(text).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_after_a_test_module_is_kept_and_tests_are_removed() {
        let text = r#"
            #[cfg(test)]
            mod tests;
            use crate::kept_import;
            #[cfg(any(test, feature = "testing"))]
            pub mod testing { fn gone_fixture() {} }
            #[cfg(any(test, unix))]
            fn kept_on_unix() {}
            impl Thing {
                #[cfg(test)]
                fn gone_method() {}
                fn kept_method() { #[cfg(test)] let gone_local = 1; }
            }
            mod inner { #[test] fn gone_test() {} fn kept_inner() {} }
            #[cfg(test)]
            mod unit { use crate::gone_import; }
            fn kept_last() {}
        "#;
        let kept = tokens(&source("x.rs", text).file).into_iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
        for word in ["kept_import", "kept_on_unix", "kept_method", "kept_inner", "kept_last"] {
            assert!(kept.contains(word), "{word}: {kept}");
        }
        assert!(!kept.contains("gone"), "{kept}");
    }

    #[test]
    fn files_of_test_modules_are_left_out() {
        let root = std::env::temp_dir().join(format!("tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("deep/checks")).unwrap();
        for (name, text) in [
            ("lib.rs", "mod deep;\n#[cfg(test)]\nmod suite;\n"),
            ("suite.rs", "fn gone() {}"),
            ("deep.rs", "#[cfg(test)]\nmod checks;\nfn kept() {}"),
            ("deep/checks/mod.rs", "mod more;"),
            ("deep/checks/more.rs", "fn gone() {}"),
        ] {
            fs::write(root.join(name), text).unwrap();
        }
        let names: Vec<_> = sources(parse(&root).unwrap(), "x").into_iter().map(|source| source.name).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(names, ["x/deep.rs", "x/lib.rs"]);
    }

    #[test]
    fn comments_and_documentation_are_no_tokens() {
        let file =
            source("x.rs", "/// TcpStream::connect\nfn f() { // TcpStream::connect\n  net::TcpStream::connect(a) }")
                .file;
        assert_eq!(lines_with(&tokens(&file), "TcpStream::connect"), [3]);
    }
}
