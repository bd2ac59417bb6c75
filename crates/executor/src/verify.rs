//! The test of the tiers: it is begun when an admin asks, and what it showed is kept until the tiers are made
//! in another way. [`lrs_core::effect`] judges.
//!
//! It disturbs no task's slot: two processes of the daemon's own compute on one CPU for a second, beside
//! the tasks and with the weights of one active and one passive task more.

use lrs_api::proto;
use lrs_api::wire::proto_time;
use lrs_config::Mode;
use lrs_core::effect::{CpuSplit, Effect};
use lrs_core::units::WallTime;

use super::Executor;
use super::group::{CgroupError, CpuTiers, IoTiers};
use super::job::Job;
use super::rights::Action;
use super::world::World;
use crate::command::{Caller, CommandError, ErrorKind, Reply, cgroup_error};

/// The last test, and who waits for the next one.
#[derive(Debug, Default)]
pub(super) struct Tests {
    last: Option<(Effect, String, WallTime)>,
    waiting: Vec<Reply<proto::CgroupStatus>>,
    /// `tiers.ratio` that is being tested; `None`: the tiers were made in another way meanwhile.
    ratio: Option<u32>,
}

impl<W: World> Executor<'_, W> {
    /// Begins a test, or waits for the one that is under way.
    pub(super) fn verify_tiers(&mut self, caller: &Caller, reply: Reply<proto::CgroupStatus>) {
        let may = self.state.rights.check(caller, Action::TestTiers, None);
        let may = may.and_then(|()| match self.state.config.daemon.mode {
            Mode::Enforce => Ok(()),
            Mode::Observe => Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                "there are no tiers to test: lrsd only observes (daemon.mode)",
            )),
        });
        if let Err(error) = may {
            return self.answer(Some(reply), Err(error));
        }
        self.state.tests.waiting.push(reply);
        if self.state.tests.waiting.len() == 1 {
            self.state.tests.ratio = Some(self.state.plan.ratio);
            self.state.world.begin(Job::VerifyTiers(self.state.plan));
        }
    }

    /// Answer to [`Job::VerifyTiers`].
    pub(super) fn tiers_tested(&mut self, result: Result<CpuSplit, CgroupError>) {
        let ratio = self.state.tests.ratio.take();
        let answer = result.map_err(cgroup_error).and_then(|split| {
            let ratio = ratio.ok_or_else(|| {
                let why = "the tiers were made in another way during the test: test again";
                CommandError::new(ErrorKind::FailedPrecondition, why)
            })?;
            let (effect, found) = split.judge(ratio);
            tracing::info!("the CPU tiers were tested, {}: {found}", effect.word());
            self.state.tests.last = Some((effect, found, self.now.wall));
            self.state.touched.status = true;
            Ok(())
        });
        for reply in std::mem::take(&mut self.state.tests.waiting) {
            let answer = answer.clone().map(|()| self.cgroup_view());
            self.answer(Some(reply), answer);
        }
    }

    /// Tiers are made in another way: what was tested, or is being tested, is not what is.
    pub(super) fn forget_test(&mut self) {
        self.state.tests.last = None;
        self.state.tests.ratio = None;
    }

    /// That passive tasks are as fast as active ones.
    pub(super) fn test_warning(&self) -> Option<String> {
        let (effect, found, _) = self.state.tests.last.as_ref()?;
        let why = format!("the CPU tiers are without effect: {found}");
        (*effect == Effect::None).then_some(why)
    }

    /// `cgroup` with what is known of the tiers' effect.
    pub(super) fn with_effects(&self, cgroup: proto::CgroupStatus) -> proto::CgroupStatus {
        let found = &self.state.world.facts().capabilities;
        let last = self.state.tests.last.as_ref();
        let claimed = |is_made| if is_made { Effect::Claimed.word() } else { "none" };
        let cpu = last.map_or_else(
            || claimed(found.cpu_tiers != CpuTiers::None),
            |(effect, ..)| effect.word(),
        );
        proto::CgroupStatus {
            cpu_effect: cpu.to_owned(),
            io_effect: claimed(found.io_tiers != IoTiers::None).to_owned(),
            tested: last.map(|(_, found, _)| found.clone()),
            tested_at: last.map(|(.., at)| proto_time(*at)),
            ..cgroup
        }
    }
}
