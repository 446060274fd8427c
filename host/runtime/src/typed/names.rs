//! Names of tools, made of what a component exports.
//!
//! Owns the rule. Invariant: the name of a function depends on its own export and on functions that would have the same
//! name, and on nothing else: adding a function renames no other.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use bulkhead_domain::hex;

/// Characters of a name. Leaves room for a configured prefix within the 128 that the protocol allows.
const NAME_MAX: usize = 96;

/// Hexadecimal digits that tell two functions apart whose names would be the same.
const MARK: usize = 8;

/// One exported function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Export {
    /// As the component names it, such as `acme:units/length@1.2.0`; none for a function at the root.
    pub(super) interface: Option<String>,
    pub(super) function: String,
}

impl Export {
    /// The interface without its version.
    pub(super) fn unversioned(&self) -> Option<&str> {
        self.interface.as_deref().map(unversioned)
    }
}

/// The name of an interface without its version.
pub(super) fn unversioned(interface: &str) -> &str {
    interface.split_once('@').map_or(interface, |(name, _)| name)
}

/// For people.
impl std::fmt::Display for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{interface}.{}", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// A name for each, in their order: namespace, package, interface and function with dots between them, without the
/// version. Names that would be the same, or too long, end in digits that are made of the whole export, version
/// included.
pub(super) fn of(exports: &[Export]) -> Vec<String> {
    let plain: Vec<String> = exports.iter().map(plain).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in &plain {
        *counts.entry(name).or_default() += 1;
    }
    let is_usable = |name: &str| name.len() <= NAME_MAX && counts.get(name) == Some(&1);
    let named = exports
        .iter()
        .zip(&plain)
        .map(|(export, name)| if is_usable(name) { name.clone() } else { marked(export, name) });
    named.collect()
}

fn plain(export: &Export) -> String {
    // What belongs to a type is called `[static]type.function`.
    let function = export.function.rsplit_once(']').map_or(export.function.as_str(), |(_, name)| name);
    let whole = match export.unversioned() {
        Some(interface) => format!("{interface}.{function}"),
        None => function.to_owned(),
    };
    let allowed = |character: char| match character {
        ':' | '/' => '.',
        character if character.is_ascii_alphanumeric() || "_.-".contains(character) => character,
        _ => '_',
    };
    whole.chars().map(allowed).collect()
}

fn marked(export: &Export, name: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(export.to_string()).into();
    let digest = hex(&digest);
    let kept = name.get(..name.len().min(NAME_MAX - MARK - 1)).unwrap_or_default();
    format!("{kept}-{}", digest.get(..MARK).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn export(interface: &str, function: &str) -> Export {
        let interface = (!interface.is_empty()).then(|| interface.to_owned());
        Export { interface, function: function.to_owned() }
    }

    #[test]
    fn tool_name_joins_package_interface_and_function() {
        let exports = [
            export("acme:units/length@1.2.0", "to-metres"),
            export("", "version"),
            export("helpers", "add"),
            export("acme:units/shapes", "[static]area.of-circle"),
        ];
        let expected = ["acme.units.length.to-metres", "version", "helpers.add", "acme.units.shapes.area.of-circle"];
        assert_eq!(of(&exports), expected);
    }

    #[test]
    fn tool_names_of_two_function_versions_differ() {
        let old = export("a:b/c@1.0.0", "f");
        let new = export("a:b/c@2.0.0", "f");
        let names = of(&[old.clone(), new.clone()]);
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.starts_with("a.b.c.f-")), "{names:?}");
        assert_eq!(of(&[new, old]), [names[1].clone(), names[0].clone()]);
    }

    #[test]
    fn long_tool_names_are_cut_and_stay_unique() {
        let long = "x".repeat(200);
        let names = of(&[export("a:b/c", &format!("{long}-one")), export("a:b/c", &format!("{long}-two"))]);
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() == NAME_MAX), "{names:?}");
    }

    proptest! {
        #[test]
        fn tool_names_are_unique_and_independent_of_order(
            exports in prop::collection::hash_set(
                ("|[a-c]|[a-c]:[a-c]/[a-c](@[12]\\.0\\.0)?", "[a-c](-[a-c]{1,120})?|\\[static\\][a-c]\\.[a-c]"), 1..20)
        ) {
            let exports: Vec<_> = exports.iter().map(|(interface, function)| export(interface, function)).collect();
            let names = of(&exports);
            prop_assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
            for name in &names {
                prop_assert!((1..=NAME_MAX).contains(&name.len()), "{}", name);
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)), "{}", name);
            }
            let mut backwards: Vec<_> = exports.iter().rev().cloned().collect();
            backwards.push(export("zz:zz/zz", "zz"));
            let again = of(&backwards);
            prop_assert!(names.iter().rev().eq(again.iter().take(names.len())));
        }
    }
}
