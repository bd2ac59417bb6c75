//! The values of a new group: what a group of LRS's own gets that goes on without LRS.

use std::path::Path;

use super::knob::threads::ThreadTier;
use super::knob::{self, Part};
use super::{CgroupError, Group, files, members};

/// Makes the files of an own group, and what its threads have, those of a new one.
pub(super) fn neutralise(group: &Group) -> Result<(), CgroupError> {
    if let Some(dir) = &group.dirs.cpu {
        neutralise_cpu(dir)?;
    }
    if let Some(dir) = &group.dirs.io {
        neutralise_disk(dir, |_| false)?;
    }
    ThreadTier::NEUTRAL.apply(&members::processes(group)?).map(drop)
}

/// Makes the files of the CPU tier in `dir` those of a new group.
pub(super) fn neutralise_cpu(dir: &Path) -> Result<(), CgroupError> {
    neutralise_part(dir, Part::Cpu, |_| false)
}

/// Makes the disk tier files in `dir` those of a new group, but for those `in_use`.
pub(super) fn neutralise_disk(
    dir: &Path,
    in_use: impl Fn(&str) -> bool,
) -> Result<(), CgroupError> {
    neutralise_part(dir, Part::Disk, in_use)
}

fn neutralise_part(
    dir: &Path,
    part: Part,
    in_use: impl Fn(&str) -> bool,
) -> Result<(), CgroupError> {
    for knob in knob::ALL.iter().filter(|knob| knob.part() == part && !in_use(knob.file())) {
        set_if_different(dir, knob.file(), &knob.neutral().to_string())?;
    }
    Ok(())
}

/// Writes `value` where the file is there and says something else.
fn set_if_different(dir: &Path, file: &str, value: &str) -> Result<(), CgroupError> {
    let path = dir.join(file);
    match files::read_value_if_there(&path)? {
        Some(present) if present.strip_prefix("default ").unwrap_or(&present) != value => {
            files::write_value(&path, value)
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::knob::cpu_idle::FILE as CPU_IDLE;
    use crate::cgroup::{Attachment, GroupDirs, GroupRecord};

    /// Plain files stand for the group's: what is compared and written is all that matters.
    #[test]
    fn an_own_group_gets_what_a_new_one_has() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().to_owned();
        let files = [
            (CPU_IDLE, "1", "0"),
            ("cpu.weight", "0", "100"),
            ("io.bfq.weight", "default 1000", "100"),
            ("io.prio.class", "idle", "no-change"),
            ("io.weight", "default 100", "default 100"),
        ];
        for (file, passive, _) in files {
            std::fs::write(dir.join(file), passive).unwrap();
        }
        let record = GroupRecord {
            attachment: Attachment::Own,
            path: "/lrs/task".to_owned(),
            inode: 1,
            elsewhere: Vec::new(),
            for_member: false,
            origin: Default::default(),
            found: Vec::new(),
        };
        let dirs =
            GroupDirs { cpu: Some(dir.clone()), io: Some(dir.clone()), ..GroupDirs::default() };
        let group = Group { record, dirs };
        neutralise(&group).unwrap();
        for (file, _, neutral) in files {
            let text = std::fs::read_to_string(dir.join(file)).unwrap();
            // A plain file keeps what is behind the bytes written.
            assert!(text.starts_with(neutral), "{file}: {text}");
        }
        assert!(!dir.join("cpu.shares").exists(), "no file is made");
    }
}
