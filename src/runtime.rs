//! Async runtimes, made so that a kernel that has no descriptor or thread left is an error: tokio
//! panics then.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// A runtime on the thread that blocks on it.
///
/// # Errors
/// There are no descriptors left.
pub(crate) fn on_this_thread() -> io::Result<Runtime> {
    lrs_host::spare::for_runtime()?;
    Builder::new_current_thread().enable_all().build()
}

/// A runtime on a thread of its own, which ends when the sender is dropped.
///
/// # Errors
/// The kernel refuses a thread or a descriptor.
pub(crate) fn on_thread(name: &str) -> io::Result<(Handle, oneshot::Sender<()>)> {
    let (end, ended) = oneshot::channel::<()>();
    let (made, making) = std::sync::mpsc::sync_channel(1);
    // Made where it ends: dropped in another runtime, as after a thread that is refused, it panics.
    let serve = move || match on_this_thread() {
        Ok(runtime) => {
            // Whoever asked is waiting for it.
            let _ = made.send(Ok(runtime.handle().clone()));
            // An error means the sender is gone, which is the end too.
            let _ = runtime.block_on(ended);
        }
        Err(error) => {
            let _ = made.send(Err(error));
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(serve)?;
    let gone = || io::Error::other(format!("the thread {name} ended"));
    Ok((making.recv().map_err(|_| gone())??, end))
}
