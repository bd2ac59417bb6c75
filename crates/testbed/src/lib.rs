//! What `lrsctl demo` and `lrs-bench` share: processes that end with us, a private lrsd, the
//! counters of the node, and a supervisor that leaves nothing behind.
//!
//! Three kinds of process:
//!
//! ```text
//! lrsctl demo           supervisor: makes the working directory, waits, sweeps
//!   lrsctl __demo       does the work
//!     lrsctl __daemon   the private lrsd
//!     tasks             real programs; shaped ones begin as `lrsctl run --wait`
//! ```
//!
//! Any two of the upper three may be killed with SIGKILL at any time: the second dies with the
//! supervisor by SIGTERM and cleans up by dropping what it owns; the daemon and the tasks die
//! with the second; the supervisor adopts what is orphaned (child subreaper, prctl(2)), ends it
//! and removes the cgroups and the directory; the daemon does so when both are gone.

pub mod data;
pub mod groups;
pub mod node;
pub mod private;
pub mod process;
pub mod supervise;
pub mod sweep;
