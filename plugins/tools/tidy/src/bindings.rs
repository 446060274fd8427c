//! Values that are bound in pairs.
//!
//! Owns two rules. A `let` binds one value: what is bound in a tuple has its value on the other side of the line; a
//! tuple that a function returns is bound as one, and so is what is matched with `let … else`. And a parameter has a
//! name of its own: values that belong together are a struct, others are parameters of their own. Closures take what
//! they are given, and so does a function that wasmtime's linker calls with its one parameter as `(parameter,)`.

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
    let name = &source.name;
    let of_let = |line: &usize| format!("{name}:{line}: a `let` of a tuple from a tuple: one `let` for each value");
    let of_parameter =
        |line: &usize| format!("{name}:{line}: a parameter that is a tuple: a struct, or two parameters");
    let lets = bindings.tuple_lets.iter().map(of_let);
    lets.chain(bindings.tuple_parameters.iter().map(of_parameter)).collect()
}

/// The lines on which tuples are made and taken apart at once, or taken apart as they are given.
#[derive(Default)]
struct Bindings {
    tuple_lets: Vec<usize>,
    tuple_parameters: Vec<usize>,
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

    fn visit_signature(&mut self, signature: &'a syn::Signature) {
        for input in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = input
                && let syn::Pat::Tuple(tuple) = &*parameter.pat
                && tuple.elems.len() > 1
            {
                self.tuple_parameters.push(tuple.paren_token.span.open().start().line);
            }
        }
        syn::visit::visit_signature(self, signature);
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

    #[test]
    fn parameters_that_are_tuples_are_found() {
        let text = "fn a((x, y): (u8, u8)) { z.map(|(a, b)| a); }
            impl A { fn b(&self, Pair { x, y }: Pair,
              (z, w): P) {} }";
        let findings = findings(&source("tasks/a.rs", text));
        let places: Vec<_> = findings.iter().filter_map(|finding| finding.split(": ").next()).collect();
        assert_eq!(places, ["tasks/a.rs:1", "tasks/a.rs:3"]);
    }
}
