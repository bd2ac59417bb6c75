//! Admissions that wait for something before the core is asked, each with the reply it owes.
//!
//! Those that systemd is asked about travel with their job ([`super::job::Asking`]) and come back with
//! its message; those that the core has wait in [`super::admission`].

use std::time::Duration;

use super::Executor;
use super::keeping::UnitReport;
use super::world::World;
use crate::command::{AdmitRequest, Caller, Reply};
use lrs_api::proto;
use lrs_core::units::{BootTime, Pid};

/// How long the finders may take to look for the task a process is in. They take half a second; on a
/// node that is too busy for that an answer may be late, for a refusal would be the end of a job.
const LOOKS_AT_MOST: Duration = Duration::from_secs(10);

/// An admission that is made again later.
#[derive(Debug)]
pub(super) struct PostponedRequest {
    pub(super) caller: Caller,
    pub(super) request: AdmitRequest,
    pub(super) pid: Pid,
    pub(super) report: UnitReport,
    pub(super) reply: Reply<proto::Task>,
}

/// What such a request waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Its process is on its way back to where it was before it was parked.
    Returned,
    /// Its process may be in a task that the finders have not found yet.
    Looked {
        /// When that was asked of them.
        since: BootTime,
        /// The look that tells.
        look: u64,
    },
}

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Postponed(Vec<(Until, PostponedRequest)>);

impl Postponed {
    /// One more.
    pub(super) fn push(&mut self, until: Until, request: PostponedRequest) {
        self.0.push((until, request));
    }

    /// Takes those that have waited long enough, by `is_over`.
    pub(super) fn take(&mut self, is_over: impl Fn(Until) -> bool) -> Vec<PostponedRequest> {
        let over = self.0.extract_if(.., |(until, _)| is_over(*until));
        over.map(|(_, request)| request).collect()
    }
}

impl<W: World> Executor<'_, W> {
    /// Keeps a request until the finders have looked.
    pub(super) fn seek(&mut self, request: PostponedRequest) {
        let mut look = 0;
        self.state.hints.looks.send_modify(|last| {
            *last += 1;
            look = *last;
        });
        let until = Until::Looked { since: self.now.boot, look };
        self.state.postponed.push(until, request);
    }

    /// The requests that waited for the finders, up to `look`, and those that wait too long
    /// for that.
    pub(super) fn take_sought(&mut self, look: u64) -> Vec<PostponedRequest> {
        let now = self.now.boot;
        let mut due = self.state.postponed.take(|until| match until {
            Until::Returned => false,
            Until::Looked { since, look: wanted } => {
                wanted <= look || now.since(since) >= LOOKS_AT_MOST
            }
        });
        due.iter_mut().for_each(|request| request.report.looked = true);
        due
    }
}
