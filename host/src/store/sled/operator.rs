//! What operators do with a store: check, export, rebuild.
//!
//! Owns the examination of every row, the export format (one JSON object a line) and the way back from it. Must not change a
//! database in place: a rebuild makes a new one and keeps the old folder beside it. Invariant: what an export holds, a rebuild
//! restores, with all indexes made anew.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::super::{Error, record};
use super::backup::seal_database;
use super::files::{Files, NewFile, io_error};
use super::group::Census;
use super::head::{Head, Place, open_row};
use super::keys::{self, Part, TaskKey, kind};
use super::open::{self, GroupRow, Layout};
use super::view::View;
use super::{SledStore, engine_error};
use crate::store::record::unseal;

const CACHE_BYTES: u64 = 32 << 20;
const PAGE_ROWS: usize = 512;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub tasks: u64,
    /// Small rows: sessions, tokens, principals and the like.
    pub rows: u64,
    /// Payloads in files of their own.
    pub files: u64,
    /// Records, arguments and outputs.
    pub bytes: u64,
    /// Everything that is wrong, one sentence each; at most [`PROBLEMS_MAX`].
    pub problems: Vec<String>,
}

/// More than these are not listed: the first ones say enough.
pub const PROBLEMS_MAX: usize = 100;

impl Report {
    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Checks the store of a data directory that no host uses: every record, payload and index.
///
/// # Errors
///
/// [`Error::Locked`] when a host runs on it. Damage is not an error but part of the report.
pub fn check(data: &Path) -> Result<Report, Error> {
    let layout = Layout::new(data);
    let _lock = open::lock(&layout)?;
    let mut report = Report::default();
    let examined = guarded(|| open::examine(&layout));
    if let Err(error) = &examined {
        report.problem(error.to_string());
    }
    let rest = guarded(|| {
        if !layout.database_file().exists() {
            return Ok(());
        }
        let view = View::default();
        view.set_tree(Some((*open::engine(&layout.database, CACHE_BYTES)?).clone()));
        examine_rows(&view, &open::files(&layout)?, &mut report)
    });
    if let Err(error) = rest {
        report.problem(error.to_string());
    }
    Ok(report)
}

/// Checks a store that is in use. What changes during the check may be reported as a problem once; a second check settles it.
pub fn check_running(store: &SledStore) -> Result<Report, Error> {
    let mut report = Report::default();
    examine_rows(&store.shared.view, &store.files, &mut report)?;
    Ok(report)
}

/// Runs what may panic on damaged bytes.
fn guarded<R>(act: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| Err(open::refuse("the engine stopped while reading")))
}

/// Index rows and payload chunks, as the heads say they must be.
#[derive(Default)]
struct Expected {
    index: BTreeMap<Vec<u8>, Vec<u8>>,
    chunks: HashSet<(TaskKey, u8)>,
}

fn examine_rows(view: &View, files: &Files, report: &mut Report) -> Result<(), Error> {
    let mut expected = Expected::default();
    each_row(view, &[kind::TASK], |key, value| {
        let Some(key) = keys::parse_task(key) else {
            report.problem("a task has an unreadable key".to_owned());
            return Ok(());
        };
        match examine_task(view, files, &key, value, &mut expected) {
            Ok(head) => {
                report.tasks += 1;
                report.bytes +=
                    head.record.bytes() + head.arguments.bytes() + head.output.as_ref().map_or(0, Place::bytes);
                let places = [Some(&head.arguments), head.output.as_ref()];
                report.files += places.iter().filter(|place| matches!(place, Some(Place::File { .. }))).count() as u64;
            }
            Err(error) => report.problem(format!("task {}: {error}", key.id)),
        }
        Ok(())
    })?;
    each_row(view, &[], |key, value| {
        match key.first() {
            Some(&(kind::LIST | kind::EXPIRY | kind::UNFINISHED | kind::ALIAS)) => {
                if expected.index.remove(key).as_deref() != Some(value) {
                    report.problem(format!("an index row of kind {} belongs to no task", label(key)));
                }
            }
            Some(&kind::PAYLOAD) => {
                let part = keys::parse_task(key).zip(key.get(49).copied());
                if !part.is_some_and(|part| expected.chunks.contains(&part)) {
                    report.problem("a piece of a payload belongs to no task".to_owned());
                }
            }
            Some(&kind::TASK) => {}
            _ if key == keys::GROUP => {}
            _ => {
                report.rows += 1;
                if let Err(error) = open_row(value) {
                    report.problem(format!("a row of kind {}: {error}", label(key)));
                }
            }
        }
        Ok(())
    })?;
    for key in expected.index.into_keys() {
        report.problem(format!("an index row of kind {} is missing", label(&key)));
    }
    Ok(())
}

fn label(key: &[u8]) -> char {
    key.first().map_or('?', |kind| char::from(*kind))
}

fn examine_task(
    view: &View,
    files: &Files,
    key: &TaskKey,
    value: &[u8],
    expected: &mut Expected,
) -> Result<Head, Error> {
    let head = Head::decode(value)?;
    expected.index.extend(head.index_rows(key)?);
    for (part, place) in [
        (Part::Record, Some(&head.record)),
        (Part::Arguments, Some(&head.arguments)),
        (Part::Output, head.output.as_ref()),
    ] {
        if matches!(place, Some(Place::Chunks { .. })) {
            expected.chunks.insert((*key, part as u8));
        }
    }
    let read = Payloads::read(view, files, key)?;
    let task = record::decode_task(&read.record)?;
    let same = (task.id, task.requestor, task.revision) == (key.id, key.requestor, head.revision);
    if !same
        || Head::new(&task, head.record.clone(), head.arguments.clone(), head.reserved_bytes).index_rows(key)?
            != head.index_rows(key)?
    {
        return Err(Error::Corrupt("the record and its head differ".to_owned()));
    }
    read.output.map(|output| record::decode_output(&output)).transpose()?;
    Ok(head)
}

/// All the bytes of a task.
struct Payloads {
    record: Vec<u8>,
    arguments: Vec<u8>,
    output: Option<Vec<u8>>,
}

impl Payloads {
    fn read(view: &View, files: &Files, key: &TaskKey) -> Result<Self, Error> {
        let gone = || Error::Corrupt("it went away while it was read".to_owned());
        let record = view.payload(files, key, Part::Record, |head| Some(head.record))?;
        let arguments = view.payload(files, key, Part::Arguments, |head| Some(head.arguments))?;
        let output = view.payload(files, key, Part::Output, |head| head.output)?;
        Ok(Self { record: record.ok_or_else(gone)?, arguments: arguments.ok_or_else(gone)?, output })
    }
}

fn each_row(view: &View, prefix: &[u8], mut act: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut start = prefix.to_vec();
    loop {
        let rows = view.scan(prefix, &start, PAGE_ROWS)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        start = keys::successor(last);
        for (key, value) in &rows {
            act(key, value)?;
        }
    }
}

/// One line of an export. Bytes are base64; the versioned bytes of records and outputs stay as they are.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first line.
    Store {
        format: u32,
        id: String,
    },
    Task {
        /// For human readers.
        tenant: String,
        requestor: String,
        id: String,
        record: String,
        arguments: String,
        output: Option<String>,
        reserved_bytes: u64,
    },
    Row {
        row: char,
        key: String,
        value: String,
    },
    /// Something that could not be read: a rebuild leaves it out.
    Unreadable {
        what: String,
        reason: String,
    },
}

const EXPORT_FORMAT: u32 = 1;

/// What an export or a rebuild did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    pub tasks: u64,
    pub rows: u64,
    /// What could not be read, one sentence each.
    pub lost: Vec<String>,
}

/// Writes everything readable of a store that no host uses, damaged or not, as lines of JSON.
pub fn export(data: &Path, out: &mut dyn Write) -> Result<Moved, Error> {
    let layout = Layout::new(data);
    let _lock = open::lock(&layout)?;
    export_layout(&layout, out)
}

/// Writes everything of a store that is in use.
pub fn export_running(store: &SledStore, out: &mut dyn Write) -> Result<Moved, Error> {
    export_view(&store.shared.view, &store.files, out)
}

fn export_layout(layout: &Layout, out: &mut dyn Write) -> Result<Moved, Error> {
    if !layout.database_file().exists() {
        return Err(Error::Engine(format!("there is no database at {}", layout.database.display())));
    }
    guarded(|| {
        let view = View::default();
        view.set_tree(Some((*open::engine(&layout.database, CACHE_BYTES)?).clone()));
        export_view(&view, &open::files(layout)?, out)
    })
}

fn export_view(view: &View, files: &Files, out: &mut dyn Write) -> Result<Moved, Error> {
    let group = view.get(keys::GROUP)?.and_then(|row| unseal::<GroupRow>(&row, "database").ok());
    let id = group.map_or(String::new(), |row| BASE64.encode(row.id));
    let mut moved = Moved::default();
    write_line(out, &Line::Store { format: EXPORT_FORMAT, id })?;
    each_row(view, &[], |key, value| {
        let line = match key.first() {
            Some(&kind::TASK) => match keys::parse_task(key) {
                Some(task) => export_task(view, files, &task, value),
                None => Err(Error::Corrupt("its key is unreadable".to_owned())),
            },
            Some(&(kind::LIST | kind::EXPIRY | kind::UNFINISHED | kind::ALIAS | kind::PAYLOAD)) => return Ok(()),
            _ if key == keys::GROUP => return Ok(()),
            _ => open_row(value).map(|value| Line::Row {
                row: label(key),
                key: BASE64.encode(key.get(1..).unwrap_or_default()),
                value: BASE64.encode(value),
            }),
        };
        let line = line.unwrap_or_else(|error| {
            let what = keys::parse_task(key).map_or_else(|| format!("row {}", label(key)), |key| key.id.to_string());
            moved.lost.push(format!("{what}: {error}"));
            Line::Unreadable { what, reason: error.to_string() }
        });
        match line {
            Line::Task { .. } => moved.tasks += 1,
            Line::Row { .. } => moved.rows += 1,
            Line::Store { .. } | Line::Unreadable { .. } => {}
        }
        write_line(out, &line)
    })?;
    out.flush().map_err(|error| Error::Engine(format!("the export cannot be written: {error}")))?;
    Ok(moved)
}

fn export_task(view: &View, files: &Files, key: &TaskKey, value: &[u8]) -> Result<Line, Error> {
    let head = Head::decode(value)?;
    let Payloads { record, arguments, output } = Payloads::read(view, files, key)?;
    record::decode_task(&record)?;
    Ok(Line::Task {
        tenant: key.requestor.tenant.to_string(),
        requestor: key.requestor.id.to_string(),
        id: key.id.to_string(),
        record: BASE64.encode(record),
        arguments: BASE64.encode(arguments),
        output: output.map(|output| BASE64.encode(output)),
        reserved_bytes: head.reserved_bytes,
    })
}

fn write_line(out: &mut dyn Write, line: &Line) -> Result<(), Error> {
    let mut text =
        serde_json::to_vec(line).map_err(|error| Error::Engine(format!("a line cannot be written: {error}")))?;
    text.push(b'\n');
    out.write_all(&text).map_err(|error| Error::Engine(format!("the export cannot be written: {error}")))
}

/// Makes a new database from an export, or (without one) from what is still readable of the present database. The old folder
/// stays beside the new one, under the name that is returned.
///
/// # Errors
///
/// [`Error::Locked`] when a host runs on the directory; [`Error::Corrupt`] names the line of an export that makes no sense. The
/// present store is left as it was in both cases.
pub fn rebuild(data: &Path, from: Option<&mut dyn BufRead>) -> Result<(Moved, Option<PathBuf>), Error> {
    let layout = Layout::new(data);
    let _lock = open::lock(&layout)?;
    let fresh = Layout::at(data, data.join("store.new"));
    remove_folder(&fresh.store)?;
    fs::create_dir_all(&fresh.store).map_err(|error| io_error("create", &fresh.store, &error))?;
    let moved = match from {
        Some(lines) => import(&fresh, lines)?,
        None => {
            // By way of a file, because a damaged database may stop in the middle: then the whole rebuild does.
            let path = fresh.store.join("export");
            let cannot = |error: std::io::Error| io_error("write", &path, &error);
            let mut out = std::io::BufWriter::new(fs::File::create(&path).map_err(cannot)?);
            let exported = export_layout(&layout, &mut out)?;
            drop(out);
            let mut lines = std::io::BufReader::new(fs::File::open(&path).map_err(cannot)?);
            let imported = import(&fresh, &mut lines)?;
            fs::remove_file(&path).map_err(cannot)?;
            Moved { lost: exported.lost, ..imported }
        }
    };
    let old = keep_old(&layout)?;
    fs::rename(&fresh.store, &layout.store).map_err(|error| io_error("rename", &fresh.store, &error))?;
    super::files::sync_folder(data).map_err(|error| io_error("sync", data, &error))?;
    Ok((moved, old))
}

fn remove_folder(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Moves the present folder to a name that is not taken.
fn keep_old(layout: &Layout) -> Result<Option<PathBuf>, Error> {
    if !layout.store.exists() {
        return Ok(None);
    }
    let free =
        (1..).map(|number| layout.store.with_file_name(format!("store.old-{number}"))).find(|path| !path.exists());
    let Some(old) = free else { return Ok(None) };
    fs::rename(&layout.store, &old).map_err(|error| io_error("rename", &layout.store, &error))?;
    Ok(Some(old))
}

/// Fills a new store from an export.
fn import(layout: &Layout, lines: &mut dyn BufRead) -> Result<Moved, Error> {
    let (database, state) = super::create(layout, CACHE_BYTES)?;
    drop(state);
    let files = open::files(layout)?;
    let mut import = Import { tree: database.tree.clone(), files, census: Census::default(), taken: HashSet::new() };
    let mut moved = Moved::default();
    for (number, line) in (1..).zip(lines.lines()) {
        let at = |reason: &str| Error::Corrupt(format!("line {number} of the export: {reason}"));
        let line = line.map_err(|error| at(&error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| at(&error.to_string()))? {
            Line::Store { format: EXPORT_FORMAT, .. } => {}
            Line::Store { format, .. } => return Err(at(&format!("format {format} is newer than this program"))),
            Line::Unreadable { what, reason } => moved.lost.push(format!("{what}: {reason}")),
            Line::Row { row, key, value } => {
                let kind = u8::try_from(row).map_err(|error| at(&error.to_string()))?;
                let key = [&[kind], bytes(&key).map_err(|error| at(&error))?.as_slice()].concat();
                let value = bytes(&value).map_err(|error| at(&error))?;
                import.put(vec![(key, super::head::seal_row(value))])?;
                moved.rows += 1;
            }
            Line::Task { record, arguments, output, reserved_bytes, .. } => {
                let record = bytes(&record).map_err(|error| at(&error))?;
                let arguments = bytes(&arguments).map_err(|error| at(&error))?;
                let output = output.map(|output| bytes(&output)).transpose().map_err(|error| at(&error))?;
                import.task(record, arguments, output, reserved_bytes).map_err(|error| at(&error.to_string()))?;
                moved.tasks += 1;
            }
        }
    }
    let Census { rows, sum } = import.census;
    let last = GroupRow { group: database.last.group + 1, rows, sum, ..database.last };
    import.tree.insert(keys::GROUP, last.encode()?).map_err(engine_error)?;
    drop(database);
    seal_database(import.tree, layout, &last)?;
    Ok(moved)
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(text).map_err(|error| error.to_string())
}

struct Import {
    tree: ::sled::Tree,
    files: Files,
    census: Census,
    /// Aliases and tasks so far: an export that was put together by hand may name one twice.
    taken: HashSet<Vec<u8>>,
}

impl Import {
    fn put(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        let mut batch = ::sled::Batch::default();
        for (key, value) in rows {
            if !self.taken.insert(key.clone()) {
                return Err(Error::Corrupt(format!("a key of kind {} comes twice", label(&key))));
            }
            self.census.count(&key, &value);
            batch.insert(key, value);
        }
        self.tree.apply_batch(batch).map_err(engine_error)
    }

    fn task(
        &mut self,
        record: Vec<u8>,
        arguments: Vec<u8>,
        output: Option<Vec<u8>>,
        reserved_bytes: u64,
    ) -> Result<(), Error> {
        let task = record::decode_task(&record)?;
        output.as_deref().map(record::decode_output).transpose()?;
        let key = TaskKey::new(&task.requestor, task.id);
        let mut payloads = super::operation::Payloads::default();
        let (record, chunked) = super::place_record(record);
        payloads.chunks.extend(chunked);
        let arguments = super::place_now(&self.files, Part::Arguments, arguments, &mut payloads)?;
        let mut head = Head::new(&task, record, arguments, reserved_bytes);
        head.output =
            output.map(|output| super::place_now(&self.files, Part::Output, output, &mut payloads)).transpose()?;
        let mut rows = head.index_rows(&key)?;
        rows.push((key.task(), head.encode()?));
        for chunked in &payloads.chunks {
            rows.extend(chunked.rows(&key));
        }
        self.put(rows)?;
        payloads.files.into_iter().for_each(NewFile::keep);
        Ok(())
    }
}
