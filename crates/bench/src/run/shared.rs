//! What all runs of a bench share: the suite, where things are, and how a private lrsd is started.

use std::path::{Path, PathBuf};

use super::tasks::Places;
use crate::suite::Suite;
use lrs_api::proto;
use lrs_term::Failure;
use lrs_testbed::private::{Daemon, Private};

/// What all runs of a bench share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) suite: &'a Suite,
    /// On the disk that is measured.
    pub(crate) places: Places,
    /// CPUs tasks may use.
    pub(crate) cpus: u32,
    /// For what belongs to no measured disk: sockets, what tasks say.
    pub(crate) workdir: &'a Path,
    /// Of LRS: daemon and client.
    pub(crate) lrsctl: &'a Path,
    /// Of every private lrsd, one after the other.
    pub(crate) cgroup_root: &'a str,
    /// What is kept when something failed, and lrsd's logs.
    pub(crate) logs: PathBuf,
    /// Children that outlive a run.
    pub(crate) kept: Vec<u32>,
    /// Counters of the measured disk.
    pub(crate) disk: Option<PathBuf>,
}

impl Bench<'_> {
    /// A private lrsd with these keys.
    pub(crate) async fn daemon(
        &self,
        keys: &[(String, String)],
    ) -> Result<(Daemon, proto::Status), Failure> {
        let private = Private {
            lrsctl: self.lrsctl,
            workdir: self.workdir,
            name: "lrsd",
            cgroup_root: self.cgroup_root,
            keys,
            log: &self.logs.join("lrsd.log"),
        };
        Daemon::start(&private).await
    }

    /// The file with the output of the task with this index.
    pub(super) fn log_of(&self, index: usize) -> PathBuf {
        self.workdir.join(format!("log-{index}"))
    }
}
