//! What a guest may import: every function that the host defines for guests, what a call of it can be, and the grant that it needs.
//!
//! Owns the table and what follows from it: whether an import is offered, and what is said of one that is not. Must not know how an
//! import is linked. Invariant: each function that the host's linker defines has exactly one row; a test of the crate `runtime` looks.

mod foreign;
mod table;

pub use foreign::{is_absent_release, refusal, refusals};
pub use table::INTERFACES;

/// What a call of an imported function can be to whoever wants to run the guest a second time with the same outcome. A function that is
/// several things, by its arguments, is the last of them: a write to stdout is pure, one into a file is an effect, and both are the same
/// function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// What it gives follows from the component, its arguments, its grants, and what the guest was given before.
    Pure,
    /// The guest may learn something new.
    Observation,
    /// Something outside of the guest changes for those who watch the call. It may get lost or come twice, and nothing is wrong.
    Advisory,
    /// Something outside of the guest changes, and how often it happens matters.
    Effect,
}

/// What the operator says in a plugin's configuration so that an import is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    Directories,
    Http,
    Env,
    Kv,
    Config,
}

impl Grant {
    /// The key of the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::Directories => "directories",
            Self::Http => "http",
            Self::Env => "env",
            Self::Kv => "kv",
            Self::Config => "config",
        }
    }
}

/// Which versions of an interface the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Every release with this beginning, such as `0.2.`.
    Releases(&'static str),
    /// These alone.
    Exactly(&'static [&'static str]),
}

/// One interface that guests may import.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// Without a version, such as `wasi:io/poll`.
    pub name: &'static str,
    pub versions: Versions,
    /// Without it, its functions give nothing or fail.
    pub grant: Option<Grant>,
    /// Each function once. An interface of types and resources has none.
    pub functions: &'static [(Class, &'static [&'static str])],
}

impl Interface {
    /// What calls of one of its functions can be.
    pub fn class(&self, function: &str) -> Option<Class> {
        self.functions.iter().find(|(_, names)| names.contains(&function)).map(|(class, _)| *class)
    }

    fn has(&self, version: &str) -> bool {
        match self.versions {
            Versions::Releases(beginning) => version.starts_with(beginning) && !version.contains('-'),
            Versions::Exactly(versions) => versions.contains(&version),
        }
    }
}

/// The interface of an import, such as `wasi:io/poll@0.2.3`, if the host has it in this version.
pub fn find(import: &str) -> Option<&'static Interface> {
    let (name, version) = import.split_once('@').unwrap_or((import, ""));
    INTERFACES.iter().find(|interface| interface.name == name && interface.has(version))
}

/// The grants that these imports can make use of, each with an interface that says so. An import may have its function behind it.
pub fn usable_grants<'a>(imports: impl IntoIterator<Item = &'a str>) -> Vec<(Grant, &'static str)> {
    let mut found = Vec::new();
    for import in imports {
        let name = import.split(['@', '.']).next().unwrap_or_default();
        let interface = INTERFACES.iter().find(|interface| interface.name == name);
        if let Some(Interface { name, grant: Some(grant), .. }) = interface
            && !found.iter().any(|(known, _)| known == grant)
        {
            found.push((*grant, *name));
        }
    }
    found.sort_unstable();
    found
}

/// The same in words: `directories (it imports wasi:filesystem/types)`.
pub fn grant_hint((grant, interface): (Grant, &str)) -> String {
    format!("{} (it imports {interface})", grant.key())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn imports_are_found_in_versions_that_fit() {
        for offered in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.12", "bulkhead:plugin/task@0.1.0"] {
            assert!(find(offered).is_some(), "{offered}");
        }
        for absent in [
            "wasi:io/poll",
            "wasi:io/poll@0.3.0",
            "wasi:io/poll@0.2.0-rc-2023-11-10",
            "wasi:config/store@0.2.0",
            "wasi:logging/logging@0.2.0",
            "wasi:http/incoming-handler@0.2.0",
        ] {
            assert!(find(absent).is_none(), "{absent}");
        }
        let poll = find("wasi:io/poll@0.2.0").unwrap();
        assert_eq!((poll.class("poll"), poll.class("nothing")), (Some(Class::Observation), None));
    }

    #[test]
    fn import_table_has_each_name_once() {
        let mut interfaces = BTreeSet::new();
        for interface in INTERFACES {
            assert!(interfaces.insert(interface.name), "{} is there twice", interface.name);
            let functions: Vec<_> = interface.functions.iter().flat_map(|(_, names)| *names).collect();
            let distinct: BTreeSet<_> = functions.iter().collect();
            assert_eq!(distinct.len(), functions.len(), "{}", interface.name);
        }
    }

    #[test]
    fn grants_follow_from_imports() {
        let imports = [
            "wasi:http/types@0.2.3.[constructor]fields",
            "wasi:filesystem/types@0.2.3",
            "wasi:filesystem/preopens@0.2.3",
            "bulkhead:plugin/keyvalue@0.1.0.get",
            "acme:things/door",
        ];
        let found: Vec<_> = usable_grants(imports).into_iter().map(grant_hint).collect();
        assert_eq!(
            found,
            ["directories (it imports wasi:filesystem/types)", "kv (it imports bulkhead:plugin/keyvalue)"]
        );
    }
}
