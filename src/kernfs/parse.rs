//! Parsers for the kernel files of the hot path: pure functions over bytes.
//!
//! The procfs crate parses most of them too, but into owned records with every field; here
//! one number or two are wanted from files read for every task in every cycle. Each function
//! takes what one read returned and gives `None` when the text does not have the documented
//! shape: the caller names the file. A row that is not understood costs that row and no other:
//! kernels write such ones (`(unknown) Read 4096`), and new ones add rows; [`Odd`] has the first of
//! them for the log. No input panics; sums saturate.

use std::time::Duration;

use crate::core::cpus::CpuSet;
use crate::core::sample::{CpuTimes, DiskBytes, MemorySample};
use crate::units::Bytes;

/// Bytes of one sector in /proc/diskstats, whatever the device's own
/// (Documentation/admin-guide/iostats.rst).
const SECTOR: u64 = 512;

/// No Linux knows as many CPUs.
const MOST_CPUS: u32 = 1 << 16;
/// The first row of a file that a parser left out because it was not understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odd(Option<Vec<u8>>);

impl Odd {
    /// That row, if there was one.
    pub fn row(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Another row is left out.
    pub fn note(&mut self, row: &[u8]) {
        self.0.get_or_insert_with(|| row.to_vec());
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number with nothing but white space around it.
pub fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A list of numbers and ranges, "0-3,5" (cpuset(7), "List format"), as a bit for each CPU.
/// `None` for anything else, and for numbers no Linux knows ([`MOST_CPUS`]).
pub fn cpu_list(text: &[u8]) -> Option<CpuSet> {
    let mut set = CpuSet::default();
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(set);
    }
    for part in text.split(|&byte| byte == b',') {
        let mut ends = part.splitn(2, |&byte| byte == b'-');
        let first = number(ends.next()?)?;
        let last = match ends.next() {
            Some(end) => number(end)?,
            None => first,
        };
        if first > last || last >= u64::from(MOST_CPUS) {
            return None;
        }
        for cpu in first..=last {
            set.insert(cpu as u32);
        }
    }
    Some(set)
}

/// The CPUs with a line in /proc/stat, which are those online (proc_stat(5)).
pub fn stat_cpus(text: &[u8]) -> CpuSet {
    let names = lines(text).map_while(|line| line.strip_prefix(b"cpu"));
    let numbers =
        names.filter_map(|rest| number(words(rest).next()?).filter(|_| !rest.starts_with(b" ")));
    numbers.filter_map(|cpu| u32::try_from(cpu).ok()).filter(|cpu| *cpu < MOST_CPUS).collect()
}

/// /proc/stat summed over the CPUs of `allowed` (proc_stat(5)). `ticks_per_second` is
/// sysconf(_SC_CLK_TCK). `None` when none of them is there or a field is no number.
///
/// Fields a kernel before 2.6.11 lacks count 0; guest time is inside user and nice already.
pub fn proc_stat(
    text: &[u8],
    allowed: &CpuSet,
    ticks_per_second: u64,
    odd: &mut Odd,
) -> Option<CpuTimes> {
    let mut ticks = [0u64; 8];
    let mut found = false;
    // The cpu lines come first; what follows is long.
    for line in lines(text).take_while(|line| !line.starts_with(b"intr")) {
        let Some(rest) = line.strip_prefix(b"cpu") else { continue };
        // The sum over all.
        if rest.first().is_some_and(u8::is_ascii_whitespace) {
            continue;
        }
        match cpu_row(rest) {
            Some((cpu, _)) if !allowed.contains(cpu) => {}
            Some((_, row)) => {
                for (sum, ticks) in ticks.iter_mut().zip(row) {
                    *sum = sum.saturating_add(ticks);
                }
                found = true;
            }
            None => odd.note(line),
        }
    }
    let time = |ticks: u64| {
        let per_second = ticks_per_second.max(1);
        let rest = u128::from(ticks % per_second) * 1_000_000_000 / u128::from(per_second);
        Duration::new(ticks / per_second, rest as u32)
    };
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.map(time);
    found.then_some(CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal })
}

/// Number of the CPU and its ticks, of what follows `cpu`.
fn cpu_row(rest: &[u8]) -> Option<(u32, [u64; 8])> {
    let mut fields = words(rest);
    let cpu = u32::try_from(number(fields.next()?)?).ok()?;
    let mut ticks = [0; 8];
    for (ticks, field) in ticks.iter_mut().zip(fields) {
        *ticks = number(field)?;
    }
    Some((cpu, ticks))
}

/// One line of /proc/diskstats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLine<'a> {
    /// Device number.
    pub device: (u32, u32),
    /// Name as in /sys/block, or a partition's.
    pub name: &'a [u8],
    /// What it moved since boot.
    pub bytes: DiskBytes,
}

/// The lines of /proc/diskstats.
pub fn diskstats<'t>(text: &'t [u8], odd: &mut Odd) -> impl Iterator<Item = DiskLine<'t>> {
    let row = |line: &'t [u8]| {
        let mut fields = words(line);
        let device = (
            u32::try_from(number(fields.next()?)?).ok()?,
            u32::try_from(number(fields.next()?)?).ok()?,
        );
        let name = fields.next()?;
        // Reads completed, merged, sectors, ms; writes completed, merged, sectors.
        let read = number(fields.nth(2)?)?;
        let written = number(fields.nth(3)?)?;
        let bytes = |sectors: u64| Bytes(sectors.saturating_mul(SECTOR));
        Some(DiskLine {
            device,
            name,
            bytes: DiskBytes { read: bytes(read), written: bytes(written) },
        })
    };
    lines(text).filter_map(move |line| {
        row(line).or_else(|| {
            odd.note(line);
            None
        })
    })
}

/// `total=` of the `some` line and, where there is one, of the `full` line of a pressure file
/// (Documentation/accounting/psi.rst).
pub fn pressure(text: &[u8], odd: &mut Odd) -> Option<(Duration, Option<Duration>)> {
    let total = |line: &[u8]| {
        let word = words(line).last()?.strip_prefix(b"total=")?;
        number(word).map(Duration::from_micros)
    };
    let mut some = None;
    let mut full = None;
    for line in lines(text) {
        let to = match line {
            _ if line.starts_with(b"some ") => &mut some,
            _ if line.starts_with(b"full ") => &mut full,
            _ => continue,
        };
        match total(line) {
            Some(total) => *to = Some(total),
            None => odd.note(line),
        }
    }
    some.map(|some| (some, full))
}

/// The lines of /proc/meminfo that are wanted (proc_meminfo(5)).
pub fn meminfo(text: &[u8]) -> Option<MemorySample> {
    let value = |key: &[u8]| {
        let row = |line: &[u8]| number(words(line.strip_prefix(key)?).next()?)?.checked_mul(1024);
        lines(text).find_map(row)
    };
    let swap = value(b"SwapTotal:").zip(value(b"SwapFree:"));
    Some(MemorySample {
        total: Bytes(value(b"MemTotal:")?),
        available: Bytes(value(b"MemAvailable:")?),
        swap_used: swap.map(|(total, free)| Bytes(total.saturating_sub(free))),
    })
}

/// cpuacct.usage: nanoseconds (Documentation/admin-guide/cgroup-v1/cpuacct.rst).
pub fn cpuacct_usage(text: &[u8]) -> Option<Duration> {
    number(text).map(Duration::from_nanos)
}

/// The value after `key ` in a file of "key value" lines, such as cpu.stat or memory.stat.
pub fn keyed(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text)
        .find_map(|line| number(line.strip_prefix(key).filter(|rest| rest.starts_with(b" "))?))
}

/// The sum of the values after `keys` in such a file. `None` without the first of them; a kernel may
/// lack the others.
pub fn sum_of(text: &[u8], keys: &[&[u8]]) -> Option<Bytes> {
    let (first, others) = keys.split_first()?;
    let others = others.iter().filter_map(|key| keyed(text, key));
    Some(Bytes(others.fold(keyed(text, first)?, u64::saturating_add)))
}

/// A limit of memory; `Some(None)` is none: `max` (v2), or on v1 the greatest number of pages that the
/// kernel counts, in bytes (PAGE_COUNTER_MAX), which is above any node's memory.
pub fn memory_limit(text: &[u8]) -> Option<Option<Bytes>> {
    const NONE: u64 = 1 << 60;
    if text.trim_ascii() == b"max" {
        return Some(None);
    }
    number(text).map(|bytes| (bytes < NONE).then_some(Bytes(bytes)))
}

/// usage_usec of a v2 cpu.stat (Documentation/admin-guide/cgroup-v2.rst).
pub fn cpu_stat_usage(text: &[u8]) -> Option<Duration> {
    keyed(text, b"usage_usec").map(Duration::from_micros)
}

/// Resident memory of a v2 memory.stat without the page cache: anonymous and shared pages.
pub fn memory_stat_resident(text: &[u8]) -> Option<Bytes> {
    let anon = keyed(text, b"anon")?;
    Some(Bytes(anon.saturating_add(keyed(text, b"shmem").unwrap_or(0))))
}

/// Pages of a process that are its own: resident less shared of /proc/PID/statm
/// (proc_pid_statm(5)).
///
/// Shared covers mapped files, which are page cache, and shared memory, which would be
/// counted once for each process that maps it.
pub fn statm_private_pages(text: &[u8]) -> Option<u64> {
    let mut fields = words(text);
    let resident = number(fields.nth(1)?)?;
    let shared = number(fields.next()?)?;
    Some(resident.saturating_sub(shared))
}

/// Bytes of a v1 blkio.throttle.io_service_bytes or a v2 io.stat, over those devices for
/// which `counts` holds. An empty file means that nothing was read or written yet. `None`: there
/// are rows, and none is understood.
pub fn group_io(
    text: &[u8],
    counts: impl Fn((u32, u32)) -> bool,
    odd: &mut Odd,
) -> Option<DiskBytes> {
    let mut sum = DiskBytes::default();
    let (mut rows, mut understood) = (false, false);
    for line in lines(text) {
        rows = true;
        // A device that has gone, or has no number (NVMe multipath, ZFS), is none that counts.
        let nameless = line.starts_with(b"(unknown)");
        match io_row(line).filter(|_| !nameless) {
            Some((device, row)) => {
                understood = true;
                if device.is_some_and(&counts) {
                    sum.read.0 = sum.read.0.saturating_add(row.read.0);
                    sum.written.0 = sum.written.0.saturating_add(row.written.0);
                }
            }
            None => {
                understood |= nameless;
                odd.note(line);
            }
        }
    }
    (understood || !rows).then_some(sum)
}

/// The device of a row, which the sum over all has none of, and its bytes.
fn io_row(line: &[u8]) -> Option<(Option<(u32, u32)>, DiskBytes)> {
    let mut row = DiskBytes::default();
    let mut fields = words(line);
    let first = fields.next()?;
    if first == b"Total" {
        return Some((None, row));
    }
    let mut parts = first.splitn(2, |&byte| byte == b':');
    let device =
        (u32::try_from(number(parts.next()?)?).ok()?, u32::try_from(number(parts.next()?)?).ok()?);
    while let Some(field) = fields.next() {
        let (to, value) = match field {
            b"Read" => (&mut row.read, fields.next()?),
            b"Write" => (&mut row.written, fields.next()?),
            _ => match (field.strip_prefix(b"rbytes="), field.strip_prefix(b"wbytes=")) {
                (Some(value), _) => (&mut row.read, value),
                (_, Some(value)) => (&mut row.written, value),
                _ => continue,
            },
        };
        to.0 = to.0.saturating_add(number(value)?);
    }
    Some((Some(device), row))
}

/// The pids of cgroup.procs or tids of cgroup.threads. A 0 stands for a process of another
/// pid namespace (cgroups(7)) and is left out: there is no name for it here.
pub fn ids(text: &[u8]) -> impl Iterator<Item = i32> {
    lines(text).filter_map(|line| i32::try_from(number(line)?).ok()).filter(|&id| id > 0)
}

/// The three numbers of /proc/PID/schedstat: time on the CPU, time waited for it, runs
/// (Documentation/scheduler/sched-stats.rst).
pub fn schedstat(text: &[u8]) -> Option<(Duration, Duration, u64)> {
    let mut fields = words(text);
    let run = number(fields.next()?)?;
    let waited = number(fields.next()?)?;
    let runs = number(fields.next()?)?;
    Some((Duration::from_nanos(run), Duration::from_nanos(waited), runs))
}

/// The value after `key` (its colon included) of a status file (proc_pid_status(5)).
pub fn status_field<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| line.strip_prefix(key)).map(<[u8]>::trim_ascii)
}

/// CPUs a v2 cpu.max grants, "QUOTA PERIOD" or "max PERIOD"; `Some(None)` is no limit.
pub fn cpu_max(text: &[u8]) -> Option<Option<f64>> {
    let mut fields = words(text);
    let quota = fields.next()?;
    let period = number(fields.next()?)?;
    if quota == b"max" {
        return Some(None);
    }
    let quota = number(quota)?;
    (period > 0).then(|| Some(quota as f64 / period as f64))
}

#[cfg(test)]
mod tests;
