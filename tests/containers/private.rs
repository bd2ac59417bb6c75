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
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c", "\"$@\"; exit $?", "bash"])
        .arg(itself)
        .args(["--ignored", "--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare of util-linux");
    // Its results are reported by this process, and whoever counts them shall count each once.
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| !line.starts_with("test ")).for_each(|line| println!("{line}"));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}", output.status);
}
