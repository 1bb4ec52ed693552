//! The real fuzzers. They need nightly Rust and cargo-fuzz; `cargo test` has a smoke test that needs neither.

use crate::examples;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Fuzz one of the parsers with libFuzzer.
///
/// Needs a nightly toolchain; installs cargo-fuzz with cargo when it is missing. Starts from fuzz/seeds, the
/// examples and what earlier runs found worth keeping (fuzz/corpus, not committed). What breaks a rule is written to
/// fuzz/artifacts/TARGET, with the command that runs it again.
///
/// Example: cargo xtask fuzz scenario --seconds 600
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// What is fed arbitrary bytes.
    #[arg(value_enum)]
    target: Target,
    /// How long to look.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Target {
    /// A scenario and the files that it names.
    Scenario,
    /// A trace file.
    Trace,
    /// An event trace for placement.
    Events,
    /// A profile.
    #[value(name = "profile_csv")]
    ProfileCsv,
    /// The body of an inference request over HTTP.
    #[value(name = "http_infer")]
    HttpInfer,
    /// The same, packed with gzip or deflate.
    #[value(name = "http_packed")]
    HttpPacked,
    /// A packet on the daemon's socket.
    Message,
    /// A page that a tenant or the daemon wrote.
    Page,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Scenario => "scenario",
            Target::Trace => "trace",
            Target::Events => "events",
            Target::ProfileCsv => "profile_csv",
            Target::HttpInfer => "http_infer",
            Target::HttpPacked => "http_packed",
            Target::Message => "message",
            Target::Page => "page",
        }
    }
}

pub(crate) fn fuzz(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    tools(workspace)?;
    let target = arguments.target.name();
    let folder = workspace.root.join("fuzz");
    seed(workspace, arguments.target, &folder.join("corpus").join(target))?;
    let seconds = format!("-max_total_time={}", arguments.seconds);
    let build = workspace.target.join("fuzz");
    let build = build.to_str().context("name the build folder: its path is not text")?;
    // There is next to no unsafe code to watch, so no sanitizer: the fuzzer is several times faster without.
    let fuzzer = ["+nightly", "fuzz", "run", "--sanitizer", "none", "--target-dir", build, target, "--", &seconds];
    let fuzzer = cargo().arguments(fuzzer).arguments(["-timeout=10", "-rss_limit_mb=2500", "-print_final_stats=1"]);
    fuzzer.folder(&folder).search_first(&tool_folder(workspace).join("bin"))?.run()?;
    eprintln!("nothing found in {} s", arguments.seconds);
    Ok(())
}

/// The `cargo` that understands `+nightly`: rustup's, and not the one that runs this program.
fn cargo() -> Program {
    Program::new("cargo").without("CARGO").without("RUSTUP_TOOLCHAIN").without("RUSTC").without("RUSTDOC")
}

fn tool_folder(workspace: &Workspace) -> std::path::PathBuf {
    workspace.target.join("tools")
}

fn tools(workspace: &Workspace) -> Result<()> {
    if !cargo().arguments(["+nightly", "--version"]).works() {
        bail!(
            "find nightly Rust, which libFuzzer needs: `rustup toolchain install nightly`. The smoke test needs only \
             stable: `cargo test --package weft-sim --test fuzz_smoke`"
        );
    }
    let folder = tool_folder(workspace);
    let fuzz = || cargo().arguments(["fuzz", "--version"]).search_first(&folder.join("bin"));
    if fuzz()?.works() {
        return Ok(());
    }
    eprintln!("  MISSING cargo-fuzz; trying to install it");
    let root = folder.to_str().context("name the tools folder: its path is not text")?;
    let installed = cargo().arguments(["install", "cargo-fuzz", "--locked", "--root", root]).run();
    if !fuzz()?.works() {
        let why = installed.err().map_or_else(|| "it still does not run".to_owned(), |error| format!("{error:#}"));
        bail!("set up cargo-fuzz ({why}): install it by hand with `cargo install cargo-fuzz` and run this again");
    }
    Ok(())
}

/// Puts input to start from into the corpus: the seeds and, for scenarios, the examples.
fn seed(workspace: &Workspace, target: Target, corpus: &Path) -> Result<()> {
    std::fs::create_dir_all(corpus).with_context(|| format!("create {}", corpus.display()))?;
    let folder = workspace.root.join("fuzz/seeds").join(target.name());
    let seeds = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let seeds = seeds.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut inputs = seeds.with_context(|| format!("list {}", folder.display()))?;
    if matches!(target, Target::Scenario) {
        inputs.extend(examples::scenarios(workspace)?);
    }
    for (index, input) in inputs.iter().enumerate() {
        let copy = corpus.join(format!("seed-{index}"));
        std::fs::copy(input, &copy).with_context(|| format!("copy {} into the corpus", input.display()))?;
    }
    Ok(())
}
