//! The thread that writes.
//!
//! Invariant: a line is appended whole or, after a crash in the middle of one, cut off again at the next start, which
//! the log says.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::LineHash;
use super::read::{LogLine, files};
use super::{Entry, Options};
use bulkhead_domain::UnixMs;

/// Entries that wait for the thread; more are counted as lost.
const QUEUE_MAX: usize = 65_536;
/// Entries that are written at once.
const BATCH: usize = 1_024;
/// The longest time that a written line waits to be on the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Between two attempts at a disk that refuses.
const RETRY: Duration = Duration::from_millis(500);
/// Attempts once the log is to be closed: a full disk must not keep a host from going down.
const LAST_ATTEMPTS: u32 = 3;
/// How long a log that another process still writes is waited for: a host that goes down gives its store away first.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Between two lines about the same thing, when strangers can make it happen as often as they like.
const SELDOM_MS: u64 = 1_000;

/// What was noted seldom: when there was a line last, and how often it has happened since.
type Seldom = HashMap<(&'static str, &'static str), (UnixMs, u64)>;
type Now = Box<dyn Fn() -> UnixMs + Send + Sync>;

/// The queue of the log and the thread that writes it.
pub(super) struct Writer {
    folder: PathBuf,
    queue: Mutex<Option<SyncSender<(UnixMs, Entry)>>>,
    now: Now,
    lost: Arc<AtomicU64>,
    backlog: Arc<Backlog>,
    closing: Arc<AtomicBool>,
    /// The disk did not take the last attempt.
    refused: Arc<AtomicBool>,
    seldom: Mutex<Seldom>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What operators see of the queue.
#[derive(Debug)]
struct Backlog {
    waiting: AtomicU64,
    lost: AtomicU64,
}

impl Writer {
    /// Entries that wait for the thread, and those that were lost since the start.
    pub(super) fn backlog(&self) -> (u64, u64) {
        (self.backlog.waiting.load(Ordering::Relaxed), self.backlog.lost.load(Ordering::Relaxed))
    }

    pub(super) fn open(options: Options, now: Now) -> io::Result<Self> {
        let folder = options.folder.clone();
        let (log, cut) = Log::open(options)?;
        // Tests have to fill it.
        let lines_max = if cfg!(test) { 256 } else { QUEUE_MAX };
        let (sender, receiver) = sync_channel(lines_max);
        let lost = Arc::new(AtomicU64::new(0));
        let closing = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicBool::new(false));
        // The first entry waits already.
        let backlog = Arc::new(Backlog { waiting: AtomicU64::new(1), lost: AtomicU64::new(0) });
        let begun = Entry::new("audit.opened").named(env!("CARGO_PKG_VERSION"));
        let begun =
            if cut == 0 { begun } else { begun.because("the last line was incomplete and was cut off").count(cut) };
        let _ = sender.try_send((now(), begun));
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn({
            let lost = Arc::clone(&lost);
            let closing = Arc::clone(&closing);
            let refused = Arc::clone(&refused);
            let backlog = Arc::clone(&backlog);
            move || work(log, &receiver, &lost, &backlog, &closing, &refused)
        })?;
        let queue = Mutex::new(Some(sender));
        let thread = Mutex::new(Some(thread));
        Ok(Self { folder, queue, now, lost, backlog, closing, refused, seldom: Mutex::default(), thread })
    }

    pub(super) fn note(&self, entry: Entry) {
        // Before it is sent: the thread may be faster.
        self.backlog.waiting.fetch_add(1, Ordering::Relaxed);
        let queue = self.queue.lock();
        let sent = queue.as_ref().is_some_and(|queue| queue.try_send(((self.now)(), entry)).is_ok());
        drop(queue);
        if !sent {
            self.backlog.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.backlog.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes what may happen very often, in one line a second with how often it did.
    pub(super) fn note_seldom(&self, event: &'static str, reason: &'static str) {
        let now = (self.now)();
        let mut seldom = self.seldom.lock();
        let (at, count) = seldom.entry((event, reason)).or_default();
        *count += 1;
        if now.saturating_sub(*at) < SELDOM_MS {
            return;
        }
        let count = std::mem::take(count);
        *at = now;
        drop(seldom);
        self.note(Entry::new(event).because(reason).count(count));
    }

    /// Where the files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the disk refuses what there is to write.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        let seldom = std::mem::take(&mut *self.seldom.lock());
        for ((event, reason), (_, count)) in seldom.into_iter().filter(|(_, (_, count))| *count > 0) {
            self.note(Entry::new(event).because(reason).count(count));
        }
        self.closing.store(true, Ordering::Release);
        let queue = self.queue.lock().take();
        if let Some(queue) = queue {
            self.backlog.waiting.fetch_add(1, Ordering::Relaxed);
            // The thread takes what is in the queue first; it needs no more than a moment for this one to fit.
            let mut last = ((self.now)(), Entry::new("audit.closed"));
            while let Err(TrySendError::Full(again)) = queue.try_send(last) {
                last = again;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the audit log was not closed in order");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn work(
    mut log: Log,
    queue: &Receiver<(UnixMs, Entry)>,
    lost: &AtomicU64,
    backlog: &Backlog,
    closing: &AtomicBool,
    refused: &AtomicBool,
) {
    let mut sync_at: Option<Instant> = None;
    loop {
        let wait = sync_at.map_or(Duration::from_secs(3_600), |at| at.saturating_duration_since(Instant::now()));
        let (batch, ended) = match queue.recv_timeout(wait) {
            Ok(first) => (std::iter::once(first).chain(queue.try_iter().take(BATCH)).collect::<Vec<_>>(), false),
            Err(RecvTimeoutError::Timeout) => (Vec::new(), false),
            Err(RecvTimeoutError::Disconnected) => (Vec::new(), true),
        };
        if !batch.is_empty() || (ended && lost.load(Ordering::Relaxed) > 0) {
            sync_at = sync_at.or(Some(Instant::now() + SYNC_EVERY));
            let mut last_attempts = 0;
            while let Err(error) = log.append(&batch, lost) {
                if !refused.swap(true, Ordering::AcqRel) {
                    tracing::error!("the audit log cannot be written, and is tried again: {error}");
                }
                last_attempts += u32::from(closing.load(Ordering::Acquire));
                if last_attempts >= LAST_ATTEMPTS {
                    tracing::error!("the audit log is closed without its last lines: {error}");
                    return;
                }
                std::thread::sleep(RETRY);
            }
            backlog.waiting.fetch_sub(batch.len() as u64, Ordering::Relaxed);
            if refused.swap(false, Ordering::AcqRel) {
                tracing::info!("the audit log can be written again");
            }
        }
        if ended || sync_at.is_some_and(|at| at <= Instant::now()) {
            sync_at = None;
            if let Err(error) = log.file.sync_data() {
                tracing::error!("the audit log cannot be synced: {error}");
            }
        }
        if ended {
            return;
        }
    }
}

/// The file that is written to, and where the chain is.
struct Log {
    options: Options,
    /// Nobody else writes while this is open.
    _lock: File,
    file: File,
    path: PathBuf,
    bytes: u64,
    /// There may be more in it than those bytes: an attempt failed.
    torn: bool,
    sequence: u64,
    hash: LineHash,
    /// When the newest entry was noted.
    at: UnixMs,
}

#[derive(Serialize)]
struct Written<'a> {
    seq: u64,
    at_ms: UnixMs,
    #[serde(flatten)]
    entry: &'a Entry,
    prev: String,
}

impl Log {
    /// Gives also how many bytes of an unfinished line were cut off.
    fn open(options: Options) -> io::Result<(Self, u64)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&options.folder)?;
        let _lock = lock(&options.folder)?;
        let mut found = files(&options.folder)?;
        let Some(path) = found.pop() else {
            let path = path(&options.folder, 1);
            let file = append_to(&path)?;
            return Ok((
                Self { options, _lock, file, path, bytes: 0, torn: false, sequence: 0, hash: LineHash::NONE, at: 0 },
                0,
            ));
        };
        let mut file = append_to(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let cut = (text.len() - whole) as u64;
        if cut > 0 {
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
        }
        let last = match text.get(..whole).and_then(|text| text.split(|byte| *byte == b'\n').rev().nth(1)) {
            Some(last) => Some(last.to_vec()),
            None => found.pop().map(|before| last_line(&before)).transpose()?.flatten(),
        };
        let (sequence, hash, at) = match last {
            Some(last) => {
                let line = LogLine::parse(&last).map_err(|problem| {
                    let advice = "move the folder away to begin a new log";
                    io::Error::other(format!("the last line of {} {problem}: {advice}", path.display()))
                })?;
                (line.sequence, LineHash::of(&last), line.at_ms)
            }
            None => (0, LineHash::NONE, 0),
        };
        Ok((Self { options, _lock, file, path, bytes: whole as u64, torn: false, sequence, hash, at }, cut))
    }

    /// Appends a line for each entry, after one that says how many were lost before them.
    fn append(&mut self, batch: &[(UnixMs, Entry)], lost: &AtomicU64) -> io::Result<()> {
        self.rotate(batch)?;
        let missing = lost.load(Ordering::Relaxed);
        let gap = (missing > 0).then(|| Entry::new("audit.lost").count(missing));
        let at = batch.first().map_or(self.at, |(at, _)| *at);
        let mut text = Vec::new();
        let mut sequence = self.sequence;
        let mut hash = self.hash;
        for (at_ms, entry) in gap.iter().map(|gap| (at, gap)).chain(batch.iter().map(|(at, entry)| (*at, entry))) {
            sequence += 1;
            let begins = text.len();
            serde_json::to_writer(&mut text, &Written { seq: sequence, at_ms, entry, prev: hash.to_string() })?;
            hash = LineHash::of(text.get(begins..).unwrap_or_default());
            text.push(b'\n');
        }
        if std::mem::replace(&mut self.torn, true) {
            self.file.set_len(self.bytes)?;
        }
        self.file.write_all(&text)?;
        self.torn = false;
        lost.fetch_sub(missing, Ordering::Relaxed);
        self.bytes += text.len() as u64;
        self.at = batch.last().map_or(at, |(at, _)| *at);
        (self.sequence, self.hash) = (sequence, hash);
        Ok(())
    }

    fn rotate(&mut self, batch: &[(UnixMs, Entry)]) -> io::Result<()> {
        if self.bytes < self.options.file_bytes_max {
            return Ok(());
        }
        self.file.sync_data()?;
        let path = path(&self.options.folder, self.sequence + 1);
        self.file = append_to(&path)?;
        (self.path, self.bytes) = (path, 0);
        let files = files(&self.options.folder)?;
        let keep = usize::try_from(self.options.files_max).unwrap_or(usize::MAX);
        if keep == 0 || files.len() <= keep {
            return Ok(());
        }
        let at = batch.first().map_or(self.at, |(at, _)| *at);
        for old in files.iter().take(files.len() - keep) {
            fs::remove_file(old)?;
            let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.append(&[(at, Entry::new("audit.removed").named(&name))], &AtomicU64::new(0))?;
        }
        Ok(())
    }
}

/// Names sort like the numbers of their first lines.
fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}.jsonl"))
}

/// Keeps every other process from writing to this log.
fn lock(folder: &Path) -> io::Result<File> {
    let file = append_to(&folder.join("lock"))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another process writes it")),
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let text = fs::read(path)?;
    Ok(text.split(|byte| *byte == b'\n').rev().find(|line| !line.is_empty()).map(<[u8]>::to_vec))
}
