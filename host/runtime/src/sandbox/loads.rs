//! How far the loading of plugins is, for a person who waits for it.
//!
//! Owns counts and names. Must not hold a load up. Invariant: what is under way is counted for exactly as long as its
//! guard lives, so that a load that nobody waits for any more is not counted.

use parking_lot::Mutex;

/// What a sandbox has loaded since it was made, and what it loads now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Loads that have begun.
    pub begun: usize,
    /// Those of them that are over, whatever came of them.
    pub over: usize,
    /// What is compiled now, as its operator knows it; what was begun first comes first.
    pub compiling: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Loads(Mutex<LoadProgress>);

/// Counts something as under way until it is dropped.
#[must_use]
pub(super) struct UnderWay<'a, F: Fn(&mut LoadProgress)> {
    loads: &'a Loads,
    ended: F,
}

impl Loads {
    pub(super) fn progress(&self) -> LoadProgress {
        self.0.lock().clone()
    }

    pub(super) fn begin(&self) -> UnderWay<'_, impl Fn(&mut LoadProgress) + use<>> {
        self.0.lock().begun += 1;
        UnderWay { loads: self, ended: |now| now.over += 1 }
    }

    pub(super) fn compile(&self, label: String) -> UnderWay<'_, impl Fn(&mut LoadProgress) + use<>> {
        self.0.lock().compiling.push(label.clone());
        let ended = move |now: &mut LoadProgress| {
            let at = now.compiling.iter().position(|other| *other == label);
            at.into_iter().for_each(|at| _ = now.compiling.remove(at));
        };
        UnderWay { loads: self, ended }
    }
}

impl<F: Fn(&mut LoadProgress)> Drop for UnderWay<'_, F> {
    fn drop(&mut self) {
        (self.ended)(&mut self.loads.0.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_counted_while_their_guards_live() {
        let loads = Loads::default();
        let first = loads.begin();
        let second = loads.begin();
        let (csv, text, again) =
            (loads.compile("csv".to_owned()), loads.compile("text".to_owned()), loads.compile("csv".to_owned()));
        let progress = loads.progress();
        assert_eq!((progress.begun, progress.over), (2, 0));
        assert_eq!(progress.compiling, ["csv", "text", "csv"]);
        drop((csv, first));
        assert_eq!(loads.progress(), LoadProgress { begun: 2, over: 1, compiling: vec!["text".into(), "csv".into()] });
        drop((text, again, second));
        assert_eq!(loads.progress(), LoadProgress { begun: 2, over: 2, compiling: Vec::new() });
    }
}
