//! The names of the repository's tests, as its documents write them: `host::store::sled::tests::NAME`, `sdk::…`, `suite::…`.

use std::collections::BTreeSet;

use anyhow::Context as _;
use syn::visit::Visit;

use crate::code;
use crate::repository::Repository;

/// Every test that is not ignored, by crate and module.
pub(crate) fn all(repository: &Repository) -> anyhow::Result<BTreeSet<String>> {
    let mut folders = vec![
        ("sdk".to_owned(), "plugins/sdk/rust/src".to_owned()),
        ("suite".to_owned(), "tests/suite".to_owned()),
        ("tidy".to_owned(), "plugins/tools/tidy/src".to_owned()),
    ];
    folders.extend(repository.crates().map(|name| (format!("host::{name}"), format!("host/{name}/src"))));
    let mut names = BTreeSet::new();
    for (crate_name, folder) in folders {
        for path in repository.files(&folder)? {
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = repository.text(&format!("{folder}/{}", path.display()))?;
            let file = syn::parse_file(&text).with_context(|| format!("{folder}/{}", path.display()))?;
            let below = path.with_extension("");
            let parts = below.iter().map(|part| part.to_string_lossy().into_owned());
            let parts = parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main"));
            let module = std::iter::once(crate_name.clone()).chain(parts).collect();
            names.extend(of_file(&file, module));
        }
    }
    Ok(names)
}

/// The tests of one file, `module` being its path.
fn of_file(file: &syn::File, module: Vec<String>) -> Vec<String> {
    let mut collector = Collector { module, found: Vec::new() };
    collector.visit_file(file);
    collector.found
}

struct Collector {
    module: Vec<String>,
    found: Vec<String>,
}

impl<'a> Visit<'a> for Collector {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }

    /// The tests of `proptest! { #[test] fn … }`.
    fn visit_macro(&mut self, item: &'a syn::Macro) {
        let tokens = code::tokens(&item.tokens);
        let text = |at: usize| tokens.get(at).map(|token| token.text.as_str());
        let tests =
            (0..tokens.len()).filter(|at| (0..4).map(|next| text(at + next)).eq(["#", "[", "test", "]"].map(Some)));
        let names = tests.filter_map(|at| {
            let function = (at..tokens.len()).find(|at| text(*at) == Some("fn"))?;
            text(function + 1)
        });
        self.found.extend(names.map(|name| format!("{}::{name}", self.module.join("::"))));
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        let has = |name: &str| {
            function
                .attrs
                .iter()
                .any(|attribute| attribute.path().segments.last().is_some_and(|segment| segment.ident == name))
        };
        if has("test") && !has("ignore") {
            self.found.push(format!("{}::{}", self.module.join("::"), function.sig.ident));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tests_and_plain_functions_are_not_listed() {
        let text = "#[test] fn one() {} mod unit { #[tokio::test(flavor = \"x\")] async fn two() {} fn three() {}
            #[test] #[ignore] fn four() {} } #[test] fn five() {}
            mod laws { proptest! { #![config(x)] /// Law.
            #[test] fn six(a in 0..3) { g() } #[test] fn seven(a in 0..3) {} } }";
        let names = of_file(&syn::parse_file(text).unwrap(), vec!["m".to_owned()]);
        assert_eq!(names, ["m::one", "m::unit::two", "m::five", "m::laws::six", "m::laws::seven"]);
    }

    #[test]
    fn tests_of_every_folder_are_found() {
        let names = all(&Repository::read().unwrap()).unwrap();
        assert!(names.contains("tidy::tests_named::tests::tests_of_every_folder_are_found"));
        assert!(names.len() > 1_000, "{}", names.len());
    }
}
