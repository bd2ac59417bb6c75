//! What the loop holds of a task beside the task itself: descriptors, its open group, who waits for
//! it, and what the kernel showed last. All of it begins anew with the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::admission::Admission;
use super::booked::Unattached;
use super::world::{Key, Pin};
use crate::cgroup::{Group, KernelView, Reach};
use crate::command::{CommandError, Reply};
use crate::core::model::{Level, TaskId};
use crate::proto;
use crate::units::{BootTime, Pid};

/// See the module.
#[derive(Debug, Default)]
pub struct Entry {
    /// Clients that wait for the admission.
    pub replies: Vec<Reply<proto::Task>>,
    /// Finders that wait for it to be in place.
    pub found_replies: Vec<Reply<TaskId>>,
    /// Clients that wait for the release.
    pub release_replies: Vec<Reply<()>>,
    /// What was asked for, until its processes are in place.
    pub admission: Option<Box<Admission>>,
    /// How often it was judged anew, since it had been moved meanwhile.
    pub judged_anew: u8,
    /// Whether its present cgroup is to be managed as it is.
    pub in_place: bool,
    /// The group it was found in, until that is taken in place.
    pub found_in: Option<Box<Group>>,
    /// In which hierarchies its processes are moved.
    pub reach: Reach,
    /// Pins the main process until it is watched.
    pub pin: Option<Pin>,
    /// Watched processes.
    pub watched: BTreeMap<Pid, Key>,
    /// Its cgroup, once it is known.
    pub group: Option<Arc<Group>>,
    /// The one it had in observe mode, while it is being attached.
    pub booked: Option<Arc<Group>>,
    /// Why its admission came to nothing, until those who asked have their answer.
    pub failed: Option<CommandError>,
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
