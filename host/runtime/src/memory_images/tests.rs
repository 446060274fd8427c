//! Guests of every kind on slots with images, against the same guests on memories of wasmtime.
//!
//! `XTASK_TEST_MODE=nightly` tries five times as many: 10,000 calls.

use std::fmt::Write as _;
use std::ops::Range;

use futures::FutureExt as _;
use wasmtime::{Config, Engine, Instance, Memory, Module, Store, Trap, TypedFunc};

use super::image::Image;
use super::slots::PAGES_KEPT_MAX;
use super::split::{split, split_module};
use super::*;

const PAGE: usize = 4096;

/// How often a guest may go on before it is dropped.
const TURNS_MAX: usize = 3_000;

/// Called for each slot before it is free again: what could be written is the image and zeros.
#[expect(unsafe_code, reason = "reads of a mapping that has no references")]
pub(super) fn check_slot(image: &Image, base: *mut u8, used: usize) {
    // SAFETY: so much of the slot could be written by its memory, which is gone.
    let memory = unsafe { std::slice::from_raw_parts(base, used) };
    assert!(memory[image.at.clone()] == *image.bytes(), "the image is what it was");
    assert!(are_zeros(&memory[..image.at.start]) && are_zeros(&memory[image.at.end..]), "around it are zeros");
}

/// The same for stacks.
#[expect(unsafe_code, reason = "reads of a mapping that has no references")]
pub(super) fn check_stack(base: *mut u8, range: Range<usize>) {
    let start = base.wrapping_add(range.start - base.expose_provenance());
    // SAFETY: the stack's call has ended.
    let stack = unsafe { std::slice::from_raw_parts(start, range.len()) };
    assert!(are_zeros(stack), "a free stack holds zeros");
}

/// In pieces that are compared at once: this is code without optimisation.
fn are_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(PAGE).all(|piece| piece == &[0; PAGE][..piece.len()])
}

/// A source of choices that are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % bound
    }
}

/// A module with some data, whose function `run` does something to its memory and ends in some way.
fn random_module(chance: &mut Chance) -> String {
    let pages = 1 + chance.below(4);
    let bytes = pages * 65536;
    let mut text = format!("(module (memory (export \"memory\") {pages})");
    for _ in 0..1 + chance.below(4) {
        let length = 1 + chance.below(3 * PAGE);
        let letter = char::from(b'a' + u8::try_from(chance.below(26)).unwrap());
        let data = letter.to_string().repeat(length);
        write!(text, "(data (i32.const {}) \"{data}\")", chance.below(bytes - length)).unwrap();
    }
    text.push_str("(func $deep (param i32) (local i64 i64 i64) (if (local.get 0)");
    text.push_str(" (then (call $deep (i32.sub (local.get 0) (i32.const 1))))))");
    text.push_str("(func (export \"run\") (result i32) (local $i i32)");
    for _ in 0..chance.below(12) {
        let at = chance.below(bytes);
        let byte = chance.below(256);
        let part = bytes - at;
        match chance.below(6) {
            0 => write!(text, "(memory.fill (i32.const {at}) (i32.const {byte}) (i32.const {}))", chance.below(part)),
            1 => write!(text, "(drop (memory.grow (i32.const {})))", 1 + chance.below(4)),
            // The last byte that there is, grown or not.
            2 => write!(
                text,
                "(i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const {byte}))"
            ),
            3 => write!(text, "(call $deep (i32.const {}))", chance.below(2_000)),
            // A page here and there.
            4 => write!(
                text,
                "(local.set $i (i32.const 0)) (loop $l (i32.store8 (local.get $i) (i32.const {byte}))
                 (local.set $i (i32.add (local.get $i) (i32.const {})))
                 (br_if $l (i32.lt_u (local.get $i) (i32.const {bytes}))))",
                PAGE * (1 + chance.below(5)) + chance.below(9)
            ),
            _ => write!(text, "(i32.store8 (i32.const {at}) (i32.const {byte}))"),
        }
        .unwrap();
    }
    match chance.below(8) {
        0 => text.push_str("(unreachable)"),
        1 => text.push_str("(i32.load (i32.const -8))"),
        2 => text.push_str("(call $deep (i32.const 100000000)) (i32.const 1)"),
        3 => text.push_str("(loop $l (br $l)) (unreachable)"),
        _ => text.push_str("(memory.size)"),
    }
    text.push_str("))");
    text
}

fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).concurrency_support(false).max_wasm_stack(64 << 10).async_stack_size(256 << 10);
    config
}

/// A module and the engine that runs it: with the image, or as it is.
struct Guest {
    engine: Engine,
    module: Module,
}

impl Guest {
    fn plain(module: &[u8]) -> Self {
        let engine = Engine::new(&config()).unwrap();
        Self { module: Module::new(&engine, module).unwrap(), engine }
    }

    fn imaged(module: &[u8], shared: &SharedSlots) -> Self {
        let split = split_module(module, 1).unwrap().unwrap();
        let component = ImagedComponent { code: split.code.into(), contents: split.contents };
        let mut config = config();
        component.configure(&mut config, shared).unwrap();
        let engine = Engine::new(&config).unwrap();
        Self { module: Module::new(&engine, &component.code).unwrap(), engine }
    }

    /// What its memory is at first and at last, and how it ended; `None`: it was dropped in the middle.
    fn run(&self) -> (Vec<u8>, Option<(Vec<u8>, String)>) {
        let mut store = Store::new(&self.engine, ());
        // Each call and each turn of a loop gives way.
        store.set_epoch_deadline(0);
        store.epoch_deadline_async_yield_and_update(0);
        let (memory, run) = self.instantiate(&mut store);
        let first = memory.data(&store).to_vec();
        let mut call = Box::pin(run.call_async(&mut store, ()));
        let ended = (0..TURNS_MAX).find_map(|_| call.as_mut().now_or_never());
        drop(call);
        let Some(ended) = ended else { return (first, None) };
        let ended = match ended {
            Ok(result) => result.to_string(),
            Err(error) => format!("{:?}", error.downcast::<Trap>().unwrap()),
        };
        (first, Some((memory.data(&store).to_vec(), ended)))
    }

    fn instantiate(&self, store: &mut Store<()>) -> (Memory, TypedFunc<(), i32>) {
        let instance = Instance::new_async(&mut *store, &self.module, &[]).now_or_never().unwrap().unwrap();
        let memory = instance.get_memory(&mut *store, "memory").unwrap();
        (memory, instance.get_typed_func(store, "run").unwrap())
    }
}

#[test]
fn random_guests_find_and_do_the_same_as_without_an_image() {
    let shared = SharedSlots::new().unwrap();
    let mut chance = Chance(0x5eed_0001);
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    let mode = std::env::var("XTASK_TEST_MODE").unwrap_or_default();
    let guests = if mode == "nightly" { 1_250 } else { 250 };
    for turn in 0..guests {
        let text = random_module(&mut chance);
        let module = wat::parse_str(&text).unwrap();
        let plain = Guest::plain(&module);
        let imaged = Guest::imaged(&module, &shared);
        let (first, end) = plain.run();
        let kind = end.as_ref().map_or("dropped".to_owned(), |(_, end)| end.clone());
        *ends.entry(kind).or_default() += 1;
        for _ in 0..8 {
            let (imaged_first, imaged_end) = imaged.run();
            assert!(imaged_first == first, "guest {turn} begins with something else: {text}");
            assert!(imaged_end == end, "guest {turn} does something else: {text}");
        }
    }
    // Each kind of end was among them.
    for kind in ["dropped", "UnreachableCodeReached", "MemoryOutOfBounds", "StackOverflow"] {
        assert!(ends.get(kind).is_some_and(|count| *count > 8), "{kind}: {ends:?}");
    }
}

/// A memory of 4 MiB whose image is 2 MiB of it, and a function that writes to every n-th page.
fn wide(step: usize) -> Vec<u8> {
    let data = "d".repeat(2 << 20);
    let text = format!(
        "(module (memory (export \"memory\") 64) (data (i32.const 65537) \"{data}\")
            (func (export \"run\") (result i32) (local $i i32)
                (loop $l (i32.store8 (local.get $i) (i32.const 1))
                    (local.set $i (i32.add (local.get $i) (i32.const {step})))
                    (br_if $l (i32.lt_u (local.get $i) (i32.const 4194304))))
                (i32.const 1)))"
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn slot_with_more_written_pages_than_are_copied_goes_back_as_a_whole() {
    let shared = SharedSlots::new().unwrap();
    for step in [2 * PAGE, PAGE] {
        let guest = Guest::imaged(&wide(step), &shared);
        assert_eq!((4 << 20) / step <= PAGES_KEPT_MAX, step == 2 * PAGE);
        let (first, _) = guest.run();
        assert_eq!(guest.run().0, first);
    }
}

/// What the kernel does to pages while a guest has them.
#[test]
fn slot_is_restored_whatever_became_of_its_pages_meanwhile() {
    use rustix::mm::Advice;
    let shared = SharedSlots::new().unwrap();
    let guest = Guest::imaged(&wide(2 * PAGE), &shared);
    let first = guest.run().0;
    // Given back, reclaimed first, paged out where there is swap, and made one huge page.
    for advice in [Advice::LinuxDontNeed, Advice::LinuxCold, Advice::LinuxPageOut, Advice::LinuxHugepage] {
        let mut store = Store::new(&guest.engine, ());
        store.set_epoch_deadline(1 << 20);
        let (memory, run) = guest.instantiate(&mut store);
        run.call_async(&mut store, ()).now_or_never().unwrap().unwrap();
        let half = memory.data_ptr(&store).wrapping_add(3 << 19);
        #[expect(unsafe_code, reason = "the kernel is told about pages")]
        // SAFETY: the pages are the guest's, which does not run; what it wrote to them may be lost.
        unsafe {
            rustix::mm::madvise(half.cast(), 2 << 20, advice).unwrap();
        }
        run.call_async(&mut store, ()).now_or_never().unwrap().unwrap();
        drop(store);
        assert_eq!(guest.run().0, first);
    }
}

#[test]
fn memories_at_the_same_time_have_slots_of_their_own() {
    let shared = SharedSlots::new().unwrap();
    let guest = Guest::imaged(&wide(2 * PAGE), &shared);
    let mut stores: Vec<_> = (0..20_u8)
        .map(|number| {
            let mut store = Store::new(&guest.engine, ());
            let (memory, _) = guest.instantiate(&mut store);
            memory.data_mut(&mut store).fill(number);
            (store, memory, number)
        })
        .collect();
    for (store, memory, number) in &mut stores {
        assert!(memory.data(store).iter().all(|byte| byte == number));
    }
    drop(stores);
    assert_eq!(guest.run().0, guest.run().0);
}

#[test]
fn threads_that_begin_and_end_guests_at_once_find_the_image_each_time() {
    let shared = SharedSlots::new().unwrap();
    let guest = Guest::imaged(&wide(2 * PAGE), &shared);
    let first = guest.run().0;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..30).for_each(|_| assert!(guest.run().0 == first)));
        }
    });
}

/// A component around a module of this text.
fn component(module: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core module {module}) (core instance (instantiate 0)))")).unwrap()
}

#[test]
fn component_with_data_at_known_places_of_one_memory_has_an_image() {
    let whole = component("(memory 1) (data (i32.const 70) \"ab\") (data (i32.const 71) \"cd\") (func)");
    let split = split(&whole, 4).unwrap();
    let image = Image::new(&split.contents).unwrap();
    assert_eq!((image.at.clone(), image.minimum), (0..PAGE, 65536));
    assert_eq!(&image.bytes()[69..75], b"\0acd\0\0");
    let emptied = component("(memory 1) (data (i32.const 0) \"\") (data (i32.const 0) \"\") (func)");
    assert_eq!(split.code, emptied);
}

#[test]
fn component_of_another_kind_stays_in_the_pool() {
    let data = "(data (i32.const 0) \"abcd\")";
    let others = [
        "(memory 1) (data (i32.const 0) \"abc\")".to_owned(),
        format!("(memory 1) {data} (data \"passive\")"),
        format!("(memory 1) (global i32 (i32.const 0)) {data} (data (global.get 0) \"a\")"),
        format!("(memory 1) {data} (data (i32.const 65535) \"ab\")"),
        format!("(memory 1) {data} (data (i32.const -1) \"\")"),
        "(memory i64 1) (data (i64.const 0) \"abcd\")".to_owned(),
        format!("(memory 1) (memory 1) {data}"),
        format!("(memory 1) {data} (data (i32.add (i32.const 1) (i32.const 1)) \"a\")"),
        format!("(import \"m\" \"m\" (memory 1)) {data}"),
        // Two gibibytes apart.
        format!("(memory 32769) {data} (data (i32.const -2147483648) \"a\")"),
    ];
    for module in others {
        assert!(split(&component(&module), 4).is_none(), "{module}");
    }
    let nested = format!("(component (component (core module (memory 1) {data})))");
    assert!(split(&wat::parse_str(nested).unwrap(), 4).is_none());
    let two = format!("(component (core module (memory 1) {data}) (component (core module (memory 1))))");
    assert!(split(&wat::parse_str(two).unwrap(), 4).is_none());
}

#[test]
fn bytes_that_are_no_component_have_no_image() {
    let whole = component("(memory 1) (data (i32.const 0) \"abcd\") (func)");
    for length in 0..whole.len() {
        assert!(split(&whole[..length], 1).is_none_or(|split| split.code.len() < whole.len()), "{length}");
    }
    for at in 8..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        // No panic, whatever comes of it.
        drop(split(&changed, 1));
    }
}
