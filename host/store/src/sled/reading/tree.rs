//! The engine's tree, and the rows in it.
//!
//! Owns the way from the root to the leaves. Invariant: the leaves that are counted are those that sled finds, each
//! once and none left out.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use super::super::examination::Examination;
use super::bytes::Bytes;
use super::log::{Kind, Message, message_at};
use super::nodes::{Entries, Node};
use super::recovery::Page;
use super::{Doubt, in_parallel};

/// The page with the names of trees.
const META: u64 = 0;
/// The page with the last number that was drawn.
const COUNTER: u64 = 1;
/// The one tree that is used.
const TREE: &[u8] = b"__sled__default";
/// A tree has fewer levels.
const LEVELS_MAX: usize = 64;

/// What is known of a node without its rows.
struct Outline {
    low: Box<[u8]>,
    high: Box<[u8]>,
    next: Option<u64>,
    /// Pages by their lowest keys; `None` of a leaf.
    children: Option<Vec<(Box<[u8]>, u64)>>,
}

type Outlines = HashMap<u64, Outline>;

/// Counts every row.
pub(super) fn examine(file: &File, pages: &[Page]) -> Result<Examination, Doubt> {
    let page = |number: u64| usize::try_from(number).ok().and_then(|at| pages.get(at)).unwrap_or(&Page::Unknown);
    let mut buffers = Vec::new();
    let root = read_page(file, &mut buffers, page(META), META, root)?;
    read_page(file, &mut buffers, page(COUNTER), COUNTER, |messages| match messages {
        [Message { kind: Kind::Counter, body, .. }] => Bytes(body).number().map(drop).ok_or(WRONG_PAGE),
        _ => Err(WRONG_PAGE),
    })?;
    let numbers: Vec<u64> =
        (COUNTER + 1..pages.len() as u64).filter(|number| !matches!(page(*number), Page::Free)).collect();
    let (outlines, examination) = read_nodes(file, &numbers, &page)?;
    let leaves = leaves(&outlines, root)?;
    if outlines.values().filter(|outline| outline.children.is_none()).count() == leaves.len() {
        return Ok(examination);
    }
    // A crash in the middle of a split leaves a page behind that belongs to nothing.
    Ok(read_nodes(file, &leaves, &page)?.1)
}

const WRONG_PAGE: Doubt = Doubt("a page is another one");

/// Reads the messages of a page, by way of `buffers`.
fn read_page<R>(
    file: &File,
    buffers: &mut Vec<Vec<u8>>,
    page: &Page,
    number: u64,
    read: impl FnOnce(&[Message<'_>]) -> Result<R, Doubt>,
) -> Result<R, Doubt> {
    let Page::Present { base, links } = page else { return Err(WRONG_PAGE) };
    if buffers.len() <= links.len() {
        buffers.resize_with(links.len() + 1, Vec::new);
    }
    let mut messages = Vec::with_capacity(links.len() + 1);
    for (position, buffer) in std::iter::once(base).chain(links).zip(buffers) {
        let message = message_at(file, position, buffer)?;
        if message.page != number {
            return Err(WRONG_PAGE);
        }
        messages.push(message);
    }
    read(&messages)
}

/// The number of the root.
fn root(messages: &[Message<'_>]) -> Result<u64, Doubt> {
    let [Message { kind: Kind::Meta, body, .. }] = messages else { return Err(WRONG_PAGE) };
    let mut rest = Bytes(body);
    while !rest.is_empty() {
        let tree = rest.string().zip(rest.number()).ok_or(WRONG_PAGE)?;
        if tree.0 == TREE {
            return Ok(tree.1);
        }
    }
    Err(WRONG_PAGE)
}

/// Reads nodes and counts the rows in them.
fn read_nodes<'a>(
    file: &File,
    numbers: &[u64],
    page: &(impl Fn(u64) -> &'a Page + Sync),
) -> Result<(Outlines, Examination), Doubt> {
    let read = |part: &[u64]| {
        let mut outlines = Vec::with_capacity(part.len());
        let mut buffers = Vec::new();
        let mut examination = Examination::default();
        for number in part {
            let outline = read_page(file, &mut buffers, page(*number), *number, |messages| {
                let node = Node::read(messages)?;
                count(&node, &mut examination)?;
                Ok(outline(&node))
            });
            outlines.push((*number, outline?));
        }
        Ok((outlines, examination))
    };
    let mut outlines = Outlines::with_capacity(numbers.len());
    let mut examination = Examination::default();
    for (part, counted) in in_parallel(numbers, read)? {
        outlines.extend(part);
        examination.join(counted);
    }
    Ok((outlines, examination))
}

fn count(node: &Node<'_>, examination: &mut Examination) -> Result<(), Doubt> {
    let Entries::Rows(rows) = &node.entries else { return Ok(()) };
    let mut key = node.prefix().to_vec();
    for (suffix, value) in rows {
        key.truncate(node.prefix().len());
        key.extend_from_slice(suffix);
        if *key < *node.low || !node.high.is_empty() && *key >= *node.high {
            return Err(Doubt("a row is in the wrong page"));
        }
        examination.row(&key, value).map_err(|_| Doubt("a row cannot be read"))?;
    }
    Ok(())
}

fn outline(node: &Node<'_>) -> Outline {
    let children = match &node.entries {
        Entries::Rows(_) => None,
        Entries::Pages(pages) => {
            Some(pages.iter().map(|(key, page)| ([node.prefix(), key].concat().into(), *page)).collect())
        }
    };
    Outline { low: node.low.into(), high: node.high.into(), next: node.next, children }
}

/// The leaves from left to right. Every index leads to where its keys are.
fn leaves(outlines: &Outlines, root: u64) -> Result<Vec<u64>, Doubt> {
    const ASTRAY: Doubt = Doubt("the tree does not lead to its pages");
    let mut level = root;
    for _ in 0..LEVELS_MAX {
        let chain = chain(outlines, level).ok_or(ASTRAY)?;
        let Some(first) = outlines.get(&level).ok_or(ASTRAY)?.children.as_ref() else { return Ok(chain) };
        let mut children = chain.iter().filter_map(|number| outlines.get(number)?.children.as_ref()).flatten();
        if !children.all(|(low, child)| outlines.get(child).is_some_and(|child| child.low == *low)) {
            return Err(ASTRAY);
        }
        level = first.first().ok_or(ASTRAY)?.1;
    }
    Err(ASTRAY)
}

/// The nodes of one level from left to right, which leave no key out; `None`: they do.
fn chain(outlines: &Outlines, first: u64) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut seen = HashSet::new();
    let mut low: &[u8] = &[];
    let mut next = Some(first);
    while let Some(number) = next {
        let outline = outlines.get(&number).filter(|outline| *outline.low == *low && seen.insert(number))?;
        numbers.push(number);
        low = &outline.high;
        next = outline.next;
    }
    low.is_empty().then_some(numbers)
}
