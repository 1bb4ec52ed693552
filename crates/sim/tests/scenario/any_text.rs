//! Whatever stands in a scenario or in the files it names: a scenario or a message, never a panic.

use crate::{BASE, read};
use proptest::prelude::*;

/// Words that a scenario may hold, and some that it may not.
const WORDS: &str = r#"nan|inf|-1|0|1e308|1e-320|9223372036854775807|""|"1ns"|"24h"|"\u0007"|[|]|{|}|=|[[model]]
|latency_on.gpu|count = 3|weight = 1e-320|table = [[1, "1ns"]]|profile = "good.csv"|kind = "gamma"|
rows = [[1e12, 0]], slot = "1us""#;

const SCENARIOS: [&str; 3] = [
    BASE,
    "models = { path = \"good.txt\", profiles = [\"good.csv\", \"shares.csv\"] }\ncluster.gpus = 2\n\
     arrivals = { kind = \"trace\", path = \"azure.csv\", format = \"azure\", speedup = 3.5 }\n",
    "rate = 5\npopularity = { zipf = 0.9 }\n[[cluster.gpu]]\ntype = \"a\"\nspeed = 0.5\n[[cluster.gpu]]\ntype = \"b\"\n\
     [[model]]\nname = \"m\"\ncount = 3\nslo = \"90ms\"\nlatency.table = [[1, \"5ms\"], [8, \"9ms\"]]\n",
];

/// A change to a text: what from here on, so many letters, is replaced by.
type Change = (prop::sample::Index, usize, String);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let words: Vec<&str> = WORDS.split('|').collect();
    let word = prop_oneof![Just(String::new()), prop::sample::select(words).prop_map(str::to_owned), ".{0,4}"];
    prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, word), 0..4)
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for (place, length, word) in changes {
        let start = place.index(text.len() + 1);
        let end = (start + length).min(text.len());
        text.splice(start..end, word.chars());
    }
    text.into_iter().collect()
}

/// Reads, and what can be read is also written and read again.
fn check(text: &str, read: sim::ReadFile) {
    match sim::parse("s.toml", text, read) {
        Ok(scenario) => {
            let written = sim::effective(&scenario);
            assert_eq!(sim::parse("effective.toml", &written, read), Ok(scenario), "{text}\n{written}");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!error.problem.is_empty() && !message.contains('\n') && message.len() < 3000, "{message}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_read_or_refused(text in "(?s).{0,200}") {
        check(&text, &read);
    }

    #[test]
    fn changed_scenarios_are_read_or_refused(which in 0..SCENARIOS.len(), changes in changes()) {
        check(&changed(SCENARIOS[which], &changes), &read);
    }

    #[test]
    fn changed_files_are_read_or_refused(which in 0..SCENARIOS.len(), changes in changes()) {
        check(SCENARIOS[which], &|path| Ok(changed(&read(path)?, &changes)));
    }

    #[test]
    fn scenarios_survive_being_written(
        (zipf, speed, count) in (0.0..10.0, 0.01..100.0, 1..4usize),
        (alpha, beta, objective) in (0..5_000_000u64, 1..20_000_000u64, 1..200_000_000u64),
    ) {
        let text = format!(
            "rate = 10\npopularity = {{ zipf = {zipf:?} }}\n[[cluster.gpu]]\n\
             type = \"x\"\nspeed = {speed:?}\n[[model]]\nname = \"m\"\ncount = {count}\nslo = \"{objective}ns\"\n\
             latency = {{ alpha = \"{alpha}ns\", beta = \"{beta}ns\" }}\n"
        );
        check(&text, &read);
    }
}
