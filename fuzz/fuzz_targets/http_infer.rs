#![no_main]

#[path = "../src/http.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod http;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http::infer(data));
