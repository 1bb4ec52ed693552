//! What clients say to the gateway over gRPC: messages, server and client, made from `proto/inference.proto`.
//!
//! Fields of bytes are [`bytes::Bytes`], so that a raw tensor stays where it was received.

#![allow(missing_docs, unreachable_pub, clippy::all)]

/// The protocol as descriptors, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inference.bin"));

tonic::include_proto!("inference");
