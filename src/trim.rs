//! Memory that was freed goes back to the kernel.
//!
//! The allocator of glibc keeps what was freed below something that is still in use, in each of its
//! arenas: after 2,000 tasks or 5,000 connections lrsd held 22 to 71 MiB that it did not use, for
//! ever. malloc_trim(3) gives back every whole page of that. It locks one arena after the other, and
//! with it an allocation of the loop's, so it is called seldom and only when there may be something
//! to give back.

use std::time::Duration;

use rustix::param::page_size;

use crate::units::BootTime;

/// Between two calls: what a flood left has gone within 30 s.
const EVERY: Duration = Duration::from_secs(10);

/// A daemon without tasks holds 3 MiB; below this there is nothing worth a call.
const WORTH: usize = 8 << 20;

/// Gives memory back now and then.
#[derive(Debug, Default)]
pub struct Trim {
    last: BootTime,
}

impl Trim {
    /// To be called often.
    pub fn turn(&mut self, now: BootTime) {
        if now.since(self.last) < EVERY {
            return;
        }
        self.last = now;
        // Without /proc nothing else works either.
        if own_memory().is_some_and(|bytes| bytes > WORTH) {
            trim();
        }
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
