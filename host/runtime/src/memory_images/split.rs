//! Takes the data of a component's one memory out of its bytes.
//!
//! Owns the decision which components have an image, and the bytes that are compiled in their place. Invariant: what is
//! compiled differs from the component in nothing but that each active data segment is empty and lies at address 0, and
//! an instance of it whose memory begins with the image is, to the guest, an instance of the component. Whatever is not
//! plainly so has no image.

use std::ops::Range;

use wasmparser::{BinaryReader, DataKind, DataSectionReader, ImportSectionReader, MemorySectionReader, Operator};
use wasmparser::{Parser, Payload, TypeRef};

use super::image::Contents;

/// Bytes of a page of WebAssembly.
const WASM_PAGE_BYTES: u64 = 64 << 10;
/// Sections of components and modules, by their ids.
const COMPONENT_MODULE: u8 = 1;
const MODULE_IMPORTS: u8 = 2;
const MODULE_MEMORIES: u8 = 5;
const MODULE_DATA: u8 = 11;
/// `\0asm`, version and layer.
const HEAD_BYTES: usize = 8;
/// Active, in memory 0, at `i32.const 0`, without a byte.
const EMPTY_SEGMENT: [u8; 5] = [0x00, 0x41, 0x00, 0x0b, 0x00];

/// A component in two parts.
pub(super) struct Split {
    /// What is compiled.
    pub(super) code: Vec<u8>,
    /// What its memory begins with.
    pub(super) contents: Contents,
}

/// Takes a component apart, if its memory has data of at least so many bytes and is of the plain kind.
pub(super) fn split(component: &[u8], data_bytes_min: usize) -> Option<Split> {
    if component.len() < data_bytes_min || memories(component)? != 1 {
        return None;
    }
    let mut found = None;
    for section in sections(component) {
        let section = section?;
        if section.id == COMPONENT_MODULE {
            let module = component.get(section.body.clone())?;
            if let Some(split) = split_module(module, data_bytes_min)? {
                found = Some((section, split));
            }
        }
    }
    let (section, Split { code: module, contents }) = found?;
    let mut code = Vec::with_capacity(component.len());
    code.extend_from_slice(component.get(..section.whole.start)?);
    push_section(&mut code, COMPONENT_MODULE, &module);
    code.extend_from_slice(component.get(section.whole.end..)?);
    Some(Split { code, contents })
}

/// How many memories all modules of a component define, however deep they lie.
fn memories(component: &[u8]) -> Option<u32> {
    let mut memories = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::MemorySection(section) = payload.ok()? {
            memories = memories.saturating_add(section.count());
        }
    }
    Some(memories)
}

/// The module without its data, if it is the one with the memory. `None`: this component has no image.
#[expect(clippy::option_option, reason = "not this module, and not this component, are different answers")]
pub(super) fn split_module(module: &[u8], data_bytes_min: usize) -> Option<Option<Split>> {
    let mut minimum = None;
    let mut data = None;
    for section in sections(module) {
        let section = section?;
        let reader = || Some(BinaryReader::new(module.get(section.body.clone())?, section.body.start));
        match section.id {
            MODULE_IMPORTS => {
                for import in ImportSectionReader::new(reader()?).ok()?.into_imports() {
                    // The data of such a module belongs to the memory of another one.
                    if matches!(import.ok()?.ty, TypeRef::Memory(_)) {
                        return Some(None);
                    }
                }
            }
            MODULE_MEMORIES => {
                let memory = MemorySectionReader::new(reader()?).ok()?.into_iter().next()?.ok()?;
                if memory.memory64 || memory.shared || memory.page_size_log2.is_some() {
                    return None;
                }
                minimum = Some(usize::try_from(memory.initial.checked_mul(WASM_PAGE_BYTES)?).ok()?);
            }
            MODULE_DATA => data = Some(section),
            _ => {}
        }
    }
    let (Some(minimum), Some(data)) = (minimum, data) else { return Some(None) };
    let segments = DataSectionReader::new(BinaryReader::new(module.get(data.body.clone())?, data.body.start)).ok()?;
    let count = segments.count();
    let contents = contents(segments, minimum, data_bytes_min)?;
    let mut section = Vec::new();
    push_leb(&mut section, count.into());
    (0..count).for_each(|_| section.extend_from_slice(&EMPTY_SEGMENT));
    let mut code = Vec::with_capacity(module.len());
    code.extend_from_slice(module.get(..data.whole.start)?);
    push_section(&mut code, MODULE_DATA, &section);
    code.extend_from_slice(module.get(data.whole.end..)?);
    Some(Some(Split { code, contents }))
}

/// What the segments make of a memory of zeros, if each is written at the start, to a place that is known and exists.
fn contents(segments: DataSectionReader<'_>, minimum: usize, data_bytes_min: usize) -> Option<Contents> {
    let mut placed = Vec::new();
    for segment in segments {
        let segment = segment.ok()?;
        let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else { return None };
        let mut operators = offset_expr.get_operators_reader();
        let Operator::I32Const { value } = operators.read().ok()? else { return None };
        let Operator::End = operators.read().ok()? else { return None };
        let start = usize::try_from(value.cast_unsigned()).ok()?;
        // One that does not fit is a trap of each instance, at its own time.
        if start.checked_add(segment.data.len())? > minimum {
            return None;
        }
        placed.push((start, segment.data));
    }
    let bytes = placed.iter().map(|(_, data)| data.len()).sum::<usize>();
    if bytes < data_bytes_min {
        return None;
    }
    // Later ones lie above earlier ones.
    Contents::of(&placed, minimum)
}

/// A section of a component or a module.
struct Section {
    id: u8,
    /// With id and length.
    whole: Range<usize>,
    body: Range<usize>,
}

/// The sections in their order; `None` where the bytes are no sections.
fn sections(bytes: &[u8]) -> impl Iterator<Item = Option<Section>> + '_ {
    let mut at = HEAD_BYTES;
    std::iter::from_fn(move || {
        let start = at;
        let id = *bytes.get(start)?;
        let read = || {
            let mut reader = BinaryReader::new(bytes.get(start + 1..)?, start + 1);
            let length = usize::try_from(reader.read_var_u32().ok()?).ok()?;
            let body = reader.original_position()..reader.original_position().checked_add(length)?;
            bytes.get(body.clone())?;
            Some(Section { id, whole: start..body.end, body })
        };
        let section = read();
        at = section.as_ref().map_or(bytes.len(), |section| section.whole.end);
        Some(section)
    })
}

fn push_section(to: &mut Vec<u8>, id: u8, body: &[u8]) {
    to.push(id);
    push_leb(to, body.len() as u64);
    to.extend_from_slice(body);
}

fn push_leb(to: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            to.push(low);
            return;
        }
        to.push(low | 0x80);
    }
}
