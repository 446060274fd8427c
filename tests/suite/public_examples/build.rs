//! Makes the components of the examples.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use parking_lot::Mutex;
use tests::place;

use super::{EXAMPLES, Example};
use crate::components::{self, Made, Source};

/// The sources of an example that is not in Rust, and what was recorded of every original.
pub(super) fn folder(example: &Example) -> PathBuf {
    place::root().join("tests/fixtures/public-examples").join(example.name)
}

/// All of them by their names, made once in a run.
pub(super) fn all() -> &'static BTreeMap<&'static str, PathBuf> {
    static MADE: OnceLock<BTreeMap<&'static str, PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let left = Mutex::new(EXAMPLES.iter());
        let made = Mutex::new(BTreeMap::new());
        let work = || {
            while let Some(example) = { left.lock().next() } {
                let component = make(example);
                made.lock().insert(example.name, component);
            }
        };
        thread::scope(|scope| {
            let helper = scope.spawn(work);
            work();
            helper.join().expect("the other examples are made");
        });
        made.into_inner()
    })
}

fn make(example: &Example) -> PathBuf {
    let name = match example.made {
        Made::Rust => format!("public_{}", example.name),
        _ => example.name.to_owned(),
    };
    components::make(&Source { name: &name, folder: folder(example), made: &example.made })
}
