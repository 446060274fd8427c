//! A store as lines of JSON, and a new store from them.
//!
//! Owns the export format (one JSON object a line) and the way back from it. Must not change a database in place: a rebuild makes
//! a new one and keeps the old folder beside it. Invariant: what an export holds, a rebuild restores, with all indexes made anew.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::super::{Error, record};
use super::backup::seal_database;
use super::check::{Payloads, each_row, label, lock_existing};
use super::files::{Files, NewFile, io_error};
use super::group::Census;
use super::head::{Head, open_row};
use super::keys::{self, Part, TaskKey, kind};
use super::open::{self, GroupRow, Layout};
use super::salvage::{each_readable, guarded, on_what_opens};
use super::view::View;
use super::{SledStore, engine_error};
use crate::store::record::unseal;

const CACHE_BYTES: u64 = 32 << 20;

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
    let _lock = lock_existing(&layout)?;
    export_layout(&layout, out)
}

/// Writes everything of a store that is in use.
pub fn export_running(store: &SledStore, out: &mut dyn Write) -> Result<Moved, Error> {
    Export { view: &store.shared.view, files: &store.files, out, moved: Moved::default() }.whole()
}

fn export_layout(layout: &Layout, out: &mut dyn Write) -> Result<Moved, Error> {
    if !layout.database_file().exists() {
        return Err(Error::Engine(format!("there is no database at {}", layout.database.display())));
    }
    let damage = guarded(|| open::examine(layout)).err();
    on_what_opens(layout, |layout, tree| {
        let view = View::default();
        view.set_tree(Some(tree.clone()));
        let export = Export { view: &view, files: &open::files(layout)?, out, moved: Moved::default() };
        match damage {
            None => export.whole(),
            Some(damage) => export.readable(tree, &damage),
        }
    })
}

/// An export under way.
struct Export<'a> {
    view: &'a View,
    files: &'a Files,
    out: &'a mut dyn Write,
    moved: Moved,
}

impl Export<'_> {
    /// All of a sound database, in key order.
    fn whole(mut self) -> Result<Moved, Error> {
        self.header()?;
        each_row(self.view, &[], |key, value| self.row(key, value))?;
        self.finish()
    }

    /// What can be read of a damaged one.
    fn readable(mut self, tree: &::sled::Tree, damage: &Error) -> Result<Moved, Error> {
        self.header()?;
        self.lost("database", damage.to_string())?;
        let gaps = each_readable(tree, &mut |key, value| self.row(key, value))?;
        if gaps > 0 {
            self.lost("rows", format!("unreadable in {gaps} places"))?;
        }
        self.finish()
    }

    fn header(&mut self) -> Result<(), Error> {
        let row = self.view.get(keys::GROUP).ok().flatten();
        let group = row.and_then(|row| unseal::<GroupRow>(&row, "database").ok());
        let id = group.map_or(String::new(), |row| BASE64.encode(row.id));
        self.line(&Line::Store { format: EXPORT_FORMAT, id })
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let line = match key.first() {
            Some(&kind::TASK) => match keys::parse_task(key) {
                Some(task) => export_task(self.view, self.files, &task, value),
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
        match line {
            Ok(line) => {
                match line {
                    Line::Task { .. } => self.moved.tasks += 1,
                    _ => self.moved.rows += 1,
                }
                self.line(&line)
            }
            Err(error) => {
                let task = keys::parse_task(key).map(|key| format!("task {}", key.id));
                self.lost(&task.unwrap_or_else(|| format!("row of kind {}", label(key))), error.to_string())
            }
        }
    }

    fn lost(&mut self, what: &str, reason: String) -> Result<(), Error> {
        self.moved.lost.push(format!("{what}: {reason}"));
        self.line(&Line::Unreadable { what: what.to_owned(), reason })
    }

    fn line(&mut self, line: &Line) -> Result<(), Error> {
        let cannot = |error: std::io::Error| Error::Engine(format!("the export cannot be written: {error}"));
        let mut text = serde_json::to_vec(line).map_err(|error| cannot(error.into()))?;
        text.push(b'\n');
        self.out.write_all(&text).map_err(cannot)
    }

    fn finish(self) -> Result<Moved, Error> {
        self.out.flush().map_err(|error| Error::Engine(format!("the export cannot be written: {error}")))?;
        Ok(self.moved)
    }
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
    let fresh = Layout::at(data, layout.rebuilt());
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
