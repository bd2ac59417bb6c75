//! The two clocks of a measurement.

use std::time::Duration;

use lrs_core::units::{BootTime, Moment, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, read together.
pub fn now() -> Moment {
    let wall = clock_gettime(ClockId::Realtime);
    Moment {
        boot: boot_time(),
        wall: WallTime::from_unix_micros(wall.tv_sec * 1_000_000 + wall.tv_nsec / 1_000),
    }
}

/// `CLOCK_BOOTTIME`.
pub fn boot_time() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel gives non-negative seconds and nanoseconds below 1e9 for this clock.
    BootTime(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// Waits until `moment`; for ever without one.
pub async fn until(moment: Option<BootTime>) {
    match moment {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(at.since(boot_time())).await,
    }
}
