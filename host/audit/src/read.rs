//! Reading the log, whether a host writes it or not.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::LineHash;

/// A line that is longer is no line of ours.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 20;

/// One line, as far as it is the same for all.
#[derive(Clone, Debug)]
pub struct LogLine {
    pub sequence: u64,
    pub at_ms: u64,
    pub event: String,
    /// Of the line before.
    pub previous: LineHash,
    /// What else it says.
    pub facts: Map<String, Value>,
}

impl LogLine {
    /// Reads a line without its line break.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as the end of a sentence about it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let facts: Result<Map<String, Value>, _> = serde_json::from_slice(line);
        let mut facts = facts.map_err(|_| "is no JSON object".to_owned())?;
        let mut number = |key: &str| facts.remove(key).and_then(|value| value.as_u64());
        let sequence = number("seq").ok_or("has no seq")?;
        let at_ms = number("at_ms").ok_or("has no at_ms")?;
        let mut text = |key: &str| facts.remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let event = text("event").ok_or("has no event")?;
        let previous = text("prev").ok_or("has no prev")?;
        let previous = LineHash::parse(&previous).ok_or("has a prev that is no SHA-256")?;
        Ok(Self { sequence, at_ms, event, previous, facts })
    }
}

/// A log whose chain holds.
#[derive(Clone, Debug)]
pub struct Verified {
    pub files: usize,
    /// More than 1 where older files were removed.
    pub first: u64,
    pub last: u64,
    /// Of the last line: written down elsewhere, it shows later that nothing was cut off or made anew.
    pub hash: LineHash,
    /// A line that a crash left unfinished, or that is being written.
    pub unfinished: bool,
}

/// Why a log is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("{}:{line}: {problem}", file.display())]
    MalformedLine { file: PathBuf, line: u64, problem: String },
    #[error("the log has no line {sequence}, so it cannot be compared with the digest that was written down")]
    AnchorMissing { sequence: u64 },
    #[error("line {sequence} is not the one whose digest was written down: expected {expected}, found {found}")]
    Anchor { sequence: u64, expected: LineHash, found: LineHash },
    #[error("there is no audit log in {}; `audit.enabled = true` makes a host keep one", .0.display())]
    Nothing(PathBuf),
    #[error("no page of the audit log ended at this place")]
    NoPlace,
    #[error("the audit log cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The files of a log, oldest first.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A line and whether it has its line break; `None` at the end.
fn next_line(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    if io::Read::take(reader, LINE_BYTES_MAX).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    let whole = line.last() == Some(&b'\n');
    if whole {
        line.pop();
    }
    Ok(Some(whole))
}

/// Follows the chain from the oldest line that is kept to the newest. With an anchor (the number of a line and its
/// digest), that line must be there and be that one.
///
/// # Errors
///
/// The first line that does not fit, with its file and place; or the anchor does not.
pub fn verify(folder: &Path, anchor: Option<(u64, LineHash)>) -> Result<Verified, Broken> {
    let files = files(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Broken::Nothing(folder.to_owned()),
        _ => Broken::Io(error),
    })?;
    let mut verified = Verified { files: files.len(), first: 0, last: 0, hash: LineHash::NONE, unfinished: false };
    let mut found = None;
    for (at, file) in files.iter().enumerate() {
        let mut reader = BufReader::new(File::open(file)?);
        let mut text = Vec::new();
        let mut number = 0;
        while let Some(whole) = next_line(&mut reader, &mut text)? {
            number += 1;
            let broken = |problem: String| Broken::MalformedLine { file: file.clone(), line: number, problem };
            if !whole {
                if text.len() as u64 >= LINE_BYTES_MAX {
                    return Err(broken("is longer than any line of this log".to_owned()));
                }
                if at + 1 < files.len() {
                    return Err(broken("is unfinished, and lines come after it".to_owned()));
                }
                verified.unfinished = true;
                break;
            }
            let line = LogLine::parse(&text).map_err(|problem| broken(format!("this line {problem}")))?;
            if verified.first == 0 {
                verified.first = line.sequence;
                if line.sequence == 1 && line.previous != LineHash::NONE {
                    return Err(broken("line 1 names a line before it".to_owned()));
                }
            } else if line.sequence != verified.last + 1 {
                let expected = verified.last + 1;
                let found = line.sequence;
                return Err(broken(format!("expected line {expected}, found line {found}")));
            } else if line.previous != verified.hash {
                let expected = verified.hash;
                let found = line.previous;
                return Err(broken(format!(
                    "the line before was changed: this one expects {found}, it has {expected}"
                )));
            }
            (verified.last, verified.hash) = (line.sequence, LineHash::of(&text));
            if let Some((sequence, _)) = anchor.filter(|(sequence, _)| *sequence == line.sequence) {
                found = Some((sequence, verified.hash));
            }
        }
    }
    match (anchor, found) {
        (Some((sequence, _)), None) => Err(Broken::AnchorMissing { sequence }),
        (Some((sequence, expected)), Some((_, found))) if expected != found => {
            Err(Broken::Anchor { sequence, expected, found })
        }
        _ => Ok(verified),
    }
}

/// The newest lines of a log, and those that come.
pub struct Tail {
    folder: PathBuf,
    file: PathBuf,
    read_to: u64,
    first: VecDeque<Vec<u8>>,
}

impl Tail {
    /// Begins with the newest `count` lines.
    ///
    /// # Errors
    ///
    /// There is no log, or it cannot be read.
    pub fn new(folder: &Path, count: usize) -> Result<Self, Broken> {
        let nothing = || Broken::Nothing(folder.to_owned());
        let mut files = files(folder).map_err(|_| nothing())?;
        let newest = files.last().cloned().ok_or_else(nothing)?;
        let mut tail = Self { folder: folder.to_owned(), file: newest, read_to: 0, first: VecDeque::new() };
        let mut lines = tail.whole_lines()?;
        files.pop();
        while lines.len() < count {
            let Some(before) = files.pop() else { break };
            let mut older = Self { folder: folder.to_owned(), file: before, read_to: 0, first: VecDeque::new() };
            let mut earlier = older.whole_lines()?;
            earlier.extend(lines);
            lines = earlier;
        }
        tail.first = lines.split_off(lines.len().saturating_sub(count)).into();
        Ok(tail)
    }

    /// What has come since the last time; never part of a line.
    ///
    /// # Errors
    ///
    /// The log cannot be read any more.
    pub fn lines(&mut self) -> Result<Vec<Vec<u8>>, Broken> {
        let mut lines: Vec<_> = self.first.drain(..).collect();
        lines.extend(self.whole_lines()?);
        for next in files(&self.folder)? {
            if next > self.file {
                // It was the last file when it was read; what was appended before the next one began comes first.
                lines.extend(self.whole_lines()?);
                (self.file, self.read_to) = (next, 0);
                lines.extend(self.whole_lines()?);
            }
        }
        Ok(lines)
    }

    fn whole_lines(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut reader = BufReader::new(file);
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while let Some(true) = next_line(&mut reader, &mut line)? {
            self.read_to += line.len() as u64 + 1;
            lines.push(line.clone());
        }
        Ok(lines)
    }
}
