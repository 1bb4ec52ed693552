//! Nothing: the tests are in `tests/`, and what they run is the `weft` command.
