//! What a process does with its time: rounds of computing, disk requests and sleep.
//!
//! Computing and disk are amounts of work, so that a process that gets less takes longer; sleep is
//! a time. That is the shape of the loads that the thesis measures (a hog, a synchronous writer,
//! one that alternates) and of what LRS tells apart by the computing rate.

use std::time::Duration;

/// What a process does, over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// CPU time of a round, of all threads together.
    pub cpu: Duration,
    /// Threads that compute at once: the most CPUs it can use.
    pub threads: u32,
    /// Disk requests of a round, one after the other.
    pub requests: u32,
    /// Sleep of a round.
    pub sleep: Duration,
    /// Rounds until it ends by itself; `None`: it goes on for ever.
    pub rounds: Option<u32>,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Time in which it takes that memory, steadily from its beginning.
    pub grows: Duration,
}

impl Load {
    /// Computes on one CPU for `cpu` altogether.
    pub fn hog(cpu: Duration) -> Load {
        Load {
            cpu,
            threads: 1,
            requests: 0,
            sleep: Duration::ZERO,
            rounds: Some(1),
            resident: 0,
            grows: Duration::ZERO,
        }
    }

    /// Writes synchronously, `requests` altogether.
    pub fn writer(requests: u32) -> Load {
        Load { requests, ..Load::hog(Duration::ZERO) }
    }

    /// Does nothing until it is ended.
    pub fn sleeper() -> Load {
        Load { sleep: Duration::from_secs(3600), rounds: None, ..Load::hog(Duration::ZERO) }
    }
}

/// Where in its round a process is, with what is left of it: seconds of CPU, of disk service, or
/// of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    /// Wants CPUs.
    Computing(f64),
    /// Has a disk request outstanding.
    Disk(f64),
    /// Wants nothing.
    Sleeping(f64),
}

/// A load being carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What is done.
    pub load: Load,
    /// The present part of the round.
    pub doing: Doing,
    /// Seconds since it began, without those in which it was frozen.
    pub lived: f64,
    rounds_done: u32,
}

/// Work below which a part of a round is over, in seconds: rounding, not work.
const OVER: f64 = 1e-9;

impl Progress {
    /// From the beginning. A round of nothing becomes a short sleep, so that time goes on.
    pub fn new(mut load: Load) -> Progress {
        if load.cpu.is_zero() && load.requests == 0 {
            load.sleep = load.sleep.max(Duration::from_millis(1));
        }
        let doing = Doing::Computing(load.cpu.as_secs_f64());
        Progress { load, doing, lived: 0.0, rounds_done: 0 }
    }

    /// Memory that it has by now, in bytes.
    pub fn resident(&self) -> u64 {
        let grows = self.load.grows.as_secs_f64();
        if self.lived >= grows {
            return self.load.resident;
        }
        (self.load.resident as f64 * self.lived / grows) as u64
    }

    /// Goes on to the next part of the round if this one is over; `request`: the seconds that a disk
    /// request takes. `false`: the last round is over.
    pub fn turn(&mut self, request: Duration) -> bool {
        // Once through all parts finds one that is not empty.
        for _ in 0..3 {
            let (Doing::Computing(left) | Doing::Disk(left) | Doing::Sleeping(left)) = self.doing;
            if left > OVER {
                return true;
            }
            self.doing = match self.doing {
                Doing::Computing(_) => {
                    Doing::Disk(f64::from(self.load.requests) * request.as_secs_f64())
                }
                Doing::Disk(_) => Doing::Sleeping(self.load.sleep.as_secs_f64()),
                Doing::Sleeping(_) => {
                    self.rounds_done += 1;
                    if self.load.rounds.is_some_and(|rounds| self.rounds_done >= rounds) {
                        return false;
                    }
                    Doing::Computing(self.load.cpu.as_secs_f64())
                }
            };
        }
        true
    }
}
