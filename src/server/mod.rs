//! The servers: one service layer, and two transports that translate to and from it.
//!
//! A call is checked by [`request`], becomes a command for the loop ([`service`]) or is answered
//! from the newest snapshot ([`query`], [`history`], [`ending`]), and has its place in a `quota` of its user. `record` writes out what the loop decides. [`grpc`] and
//! [`dbus`] add their own spelling, credentials and limits, and decide nothing: who may do what is
//! decided by [`crate::rights`] where the command is carried out.

pub mod dbus;
pub mod ending;
pub mod grpc;
pub mod history;
mod pidfd;
pub mod query;
mod quota;
mod record;
pub mod request;
pub mod service;
