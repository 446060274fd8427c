//! Values that are bound in pairs.
//!
//! Owns the rule that a `let` binds one value and a parameter has a name. What is bound in a tuple has its value on the other side of the
//! line, and a parameter that is a tuple says of none of its parts what it is. A tuple that a function returns is bound as one, and so is
//! what is matched with `let … else`.

use syn::spanned::Spanned as _;
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
    let lets = bindings
        .tuple_lets
        .iter()
        .map(|line| format!("{}:{line}: a `let` of a tuple from a tuple: one `let` for each value", source.name));
    let parameters = bindings.tuple_parameters.iter().map(|line| {
        format!("{}:{line}: a parameter without a name: pass a struct, or the parts one by one", source.name)
    });
    lets.chain(parameters).collect()
}

/// The lines on which tuples are taken apart.
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
                && matches!(*parameter.pat, syn::Pat::Tuple(_))
            {
                self.tuple_parameters.push(parameter.span().start().line);
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
    fn tuples_that_are_taken_apart_at_once_are_found() {
        let text =
            "fn a() {\n let (x, y) = (1, 2);\n let (x, y) = pair();\n let (Some(x), y) = (z, 2) else { return };\n}
            fn b(\n first: u8,\n (x, y): (u8, u8),\n) { let f = |(x, y)| x; }
            #[cfg(test)] fn c((x, y): (u8, u8)) {}";
        let findings = findings(&source("tasks/a.rs", text));
        let places: Vec<_> = findings.iter().filter_map(|finding| finding.split(": ").next()).collect();
        assert_eq!(places, ["tasks/a.rs:2", "tasks/a.rs:8"]);
    }
}
