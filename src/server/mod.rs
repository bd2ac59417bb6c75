//! The servers: one service layer, and two transports that translate to and from it.
//!
//! A call is checked by [`request`], becomes a command for the loop ([`service`]) or is answered
//! from the newest snapshot ([`query`], [`history`], [`ending`]), and has its place in a `quota` of its user. [`grpc`] and
//! [`dbus`] add their own spelling, credentials and limits, and decide nothing: who may do what is
//! decided by [`crate::rights`] where the command is carried out.

pub mod dbus;
pub mod ending;
pub mod grpc;
pub mod history;
mod pidfd;
pub mod query;
mod quota;
pub mod request;
pub mod service;

/// A runtime on a thread of its own, which ends when the sender is dropped.
///
/// # Errors
/// The kernel refuses a thread or a descriptor.
pub(crate) fn thread(
    name: &str,
) -> std::io::Result<(tokio::runtime::Handle, tokio::sync::oneshot::Sender<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (end, ended) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name(name.into()).spawn(move || runtime.block_on(ended))?;
    Ok((handle, end))
}
