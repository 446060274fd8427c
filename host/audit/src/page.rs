//! A page of the log, from its end backwards.
//!
//! Owns the places where pages end. Must not read the whole log for one page. Invariant: one page reads a bounded
//! number of bytes, however long the log is, and each line that it reads is checked against the line after it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::LineHash;
use super::read::{Broken, LINE_BYTES_MAX, LogLine, files};

/// Bytes of the audit log that are read for one page of it.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// Bytes that are read at once.
const BLOCK_BYTES: u64 = 64 << 10;

/// Which lines are wanted.
#[derive(Clone, Debug, Default)]
pub struct PageFilter {
    /// Any of these; one that ends with a dot is how an event begins. None: all.
    pub events: Vec<String>,
    /// The id of a tenant.
    pub tenant: Option<String>,
    /// The lines alone, without the chain of those between them: what cannot fit is not parsed.
    pub lines_only: bool,
}

impl PageFilter {
    /// Whether a line may fit, by a look at its text. An id is written as it is.
    fn may_fit(&self, text: &[u8]) -> bool {
        self.tenant.as_ref().is_none_or(|id| std::str::from_utf8(text).is_ok_and(|text| text.contains(id.as_str())))
    }

    fn fits(&self, line: &LogLine) -> bool {
        let is_wanted = |event: &String| match event.ends_with('.') {
            true => line.event.starts_with(event),
            false => line.event == *event,
        };
        (self.events.is_empty() || self.events.iter().any(is_wanted))
            && self.tenant.as_ref().is_none_or(|id| line.facts.get("tenant").is_some_and(|of| of == id))
    }
}

/// Where a line begins with which a page ended: what comes before it is in the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePosition {
    /// The number in the name of a file.
    file: u64,
    offset: u64,
}

impl PagePosition {
    /// The place in bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        ((u128::from(self.file) << 64) | u128::from(self.offset)).to_be_bytes()
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { file: (both >> 64) as u64, offset: both as u64 }
    }

    /// Reads what its `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (file, offset) = text.split_once('.')?;
        Some(Self { file: file.parse().ok()?, offset: offset.parse().ok()? })
    }
}

impl std::fmt::Display for PagePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.file, self.offset)
    }
}

/// How the chain of the lines stands that were read for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChain {
    /// The numbers of the oldest and the newest line that was read; 0: none.
    pub first: u64,
    pub last: u64,
    /// Of the newest one.
    pub hash: Option<LineHash>,
    /// Whether the oldest line that is kept was reached.
    pub whole: bool,
    /// The newest line that does not fit, as a sentence.
    pub problem: Option<String>,
}

/// Lines, the newest first.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    pub lines: Vec<LogLine>,
    /// Where the next page begins; `None`: there is nothing more.
    pub next: Option<PagePosition>,
    pub chain: PageChain,
}

/// Reads the newest lines that fit, or those before a place where a page ended. What is left of the bytes for a page
/// goes into checking the chain of older lines.
///
/// # Errors
///
/// There is no log, it cannot be read, or no page ended at that place.
pub fn read_page(
    folder: &Path,
    filter: &PageFilter,
    before: Option<PagePosition>,
    count_max: usize,
) -> Result<LogPage, Broken> {
    let mut files = files(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Broken::Nothing(folder.to_owned()),
        _ => Broken::Io(error),
    })?;
    let mut walk = ChainWalk::default();
    let mut page = LogPage::default();
    let mut begin = None;
    if let Some(before) = before {
        // Those that begin later are in the pages before this one.
        files.retain(|file| number(file).is_some_and(|number| number <= before.file));
        if files.last().and_then(|file| number(file)) != Some(before.file) {
            // It was removed meanwhile, and so was everything before it.
            return Ok(page);
        }
        begin = Some(before.offset);
    }
    let mut bytes_left = PAGE_BYTES_MAX;
    let mut last = None;
    while let Some(path) = files.pop() {
        let mut lines = match Backward::open(&path, begin.take(), &mut walk) {
            // Rotation may remove it at any moment.
            Err(Broken::Io(error)) if error.kind() == io::ErrorKind::NotFound => break,
            opened => opened?,
        };
        let file = number(&path).unwrap_or_default();
        while let Some((offset, text)) = lines.previous()? {
            let is_full = page.lines.len() >= count_max;
            if is_full {
                page.next = last;
            }
            let line = match filter.lines_only {
                true if filter.may_fit(&text) => LogLine::parse(&text).ok(),
                true => None,
                false => walk.read(&path, &text),
            };
            if let Some(line) = line.filter(|line| !is_full && filter.fits(line)) {
                page.lines.push(line);
                last = Some(PagePosition { file, offset });
            }
            bytes_left = bytes_left.saturating_sub(text.len() as u64 + 1);
            let is_done = page.next.is_some() && filter.lines_only;
            if bytes_left == 0 || is_done {
                page.next = page.next.or(Some(PagePosition { file, offset }));
                page.chain = walk.chain;
                return Ok(page);
            }
        }
    }
    walk.end();
    page.chain = walk.chain;
    Ok(page)
}

fn number(file: &Path) -> Option<u64> {
    file.file_stem()?.to_str()?.parse().ok()
}

/// Compares each line with the one that was written after it.
#[derive(Default)]
struct ChainWalk {
    chain: PageChain,
    /// The number of the line after the next one to be read, and the digest that it expects.
    newer: Option<(u64, LineHash)>,
}

impl ChainWalk {
    /// The line after the first one to be read, which is in the page before.
    fn begin_before(&mut self, text: &[u8]) {
        self.newer = LogLine::parse(text).ok().map(|line| (line.sequence, line.previous));
    }

    fn read(&mut self, file: &Path, text: &[u8]) -> Option<LogLine> {
        let line = match LogLine::parse(text) {
            Ok(line) => line,
            Err(problem) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let before = self.newer.take().map(|(newer, _)| format!(" before line {newer}")).unwrap_or_default();
                self.note(format!("a line of {name}{before} {problem}"));
                return None;
            }
        };
        let hash = LineHash::of(text);
        if let Some((newer, expected)) = self.newer {
            if line.sequence.checked_add(1) != Some(newer) {
                self.note(format!("line {newer} follows line {}", line.sequence));
            } else if expected != hash {
                self.note(format!(
                    "line {} was changed: line {newer} expects {expected}, it has {hash}",
                    line.sequence
                ));
            }
        }
        if self.chain.last == 0 {
            (self.chain.last, self.chain.hash) = (line.sequence, Some(hash));
        }
        self.chain.first = line.sequence;
        self.newer = Some((line.sequence, line.previous));
        Some(line)
    }

    /// There is nothing before the last line that was read.
    fn end(&mut self) {
        self.chain.whole = true;
        if self.newer.is_some_and(|(sequence, previous)| sequence == 1 && previous != LineHash::NONE) {
            self.note("line 1 names a line before it".to_owned());
        }
    }

    fn note(&mut self, problem: String) {
        self.chain.problem.get_or_insert(problem);
    }
}

/// The whole lines of a file, the last one first.
struct Backward {
    file: File,
    path: PathBuf,
    /// Where the bytes begin that were read and not given yet; they end with a line break.
    at: u64,
    bytes: Vec<u8>,
}

impl Backward {
    /// Begins at a place behind a line break, or behind the last one.
    fn open(path: &Path, end: Option<u64>, walk: &mut ChainWalk) -> Result<Self, Broken> {
        let mut file = File::open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut lines = Self { file, path: path.to_owned(), at: end.unwrap_or(length), bytes: Vec::new() };
        let Some(end) = end else {
            // What is being written has no line break yet.
            while lines.at > 0 && !lines.bytes.contains(&b'\n') {
                lines.read_block()?;
            }
            let whole = lines.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            lines.bytes.truncate(whole);
            return Ok(lines);
        };
        if end > length {
            return Err(Broken::NoPlace);
        }
        if end > 0 {
            lines.at = end - 1;
            let mut last = [0];
            lines.file.seek(SeekFrom::Start(lines.at))?;
            lines.file.read_exact(&mut last)?;
            if last != *b"\n" {
                return Err(Broken::NoPlace);
            }
            lines.bytes = last.into();
        }
        let mut newer = Vec::new();
        lines.file.seek(SeekFrom::Start(end))?;
        BufReader::new((&lines.file).take(LINE_BYTES_MAX)).read_until(b'\n', &mut newer)?;
        if newer.pop() == Some(b'\n') {
            walk.begin_before(&newer);
        }
        Ok(lines)
    }

    /// The line before, with where it begins.
    fn previous(&mut self) -> Result<Option<(u64, Vec<u8>)>, Broken> {
        loop {
            let Some(end) = self.bytes.len().checked_sub(1) else {
                if self.at == 0 {
                    return Ok(None);
                }
                self.read_block()?;
                continue;
            };
            let before = self.bytes.get(..end).unwrap_or_default().iter().rposition(|byte| *byte == b'\n');
            if before.is_none() && self.at > 0 {
                self.read_block()?;
                continue;
            }
            let begin = before.map_or(0, |at| at + 1);
            let mut text = self.bytes.split_off(begin);
            text.pop();
            return Ok(Some((self.at + begin as u64, text)));
        }
    }

    /// Reads what stands before.
    fn read_block(&mut self) -> Result<(), Broken> {
        if self.bytes.len() as u64 > LINE_BYTES_MAX {
            let problem = "a line is longer than any line of this log".to_owned();
            return Err(Broken::MalformedLine { file: self.path.clone(), line: 0, problem });
        }
        let size = self.at.min(BLOCK_BYTES);
        self.at -= size;
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut block = vec![0; usize::try_from(size).unwrap_or_default()];
        self.file.read_exact(&mut block)?;
        block.append(&mut self.bytes);
        self.bytes = block;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of so many lines, each of one of two tenants, in files of so many lines.
    fn log(folder: &Path, lines: u64, in_file: u64) {
        let mut previous = LineHash::NONE;
        let mut text = String::new();
        let mut first = 1;
        for sequence in 1..=lines {
            let event = if sequence % 3 == 0 { "task.created" } else { "call.ended" };
            let tenant = sequence % 2;
            let line = format!(
                r#"{{"seq":{sequence},"at_ms":{sequence},"event":"{event}","tenant":"t{tenant}","prev":"{previous}"}}"#
            );
            previous = LineHash::of(line.as_bytes());
            text.push_str(&line);
            text.push('\n');
            if sequence % in_file == 0 || sequence == lines {
                std::fs::write(folder.join(format!("{first:020}.jsonl")), &text).unwrap();
                (text, first) = (String::new(), sequence + 1);
            }
        }
    }

    fn numbers(page: &LogPage) -> Vec<u64> {
        page.lines.iter().map(|line| line.sequence).collect()
    }

    /// All pages of so many lines, joined.
    fn all(folder: &Path, filter: &PageFilter, count_max: usize) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = None;
        loop {
            let page = read_page(folder, filter, at, count_max).unwrap();
            assert!(page.lines.len() <= count_max && page.chain.problem.is_none(), "{page:?}");
            found.extend(numbers(&page));
            let Some(next) = page.next else { return found };
            assert_eq!(PagePosition::parse(&next.to_string()), Some(next));
            at = Some(next);
        }
    }

    #[test]
    fn pages_hold_each_line_once_and_the_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path(), 25, 10);
        let everything: Vec<u64> = (1..=25).rev().collect();
        for count_max in [1, 4, 5, 10, 24, 25, 100] {
            assert_eq!(all(folder.path(), &PageFilter::default(), count_max), everything, "{count_max}");
        }
        let tenant = Some("t0".to_owned());
        let filter = PageFilter { events: vec!["task.".to_owned()], tenant, lines_only: false };
        assert_eq!(all(folder.path(), &filter, 2), [24, 18, 12, 6]);
        assert_eq!(all(folder.path(), &PageFilter { lines_only: true, ..filter }, 2), [24, 18, 12, 6]);
        let events = vec!["task".to_owned(), "call.ended".to_owned()];
        let filter = PageFilter { events, ..PageFilter::default() };
        assert_eq!(all(folder.path(), &filter, 100).len(), 17);
        let page = read_page(folder.path(), &PageFilter::default(), None, 3).unwrap();
        assert_eq!((page.chain.first, page.chain.last, page.chain.whole), (1, 25, true));
        // An unfinished line is none yet.
        let last = folder.path().join(format!("{:020}.jsonl", 21));
        let text = std::fs::read_to_string(&last).unwrap();
        std::fs::write(&last, format!("{text}{{\"seq\":26")).unwrap();
        assert_eq!(all(folder.path(), &PageFilter::default(), 7), everything);
    }

    #[test]
    fn lines_alone_are_read_without_the_chain_and_without_what_cannot_fit() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path(), 25, 10);
        let file = folder.path().join(format!("{:020}.jsonl", 11));
        // A line of the other tenant is no JSON any more, and none of this one's has to be compared with it.
        let text = std::fs::read_to_string(&file).unwrap().replace("{\"seq\":13,", "{seq:13,");
        std::fs::write(&file, text).unwrap();
        let filter = PageFilter { tenant: Some("t0".to_owned()), lines_only: true, ..PageFilter::default() };
        let page = read_page(folder.path(), &filter, None, 100).unwrap();
        assert_eq!(numbers(&page), (1..=12).rev().map(|half| 2 * half).collect::<Vec<_>>());
        assert_eq!((page.chain.problem, page.chain.first, page.chain.last), (None, 0, 0));
        // A look at the text is enough: the host writes ids as they are.
        let text = std::fs::read_to_string(&file).unwrap();
        let escaped = text.replace("\"tenant\":\"t0\"", "\"tenant\":\"\\u0074\\u0030\"");
        assert_ne!(escaped, text);
        std::fs::write(&file, escaped).unwrap();
        let page = read_page(folder.path(), &filter, None, 100).unwrap();
        assert_eq!(numbers(&page), [24, 22, 10, 8, 6, 4, 2]);
        for position in [PagePosition { file: 1, offset: u64::MAX }, PagePosition { file: u64::MAX, offset: 7 }] {
            assert_eq!(PagePosition::from_bytes(position.to_bytes()), position);
        }
    }

    #[test]
    fn changed_missing_and_foreign_lines_are_told() {
        type Change = fn(String) -> String;
        let changes: [(&str, Change); 3] = [
            ("line 12 was changed", |text| text.replace("\"at_ms\":12", "\"at_ms\":13")),
            ("line 13 follows line 11", |text| {
                text.lines().filter(|it| !it.contains(":12,")).fold(String::new(), join)
            }),
            ("before line 13 is no JSON object", |text| text.replace("{\"seq\":12,", "{seq:12,")),
        ];
        for (what, change) in changes {
            let folder = tempfile::tempdir().unwrap();
            log(folder.path(), 25, 10);
            let file = folder.path().join(format!("{:020}.jsonl", 11));
            let text = change(std::fs::read_to_string(&file).unwrap());
            std::fs::write(&file, text).unwrap();
            let page = read_page(folder.path(), &PageFilter::default(), None, 2).unwrap();
            assert_eq!(numbers(&page), [25, 24]);
            assert!(page.chain.problem.as_deref().is_some_and(|problem| problem.contains(what)), "{page:?}");
        }
    }

    fn join(all: String, line: &str) -> String {
        all + line + "\n"
    }

    #[test]
    fn chain_is_followed_from_one_page_into_the_next() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path(), 25, 100);
        let first = read_page(folder.path(), &PageFilter::default(), None, 5).unwrap();
        let file = folder.path().join(format!("{:020}.jsonl", 1));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"at_ms\":20,", "\"at_ms\":99,")).unwrap();
        let second = read_page(folder.path(), &PageFilter::default(), first.next, 5).unwrap();
        assert_eq!((numbers(&second)[0], second.chain.last), (20, 20));
        let problem = second.chain.problem.unwrap();
        assert!(problem.starts_with("line 20 was changed: line 21 expects"), "{problem}");
    }

    #[test]
    fn page_reads_a_bounded_part_of_a_long_log() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path(), 100_000, 1_000_000);
        let none = PageFilter { events: vec!["none.at_all".to_owned()], ..PageFilter::default() };
        let page = read_page(folder.path(), &none, None, 5).unwrap();
        assert!(page.lines.is_empty() && page.next.is_some() && !page.chain.whole);
        assert!((30_000..90_000).contains(&page.chain.first), "{:?}", page.chain);
        assert!(all(folder.path(), &none, 5).is_empty());
    }

    #[test]
    fn place_where_no_page_ended_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            read_page(&folder.path().join("none"), &PageFilter::default(), None, 5),
            Err(Broken::Nothing(_))
        ));
        log(folder.path(), 5, 100);
        for (file, offset) in [(1, 1), (1, 1 << 40)] {
            let at = Some(PagePosition { file, offset });
            let refused = read_page(folder.path(), &PageFilter::default(), at, 5);
            assert!(matches!(refused, Err(Broken::NoPlace)), "{refused:?}");
        }
        let gone = Some(PagePosition { file: 7, offset: 0 });
        let page = read_page(folder.path(), &PageFilter::default(), gone, 5).unwrap();
        assert!(page.lines.is_empty() && page.next.is_none());
        for wrong in ["", "1", "1.x", "-1.2", "1.2.3"] {
            assert_eq!(PagePosition::parse(wrong), None, "{wrong}");
        }
    }
}
