//! The table of imports against what passes the journal.

use std::collections::BTreeSet;

use bulkhead_domain::imports::{INTERFACES, Journaled};

use crate::journal::names::ALL;

/// An import that the journal has something to do with and that does not pass it would be a hole; and what passes it has a row.
#[test]
fn imports_with_entries_pass_the_journal() {
    let passes = |rule| !matches!(rule, Journaled::Again | Journaled::GivesUp | Journaled::Never);
    let rows = INTERFACES.iter().flat_map(|interface| {
        let rows = interface.functions.iter().filter(|(_, rule, _)| passes(*rule));
        rows.flat_map(|(.., names)| *names).map(|function| (interface.name, *function))
    });
    let rows: BTreeSet<_> = rows.collect();
    let passing: BTreeSet<_> = ALL.iter().map(|import| import.parts()).collect();
    let holes: Vec<_> = rows.difference(&passing).collect();
    assert!(holes.is_empty(), "the table says that these have entries, and they do not pass the journal: {holes:?}");
    for (name, function) in passing {
        let rules = INTERFACES.iter().filter(|row| row.name == name).filter_map(|row| row.journaled(function));
        assert!(rules.into_iter().any(|rule| rule != Journaled::Never), "{function} of {name} has no row");
    }
}
