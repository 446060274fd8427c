//! Values that are bound in pairs.
//!
//! Owns the rule that a `let` binds one value: what is bound in a tuple has its value on the other side of the line. A tuple that a
//! function returns is bound as one, and so is what is matched with `let … else`.

use syn::visit::Visit;

use crate::Finding;
use crate::code::Source;
use crate::repository::Repository;

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    Ok(repository.host().flat_map(findings).collect())
}

fn findings(source: &Source) -> Vec<Finding> {
    let mut bindings = Bindings::default();
    bindings.visit_file(&source.file);
    let finding =
        |line: &usize| format!("{}:{line}: a `let` of a tuple from a tuple: one `let` for each value", source.name);
    bindings.tuple_lets.iter().map(finding).collect()
}

/// The lines on which tuples are made and taken apart at once.
#[derive(Default)]
struct Bindings {
    tuple_lets: Vec<usize>,
}

impl<'a> Visit<'a> for Bindings {
    fn visit_local(&mut self, local: &'a syn::Local) {
        let is_tuple = matches!(local.pat, syn::Pat::Tuple(_));
        let value = local.init.as_ref();
        if is_tuple && value.is_some_and(|init| init.diverge.is_none() && matches!(*init.expr, syn::Expr::Tuple(_))) {
            self.tuple_lets.push(local.let_token.span.start().line);
        }
        syn::visit::visit_local(self, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    #[test]
    fn tuples_that_are_made_and_taken_apart_at_once_are_found() {
        let text =
            "fn a() {\n let (x, y) = (1, 2);\n let (x, y) = pair();\n let (Some(x), y) = (z, 2) else { return };\n}
            fn b() { let f = || {\n let (x, (y, z)) = (1, pair()); x }; }
            #[cfg(test)] fn c() { let (x, y) = (1, 2); }";
        let findings = findings(&source("tasks/a.rs", text));
        let places: Vec<_> = findings.iter().filter_map(|finding| finding.split(": ").next()).collect();
        assert_eq!(places, ["tasks/a.rs:2", "tasks/a.rs:7"]);
    }
}
