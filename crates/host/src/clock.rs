//! The only place that reads a clock.
//!
//! The loop calls [`now`] once a turn and hands the [`Moment`] to everything it runs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use lrs_core::units::{BootTime, Moment, WallTime};

/// Both clocks, read together.
pub fn now() -> Moment {
    let wall = clock_gettime(ClockId::Realtime);
    Moment {
        boot: boot_time(),
        wall: WallTime::from_unix_micros(wall.tv_sec * 1_000_000 + wall.tv_nsec / 1_000),
    }
}

/// CPU time of this process: `CLOCK_PROCESS_CPUTIME_ID`.
pub fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of this thread: `CLOCK_THREAD_CPUTIME_ID`.
pub fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// `CLOCK_BOOTTIME`.
pub fn boot_time() -> BootTime {
    BootTime(read(ClockId::Boottime))
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // The kernel gives non-negative seconds and nanoseconds below 1e9 for these clocks.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
