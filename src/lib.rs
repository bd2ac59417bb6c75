//! LRS: active and passive task slots for a Linux node.

pub mod cgroup;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod core;
pub mod doctor;
pub mod daemon;
pub mod demo;
pub mod publish;
pub mod rights;
pub mod sample;
pub mod serve;
pub mod units;
pub mod wire;

/// The generated messages and service of `proto/lrs/v1/shaper.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("lrs.v1");

    /// The compiled descriptor set, for reflection.
    pub const DESCRIPTOR: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/lrs_v1_descriptor.bin"));
}
