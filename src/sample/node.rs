//! The node's own counters: CPUs and their time, disks, pressure, memory.

use std::path::{Path, PathBuf};

use cpus::{CpuReader, CpuReading};

use self::memory::LimitReader;
use super::group::read_problem;
use super::{DiskBytes, NodePressure, NodeSample, ReportedFiles, Settings};
use crate::kernfs::files::{Descriptors, KeptFile, is_gone, is_without_psi, read_list};
use crate::kernfs::parse::{self, DiskLine, Odd};

pub mod cpus;

pub(crate) mod memory;

/// Reads [`NodeSample`].
#[derive(Debug)]
pub(super) struct NodeReader {
    cpus: CpuReader,
    diskstats: PathBuf,
    pressure: [KeptFile; 3],
    meminfo: KeptFile,
    memory_limits: LimitReader,
    disks: Disks,
    reported: ReportedFiles,
}

impl NodeReader {
    pub(super) fn new(settings: &Settings) -> NodeReader {
        let file = |name: &str| KeptFile::new(settings.proc.join(name));
        NodeReader {
            cpus: CpuReader::new(settings),
            diskstats: settings.proc.join("diskstats"),
            pressure: ["pressure/cpu", "pressure/memory", "pressure/io"].map(file),
            meminfo: file("meminfo"),
            memory_limits: LimitReader::new(settings.memory_groups.as_ref()),
            disks: Disks::new(settings.sys.join("block")),
            reported: ReportedFiles::default(),
        }
    }

    /// Fills `node`; what fails is `None` and a sentence in its problems.
    pub(super) fn read(
        &mut self,
        node: &mut NodeSample,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
    ) {
        let problems = &mut node.problems;
        let CpuReading { cpus, times, quotas, root } =
            self.cpus.read(descriptors, buffer, problems);
        (node.cpus, node.cpu, node.quotas, node.root_cpu) = (cpus, times, quotas, root);
        node.memory = read_as(&mut self.meminfo, descriptors, buffer, problems, parse::meminfo);
        node.memory_limits = self.memory_limits.read(descriptors, buffer, problems);
        node.pressure = self.read_pressure(descriptors, buffer, problems);
        let mut odd = Odd::default();
        node.disk = self.disks.read(&self.diskstats, buffer, problems, &mut odd);
        self.reported.left_out(&self.diskstats, &odd);
    }

    /// Whether a device of a group's I/O file is a whole disk.
    pub(super) fn is_whole_disk(&self, device: (u32, u32)) -> bool {
        self.disks.whole.contains(&device)
    }

    /// All of those.
    pub(super) fn whole_disks(&self) -> &[(u32, u32)] {
        &self.disks.whole
    }

    fn read_pressure(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<NodePressure> {
        let mut totals = [None; 3];
        for (total, file) in totals.iter_mut().zip(&mut self.pressure) {
            let mut odd = Odd::default();
            *total = match file.read(descriptors, buffer) {
                Ok(text) => {
                    let parsed = parse::pressure(text, &mut odd);
                    if parsed.is_none() {
                        problems.push(unreadable(file.path()));
                    }
                    parsed
                }
                Err(error) if is_without_psi(&error) => None,
                Err(error) => {
                    problems.push(read_problem(file.path(), &error));
                    None
                }
            };
            self.reported.left_out(file.path(), &odd);
        }
        let [cpu, memory, io] = totals;
        totals.iter().any(Option::is_some).then(|| NodePressure {
            cpu_some: cpu.map(|(some, _)| some),
            memory_some: memory.map(|(some, _)| some),
            memory_full: memory.and_then(|(_, full)| full),
            io_some: io.map(|(some, _)| some),
            io_full: io.and_then(|(_, full)| full),
        })
    }
}

fn unreadable(path: &Path) -> String {
    format!("{} does not have the documented form", path.display())
}

/// Reads a file that has to be there.
fn read_as<T>(
    file: &mut KeptFile,
    descriptors: &Descriptors,
    buffer: &mut Vec<u8>,
    problems: &mut Vec<String>,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    let value = match file.read(descriptors, buffer) {
        Ok(text) => parse(text).ok_or_else(|| unreadable(file.path())),
        Err(error) => Err(read_problem(file.path(), &error)),
    };
    value.map_err(|problem| problems.push(problem)).ok()
}

/// Reads a file that another kernel version or the root of a hierarchy does not have.
fn read_where_present<T>(
    file: &mut KeptFile,
    descriptors: &Descriptors,
    buffer: &mut Vec<u8>,
    problems: &mut Vec<String>,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    let value = match file.read(descriptors, buffer) {
        Err(error) if is_gone(&error) => return None,
        Ok(text) => parse(text).ok_or_else(|| unreadable(file.path())),
        Err(error) => Err(read_problem(file.path(), &error)),
    };
    value.map_err(|problem| problems.push(problem)).ok()
}

/// Which block devices are whole disks, each byte counted once.
#[derive(Debug)]
struct Disks {
    block: PathBuf,
    whole: Vec<(u32, u32)>,
    known: Vec<(u32, u32)>,
}

/// Devices that sit on a file, on memory or on disks without naming them in `slaves`
/// (loop(4), zram, brd, ZFS volumes, DRBD): what they move is counted below them, or is no
/// disk traffic.
const NOT_DISKS: [&str; 5] = ["loop", "zram", "ram", "zd", "drbd"];

impl Disks {
    fn new(block: PathBuf) -> Disks {
        Disks { block, whole: Vec::new(), known: Vec::new() }
    }

    /// Sum over the whole disks of a diskstats file. A device not seen before makes /sys/block
    /// be read again.
    fn read(
        &mut self,
        diskstats: &Path,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
        odd: &mut Odd,
    ) -> Option<DiskBytes> {
        let text = match read_list(diskstats, buffer) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!("cannot read {}: {error}", diskstats.display()));
                return None;
            }
        };
        let lines: Vec<DiskLine<'_>> = parse::diskstats(text, odd).collect();
        let devices = || lines.iter().map(|line| line.device);
        if self.known.is_empty() || !devices().eq(self.known.iter().copied()) {
            self.known = devices().collect();
            if let Err(error) = self.find_whole(&lines) {
                self.known.clear();
                self.whole.clear();
                problems.push(format!(
                    "cannot read {}, so disks cannot be distinguished from partitions: {error}",
                    self.block.display()
                ));
                return None;
            }
        }
        let mut sum = DiskBytes::default();
        for line in &lines {
            if self.whole.contains(&line.device) {
                sum.read.0 = sum.read.0.saturating_add(line.bytes.read.0);
                sum.written.0 = sum.written.0.saturating_add(line.bytes.written.0);
            }
        }
        Some(sum)
    }

    fn find_whole(&mut self, lines: &[DiskLine<'_>]) -> std::io::Result<()> {
        self.whole.clear();
        // An unreadable /sys/block must not look like a node without disks.
        std::fs::metadata(&self.block)?;
        for line in lines {
            let name = String::from_utf8_lossy(line.name);
            // sysfs writes the slash of a name such as cciss/c0d0 as an exclamation mark.
            let dir = self.block.join(name.replace('/', "!"));
            let partition = !dir.is_dir();
            let virtual_disk = NOT_DISKS.iter().any(|kind| {
                name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            });
            let hidden = std::fs::read(dir.join("hidden")).is_ok_and(|text| text.starts_with(b"1"));
            let on_others = std::fs::read_dir(dir.join("slaves"))
                .is_ok_and(|mut slaves| slaves.next().is_some());
            if !(partition || virtual_disk || hidden || on_others) {
                self.whole.push(line.device);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
