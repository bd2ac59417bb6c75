//! Memory that was freed goes back to the kernel.
//!
//! The allocator of glibc keeps what was freed below something that is still in use, in each of its
//! arenas: after 2,000 tasks or 5,000 connections lrsd held 22 to 71 MiB that it did not use, for
//! ever. malloc_trim(3) gives back every whole page of that. It locks one arena after the other, and
//! with it an allocation of the loop's (docs/experiments/memory.md has how long), so it is called only where
//! there may be something to give back: memory grew since the last call, or much ended since then that
//! holds memory ([`ended`]); the last call may have found its memory in use. The main thread calls it.
//!
//! Limits. Below [`ENDS`] ends what they freed stays.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::param::page_size;

use crate::units::BootTime;

/// Between two calls: what a flood left has gone within 30 s.
const EVERY: Duration = Duration::from_secs(10);

/// A daemon without tasks holds 3 MiB; below this there is nothing worth a call.
const WORTH: usize = 8 << 20;

/// By so much memory has to have grown since the last call.
const GROWTH: usize = 2 << 20;

/// Or so many tasks and connections have to have ended; each held some 10 KiB.
const ENDS: usize = 200;

/// Tasks and connections that ended since the last call. The heap is the process's, and so is this.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// A task or a connection ended.
pub fn ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Gives memory back now and then.
#[derive(Debug, Default)]
pub struct Trim {
    last: BootTime,
    /// Bytes that were held after the last call, or at the least since.
    left: usize,
}

impl Trim {
    /// To be called often.
    pub fn turn(&mut self, now: BootTime) {
        if now.since(self.last) < EVERY {
            return;
        }
        self.last = now;
        // Without /proc nothing else works either.
        let Some(bytes) = own_memory() else { return };
        if !self.is_worth(bytes, ENDED.load(Ordering::Relaxed)) {
            return;
        }
        ENDED.store(0, Ordering::Relaxed);
        let begun = crate::clock::boot_time();
        trim();
        let took = crate::clock::boot_time().since(begun);
        self.left = own_memory().unwrap_or(bytes);
        let (from, to) = (bytes >> 10, self.left >> 10);
        tracing::debug!("gave memory back in {took:?}: {from} KiB before, {to} KiB now");
    }

    fn is_worth(&mut self, bytes: usize, ended: usize) -> bool {
        self.left = self.left.min(bytes);
        bytes > WORTH && (bytes - self.left > GROWTH || ended >= ENDS)
    }
}

/// Bytes of memory that are this process's and no file's (proc_pid_statm(5)).
fn own_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(|field| field.parse::<usize>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared).saturating_mul(page_size()))
}

/// Other allocators than glibc's have ways of their own.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer, locks what it changes, and frees nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grew_or_ended_is_worth_a_call() {
        let mut trim = Trim { left: 40 << 20, ..Trim::default() };
        let table = [
            (40, 0, false),
            (42, 0, false),
            (43, 0, true),
            // The connections of the flood have gone, and glibc kept their memory.
            (40, ENDS, true),
            (40, ENDS - 1, false),
            // It shrank by itself: the growth after that counts.
            (20, 0, false),
            (23, 0, true),
            (7, ENDS, false),
        ];
        for (mib, ended, expected) in table {
            assert_eq!(trim.is_worth(mib << 20, ended), expected, "{mib} MiB, {ended} ended");
        }
    }

    /// glibc keeps small pieces below one that is in use.
    #[test]
    #[cfg(target_env = "gnu")]
    fn what_was_freed_goes_back() {
        const PIECES: usize = 100_000;
        let mut pieces: Vec<Option<Box<[u8; 1000]>>> =
            (0..PIECES).map(|_| Some(Box::new([1; 1000]))).collect();
        let full = own_memory().unwrap();
        let last = pieces.pop().unwrap();
        pieces.iter_mut().for_each(|piece| *piece = None);
        let mut trim = Trim::default();
        trim.turn(BootTime(EVERY));
        let left = own_memory().unwrap();
        assert!(left + PIECES * 500 < full, "{full} bytes, then {left}");
        assert!(last.is_some());
    }
}
