//! A task that has cgroups of its own.
//!
//! v1 and v2 name the same things differently; which file a directory has is found out once,
//! when the task is first read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cpu::CpuFile;
use super::threads::Watch;
use super::{ReportedFiles, TaskPressure, TaskSample};
use crate::cgroup::GroupDirs;
use crate::kernfs::files::{
    Descriptors, Explained, KeptFile, is_gone, is_without_psi, read_list, read_once,
};
use crate::kernfs::parse::{self, Odd};
use crate::units::Bytes;

/// Cycles between two readings of a task's resident memory, which expansion needs as a mean
/// over tasks (spec 3) and nothing needs at once, unless it grows.
const RESIDENT_EVERY: u32 = 8;

/// Where it grew by more than one part in so many it is read again with the next cycle.
const RESIDENT_GREW: u64 = 8;

/// Of the readings that are due, one in so many of a task that has used no CPU since: its memory
/// only shrinks then, by reclaim.
const RESIDENT_STILL: u32 = 8;

/// Most processes of a task that are asked for their memory in a cycle; a task with more takes
/// several cycles.
const RESIDENT_STEP: usize = 8;

/// Everything kept for one task.
#[derive(Debug)]
pub(super) struct GroupReader {
    pub(super) dirs: GroupDirs,
    cpu: Option<CpuFile>,
    io: Option<KeptFile>,
    /// Bytes read and written at the last reading.
    bytes: Option<(Bytes, Bytes)>,
    /// CPU time at the last reading.
    cpu_before: Option<Duration>,
    pressure: Option<[KeptFile; 2]>,
    resident: Resident,
    pub(super) watch: Watch,
}

/// The last known resident memory and how far the present round has come.
#[derive(Debug, Default)]
struct Resident {
    known: Option<Bytes>,
    cycles_left: u32,
    /// Readings due since it last used the CPU.
    still: u32,
    /// Cycles until the first reading of one that grows no more; `None`: that was.
    stagger: Option<u32>,
    left: Vec<i32>,
    pages: u64,
}

impl Resident {
    /// A round is over.
    fn took(&mut self, bytes: Bytes) {
        let before = self.known.replace(bytes);
        let grows = before
            .is_none_or(|Bytes(before)| bytes.0.saturating_sub(before) > before / RESIDENT_GREW);
        self.cycles_left = match grows {
            true => 0,
            false => self.stagger.take().unwrap_or(RESIDENT_EVERY - 1),
        };
    }
}

/// What every reading of a task needs.
pub(super) struct Context<'c> {
    pub(super) proc: &'c Path,
    pub(super) page_size: u64,
    pub(super) descriptors: &'c Descriptors,
    pub(super) buffer: &'c mut Vec<u8>,
    pub(super) problems: &'c mut Vec<String>,
    pub(super) reported: &'c mut ReportedFiles,
}

impl GroupReader {
    /// `stagger` spreads the readings of resident memory over the cycles.
    pub(super) fn new(dirs: GroupDirs, stagger: u64) -> GroupReader {
        let first_present = |dir: &Option<PathBuf>, names: &[&str]| {
            let dir = dir.as_ref()?;
            names.iter().map(|name| dir.join(name)).find(|path| path.exists())
        };
        // The recursive file counts processes that the task put into groups of its own.
        const IO: [&str; 3] = [
            "blkio.throttle.io_service_bytes_recursive",
            "blkio.throttle.io_service_bytes",
            "io.stat",
        ];
        let pressure = dirs.unified.as_ref().filter(|dir| dir.join("cpu.pressure").exists());
        GroupReader {
            cpu: CpuFile::of(&dirs),
            io: first_present(&dirs.io, &IO).map(KeptFile::new),
            bytes: None,
            cpu_before: None,
            pressure: pressure.map(|dir| {
                ["cpu.pressure", "io.pressure"].map(|name| KeptFile::new(dir.join(name)))
            }),
            resident: Resident {
                stagger: Some((stagger % u64::from(RESIDENT_EVERY)) as u32),
                ..Resident::default()
            },
            watch: Watch::default(),
            dirs,
        }
    }

    /// One reading, with pressure where it is `due`. `None`: the group is gone.
    pub(super) fn read(
        &mut self,
        context: &mut Context<'_>,
        due: bool,
        is_whole_disk: impl Fn((u32, u32)) -> bool,
    ) -> Option<TaskSample> {
        let mut sample = self.read_cpu(context)?;
        let still = sample.cpu.is_some() && sample.cpu == self.cpu_before;
        self.cpu_before = sample.cpu;
        if due {
            sample.pressure = self.read_pressure(context);
        }
        if due || !still || !self.bytes_need_cpu() {
            self.bytes = self.read_bytes(context, is_whole_disk);
        }
        (sample.read, sample.written) = self.bytes.unzip();
        sample.resident = self.read_resident(context, still);
        Some(sample)
    }

    /// CPU time and pressure, what a computing rate needs. `None`: the group is gone.
    pub(super) fn read_times(&mut self, context: &mut Context<'_>) -> Option<TaskSample> {
        let cpu = self.read_cpu(context)?;
        Some(TaskSample { pressure: self.read_pressure(context), ..cpu })
    }

    /// Whether bytes can only grow while the task uses the CPU. v1 counts them where they are
    /// submitted, buffered writes at the flusher's group; v2 also counts what a flusher writes
    /// back for the task (cgroup-v2.rst, "Writeback").
    fn bytes_need_cpu(&self) -> bool {
        self.cpu.as_ref().is_some_and(CpuFile::is_v1)
    }

    pub(super) fn read_bytes(
        &mut self,
        context: &mut Context<'_>,
        is_whole_disk: impl Fn((u32, u32)) -> bool,
    ) -> Option<(Bytes, Bytes)> {
        let file = self.io.as_mut()?;
        match file.read(context.descriptors, context.buffer) {
            Ok(text) => {
                let mut odd = Odd::default();
                let bytes = parse::group_io(text, is_whole_disk, &mut odd);
                context.reported.left_out(file.path(), &odd);
                match bytes {
                    Some(bytes) => return Some((bytes.read, bytes.written)),
                    None => context.problems.push(form_problem(file.path())),
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => context.problems.push(read_problem(file.path(), &error)),
        }
        None
    }

    /// CPU time alone. `None`: the group is gone.
    pub(super) fn read_cpu(&mut self, context: &mut Context<'_>) -> Option<TaskSample> {
        let mut sample = TaskSample::default();
        if let Some(file) = &mut self.cpu {
            match file.read(context.descriptors, context.buffer) {
                Ok(Some(time)) => sample.cpu = Some(time),
                Ok(None) => return None,
                Err(problem) => context.problems.push(problem),
            }
        }
        Some(sample)
    }

    fn read_pressure(&mut self, context: &mut Context<'_>) -> Option<TaskPressure> {
        let mut totals = [Duration::ZERO; 2];
        for (total, file) in totals.iter_mut().zip(self.pressure.as_mut()?) {
            match file.read(context.descriptors, context.buffer) {
                Ok(text) => match parse::pressure(text, &mut Odd::default()) {
                    Some((some, _)) => *total = some,
                    None => {
                        context.problems.push(form_problem(file.path()));
                        return None;
                    }
                },
                Err(error) if is_without_psi(&error) => return None,
                Err(error) => {
                    context.problems.push(read_problem(file.path(), &error));
                    return None;
                }
            }
        }
        let [cpu_some, io_some] = totals;
        Some(TaskPressure { cpu_some, io_some })
    }

    /// `still`: it has used no CPU since the last reading. `None`: it is not its turn, and what was read last
    /// stands.
    fn read_resident(&mut self, context: &mut Context<'_>, still: bool) -> Option<Bytes> {
        if !still {
            self.resident.still = 0;
        }
        let round_is_over = self.resident.left.is_empty();
        if round_is_over {
            if self.resident.known.is_some() && self.resident.cycles_left > 0 {
                self.resident.cycles_left -= 1;
                return None;
            }
            // Once it was read in a still phase, only reclaim can change it.
            self.resident.still = self.resident.still.saturating_add(1);
            if self.resident.known.is_some()
                && !self.resident.still.is_multiple_of(RESIDENT_STILL)
                && self.resident.still > 1
            {
                self.resident.cycles_left = RESIDENT_EVERY - 1;
                return None;
            }
            if let Some(bytes) = self.read_memory_stat(context) {
                self.resident.took(bytes);
                return self.resident.known;
            }
            self.resident.pages = 0;
            self.resident.left = self.pids(context.buffer, context.problems);
        }
        let from = self.resident.left.len().saturating_sub(RESIDENT_STEP);
        let pages = private_pages(self.resident.left.drain(from..), context);
        self.resident.pages = self.resident.pages.saturating_add(pages);
        if !self.resident.left.is_empty() {
            return None;
        }
        self.resident.took(Bytes(self.resident.pages.saturating_mul(context.page_size)));
        self.resident.known
    }

    /// Resident memory as it is known; where no cycle has read it yet, that of the first processes now,
    /// of which nothing is kept. `None`: there is nothing to read.
    pub(super) fn size(&self, context: &mut Context<'_>) -> Option<Bytes> {
        self.resident.known.or_else(|| {
            let pids = self.pids(context.buffer, context.problems);
            let pages = private_pages(pids.into_iter().take(RESIDENT_STEP), context);
            (pages > 0).then(|| Bytes(pages.saturating_mul(context.page_size)))
        })
    }

    fn read_memory_stat(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        let path = self.dirs.memory.as_ref()?.join("memory.stat");
        match read_once(&path, context.buffer) {
            Ok(text) => {
                let bytes = parse::memory_stat_resident(text);
                if bytes.is_none() {
                    context.problems.push(form_problem(&path));
                }
                bytes
            }
            Err(error) if is_gone(&error) => None,
            Err(error) => {
                context.problems.push(read_problem(&path, &error));
                None
            }
        }
    }

    /// Every process of the task.
    pub(super) fn pids(&self, buffer: &mut Vec<u8>, problems: &mut Vec<String>) -> Vec<i32> {
        let mut pids = Vec::new();
        let dirs = [&self.dirs.unified, &self.dirs.cpu, &self.dirs.cpuacct];
        if let Some(dir) = dirs.into_iter().flatten().next() {
            collect_pids(dir, &mut pids, buffer, problems);
        }
        pids
    }
}

/// Those that are gone have none.
fn private_pages(pids: impl Iterator<Item = i32>, context: &mut Context<'_>) -> u64 {
    let mut sum = 0_u64;
    for pid in pids {
        let path = context.proc.join(format!("{pid}/statm"));
        match read_once(&path, context.buffer) {
            Ok(text) => match parse::statm_private_pages(text) {
                Some(pages) => sum = sum.saturating_add(pages),
                None => context.problems.push(form_problem(&path)),
            },
            Err(error) if is_gone(&error) => {}
            Err(error) => context.problems.push(read_problem(&path, &error)),
        }
    }
    sum
}

fn collect_pids(dir: &Path, pids: &mut Vec<i32>, buffer: &mut Vec<u8>, problems: &mut Vec<String>) {
    let path = dir.join("cgroup.procs");
    match read_list(&path, buffer) {
        Ok(text) => pids.extend(parse::ids(text)),
        Err(error) if is_gone(&error) => return,
        // A threaded group: its processes are listed by the domain above it (cgroup-v2.rst "Threads").
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => problems.push(read_problem(&path, &error)),
    }
    // kernfs counts a link for each directory below, so a leaf is known without listing it.
    if std::fs::metadata(dir).is_ok_and(|metadata| metadata.nlink() <= 2) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_pids(&entry.path(), pids, buffer, problems);
        }
    }
}

pub(super) fn form_problem(path: &Path) -> String {
    format!("{} does not have the documented form", path.display())
}

pub(super) fn read_problem(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {}", path.display(), Explained(error))
}
