//! What a guest may import: every function that the host defines for guests, what a call of it can be, and the grant
//! that it needs.
//!
//! Owns the table and what follows from it: whether an import is offered, and what is said of one that is not. Must not
//! know how an import is linked. Invariant: each function that the host's linker defines has exactly one row; a test of
//! the crate `runtime` looks.

mod foreign;
mod table;

use std::collections::{BTreeMap, BTreeSet};

pub use foreign::{is_absent_release, refusal, refusals};
pub use table::INTERFACES;

/// What a call of an imported function can be to a host that runs the guest a second time for the same outcome. A
/// function that is several things, by its arguments, is the last of them: a write to stdout is pure, one into a file
/// is an effect, and both are the same function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// What it gives follows from the component, its arguments, its grants, and what the guest was given before.
    Pure,
    /// The guest may learn something new.
    Observation,
    /// Something outside of the guest changes for those who watch the call. It may get lost or come twice, and nothing
    /// is wrong.
    Advisory,
    /// Something outside of the guest changes, and how often it happens matters.
    Effect,
}

/// What the journal of a call holds of a call of an imported function, and what a replay makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Journaled {
    /// The guest calls it again, and it gives the same: from the header of the journal, or from what was delivered
    /// before.
    Again,
    /// It looks at the clock.
    Clock,
    /// It looks at everything that may have come from outside.
    Wait,
    /// What it gives is kept.
    Value,
    /// What it gives is kept where it is something else than the guest knows.
    News,
    /// It waits, and shows the signals.
    Signals,
    /// It shows whether the call is a task.
    Promotion,
    /// It asks the client.
    Question,
    /// It sends a request.
    Request,
    /// It names where the call can begin from.
    Checkpoint,
    /// It is for those who watch the call.
    Silent,
    /// The journal is given up before it does anything.
    GivesUp,
    /// A component that imports it has no journal.
    Never,
}

impl Journaled {
    /// The kinds of entries that a call of it may make.
    pub fn entries(self) -> &'static [&'static str] {
        match self {
            Self::Again | Self::Silent | Self::GivesUp | Self::Never => &[],
            Self::Clock => &["clock"],
            Self::Wait => &["clock", "outcome", "delivery"],
            Self::Value | Self::News => &["value"],
            Self::Signals => &["clock", "outcome", "delivery", "signals"],
            Self::Promotion => &["promoted"],
            Self::Question => &["value", "command"],
            Self::Request => &["command"],
            Self::Checkpoint => &["checkpoint", "state"],
        }
    }

    /// What a replay does where the guest calls it, for people.
    pub fn replay(self) -> &'static str {
        match self {
            Self::Again => "it is called again",
            Self::Clock => "the clock shows what it showed",
            Self::Wait => "what was ready is ready, and responses are given again",
            Self::Value => "it gives what it gave, and nothing is looked up or written",
            Self::News => "it gives what the guest knew, or the news that are kept",
            Self::Signals => "the signals are those that were shown",
            Self::Promotion => "the call becomes a task where it became one",
            Self::Question => "the question has to be the same, and is not put; the answer is given again",
            Self::Request => "the request has to be the same, and is not sent",
            Self::Checkpoint => "the state has to be the same, and is kept",
            Self::Silent => "nobody is told",
            Self::GivesUp | Self::Never => "there is no replay",
        }
    }
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
    /// These alone; an empty one stands for an interface without a version.
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
    pub functions: &'static [(Class, Journaled, &'static [&'static str])],
}

impl Interface {
    /// What calls of one of its functions can be.
    pub fn class(&self, function: &str) -> Option<Class> {
        self.row(function).map(|(class, _)| class)
    }

    /// What becomes of calls of one of its functions in a journal.
    pub fn journaled(&self, function: &str) -> Option<Journaled> {
        self.row(function).map(|(_, journaled)| journaled)
    }

    fn row(&self, function: &str) -> Option<(Class, Journaled)> {
        let row = self.functions.iter().find(|(.., names)| names.contains(&function));
        row.map(|(class, journaled, _)| (*class, *journaled))
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

/// The grants that these imports can make use of, each with the first interface of the table that says so. An import
/// may have its function behind it.
pub fn usable_grants<'a>(imports: impl IntoIterator<Item = &'a str>) -> Vec<(Grant, &'static str)> {
    let imported: BTreeSet<_> = imports.into_iter().filter_map(|import| import.split(['@', '.']).next()).collect();
    let mut found = BTreeMap::new();
    for Interface { name, grant, .. } in INTERFACES {
        if let Some(grant) = grant.filter(|_| imported.contains(name)) {
            found.entry(grant).or_insert(*name);
        }
    }
    found.into_iter().collect()
}

/// The same in words: `directories (it imports wasi:filesystem/preopens)`.
pub fn grant_hint(grant: Grant, interface: &str) -> String {
    format!("{} (it imports {interface})", grant.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_versions_that_fit() {
        for offered in [
            "wasi:io/poll@0.2.0",
            "wasi:io/poll@0.2.12",
            "bulkhead:plugin/task@0.1.0",
            "wasi:clocks/monotonic-clock@0.3.0",
            "wasi:config/store@0.2.0-rc.1",
            "wasi:logging/logging",
            "wasi:logging/logging@0.1.0-draft",
        ] {
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
            let versions = format!("{:?}", interface.versions);
            assert!(interfaces.insert((interface.name, versions)), "{} is there twice", interface.name);
            let functions: Vec<_> = interface.functions.iter().flat_map(|(.., names)| *names).collect();
            let distinct: BTreeSet<_> = functions.iter().collect();
            assert_eq!(distinct.len(), functions.len(), "{}", interface.name);
        }
    }

    #[test]
    fn journal_rules_fit_the_classes_of_imports() {
        for interface in INTERFACES {
            for (class, journaled, names) in interface.functions {
                let fits = match class {
                    Class::Pure => matches!(journaled, Journaled::Again | Journaled::Value | Journaled::Never),
                    Class::Advisory => *journaled == Journaled::Silent,
                    Class::Observation | Class::Effect => *journaled != Journaled::Silent,
                };
                assert!(fits && !journaled.replay().is_empty(), "{} {names:?}", interface.name);
                let has_entries = !journaled.entries().is_empty();
                assert!(has_entries || !matches!(journaled, Journaled::Value | Journaled::Request));
            }
        }
        let clock = find("wasi:clocks/wall-clock@0.2.0").unwrap();
        assert_eq!(clock.journaled("now"), Some(Journaled::Clock));
        assert_eq!(find("wasi:clocks/system-clock@0.3.0").unwrap().journaled("now"), Some(Journaled::Never));
    }

    #[test]
    fn grants_follow_from_imports() {
        let imports = [
            "wasi:http/types@0.2.3.[constructor]fields",
            "wasi:filesystem/types@0.2.3",
            "wasi:filesystem/preopens@0.2.3",
            "wasi:logging/logging.log",
            "wasi:keyvalue/store@0.2.0-draft.open",
            "acme:things/door",
        ];
        let found: Vec<_> =
            usable_grants(imports).into_iter().map(|(grant, interface)| grant_hint(grant, interface)).collect();
        assert_eq!(found, ["directories (it imports wasi:filesystem/preopens)", "kv (it imports wasi:keyvalue/store)"]);
    }
}
