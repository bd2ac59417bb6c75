//! The API of `lrsd` for those who call it: what `lrsctl`, adapters and schedulers share.
//!
//! [`proto`] has the generated messages and service of `proto/lrs/v1/shaper.proto`, [`wire`]
//! their JSON spelling, [`client`] a connection. Reasons for a crate of its own: a client
//! links neither the daemon nor its dependencies, and each rule of spelling exists once.
//!
//! Limits: unix sockets only; the client does not reconnect by itself.

pub mod client;
pub mod wire;

/// The generated messages and service of `proto/lrs/v1/shaper.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("lrs.v1");

    /// The compiled descriptor set, for reflection.
    pub const DESCRIPTOR: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/lrs_v1_descriptor.bin"));
}
