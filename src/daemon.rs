//! The daemon's entry, shared by `lrsd` and by `lrsctl demo`, which runs it in a process of
//! its own.

use std::path::Path;
use std::process::ExitCode;

/// Runs the daemon in the foreground with the configuration file `config`.
pub fn main(_config: &Path) -> ExitCode {
    ExitCode::FAILURE
}
