//! Weights of single devices beside the default one of a group: `8:0 300` (cgroup-v2.rst, "IO Interface
//! Files"; block/bfq-cgroup.c).
//!
//! LRS writes the default alone. With BFQ that clears the weights of all single devices, so they are
//! kept with what was found, after the line of the default, and written back with it. What an owner has
//! written since is there and stays, since LRS's own last write cleared the rest.
//!
//! Limit. A line that its owner took away while LRS managed the group comes back.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CgroupError, files};
use crate::core::weights::BLKIO_BFQ_WEIGHT;

/// The file with the lines of devices of a weight file.
fn device_file(file: &str) -> &str {
    if file == BLKIO_BFQ_WEIGHT.file { "blkio.bfq.weight_device" } else { file }
}

/// The default of `file` in `dir` with the lines of devices after it. `None`: there is no such file.
pub(super) fn read(dir: &Path, file: &str) -> Result<Option<String>, CgroupError> {
    let Some(mut text) = files::read_value_if_there(&dir.join(file))? else { return Ok(None) };
    let devices = files::read_lines_if_there(&dir.join(device_file(file)))?.unwrap_or_default();
    for (device, weight) in parsed(&devices) {
        text.push_str(&format!("\n{device} {weight}"));
    }
    Ok(Some(text))
}

/// `found` with the lines of `present` in place of its own of the same devices.
pub(super) fn merged(found: &str, present: &str) -> String {
    let mut devices = parsed(found);
    devices.extend(parsed(present));
    let mut text = default(found).to_owned();
    for (device, weight) in devices {
        text.push_str(&format!("\n{device} {weight}"));
    }
    text
}

/// The line of the default.
pub(super) fn default(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Writes the lines of devices that `wanted` has and the files have not.
pub(super) fn write(dir: &Path, file: &str, wanted: &str) -> Result<(), CgroupError> {
    let wanted = parsed(wanted);
    if wanted.is_empty() {
        return Ok(());
    }
    let path = dir.join(device_file(file));
    let Some(present) = files::read_lines_if_there(&path)? else { return Ok(()) };
    let present = parsed(&present);
    for (device, weight) in wanted {
        if present.get(device) == Some(&weight) {
            continue;
        }
        let line = format!("{device} {weight}");
        match files::write_raw(&path, &line) {
            Err(error) if takes_no_weight(&error) => {
                let file = path.display();
                tracing::warn!(%error, "{line} was not written back into {file}: the device is gone, or has another scheduler by now: {error}");
            }
            written => written.map_err(|e| files::failed("write", &path, Some(&line), e))?,
        }
    }
    Ok(())
}

/// The device is gone (ENODEV), or its scheduler is no longer the one of the file (EOPNOTSUPP).
/// ENODEV is the answer of a group that is gone, too.
fn takes_no_weight(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP))
}

/// Weights by `MAJOR:MINOR`, without the default.
fn parsed(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    lines.filter(|(device, _)| device.contains(':')).collect()
}
