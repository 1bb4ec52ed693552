#![no_main]

#[path = "../src/sharing.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod sharing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sharing::message(data));
