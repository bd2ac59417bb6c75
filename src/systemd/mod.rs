//! systemd as LRS meets it: as the one that started the daemon, and as the owner of cgroups.
//!
//! | module | what |
//! |---|---|
//! | [`notify`] | readiness, status line and watchdog, sd_notify(3) |
//! | [`manager`] | the calls of `org.freedesktop.systemd1.Manager` that LRS makes |
//! | `private` | the connection that needs no bus |
//! | [`unit`](mod@unit) | units as tasks: names, weights in systemd's words |
//! | [`lookup`] | the calls about units that are or become tasks |
//! | [`anchor`] | the process that keeps `lrs-tasks.scope` alive while no task does |
//!
//! Every call waits for an answer of systemd's, milliseconds or, on a loaded node, seconds: none
//! is made on the loop's thread. Nothing here writes a cgroup file; `crate::cgroup` does.

pub mod anchor;
pub mod lookup;
pub mod manager;
pub mod notify;
mod private;
pub use crate::core::unit;

/// The slice of the daemon and its tasks.
pub const SLICE: &str = "lrs.slice";

/// The delegated scope tasks live in when systemd started the daemon. Below the daemon's own
/// service they would share its sandbox, and its next start would fail with 219/CGROUP, because
/// a group with children takes no process (*measured* on systemd 252).
pub const SCOPE: &str = "lrs-tasks.scope";

/// Where systemd puts the scope, below every mount of a cgroup hierarchy.
pub const SCOPE_PATH: &str = "lrs.slice/lrs-tasks.scope";

/// Whether systemd started this very process, and not one it descends from: the pid in
/// `$SYSTEMD_EXEC_PID` (systemd.exec(5), 248 and later) is inherited, but means only one.
pub fn started_this_process() -> bool {
    std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == std::process::id().to_string())
        && is_running()
}

/// Whether systemd is the init of this system (sd_booted(3)).
pub fn is_running() -> bool {
    std::path::Path::new("/run/systemd/system").is_dir()
}
