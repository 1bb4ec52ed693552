//! Turns `proto/` into Rust, without `protoc`.

// Cargo is spoken to through standard output.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/inference.proto"], ["proto"])?;
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    // What server reflection answers with.
    fs::write(folder.join("inference.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".inference")
        // Maps in order, so that the same answer has the same bytes.
        .btree_map(".inference")
        .compile_fds(descriptors)?;
    let cluster = protox::compile(["proto/cluster.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".weft.cluster").compile_fds(cluster)?;
    Ok(())
}
