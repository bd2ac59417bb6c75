//! The measuring process as a child of one that sweeps up after it, however it ends.

use std::process::{Command, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;

/// A directory on the disk of cargo's target directory: what is read and written in it must not be
/// on a tmpfs, as /tmp often is.
pub fn scratch_on_disk() -> TempDir {
    let named =
        tempfile::Builder::new().prefix("lrs-bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    named.expect("a directory")
}

/// Runs this program again with the same arguments and what `prepare` adds; its status and pid
/// when it has ended. SIGINT and SIGTERM end it.
///
/// Call it on the main thread: the child wants to end with the thread that started it
/// (PR_SET_PDEATHSIG).
pub fn run_again(prepare: impl FnOnce(&mut Command)) -> (ExitStatus, u32) {
    let mut command = Command::new(std::env::current_exe().expect("the path of this benchmark"));
    command.args(std::env::args_os().skip(1));
    prepare(&mut command);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT");
        let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM");
        let mut child = command.spawn().expect("the benchmark starts");
        loop {
            let tick = tokio::time::sleep(Duration::from_millis(100));
            tokio::select! {
                _ = interrupt.recv() => child.kill().expect("kill"),
                _ = terminate.recv() => child.kill().expect("kill"),
                _ = tick => {}
            }
            if let Some(status) = child.try_wait().expect("wait") {
                break (status, child.id());
            }
        }
    })
}
