//! Users without an admin's rights, in group lrs or not.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::Daemon;

/// A user that owns nothing here.
pub const STRANGER: u32 = 65534;

/// Another one.
pub const OTHER_STRANGER: u32 = 65533;

/// Its groups when it is in group lrs, and when it is not.
pub const MEMBER: &str = "64998,64999";
pub const OTHER: &str = "64998";

/// `lrsctl` for an unprivileged user, who can reach neither the build nor a private directory.
pub fn stranger(daemon: &Daemon, groups: &str, arguments: &[&str]) -> Command {
    as_user(STRANGER, daemon, groups, arguments)
}

/// The same for any user.
pub fn as_user(uid: u32, daemon: &Daemon, groups: &str, arguments: &[&str]) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let lrsctl = daemon.dir.path().join("lrsctl");
    if !lrsctl.exists() {
        fs::set_permissions(daemon.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_lrsctl"), &lrsctl).unwrap();
    }
    let id = uid.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &id, "--regid", &id, "--groups", groups])
        .arg(lrsctl)
        .args(arguments)
        .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .stdin(Stdio::null());
    command
}

/// A daemon that knows a group lrs, which need not exist on this machine: it sees a file of its
/// own.
pub fn with_members(name: &str, settings: &str) -> Daemon {
    let mut daemon = Daemon::new(name, settings);
    let group = daemon.dir.path().join("group");
    fs::write(&group, "root:x:0:\nlrs:x:64999:\n").unwrap();
    let script = format!("mount --bind {} /etc/group && exec \"$@\"", group.display());
    daemon.wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    daemon.launch();
    daemon
}
