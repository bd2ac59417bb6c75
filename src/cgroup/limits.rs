//! Limits a process would leave behind by being moved.
//!
//! A user below a finite `memory.max` or `cpu.max` could shed it by asking for a slot. The
//! groups above the LRS root limit the task there as well and do not count. On v1 only the cpu
//! hierarchy matters: LRS moves nothing in `memory`.

use std::path::Path;

use super::attach::Mover;
use super::process::is_within;
use super::{CgroupError, Version, files};
use crate::units::ProcessRef;

/// The first limit that would be escaped, in a sentence; also when it cannot be told.
pub(super) fn escaped(mover: &Mover<'_>, version: Version, process: ProcessRef) -> Option<String> {
    match find(mover, version, process) {
        Ok(found) => found,
        Err(error) => Some(format!(
            "cannot tell whether process {} would escape a limit: {error}",
            process.pid
        )),
    }
}

fn find(
    mover: &Mover<'_>,
    version: Version,
    process: ProcessRef,
) -> Result<Option<String>, CgroupError> {
    let path = mover.present_group(process.pid)?;
    let limits: &[&str] = match version {
        Version::V1 => &["cpu.cfs_quota_us"],
        Version::V2 => &["memory.max", "cpu.max"],
    };
    let mut group = Some(Path::new(&path));
    while let Some(dir) = group {
        let name = dir.to_string_lossy();
        let shared = name == "/" || is_within(mover.root, &name);
        if shared {
            return Ok(None);
        }
        for file in limits {
            let file = mover.hierarchies[0].dir(&name).join(file);
            let Some(value) = files::read_value_if_there(&file)? else { continue };
            if !is_unlimited(&value) {
                return Ok(Some(format!(
                    "process {} is limited by {} = {value}, which a move would lift",
                    process.pid,
                    file.display()
                )));
            }
        }
        group = dir.parent();
    }
    Ok(None)
}

/// `max`, `max 100000` (v2), `-1` (v1).
fn is_unlimited(value: &str) -> bool {
    matches!(value.split(' ').next(), Some("max" | "-1"))
}

#[cfg(test)]
mod tests {
    use super::is_unlimited;

    #[test]
    fn words_for_no_limit() {
        for value in ["max", "max 100000", "-1"] {
            assert!(is_unlimited(value), "{value}");
        }
        for value in ["0", "1073741824", "50000 100000", ""] {
            assert!(!is_unlimited(value), "{value}");
        }
    }
}
