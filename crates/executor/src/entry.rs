//! What the loop holds of a task beside the task itself: descriptors, its open group, who waits for
//! it, and what the kernel showed last. All of it begins anew with the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claim::Admission;
use super::world::Key;
use crate::command::Reply;
use crate::group::{Group, KernelView};
use crate::refusals::Refusals;
use lrs_core::model::Level;
use lrs_core::units::{BootTime, Pid};

/// See the module.
#[derive(Debug, Default)]
pub struct Entry {
    /// Clients that wait for the release.
    pub release_replies: Vec<Reply<()>>,
    /// Its way into its place, until it is there.
    pub admission: Option<Box<Admission>>,
    /// Watched processes.
    pub watched: BTreeMap<Pid, Key>,
    /// Its cgroup, once it is known.
    pub group: Option<Arc<Group>>,
    /// Why it is from observe mode and not attached.
    pub unattached: Option<Unattached>,
    /// The group in which its weights compete, as long as they are counted there.
    pub competes_in: Option<String>,
    /// Tiers that systemd was asked to set and has not confirmed.
    pub telling: u32,
    /// systemd did not take the present tier.
    pub untold: bool,
    /// What was read back.
    pub kernel: KernelView,
    /// The level that was written last, and when.
    pub written: Option<(Level, BootTime)>,
    /// Since when its group in place is empty, while its main process runs elsewhere.
    pub emptied: Option<BootTime>,
    /// When it was last put in place.
    pub placed_at: BootTime,
}

impl Entry {
    /// Its way into its place is over.
    pub fn take_admission(&mut self) -> Admission {
        self.admission.take().map(|admission| *admission).unwrap_or_default()
    }
}

/// Why a task of observe mode is not attached.
#[derive(Debug)]
pub struct Unattached {
    pub(super) why: String,
    pub(super) refusals: Refusals,
}
