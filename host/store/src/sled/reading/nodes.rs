//! The engine's nodes: leaves with rows, and indexes with the numbers of pages.
//!
//! Invariant: the keys of a node are in order, without one twice.

use super::Doubt;
use super::bytes::Bytes;
use super::log::{Kind, Message};

const UNREADABLE: Doubt = Doubt("a page cannot be read");
const UNFINISHED: Doubt = Doubt("two pages are being merged");

/// A page of the tree. Its keys lack what they have in common.
pub(super) struct Node<'a> {
    /// The next one to the right.
    pub(super) next: Option<u64>,
    merging_child: Option<u64>,
    prefix_bytes: usize,
    /// Its lowest possible key.
    pub(super) low: &'a [u8],
    /// The lowest key of the next one; empty: there is none.
    pub(super) high: &'a [u8],
    pub(super) entries: Entries<'a>,
}

pub(super) enum Entries<'a> {
    Rows(Vec<(&'a [u8], &'a [u8])>),
    Pages(Vec<(&'a [u8], u64)>),
}

impl<'a> Node<'a> {
    /// Reads a node and applies the changes of it.
    pub(super) fn read(messages: &[Message<'a>]) -> Result<Self, Doubt> {
        let (base, links) = messages.split_first().ok_or(UNREADABLE)?;
        if base.kind != Kind::Node {
            return Err(UNREADABLE);
        }
        let mut node = Self::parse(base.body).ok_or(UNREADABLE)?;
        node.check_order()?;
        for link in links {
            if link.kind != Kind::Link {
                return Err(UNREADABLE);
            }
            node.apply(link.body)?;
        }
        if node.merging_child.is_some() { Err(UNFINISHED) } else { Ok(node) }
    }

    fn parse(body: &'a [u8]) -> Option<Self> {
        let mut rest = Bytes(body);
        let next = rest.id()?;
        let merging_child = rest.id()?;
        let is_merging = rest.byte()? != 0;
        let prefix_bytes = usize::from(rest.byte()?);
        let low = rest.string()?;
        let high = rest.string()?;
        let is_index = match rest.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let count = rest.length()?;
        let keys = (0..count).map(|_| rest.string()).collect::<Option<Vec<_>>>()?;
        let entries = if is_index {
            Entries::Pages(keys.into_iter().map(|key| Some((key, rest.number()?))).collect::<Option<_>>()?)
        } else {
            Entries::Rows(keys.into_iter().map(|key| Some((key, rest.string()?))).collect::<Option<_>>()?)
        };
        let is_whole = rest.is_empty() && !is_merging && prefix_bytes <= low.len();
        is_whole.then_some(Self { next, merging_child, prefix_bytes, low, high, entries })
    }

    fn check_order(&self) -> Result<(), Doubt> {
        let is_sorted = match &self.entries {
            Entries::Rows(rows) => rows.is_sorted_by(|(one, _), (other, _)| one < other),
            Entries::Pages(pages) => pages.is_sorted_by(|(one, _), (other, _)| one < other),
        };
        if is_sorted { Ok(()) } else { Err(UNREADABLE) }
    }

    fn apply(&mut self, body: &'a [u8]) -> Result<(), Doubt> {
        let mut rest = Bytes(body);
        let kind = rest.byte().ok_or(UNREADABLE)?;
        match (kind, &mut self.entries) {
            (0, Entries::Rows(rows)) => {
                let key = rest.string().ok_or(UNREADABLE)?;
                let value = rest.string().ok_or(UNREADABLE)?;
                match rows.binary_search_by_key(&key, |(key, _)| key) {
                    Ok(at) => rows.get_mut(at).into_iter().for_each(|row| row.1 = value),
                    Err(at) => rows.insert(at, (key, value)),
                }
            }
            (1, Entries::Rows(rows)) => {
                let key = rest.string().ok_or(UNREADABLE)?;
                if let Ok(at) = rows.binary_search_by_key(&key, |(key, _)| key) {
                    rows.remove(at);
                }
            }
            (2, Entries::Pages(_)) if self.merging_child.is_none() => {
                self.merging_child = rest.id().ok_or(UNREADABLE)?;
            }
            (3, Entries::Pages(pages)) => {
                let merged = self.merging_child.take().ok_or(UNREADABLE)?;
                pages.retain(|(_, page)| *page != merged);
            }
            // The page is to be merged into its neighbour.
            (4, _) => return Err(UNFINISHED),
            _ => return Err(UNREADABLE),
        }
        Ok(())
    }

    /// What the keys have in common.
    pub(super) fn prefix(&self) -> &'a [u8] {
        self.low.get(..self.prefix_bytes).unwrap_or_default()
    }
}
