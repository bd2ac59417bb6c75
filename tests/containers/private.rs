//! A PID namespace for each test.
//!
//! Where a local directory fails, lrsd looks for containers below every NodeManager it sees, so
//! also below those of another test that happens to run. And whatever a failed test leaves ends
//! with its namespace.

use std::process::Command;

const INSIDE: &str = "LRS_TEST_CONTAINERS_INSIDE";

/// Runs `body`, which is the test `name`, in a PID namespace of its own.
pub fn privately(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let itself = std::env::current_exe().expect("the path of this test");
    // The shell stays as the first process, which collects the orphans.
    let status = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c", "\"$@\"; exit $?", "bash"])
        .arg(itself)
        .args(["--ignored", "--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare of util-linux");
    assert!(status.success(), "{name}: {status}");
}
