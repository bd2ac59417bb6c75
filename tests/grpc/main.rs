//! The gRPC door end to end: the real server on a real unix socket, a real tonic client. The
//! test itself plays the loop: it takes commands off the queue and answers them.

mod bench;
mod bounds;
mod calls;
mod stop;
mod streams;
