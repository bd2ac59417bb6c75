//! Commands that need no daemon: `doctor` and `config check`.
//!
//! LEAD: to be wired to `crate::doctor::examine` and `crate::config::Config::load` once those
//! are merged; nothing else of the CLI knows about them.

use std::path::Path;

use super::failure::Failure;
use super::output::Output;

/// `lrsctl doctor [--config FILE]`
pub(super) fn doctor(_config: Option<&Path>, _out: &mut Output) -> Result<(), Failure> {
    Err(Failure::failed("doctor is not wired yet"))
}

/// `lrsctl config check FILE`
pub(super) fn check(_file: &Path, _out: &mut Output) -> Result<(), Failure> {
    Err(Failure::failed("config check is not wired yet"))
}
