//! The names of the repository's tests, as its documents write them: `host::store::sled::tests::NAME`, `sdk::…`,
//! `suite::…`.

use syn::visit::Visit;

use crate::code::{self, Parsed};

/// Every test of a crate that is not ignored, by module.
pub(crate) fn all(crate_name: &str, files: &[Parsed]) -> Vec<String> {
    let of_file = |Parsed { path, file }: &Parsed| {
        let below = path.with_extension("");
        let parts = below.iter().map(|part| part.to_string_lossy().into_owned());
        let parts = parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main"));
        of_file(file, std::iter::once(crate_name.to_owned()).chain(parts).collect())
    };
    files.iter().flat_map(of_file).collect()
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
    use crate::repository::Repository;

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
        let repository = Repository::read().unwrap();
        let names = repository.tests();
        assert!(names.contains("tidy::tests_named::tests::tests_of_every_folder_are_found"));
        assert!(names.len() > 1_000, "{}", names.len());
    }
}
