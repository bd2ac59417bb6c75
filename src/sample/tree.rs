//! Tasks without a cgroup: a process and its descendants, from /proc.
//!
//! One walk over /proc serves all such tasks of a cycle. A descendant stays a member for as
//! long as it lives, also when its parent ends and init adopts it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use procfs::ProcError;
use procfs::process::{Process, all_processes_with_root};

use super::TaskSample;
use super::group::Context;
use super::threads::Watch;
use crate::kernfs::files::{is_gone, is_not_ours, read_once};
use crate::kernfs::parse;
use crate::units::{Bytes, ProcessRef};

/// What one walk found.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    processes: HashMap<i32, Entry>,
    children: HashMap<i32, Vec<i32>>,
}

#[derive(Debug)]
struct Entry {
    start_ticks: u64,
    cpu_ticks: u64,
    resident_pages: u64,
}

impl ProcessTable {
    /// Reads every process's stat once.
    pub(super) fn read(proc: &Path, problems: &mut Vec<String>) -> ProcessTable {
        let mut table = ProcessTable::default();
        let processes = match all_processes_with_root(proc) {
            Ok(processes) => processes,
            Err(error) => {
                problems.push(format!("cannot list {}: {error}", proc.display()));
                return table;
            }
        };
        for stat in processes.map(|process| process.and_then(|process: Process| process.stat())) {
            let stat = match stat {
                Ok(stat) => stat,
                Err(error) if ended_or_hidden(&error) => continue,
                Err(error) => {
                    problems.push(format!("cannot read a process: {error}"));
                    continue;
                }
            };
            let waited_for =
                [stat.cutime, stat.cstime].map(|ticks| u64::try_from(ticks).unwrap_or(0));
            let cpu_ticks = [stat.utime, stat.stime, waited_for[0], waited_for[1]]
                .into_iter()
                .fold(0, u64::saturating_add);
            table.children.entry(stat.ppid).or_default().push(stat.pid);
            table.processes.insert(
                stat.pid,
                Entry { start_ticks: stat.starttime, cpu_ticks, resident_pages: stat.rss },
            );
        }
        table
    }
}

/// Processes end between the listing and the reading, and hidepid hides those of others.
fn ended_or_hidden(error: &ProcError) -> bool {
    matches!(error, ProcError::NotFound(_) | ProcError::PermissionDenied(_))
        || matches!(error, ProcError::Io(error, _) if is_gone(error))
}

/// Everything kept for one task.
#[derive(Debug)]
pub(super) struct TreeReader {
    members: HashSet<(i32, u64)>,
    pub(super) watch: Watch,
}

impl TreeReader {
    pub(super) fn new(main: ProcessRef) -> TreeReader {
        TreeReader {
            members: HashSet::from([(main.pid.raw(), main.start_ticks)]),
            watch: Watch::default(),
        }
    }

    /// `None`: no member is left.
    pub(super) fn read(
        &mut self,
        context: &mut Context<'_>,
        table: &ProcessTable,
        ticks_per_second: u64,
    ) -> Option<TaskSample> {
        self.follow(table);
        if self.members.is_empty() {
            return None;
        }
        let mut cpu_ticks = 0u64;
        let mut pages = 0u64;
        let mut io = Some((0u64, 0u64));
        for (pid, _) in &self.members {
            let Some(entry) = table.processes.get(pid) else { continue };
            cpu_ticks = cpu_ticks.saturating_add(entry.cpu_ticks);
            pages = pages.saturating_add(entry.resident_pages);
            io = io.zip(read_io(*pid, context)).map(
                |((read, written), (more_read, more_written))| {
                    (read.saturating_add(more_read), written.saturating_add(more_written))
                },
            );
        }
        Some(TaskSample {
            cpu: Some(Duration::from_secs_f64(cpu_ticks as f64 / ticks_per_second.max(1) as f64)),
            read: io.map(|(read, _)| Bytes(read)),
            written: io.map(|(_, written)| Bytes(written)),
            resident: Some(Bytes(pages.saturating_mul(context.page_size))),
            ..TaskSample::default()
        })
    }

    /// The members' pids.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.members.iter().map(|&(pid, _)| pid).collect()
    }

    /// Drops members that ended (a recycled pid has another start time), adds descendants.
    fn follow(&mut self, table: &ProcessTable) {
        self.members.retain(|(pid, start)| {
            table.processes.get(pid).is_some_and(|entry| entry.start_ticks == *start)
        });
        let mut open: Vec<i32> = self.pids();
        while let Some(parent) = open.pop() {
            for &child in table.children.get(&parent).into_iter().flatten() {
                let Some(entry) = table.processes.get(&child) else { continue };
                if self.members.insert((child, entry.start_ticks)) {
                    open.push(child);
                }
            }
        }
    }
}

/// read_bytes and write_bytes of /proc/PID/io (proc_pid_io(5)), waited-for children included.
/// `None` where it may not be read.
fn read_io(pid: i32, context: &mut Context<'_>) -> Option<(u64, u64)> {
    let path = context.proc.join(format!("{pid}/io"));
    match read_once(&path, context.buffer) {
        Ok(text) => {
            let value = |key: &[u8]| parse::status_field(text, key).and_then(parse::number);
            value(b"read_bytes:").zip(value(b"write_bytes:"))
        }
        Err(error) if is_gone(&error) => Some((0, 0)),
        Err(error) if is_not_ours(&error) => None,
        Err(error) => {
            context.problems.push(super::group::read_problem(&path, &error));
            None
        }
    }
}
