//! Commands that need no daemon: `doctor` and `config check`.

use std::path::Path;

use super::failure::{Exit, Failure};
use super::output::{Output, printable, say};
use crate::config::check_file;
use crate::doctor::examine_file;

/// `lrsctl doctor [--config FILE]`: exit 1 when LRS cannot work here.
pub(super) fn doctor(config: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let report = examine_file(config);
    if out.is_json() {
        out.json(&report)?;
    } else {
        let text = report.render(out.width(), out.has_colour());
        out.text(text)?;
    }
    if report.has_failures() {
        out.flush()?;
        return Err(Failure::ended(Exit::Failed.into()));
    }
    Ok(())
}

/// `lrsctl config check FILE`: every fault a line on stderr (in JSON: in the object),
/// exit 1; or the verdict on stdout, with a warning if lrsd would not believe the file.
pub(super) fn check(file: &Path, out: &mut Output) -> Result<(), Failure> {
    let checked = check_file(file);
    if out.is_json() {
        let faults = checked.as_ref().err().map(|errors| errors.faults()).unwrap_or_default();
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let file = file.to_string_lossy();
        out.json(&serde_json::json!({
            "file": file,
            "valid": checked.is_ok(),
            "faults": faults,
        }))?;
    }
    match checked {
        Ok(_) if out.is_json() => Ok(()),
        Ok(lines) => lines.lines().try_for_each(|line| out.line(printable(line))),
        Err(errors) => {
            out.flush()?;
            for fault in errors.faults().iter().filter(|_| !out.is_json()) {
                say(format_args!("lrsctl: {}", printable(&fault.to_string())));
            }
            Err(Failure::ended(Exit::Failed.into()))
        }
    }
}
