//! Commands and what they print, in the READMEs of `examples/` and in `tests/cmd`. All are run at the top of
//! the repository.
//!
//! After a change that is meant to be seen: `TRYCMD=overwrite cargo test -p weft-tests --test transcripts`.

mod support;

use support::{root, weft};

#[test]
fn commands_print_what_is_written() {
    std::env::set_current_dir(root()).expect("the root is there");
    let cases = trycmd::TestCases::new();
    cases.register_bin("weft", weft());
    // Help is folded to the width of the terminal.
    cases.env("COLUMNS", "100");
    cases.case("examples/*/README.md").case("tests/cmd/*.trycmd");
    cases.run();
}
