//! Where the pages lie, by the snapshot and by the log behind it.
//!
//! Owns which messages of the log count. Invariant: these are the pages that sled finds when it opens the same files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use super::super::database::{SNAPSHOT_PREFIX, is_unfinished_snapshot};
use super::super::layout::Layout;
use super::bytes::Bytes;
use super::log::{
    End, Item, Kind, Lsn, MESSAGE_HEADER_BYTES_MAX, Position, SEGMENT_LSNS, Segment, segment_header, segment_offsets,
};
use super::{Doubt, in_parallel};

/// Segments of which the messages are known at once.
const WINDOW_SEGMENTS_MAX: usize = 128;
/// Pages are numbered one after the other: a larger step is not worth the memory.
const PAGES_AT_ONCE_MAX: usize = 1 << 24;

/// What is known of a page.
#[derive(Clone, Debug, Default)]
pub(super) enum Page {
    #[default]
    Unknown,
    Free,
    Present {
        base: Position,
        /// Changes of it, in their order.
        links: Vec<Position>,
    },
}

/// The pages, by their numbers.
#[derive(Default)]
struct Recovery {
    /// What the pages include so far.
    stable: Option<Lsn>,
    pages: Vec<Page>,
}

/// Finds every page of a database.
pub(super) fn pages(layout: &Layout, file: &File) -> Result<Vec<Page>, Doubt> {
    let mut recovery = match newest_snapshot(layout)? {
        Some(path) => Recovery::from_snapshot(&fs::read(path)?).ok_or(Doubt("the snapshot cannot be read"))?,
        None => Recovery::default(),
    };
    let log = Log::open(file, recovery.stable.unwrap_or(0))?;
    let reached = recovery.advance(&log)?;
    if recovery.stable.is_some_and(|stable| reached < stable) {
        return Err(Doubt("the log ends before the snapshot"));
    }
    if recovery.pages.iter().any(|page| matches!(page, Page::Unknown)) {
        return Err(Doubt("a page is missing"));
    }
    Ok(recovery.pages)
}

fn newest_snapshot(layout: &Layout) -> Result<Option<PathBuf>, Doubt> {
    let mut newest = None;
    for entry in fs::read_dir(&layout.database)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(SNAPSHOT_PREFIX) && !is_unfinished_snapshot(&name) {
            newest = newest.max(Some(layout.database.join(&*name)));
        }
    }
    Ok(newest)
}

impl Recovery {
    fn from_snapshot(file: &[u8]) -> Option<Self> {
        let (rest, checksum) = file.split_last_chunk::<4>()?;
        let (body, length) = rest.split_last_chunk::<8>()?;
        let is_sound = crc32fast::hash(body) == u32::from_le_bytes(*checksum)
            && u64::from_le_bytes(*length) == u64::try_from(body.len()).ok()?;
        let mut rest = Bytes(is_sound.then_some(body)?);
        let stable = match rest.signed()? {
            0 => None,
            shifted => Some(shifted - 1),
        };
        // Which segment is written next.
        rest.number()?;
        let mut pages = Vec::new();
        while !rest.is_empty() {
            pages.push(page(&mut rest)?);
        }
        Some(Self { stable, pages })
    }

    /// Takes up what the log says since, and returns the place behind its last whole batch.
    fn advance(&mut self, log: &Log<'_>) -> Result<Lsn, Doubt> {
        let end = log.last_byte()?;
        let mut reached = 0;
        let segments: Vec<_> = log.segments.iter().filter(|(lsn, _)| **lsn <= end).collect();
        for window in segments.chunks(WINDOW_SEGMENTS_MAX) {
            for segment in log.read(window)? {
                for item in &segment.items {
                    reached = item.position.lsn;
                    // What comes is not whole.
                    if reached > end || matches!(item.kind, Kind::Manifest(last) if last > end) {
                        return Ok(tip(reached));
                    }
                    if reached >= self.stable.unwrap_or(-1) {
                        self.apply(item, end)?;
                    }
                }
                reached = segment.next;
                if segment.end == End::Torn && reached <= end {
                    return Err(Doubt("a message within the log is damaged"));
                }
            }
        }
        Ok(tip(reached))
    }

    fn apply(&mut self, item: &Item, end: Lsn) -> Result<(), Doubt> {
        let Item { kind, page, position } = *item;
        match kind {
            Kind::Canceled | Kind::Manifest(_) | Kind::Cap => return Ok(()),
            Kind::Blob => return Err(Doubt("a page lies in a file of its own")),
            Kind::Free | Kind::Counter | Kind::Meta | Kind::Node | Kind::Link => {}
        }
        let at = usize::try_from(page).map_err(|_| Doubt("a page has an impossible number"))?;
        if position.lsn >= end {
            return Err(Doubt("a message goes beyond the end of the log"));
        }
        match kind {
            Kind::Link => match self.pages.get_mut(at) {
                Some(Page::Present { base, links }) => {
                    if links.last().map_or(base.lsn, |last| last.lsn) < position.lsn {
                        links.push(position);
                    }
                }
                // It belongs to a page whose beginning was written anew later.
                Some(_) => {}
                None => self.grow(at)?,
            },
            Kind::Free => *self.slot(at)? = Page::Free,
            _ => *self.slot(at)? = Page::Present { base: position, links: Vec::new() },
        }
        Ok(())
    }

    /// Makes room for so many pages.
    fn grow(&mut self, count: usize) -> Result<(), Doubt> {
        let more = count.saturating_sub(self.pages.len());
        if more > PAGES_AT_ONCE_MAX {
            return Err(Doubt("a page has an impossible number"));
        }
        self.pages.resize_with(self.pages.len() + more, Page::default);
        Ok(())
    }

    fn slot(&mut self, at: usize) -> Result<&mut Page, Doubt> {
        self.grow(at.saturating_add(1))?;
        self.pages.get_mut(at).ok_or(Doubt("a page is missing"))
    }
}

/// Where sled goes on to write: not where no message would fit.
fn tip(reached: Lsn) -> Lsn {
    let begun = reached - reached % SEGMENT_LSNS;
    if reached - begun + MESSAGE_HEADER_BYTES_MAX as Lsn >= SEGMENT_LSNS { begun + SEGMENT_LSNS } else { reached }
}

fn page(rest: &mut Bytes<'_>) -> Option<Page> {
    match rest.byte()? {
        0 => {
            rest.signed()?;
            pointer(rest)?;
            Some(Page::Free)
        }
        places => {
            let base = position(rest)?;
            let links = (1..places).map(|_| position(rest)).collect::<Option<_>>()?;
            Some(Page::Present { base, links })
        }
    }
}

fn position(rest: &mut Bytes<'_>) -> Option<Position> {
    Some(Position { lsn: rest.signed()?, offset: pointer(rest)?, bytes: rest.length()? })
}

/// An offset in the log; `None` for a page in a file of its own.
fn pointer(rest: &mut Bytes<'_>) -> Option<u64> {
    match rest.byte()? {
        0 => rest.number(),
        _ => None,
    }
}

/// The segments from a place on.
struct Log<'a> {
    file: &'a File,
    segments: BTreeMap<Lsn, u64>,
    /// What some segment says was on the disk when it was begun.
    stable: Lsn,
}

impl<'a> Log<'a> {
    fn open(file: &'a File, from: Lsn) -> Result<Self, Doubt> {
        let from = from - from % SEGMENT_LSNS;
        let mut segments = BTreeMap::new();
        let mut stable = from;
        for offset in segment_offsets(file)? {
            let Some(header) = segment_header(file, offset)?.filter(|header| header.lsn >= from) else { continue };
            stable = stable.max(header.stable);
            if header.lsn % SEGMENT_LSNS != 0 || segments.insert(header.lsn, offset).is_some() {
                return Err(Doubt("two segments are in one place"));
            }
        }
        Ok(Self { file, segments, stable })
    }

    /// The last byte of what is whole: what came after the last sync counts as far as it goes without a gap.
    fn last_byte(&self) -> Result<Lsn, Doubt> {
        let mut expected = self.stable - self.stable % SEGMENT_LSNS;
        let present = |lsn: &Lsn| self.segments.contains_key(lsn);
        let gap = {
            let mut lsn = expected;
            while present(&lsn) {
                lsn += SEGMENT_LSNS;
            }
            self.segments.range(lsn..).next().map(|_| lsn)
        };
        let mut next = None;
        let mut buffer = Vec::new();
        while let Some(offset) = self.segments.get(&expected) {
            let segment = Segment::read(self.file, expected, *offset, &mut buffer)?;
            let torn = |item: &&Item| matches!((item.kind, gap), (Kind::Manifest(last), Some(gap)) if last > gap);
            if let Some(manifest) = segment.items.iter().find(torn) {
                return Ok(manifest.position.lsn - 1);
            }
            next = Some(segment.next);
            if segment.end == End::Torn {
                break;
            }
            expected += SEGMENT_LSNS;
        }
        next.map(|next| next - 1).ok_or(Doubt("the end of the log is missing"))
    }

    /// Reads segments, several at a time.
    fn read(&self, window: &[(&Lsn, &u64)]) -> Result<Vec<Segment>, Doubt> {
        let read = |part: &[(&Lsn, &u64)]| {
            let mut buffer = Vec::new();
            let read = |(lsn, offset): &(&Lsn, &u64)| Segment::read(self.file, **lsn, **offset, &mut buffer);
            part.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        Ok(in_parallel(window, read)?.into_iter().flatten().collect())
    }
}
