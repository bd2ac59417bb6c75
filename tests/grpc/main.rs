//! The gRPC server end to end: the real server on a real unix socket, a real tonic client. The
//! test itself plays the loop: it takes commands off the queue and answers them.

// The lint's exception for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

mod bench;
mod bounds;
mod calls;
mod played;
mod stop;
mod streams;
