#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bulkhead_store::fuzz::journals(data);
});
