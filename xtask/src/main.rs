//! Every piece of Weft's automation. `cargo xtask help` lists it.
//!
//! Knows nothing of Weft's crates: it runs `cargo` and the `weft` binary, as a person would. What it says goes
//! to stderr; files and the path of a report are its results.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "talking to the person who started it is this program's job")]

mod program;
mod workspace;
mod setup;
mod steps;
mod ci;
mod examples;
mod leaks;
mod deny;
mod docs;
mod demo;
mod dist;
mod goodput;
mod fikit;
mod elasticity;
mod placement;
mod faults;
mod cluster_faults;
mod compare_serving;
mod bench;
mod peers;
mod server;
mod connection;
mod serving;
mod clients;
mod openapi;
mod gpu_test;
mod soak;
mod browser;
mod fuzz;
mod machine;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use workspace::Workspace;

/// Weft's automation: checks, the demo, benchmarks and fuzzing.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ci(ci::Arguments),
    Demo(demo::Arguments),
    Dist(dist::Arguments),
    Image(dist::image::Arguments),
    FirstUse(dist::first_use::Arguments),
    Docs(docs::Arguments),
    Goodput(goodput::Arguments),
    Fikit(fikit::Arguments),
    Elasticity(elasticity::Arguments),
    Placement(placement::Arguments),
    Faults(faults::Arguments),
    Preemptions(faults::preemptions::Arguments),
    ClusterFaults(cluster_faults::Arguments),
    CompareServing(compare_serving::Arguments),
    Loom(ci::LoomArguments),
    Deny(deny::Arguments),
    Bench(bench::Arguments),
    Peers(peers::Arguments),
    Clients(clients::Arguments),
    Openapi(openapi::Arguments),
    GpuTest(gpu_test::Arguments),
    Soak(soak::Arguments),
    Browser(browser::Arguments),
    Fuzz(fuzz::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = Workspace::find().and_then(|workspace| match arguments.command {
        Command::Ci(arguments) => ci::ci(&workspace, &arguments),
        Command::Demo(arguments) => demo::demo(&workspace, &arguments),
        Command::Dist(arguments) => dist::dist(&workspace, &arguments),
        Command::Image(arguments) => dist::image::image(&workspace, &arguments),
        Command::FirstUse(arguments) => dist::first_use::first_use(&workspace, &arguments),
        Command::Docs(arguments) => docs::docs(&workspace, &arguments),
        Command::Goodput(arguments) => goodput::goodput(&workspace, &arguments),
        Command::Fikit(arguments) => fikit::fikit(&workspace, &arguments),
        Command::Elasticity(arguments) => elasticity::elasticity(&workspace, &arguments),
        Command::Placement(arguments) => placement::placement(&workspace, &arguments),
        Command::Loom(_) => ci::loom(&workspace),
        Command::Deny(arguments) => deny::deny(&workspace, &arguments),
        Command::Faults(arguments) => faults::faults(&workspace, &arguments),
        Command::Preemptions(arguments) => faults::preemptions::preemptions(&workspace, &arguments),
        Command::ClusterFaults(arguments) => cluster_faults::cluster_faults(&workspace, &arguments),
        Command::CompareServing(arguments) => compare_serving::compare_serving(&workspace, &arguments),
        Command::Bench(arguments) => bench::bench(&workspace, &arguments),
        Command::Peers(arguments) => peers::peers(&workspace, &arguments),
        Command::Browser(arguments) => browser::browser(&workspace, &arguments),
        Command::Soak(arguments) => soak::soak(&workspace, &arguments),
        Command::Clients(arguments) => clients::clients(&workspace, &arguments),
        Command::Openapi(arguments) => openapi::openapi(&workspace, &arguments),
        Command::GpuTest(arguments) => gpu_test::gpu_test(&workspace, &arguments),
        Command::Fuzz(arguments) => fuzz::fuzz(&workspace, &arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
