//! d
use crate::cli::{Failure, Output};
use std::path::Path;
use std::process::ExitCode;
pub(crate) fn supervise(_args: &crate::cli::DemoArgs, _out: &mut Output) -> Result<(), Failure> {
    Ok(())
}
pub(crate) fn run(_args: &crate::cli::DemoInnerArgs, _out: &mut Output) -> Result<(), Failure> {
    Ok(())
}
pub(crate) fn daemon(config: &Path) -> ExitCode {
    crate::daemon::main(config)
}
