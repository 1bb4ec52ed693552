//! A fuzzer for every day: what the real fuzz targets are fed (`fuzz/`), from their seeds with a few changes, through
//! the same functions.
//!
//! `PROPTEST_CASES` asks for more of them; a failing case is printed with what makes it fail again.

#[path = "../../../fuzz/src/http.rs"]
#[allow(unreachable_pub, reason = "a crate of its own in fuzz/")]
mod targets;

use bytes::Bytes;
use gateway::http::{Encoding, decode, pack};
use proptest::prelude::*;
use std::path::Path;

/// What is put into bodies: everything the reader looks for, and what lies just beside it.
const PIECES: [&str; 36] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "0",
    "-",
    "1",
    ".",
    "e9",
    "E-400",
    "NaN",
    "null",
    "true",
    "18446744073709551616",
    "-1",
    "\"inputs\"",
    "\"data\"",
    "\"shape\"",
    "\"datatype\"",
    "\"name\"",
    "\"BYTES\"",
    "\"BOOL\"",
    "\"FP16\"",
    "\"INT8\"",
    "\"binary_data_size\":",
    "\"parameters\":{",
    "\u{e9}",
    "\n",
    "[[[[[[[[",
    "\0",
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed can be read")).collect()
}

/// One change: where, how much goes, and what comes.
type Change = (prop::sample::Index, usize, Vec<u8>);

fn change() -> impl Strategy<Value = Change> {
    let piece = prop::sample::select(PIECES.as_slice()).prop_map(|piece| piece.as_bytes().to_vec());
    let put = prop_oneof![4 => piece, 2 => prop::collection::vec(any::<u8>(), 0..3), 2 => Just(vec![])];
    (any::<prop::sample::Index>(), prop_oneof![3 => 0usize..3, 1 => 0usize..30], put)
}

fn changed(mut data: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (place, gone, put) in changes {
        let at = place.index(data.len() + 1);
        let end = data.len().min(at + gone);
        data.splice(at..end, put.iter().copied());
    }
    data
}

#[test]
fn seeds_are_read() {
    for seed in seeds("http_infer") {
        targets::infer(&seed);
        let length = usize::from(u16::from_le_bytes([seed[0], seed[1]]));
        let body = Bytes::copy_from_slice(&seed[2..]);
        decode(&body, (length != 0xffff).then_some(length)).unwrap();
    }
    seeds("http_packed").iter().for_each(|seed| targets::packed(seed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4096), ..ProptestConfig::default() })]

    #[test]
    fn changed_bodies_are_read_or_refused(
        seed in prop::sample::select(seeds("http_infer")),
        changes in prop::collection::vec(change(), 0..5),
    ) {
        targets::infer(&changed(seed, &changes));
    }

    #[test]
    fn changed_packed_bodies_are_read_or_refused(
        seed in prop::sample::select(seeds("http_packed")),
        changes in prop::collection::vec(change(), 0..3),
    ) {
        targets::packed(&changed(seed, &changes));
    }

    #[test]
    fn changed_bodies_that_are_packed_are_read_or_refused(
        seed in prop::sample::select(seeds("http_infer")),
        changes in prop::collection::vec(change(), 0..5),
    ) {
        let body = changed(seed[2..].to_vec(), &changes);
        targets::packed(&[&[0], &*pack(Encoding::Gzip, &[body.into()])].concat());
    }
}
