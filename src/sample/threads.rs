//! Looking at the threads of a task: is any of them awake?
//!
//! The kernel has no counter for "no thread was running or runnable", so it is sampled. All
//! threads count, not only the main one (a JVM's sleeps while one of 25 works). The look ends
//! at the first running thread, and begins with the one found last time, so a busy task costs
//! one small file; a task that sleeps costs one file a thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ThreadCounters, ThreadLook};
use crate::kernfs::files::{Descriptors, KeptFile, is_gone, is_not_ours, read_once};
use crate::kernfs::parse;
use crate::kernfs::process::Stat;

/// Threads looked at per task at most; beyond, the look is given up and says nothing.
const MOST_THREADS: usize = 4096;

/// One thread for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadRef {
    pid: i32,
    tid: i32,
    start_ticks: u64,
}

impl ThreadRef {
    fn file(&self, proc: &Path, name: &str) -> PathBuf {
        proc.join(format!("{}/task/{}/{name}", self.pid, self.tid))
    }
}

/// stat, schedstat and status of one thread. Kept open where the descriptor limit allows; an
/// ended thread then answers ESRCH, never as its successor.
#[derive(Debug)]
struct ThreadFiles {
    stat: KeptFile,
    schedstat: KeptFile,
    status: KeptFile,
}

impl ThreadFiles {
    fn of(thread: &ThreadRef, proc: &Path) -> ThreadFiles {
        let file = |name| KeptFile::new(thread.file(proc, name));
        ThreadFiles { stat: file("stat"), schedstat: file("schedstat"), status: file("status") }
    }
}

/// What is remembered between looks at one task.
#[derive(Debug, Default)]
pub(super) struct Watch {
    awake: Option<ThreadRef>,
    /// Its files, read every cycle.
    files: Option<ThreadFiles>,
    /// Its counters at the last reading.
    last: Option<ThreadCounters>,
    total: ThreadCounters,
}

impl Watch {
    /// One look. `pids` is asked for only when the thread found last time does not run.
    /// `None`: no process could be looked at.
    pub(super) fn look(
        &mut self,
        proc: &Path,
        pids: impl FnOnce(&mut Vec<u8>) -> Vec<i32>,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<ThreadLook> {
        // Seen a moment ago: not read again below.
        let mut first = None;
        if let Some(thread) = self.awake {
            let files = self.files.get_or_insert_with(|| ThreadFiles::of(&thread, proc));
            let text = files.stat.read(descriptors, buffer);
            match judged(text, files.stat.path(), problems) {
                Some((b'R', start)) if start == thread.start_ticks => {
                    return Some(ThreadLook::Runnable);
                }
                Some((state, start)) if start == thread.start_ticks => {
                    first = Some((thread.tid, (state, start)));
                }
                _ => self.forget_thread(),
            }
        }
        let mut seen = None;
        let mut threads = 0;
        for pid in pids(buffer) {
            let dir = proc.join(format!("{pid}/task"));
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    problems.push(format!("cannot list {}: {error}", dir.display()));
                    continue;
                }
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                threads += 1;
                if threads > MOST_THREADS {
                    return None;
                }
                let found = match first {
                    Some((known, found)) if known == tid => Some(found),
                    _ => state(&dir.join(name).join("stat"), buffer, problems),
                };
                let Some((state, start_ticks)) = found else {
                    continue;
                };
                match state {
                    b'R' => {
                        self.track(ThreadRef { pid, tid, start_ticks });
                        return Some(ThreadLook::Runnable);
                    }
                    b'D' => {
                        if self.awake.is_none() {
                            self.track(ThreadRef { pid, tid, start_ticks });
                        }
                        seen = Some(ThreadLook::DiskWait);
                    }
                    // Dead and dying threads say nothing about the task.
                    b'Z' | b'X' | b'x' => {}
                    _ => seen = seen.or(Some(ThreadLook::Asleep)),
                }
            }
        }
        seen
    }

    /// Counters of the threads seen awake so far.
    pub(super) fn counters(
        &mut self,
        proc: &Path,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<ThreadCounters> {
        let thread = self.awake?;
        let files = self.files.get_or_insert_with(|| ThreadFiles::of(&thread, proc));
        let now = match read_counters(files, descriptors, buffer) {
            Ok(now) => now,
            Err(error) if is_gone(&error) || is_not_ours(&error) => {
                self.forget_thread();
                return None;
            }
            Err(error) => {
                problems.push(format!(
                    "cannot read {}: {error}",
                    thread.file(proc, "schedstat").display()
                ));
                return None;
            }
        }?;
        if let Some(last) = self.last {
            self.total.ran += now.ran.saturating_sub(last.ran);
            self.total.waited += now.waited.saturating_sub(last.waited);
            self.total.voluntary += now.voluntary.saturating_sub(last.voluntary);
            self.total.involuntary += now.involuntary.saturating_sub(last.involuntary);
        }
        self.last = Some(now);
        Some(self.total)
    }

    fn track(&mut self, thread: ThreadRef) {
        if self.awake != Some(thread) {
            self.awake = Some(thread);
            self.files = None;
            self.last = None;
        }
    }

    fn forget_thread(&mut self) {
        self.awake = None;
        self.files = None;
        self.last = None;
    }
}

fn state(path: &Path, buffer: &mut Vec<u8>, problems: &mut Vec<String>) -> Option<(u8, u64)> {
    judged(read_once(path, buffer), path, problems)
}

fn judged(
    text: std::io::Result<&[u8]>,
    path: &Path,
    problems: &mut Vec<String>,
) -> Option<(u8, u64)> {
    match text {
        Ok(text) => Stat::parse(text).map(|stat| (stat.state, stat.start_ticks)),
        Err(error) if is_gone(&error) || is_not_ours(&error) => None,
        Err(error) => {
            problems.push(format!("cannot read {}: {error}", path.display()));
            None
        }
    }
}

/// `None`: the kernel lacks schedstat (no CONFIG_SCHED_INFO) or the files have another form.
fn read_counters(
    files: &mut ThreadFiles,
    descriptors: &Descriptors,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<ThreadCounters>> {
    let text = files.schedstat.read(descriptors, buffer)?;
    let Some((ran, waited, _)) = parse::schedstat(text) else { return Ok(None) };
    let text = files.status.read(descriptors, buffer)?;
    let switches = |key: &[u8]| parse::status_field(text, key).and_then(parse::number);
    let voluntary = switches(b"voluntary_ctxt_switches:");
    let involuntary = switches(b"nonvoluntary_ctxt_switches:");
    Ok(voluntary
        .zip(involuntary)
        .map(|(voluntary, involuntary)| ThreadCounters { ran, waited, voluntary, involuntary })
        .filter(|counters| counters.ran > Duration::ZERO))
}

#[cfg(test)]
mod tests;
