#![no_main]

#[path = "../src/placement.rs"]
mod placement;

libfuzzer_sys::fuzz_target!(|data: &[u8]| placement::events(data));
