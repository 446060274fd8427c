//! Folders whose components become plugins by themselves.
//!
//! Owns looking at the folders and deciding what in them is whole and new. Must not switch to anything that an operator
//! would have to be asked about. Invariant: what is taken has not changed for [`SETTLE`], neither while it was read;
//! what was refused stays refused, and is said once, until something about it changes; what failed by no fault of its
//! own is tried again, less and less often; a file that changes without its bytes changing decides nothing.
//!
//! A file is known by what it leads to: its path behind all links, inode, size and time of change, and the same of its
//! signature, its WIT text and the components that it is composed with, which are no plugins of their own. So a link
//! that is swapped is a change, whichever link on the way it is. A removed file changes nothing: the plugin goes on,
//! until an operator removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::Watcher as _;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::acquire::ComposedFiles;
use super::{ComponentFetcher, ConfiguredSource, Source, beside, real_path};
use crate::{Candidate, Digest, Error, Plugins, Stage, pause_after};
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::task::PluginVersion;

/// A file that nobody has changed for this long is whole.
const SETTLE: Duration = Duration::from_millis(500);
/// How often the folders are looked at when nothing happens in them: what links lead to is somewhere else.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Folders, and where what is in them goes.
pub struct Watch {
    pub folders: Vec<PathBuf>,
    pub intake: Arc<ComponentFetcher>,
    pub plugins: Plugins,
    /// What comes by itself is noted like what an operator orders.
    pub audit: Audit,
}

/// What is known of the folders while they are watched.
#[derive(Default)]
struct WatchState {
    /// The files that are there.
    seen: BTreeMap<PathBuf, Seen>,
    /// By plugin: the version that was last decided about here. The same bytes once more are no reason to decide again,
    /// and least of all against an operator who has gone back to another version meanwhile.
    decided: BTreeMap<String, Digest>,
}

/// What tells one state of a file from the next.
type Print = Vec<Option<(PathBuf, u64, u64, i64, i64)>>;

/// A component in a folder.
struct Seen {
    print: Print,
    since: Instant,
    /// It was there when the host began.
    from_start: bool,
    next: Next,
    /// What was last said about it, and under which name.
    reported: Option<(String, Vec<String>)>,
}

/// What is to be done about the present print of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// To take it.
    Take,
    /// To take it at this time: so many attempts have failed, and not by its own fault.
    Retry { at: Instant, failed: u32 },
    /// Nothing: it was dealt with.
    Nothing,
}

/// What became of a component that did not change while it was read.
struct Taken {
    name: String,
    /// Why it is not taken, or not switched to. Empty: it is active, or an operator has put it aside.
    problems: Vec<String>,
    /// They are not its own fault: it may be taken another time.
    is_passing: bool,
}

/// What becomes of a version from a folder.
enum Brought {
    /// Its plugin comes from somewhere else; says so.
    Foreign(String),
    /// It is active, or it is not for these reasons, or, without one, because an operator wants another one.
    Decided(Vec<String>),
}

impl Watch {
    /// Looks until dropped.
    pub async fn run(self) {
        let changed = Arc::new(Notify::new());
        let mut watcher = watcher(&changed);
        let mut watched = BTreeSet::new();
        let mut absent = BTreeSet::new();
        let mut known = WatchState::default();
        let mut from_start = true;
        loop {
            for folder in &self.folders {
                if let Some(watcher) = &mut watcher
                    && !watched.contains(folder)
                    && watcher.watch(folder, notify::RecursiveMode::NonRecursive).is_ok()
                {
                    watched.insert(folder.clone());
                }
            }
            let folders = self.folders.clone();
            let composed = self.intake.composed_files();
            let found = tokio::task::spawn_blocking(move || scan(&folders, &composed)).await.unwrap_or_default();
            for (folder, problem) in &found.unreadable {
                // A folder that comes back is another one.
                watched.remove(folder);
                if absent.insert(folder.clone()) {
                    tracing::warn!(folder = %folder.display(), problem, "a watched folder cannot be read");
                }
            }
            absent.retain(|folder| found.unreadable.contains_key(folder));
            let is_restless = self.look(&mut known, found, from_start).await;
            from_start = false;
            tokio::select! {
                () = tokio::time::sleep(if is_restless { SETTLE } else { LOOK_EVERY }) => {}
                () = changed.notified(), if !is_restless => {}
            }
        }
    }

    /// Deals with what is new. Returns whether something has to be looked at again soon.
    async fn look(&self, known: &mut WatchState, found: FolderScan, from_start: bool) -> bool {
        let WatchState { seen, decided } = known;
        let mut is_restless = false;
        for (path, print) in &found.components {
            let now = Instant::now();
            let begin = || Seen { print: print.clone(), since: now, from_start, next: Next::Take, reported: None };
            let file = seen.entry(path.clone()).or_insert_with(begin);
            if file.print != *print {
                (file.print, file.since, file.from_start, file.next) = (print.clone(), now, false, Next::Take);
            }
            if file.next == Next::Nothing || matches!(file.next, Next::Retry { at, .. } if at > now) {
                continue;
            }
            if now.duration_since(file.since) < SETTLE {
                is_restless = true;
                continue;
            }
            match self.take(path, file, decided).await {
                None => is_restless = true,
                Some(Taken { name, mut problems, is_passing }) => {
                    self.plugins.count_source(&name, (!problems.is_empty()).then_some(is_passing));
                    if is_passing {
                        file.next = file.next.after_failure();
                        problems.push("it is tried again by itself".to_owned());
                    } else {
                        file.next = Next::Nothing;
                    }
                    self.say(file, path, name, problems).await;
                }
            }
        }
        let is_gone = |path: &PathBuf| {
            let folder = path.parent().unwrap_or(Path::new(""));
            !found.components.contains_key(path) && !found.unreadable.contains_key(folder)
        };
        let gone: Vec<_> = seen.keys().filter(|path| is_gone(path)).cloned().collect();
        for path in gone {
            tracing::info!(file = %path.display(), "gone from a watched folder; what came from it goes on");
            if let Some((name, _)) = seen.remove(&path).and_then(|file| file.reported) {
                self.plugins.note_problems(&name, Vec::new()).await;
            }
        }
        is_restless
    }

    /// Lets operators see what is wrong with a file, in the list and, once, in the log.
    async fn say(&self, file: &mut Seen, path: &Path, name: String, problems: Vec<String>) {
        let reported = (name, problems);
        if let Some((before, _)) = file.reported.as_ref().filter(|before| before.0 != reported.0) {
            self.plugins.note_problems(before, Vec::new()).await;
        }
        if !reported.1.is_empty() && file.reported.as_ref() != Some(&reported) {
            tracing::warn!(file = %path.display(), plugin.name = reported.0, problems = ?reported.1, "not taken from a watched folder");
            self.audit.note(|| Entry::new("plugin.refused").named(&reported.0).because(&reported.1.join("; ")));
        }
        self.plugins.note_problems(&reported.0, reported.1.clone()).await;
        file.reported = Some(reported);
    }

    /// `None`: the file changed while it was read.
    async fn take(&self, path: &Path, file: &Seen, decided: &mut BTreeMap<String, Digest>) -> Option<Taken> {
        let source = Source::File(path.to_owned());
        let (name, wanted) = self.intake.configured_from(&source).await.unzip();
        let wanted = wanted.unwrap_or_else(|| ConfiguredSource::single(source.clone(), None));
        let taken = self.intake.take_whole(&wanted).await;
        let again = path.to_owned();
        let composed = self.intake.composed_files();
        if tokio::task::spawn_blocking(move || print_of(&again, &composed.resolved())).await.ok().as_ref()
            != Some(&file.print)
        {
            return None;
        }
        let label = || name.clone().unwrap_or_else(|| path.display().to_string());
        let verified = match taken {
            Ok(verified) => verified,
            Err(error) => {
                let problems = vec![error.to_string()];
                return Some(Taken { name: label(), problems, is_passing: error.is_passing() });
            }
        };
        let candidate = verified.automatic_candidate(name.clone());
        let version = match self.plugins.identify(&candidate).await {
            Ok(version) => version,
            Err(error) => return Some(Taken { name: label(), problems: error.problems(), is_passing: false }),
        };
        let name = version.name;
        let digest = Digest(version.digest);
        let is_old = file.from_start || decided.get(&name) == Some(&digest);
        let (problems, is_passing) = match self.bring(&name, digest, &source, candidate, is_old).await {
            Ok(Brought::Foreign(problem)) => (vec![problem], false),
            Ok(Brought::Decided(problems)) => {
                decided.insert(name.clone(), digest);
                (problems, false)
            }
            Err(error) => {
                let is_passing = error.is_passing();
                (error.problems(), is_passing)
            }
        };
        Some(Taken { name, problems, is_passing })
    }

    /// Makes it the active version, if it is the folder's business and needs nobody's word.
    ///
    /// `is_old`: it was there already when the active version was decided.
    async fn bring(
        &self,
        name: &str,
        digest: Digest,
        source: &Source,
        candidate: Candidate,
        is_old: bool,
    ) -> Result<Brought, Error> {
        let versions = match self.plugins.versions(name).await {
            Err(Error::NotFound(_)) => Vec::new(),
            versions => versions?,
        };
        if let Some(configured) = self.intake.configured(name).filter(|configured| configured.source != *source) {
            let configured = configured.source;
            return Ok(Brought::Foreign(format!(
                "the configuration says that {name} comes from {configured}, so {source} is not it"
            )));
        }
        let active = versions.iter().find(|version| version.state == Stage::Active);
        if let Some(active) = active {
            if active.version == digest {
                return Ok(Brought::Decided(Vec::new()));
            }
            if active.source != source.to_string() && !self.has_gone(&active.source) {
                let other = &active.source;
                return Ok(Brought::Foreign(format!(
                    "{name} is there already, from {other}; remove it there, or `bulkhead plugin add {source}`"
                )));
            }
        }
        let known = versions.iter().find(|version| version.version == digest);
        if is_old && known.is_some_and(|known| known.activated_at.is_some()) {
            tracing::info!(plugin.name = name, plugin.version = %digest, file = %source, "an operator has put this version aside");
            return Ok(Brought::Decided(Vec::new()));
        }
        let was_removed = active.is_none() && versions.iter().any(|version| version.activated_at.is_some());
        self.switch(name, digest, source, candidate, was_removed).await.map(Brought::Decided)
    }

    /// Makes it the active version, if that needs nobody's word. Returns why it does not.
    async fn switch(
        &self,
        name: &str,
        digest: Digest,
        source: &Source,
        candidate: Candidate,
        was_removed: bool,
    ) -> Result<Vec<String>, Error> {
        let staged = self.plugins.stage(candidate).await?;
        if was_removed {
            return Ok(vec![format!(
                "{name} was removed: `bulkhead plugin activate {name}` brings in the new version"
            )]);
        }
        let word = |held: Vec<String>| {
            let advice = format!("it is staged: `bulkhead plugin activate {name} --accept` switches to it");
            held.into_iter().chain([advice]).collect()
        };
        if !staged.held.is_empty() {
            return Ok(word(staged.held));
        }
        let version = PluginVersion { name: name.to_owned(), digest: digest.0 };
        let switched = self.plugins.switch(std::slice::from_ref(&version), false).await?;
        if !switched.done {
            return Ok(word(switched.held));
        }
        self.audit.note(|| Entry::new("plugin.switched").plugin(&version).named(&source.to_string()));
        Ok(Vec::new())
    }

    /// Whether a version came from a file of these folders that is there no more: the file got another name.
    fn has_gone(&self, source: &str) -> bool {
        let path = Path::new(source);
        self.folders.iter().any(|folder| path.parent() == Some(folder)) && !path.exists()
    }
}

impl Next {
    /// One more attempt has failed.
    fn after_failure(self) -> Self {
        let failed = if let Self::Retry { failed, .. } = self { failed.saturating_add(1) } else { 1 };
        Self::Retry { at: Instant::now() + pause_after(failed), failed }
    }
}

/// Wakes the watch when a folder changes. Without it the folders are read at intervals.
fn watcher(changed: &Arc<Notify>) -> Option<notify::RecommendedWatcher> {
    let changed = Arc::clone(changed);
    let notify = move |event: notify::Result<notify::Event>| {
        if !event.is_ok_and(|event| event.kind.is_access()) {
            changed.notify_one();
        }
    };
    let watcher = notify::recommended_watcher(notify);
    watcher.map_err(|error| tracing::warn!(%error, "watched folders are looked at every few seconds only")).ok()
}

#[derive(Default)]
struct FolderScan {
    components: BTreeMap<PathBuf, Print>,
    unreadable: BTreeMap<PathBuf, String>,
}

fn scan(folders: &[PathBuf], composed: &ComposedFiles) -> FolderScan {
    let mut found = FolderScan::default();
    let composed = composed.resolved();
    for folder in folders {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                found.unreadable.insert(folder.clone(), error.to_string());
                continue;
            }
        };
        let is_plugin = |path: &PathBuf| is_component(path) && !composed.only_parts.contains(&real_path(path));
        for path in entries.flatten().map(|entry| entry.path()).filter(is_plugin) {
            // What does not lead to a file is nothing yet.
            if std::fs::metadata(&path).is_ok_and(|facts| facts.is_file()) {
                let print = print_of(&path, &composed);
                found.components.insert(path, print);
            }
        }
    }
    found
}

/// Names that begin with a dot belong to editors, copying programs and the folder itself.
fn is_component(path: &Path) -> bool {
    let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    !is_hidden && path.extension().is_some_and(|extension| extension == "wasm")
}

/// Of the file, and of those that it is composed of (`composed` is resolved).
fn print_of(path: &Path, composed: &ComposedFiles) -> Print {
    let one = |path: &Path| {
        let behind = path.canonicalize().ok()?;
        let facts = behind.metadata().ok()?;
        Some((behind, facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
    };
    let parts = composed.parts.get(&real_path(path)).into_iter().flatten();
    let parts = parts.flat_map(|part| [one(part), one(&beside(part))]);
    [one(path), one(&beside(path)), one(&path.with_extension("wit"))].into_iter().chain(parts).collect()
}

#[cfg(test)]
pub(crate) mod tests;
