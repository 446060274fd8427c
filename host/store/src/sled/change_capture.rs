//! What a running backup must know of what is written meanwhile.
//!
//! Invariant: one backup or rebuild is under way at a time, and until it is over no file goes that it may need.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::Error;
use super::files::{FileName, Files};
use super::group::Group;
use super::keys;
use super::view::View;

/// The rows that changed while a backup read the others, as they are at its end.
pub(super) struct Changes {
    pub(super) rows: Vec<(Vec<u8>, Option<::sled::IVec>)>,
}

/// Where the committer leaves what a running backup must know.
#[derive(Default)]
pub(super) struct ChangeCapture {
    running: Mutex<Option<ActiveBackup>>,
}

#[derive(Default)]
struct ActiveBackup {
    touched: BTreeSet<Vec<u8>>,
    files_kept: Vec<FileName>,
}

impl ChangeCapture {
    fn with<R>(&self, act: impl FnOnce(&mut Option<ActiveBackup>) -> R) -> R {
        act(&mut self.running.lock())
    }

    /// A group has become visible.
    pub(super) fn note(&self, group: &Group) {
        self.with(|running| {
            if let Some(running) = running {
                running.touched.extend(group.keys().map(<[u8]>::to_vec));
                running.touched.insert(keys::GROUP.to_vec());
            }
        });
    }

    /// Whether a file has to stay for now; if so it is removed when the backup is over.
    pub(super) fn keeps_file(&self, name: FileName) -> bool {
        self.with(|running| running.as_mut().map(|running| running.files_kept.push(name)).is_some())
    }

    /// What changed since the beginning. Called between two groups.
    pub(super) fn changes(&self, view: &View) -> Result<Changes, Error> {
        let touched = self.with(|running| running.as_mut().map(|running| std::mem::take(&mut running.touched)));
        let rows: Result<_, Error> =
            touched.unwrap_or_default().into_iter().map(|key| Ok((key.clone(), view.get(&key)?))).collect();
        Ok(Changes { rows: rows? })
    }
}

/// A backup that is under way, until it is dropped.
pub(super) struct Guard {
    change_capture: Arc<ChangeCapture>,
    files: Files,
}

impl Guard {
    pub(super) fn begin(change_capture: &Arc<ChangeCapture>, files: &Files) -> Result<Self, Error> {
        let began = change_capture.with(|running| {
            let free = running.is_none();
            running.get_or_insert_default();
            free
        });
        if !began {
            return Err(Error::Engine("a backup or a rebuild is under way: try again when it is over".to_owned()));
        }
        Ok(Self { change_capture: Arc::clone(change_capture), files: files.clone() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let kept = self.change_capture.with(Option::take).map(|running| running.files_kept);
        kept.into_iter().flatten().for_each(|name| self.files.remove(&name));
    }
}
