//! Groups that other software owns (YARN's, Slurm's, a systemd unit's): LRS edits their weights,
//! remembers what it found, and gives that back. It never moves processes there, adds children
//! or writes `cpu.idle`, except to leave an idle state its owner set, when the task is active.
//!
//! Of the other hierarchies LRS uses only those where the group of the process has the same path: a
//! different one (often the root, or a group of many tasks) would count and shape other processes.
//!
//! The owner may write while LRS manages (YARN gives a container that it promotes 1024 shares
//! instead of 2). A value that is not the last one written by LRS is a new value of the owner. From
//! then on it counts as found ([`heeded`]): the tiers respect it, and giving back restores it.
//! Giving back restores a value only where the present one is one that LRS writes for a tier, under
//! one of the plans this daemon has used for the group. If only an earlier daemon has written the
//! group, the plans are not known: then the found value is restored in any case, since LRS's
//! passive weight must not stay.
//! A file of weights may have lines of single devices after its default (`disk_lines`); they come back
//! too.
//!
//! Limits. An owner's write goes unnoticed if it has the value that LRS has just written, or if no
//! daemon runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::dirs::{self, inode};
use super::knob::cpu_idle::FILE as CPU_IDLE;
use super::knob::{self, Part, cpu_weight};
use super::mover::Mover;
use super::process::{Membership, is_within};
use super::{Attachment, CgroupError, Group, GroupRecord, Version, WeightPlan, disk_lines, files};
pub(super) use crate::core::weights::found_number;
use crate::units::ProcessRef;

/// See [`super::TierTree::find_in_place`].
pub(super) fn find(
    mover: &Mover<'_>,
    version: Version,
    process: ProcessRef,
    named: Option<&str>,
) -> Result<Group, CgroupError> {
    let pinned = mover.pin(process)?;
    let path = chosen(mover.present_group(process.pid)?, process, named)?;
    refuse(mover, &path, process)?;
    let primary = &mover.hierarchies[0];
    let dir = primary.dir(&path);
    let inode = inode(&dir)?.ok_or(CgroupError::ProcessGone(process.pid))?;
    let membership = Membership::read(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
    let origin = mover
        .hierarchies
        .iter()
        .filter_map(|h| Some((h.name.clone(), up_to(membership.path_in(h)?, &path).to_owned())))
        .collect();
    let mut record = GroupRecord {
        attachment: Attachment::InPlace,
        path,
        inode,
        origin,
        found: Vec::new(),
        elsewhere: Vec::new(),
        for_member: false,
    };
    let dirs = dirs::of_group(mover.hierarchies, version, &record);

    for knob in knob::ALL.into_iter().filter(|knob| knob.is_for_others()) {
        let Some(dir) = knob.part().dir(&dirs) else { continue };
        let value = match knob.part() {
            Part::Cpu => files::read_value_if_there(&dir.join(knob.file()))?,
            // Also of those that make no tier now: the scheduler of a disk may change.
            Part::Disk => disk_lines::read(dir, knob.file())?,
        };
        record.found.extend(value.map(|value| (knob.file().to_owned(), value)));
    }
    let weight = cpu_weight::scale(version).file;
    if !record.found.iter().any(|(file, _)| file == weight) {
        return Err(CgroupError::Refused(format!(
            "the group {} of process {} has no {weight}: its parent does not enable the cpu \
             controller; enable it there, or admit the process into a group of LRS's",
            dir.display(),
            process.pid
        )));
    }
    if pinned.alive() {
        Ok(Group { record, dirs })
    } else {
        Err(CgroupError::ProcessGone(process.pid))
    }
}

/// The group to manage: the process's own, or the one named, which holds that.
pub(super) fn chosen(
    present: String,
    process: ProcessRef,
    named: Option<&str>,
) -> Result<String, CgroupError> {
    match named {
        None => Ok(present),
        Some(named) if is_within(&present, named) => Ok(named.to_owned()),
        Some(named) => Err(CgroupError::Refused(format!(
            "process {} is in {present}, not in {named} or below it, where it was found",
            process.pid
        ))),
    }
}

/// Where the process is in one hierarchy, cut off at `group` if it is below that there too.
pub(super) fn up_to<'a>(path: &'a str, group: &'a str) -> &'a str {
    if is_within(path, group) { group } else { path }
}

fn refuse(mover: &Mover<'_>, path: &str, process: ProcessRef) -> Result<(), CgroupError> {
    let pid = process.pid;
    let refused = |reason: String| {
        Err(CgroupError::Refused(format!("process {pid} cannot be managed in place: {reason}")))
    };
    if path == "/" {
        return refused(
            "it is in the root group, which has no weight; admit it without \
                        in_place"
                .to_owned(),
        );
    }
    if is_within(path, mover.root) {
        return refused(format!("its group {path} is below the LRS root {}", mover.root));
    }
    if is_within(mover.root, path) {
        return refused(format!("its group {path} holds the LRS root {}", mover.root));
    }
    let own = Membership::own()?;
    match own.path_in(&mover.hierarchies[0]) {
        Some(own) if is_within(own, path) => {
            refused(format!("its group {path} holds this daemon; start lrsd elsewhere"))
        }
        _ => Ok(()),
    }
}

/// What this daemon has written into groups of others, by the inode of the group.
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<HashMap<u64, Written>>);

/// What was written into one group.
#[derive(Debug, Default)]
struct Written {
    /// Under these plans.
    plans: Vec<WeightPlan>,
    /// These weights last; empty until a write has succeeded.
    last: Vec<(&'static str, u64)>,
}

/// Plans kept for a group; a plan changes with A and with a reload.
const PLANS_KEPT: usize = 16;

impl Plans {
    /// Before the group is written, so that a write cut short counts.
    pub(super) fn note(&self, record: &GroupRecord, plan: &WeightPlan) {
        let mut all = self.lock();
        let plans = &mut all.entry(record.inode).or_default().plans;
        if plans.last() != Some(plan) {
            plans.retain(|known| known != plan);
            if plans.len() == PLANS_KEPT {
                plans.remove(0);
            }
            plans.push(*plan);
        }
    }

    /// `None`: never written by this daemon.
    pub(super) fn of(&self, record: &GroupRecord) -> Option<Vec<WeightPlan>> {
        self.lock().get(&record.inode).map(|written| written.plans.clone())
    }

    /// After the group was written, or was found to need nothing.
    pub(super) fn wrote(&self, record: &GroupRecord, weights: Vec<(&'static str, u64)>) {
        self.lock().entry(record.inode).or_default().last = weights;
    }

    /// The weights that were written last.
    pub(super) fn last(&self, record: &GroupRecord) -> Vec<(&'static str, u64)> {
        self.lock().get(&record.inode).map(|written| written.last.clone()).unwrap_or_default()
    }

    /// The group was given back.
    pub(super) fn forget(&self, record: &GroupRecord) {
        self.lock().remove(&record.inode);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Written>> {
        // No holder leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of the group once its owner's word since LRS wrote `last` is heeded; `None`: it
/// wrote nothing.
pub(super) fn heeded(
    group: &Group,
    last: &[(&'static str, u64)],
) -> Result<Option<GroupRecord>, CgroupError> {
    let Some(cpu) = &group.dirs.cpu else { return Ok(None) };
    let mut record = group.record.clone();
    let note = |record: &mut GroupRecord, file: &str, value: String| {
        for (name, found) in &mut record.found {
            if name == file {
                found.clone_from(&value);
            }
        }
    };
    let is_idle = files::read_value_if_there(&cpu.join(CPU_IDLE))?.as_deref() == Some("1");
    for (file, written) in last {
        let Some(part) = knob::part_of(file) else { continue };
        let is_cpu = part == Part::Cpu;
        if is_cpu && is_idle {
            // LRS makes no group of others idle, and such a group's weight is none.
            note(&mut record, CPU_IDLE, "1".to_owned());
            continue;
        }
        let Some(dir) = part.dir(&group.dirs) else { continue };
        let Some(present) = disk_lines::read(dir, file)? else { continue };
        let Some(number) = files::number(&present) else { continue };
        if number == *written {
            let found = record.found.iter().find(|(name, _)| name == file);
            if let Some((_, found)) = found {
                let merged = disk_lines::merged(found, &present);
                note(&mut record, file, merged);
            }
            continue;
        }
        if is_cpu {
            // The kernel refuses a weight for an idle group: its owner took it out of that.
            note(&mut record, CPU_IDLE, "0".to_owned());
        }
        note(&mut record, file, present);
    }
    Ok((record != group.record).then_some(record))
}

/// Writes back what was found, where it differs and `is_ours` says that LRS wrote the present
/// value of that file. Fine when the group is gone.
pub(super) fn restore(
    group: &Group,
    is_ours: &dyn Fn(&str, u64) -> bool,
) -> Result<(), CgroupError> {
    let Some(cpu) = &group.dirs.cpu else { return Ok(()) };
    if inode(cpu)? != Some(group.record.inode) {
        return Ok(());
    }
    let was_idle = found_number(&group.record, CPU_IDLE) == Some(1);
    let idle_file = cpu.join(CPU_IDLE);
    let is_idle = files::read_value_if_there(&idle_file)?.as_deref() == Some("1");
    for (file, found) in &group.record.found {
        let Some(part) = knob::part_of(file) else { continue };
        let is_cpu = part == Part::Cpu;
        // An idle group's weight cannot be written, and it is idle by its owner alone.
        if file == CPU_IDLE || is_cpu && is_idle {
            continue;
        }
        let Some(dir) = part.dir(&group.dirs) else { continue };
        let path = dir.join(file);
        let Some(present) = disk_lines::read(dir, file)? else { continue };
        if present == *found || !files::number(&present).is_some_and(|value| is_ours(file, value)) {
            continue;
        }
        let number = disk_lines::default(found);
        if disk_lines::default(&present) != number {
            // What was found as the weight of an idle group (0, or 3 shares) is none.
            let (path, value) =
                if is_cpu && was_idle { (&idle_file, "1") } else { (&path, number) };
            match files::write_raw(path, value) {
                // A unit's group goes with its last process, also meanwhile.
                Err(error) if files::is_gone(&error) => return Ok(()),
                written => written.map_err(|e| files::failed("write", path, Some(value), e))?,
            }
        }
        // After the default, which clears them.
        disk_lines::write(dir, file, &disk_lines::merged(found, &present))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::GroupDirs;

    /// Plain files stand for the group's: what is compared and written is all that matters.
    struct Files(tempfile::TempDir, Group);

    impl Files {
        fn new(found: &[(&str, &str)]) -> Files {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().to_owned();
            let record = GroupRecord {
                attachment: Attachment::InPlace,
                path: "/unit".to_owned(),
                inode: inode(&path).unwrap().unwrap(),
                origin: Default::default(),
                elsewhere: Vec::new(),
                for_member: false,
                found: found.iter().map(|(f, v)| ((*f).to_owned(), (*v).to_owned())).collect(),
            };
            let dirs =
                GroupDirs { cpu: Some(path.clone()), io: Some(path), ..GroupDirs::default() };
            Files(dir, Group { record, dirs })
        }

        fn restored(&self, present: &[(&str, &str)]) -> Vec<String> {
            for (file, value) in present {
                std::fs::write(self.0.path().join(file), value).unwrap();
            }
            restore(&self.1, &|_, value| value == 1 || value == 400).unwrap();
            let text = |file: &str| std::fs::read_to_string(self.0.path().join(file)).unwrap();
            present.iter().map(|(file, _)| text(file)).collect()
        }
    }

    #[test]
    fn only_what_lrs_wrote_is_given_back() {
        let found = [(CPU_IDLE, "0"), ("cpu.weight", "250"), ("io.bfq.weight", "100")];
        let files = Files::new(&found);
        let restored = |idle, cpu, io| {
            files.restored(&[(CPU_IDLE, idle), ("cpu.weight", cpu), ("io.bfq.weight", io)])
        };
        assert_eq!(restored("0", "1", "1"), ["0", "250", "100"]);
        assert_eq!(restored("0", "400", "1"), ["0", "250", "100"]);
        assert_eq!(restored("0", "700", "1"), ["0", "700", "100"], "the owner's, meanwhile");
        assert_eq!(restored("0", "1", "55"), ["0", "250", "55"]);
        assert_eq!(restored("1", "0", "100"), ["1", "0", "100"], "made idle by the owner");
    }

    #[test]
    fn an_idle_group_is_made_idle_again_unless_its_owner_decided_otherwise() {
        let files = Files::new(&[(CPU_IDLE, "1"), ("cpu.weight", "0")]);
        let restored = |idle, cpu| files.restored(&[(CPU_IDLE, idle), ("cpu.weight", cpu)]);
        assert_eq!(restored("0", "400"), ["1", "400"], "the kernel shows 0 from here on");
        assert_eq!(restored("1", "0"), ["1", "0"]);
        assert_eq!(restored("0", "700"), ["0", "700"]);
    }

    #[test]
    fn what_its_owner_writes_counts_as_found() {
        let files = Files::new(&[(CPU_IDLE, "0"), ("cpu.weight", "2"), ("io.weight", "100")]);
        let heeded = |idle, cpu, io| {
            files.restored(&[(CPU_IDLE, idle), ("cpu.weight", cpu), ("io.weight", io)]);
            let record = heeded(&files.1, &[("cpu.weight", 700), ("io.weight", 900)]).unwrap();
            record.map(|record| record.found.into_iter().map(|(_, v)| v).collect::<Vec<_>>())
        };
        let found = |values: [&str; 3]| Some(values.map(str::to_owned).to_vec());
        assert_eq!(heeded("0", "700", "900"), None, "as LRS wrote it");
        assert_eq!(heeded("0", "1024", "900"), found(["0", "1024", "100"]), "a promotion");
        assert_eq!(heeded("0", "700", "50"), found(["0", "2", "50"]));
        assert_eq!(heeded("1", "0", "900"), found(["1", "2", "100"]), "made idle");

        let files = Files::new(&[(CPU_IDLE, "1"), ("cpu.weight", "0")]);
        files.restored(&[(CPU_IDLE, "0"), ("cpu.weight", "300")]);
        let record = super::heeded(&files.1, &[("cpu.weight", 700)]).unwrap().unwrap();
        assert_eq!(found_number(&record, CPU_IDLE), Some(0), "no longer idle by its owner");
        assert_eq!(found_number(&record, "cpu.weight"), Some(300));
        assert_eq!(super::heeded(&files.1, &[]).unwrap(), None, "never written: unknown");
    }

    #[test]
    fn lines_of_devices_come_back_with_the_default() {
        let files = Files::new(&[("cpu.shares", "1024"), ("blkio.bfq.weight", "100\n7:0 300")]);
        let path = files.0.path().join("blkio.bfq.weight_device");
        let restored = |default, devices| {
            // As BFQ has it after a write of the default, and what the owner wrote after that.
            std::fs::write(&path, devices).unwrap();
            let default = files.restored(&[("blkio.bfq.weight", default)]).remove(0);
            (default, std::fs::read_to_string(&path).unwrap())
        };
        let pair = |default: &str, devices: &str| (default.to_owned(), devices.to_owned());
        assert_eq!(restored("1", ""), pair("100", "7:0 300"));
        assert_eq!(restored("100", ""), pair("100", ""), "not written by LRS: its owner's word");
        assert_eq!(restored("1", "7:0 55"), pair("100", "7:0 55"), "the owner's, meanwhile");
        assert_eq!(restored("700", ""), pair("700", ""), "the owner's, which cleared the line");
    }

    #[test]
    fn lines_of_devices_that_its_owner_writes_count_as_found() {
        let files = Files::new(&[("cpu.shares", "1024"), ("blkio.bfq.weight", "100\n7:0 300")]);
        let heeded = |default: &str, devices: &str| {
            let path = files.0.path();
            std::fs::write(path.join("blkio.bfq.weight"), default).unwrap();
            std::fs::write(path.join("blkio.bfq.weight_device"), devices).unwrap();
            let record = super::heeded(&files.1, &[("blkio.bfq.weight", 1)]).unwrap();
            record.map(|record| record.found[1].1.clone())
        };
        assert_eq!(heeded("1", "default 1"), None, "as LRS left it");
        assert_eq!(heeded("1", "default 1\n7:0 300"), None);
        assert_eq!(heeded("1", "default 1\n7:1 40").as_deref(), Some("100\n7:0 300\n7:1 40"));
        assert_eq!(heeded("500", "default 500\n7:1 40").as_deref(), Some("500\n7:1 40"));
    }

    #[test]
    fn plans_are_kept_by_group_and_bounded() {
        let plans = Plans::default();
        let files = Files::new(&[]);
        let record = &files.1.record;
        assert_eq!(plans.of(record), None);
        for ratio in 1..=100 {
            plans.note(record, &WeightPlan { ratio, active_capacity: 1, passive_max: 1 });
        }
        let kept = plans.of(record).unwrap();
        assert_eq!(kept.len(), PLANS_KEPT);
        assert_eq!(kept.last().unwrap().ratio, 100);
        plans.note(record, &kept[3]);
        assert_eq!(plans.of(record).unwrap().last(), Some(&kept[3]));
        plans.forget(record);
        assert_eq!(plans.of(record), None);
    }
}
