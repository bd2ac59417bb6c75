//! The API of `lrsd` for those who call it: what `lrsctl`, adapters and schedulers share.
//!
//! [`proto`] has the generated messages and service of `proto/lrs/v1/shaper.proto`, [`wire`]
//! their JSON spelling, [`words`] what people call them, [`figures`] what is kept of a node over time,
//! [`client`] a connection. Reasons for a crate of its own: a client
//! links neither the daemon nor its dependencies, and each rule of spelling exists once.
//!
//! Limits: unix sockets only; the client does not reconnect by itself.

pub mod client;
pub mod figures;
pub mod wire;
pub mod words;

/// The messages and the service of `proto/lrs/v1/shaper.proto`, written by `lrs-api-generate`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod proto {
    include!("proto/lrs.v1.rs");

    /// The compiled descriptor set, for reflection.
    pub const DESCRIPTOR: &[u8] = include_bytes!("proto/descriptors.bin");
}
