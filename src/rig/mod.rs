//! What `demo` and `bench` share: processes that end with us, a private lrsd, the counters of
//! the node, and a supervisor that leaves nothing behind.
//!
//! Three kinds of process, all this one executable:
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

pub(crate) mod node;
pub(crate) mod private;
pub(crate) mod process;
pub(crate) mod supervise;
pub(crate) mod sweep;
