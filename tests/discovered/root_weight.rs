//! A root whose weight is refused: told, tried again, and told no more once it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lrs::cgroup::{
    Attached, Capabilities, CgroupError, Conditions, Drift, Group, GroupRecord, KernelView, Kin,
    TierTree, WeightPlan,
};
use lrs::core::model::{Label, TaskId, Tier};
use lrs::units::{Pid, ProcessRef};

use super::bench::Loop;

/// Refuses the weight for as long as it is busy, as systemd does.
struct Busy {
    tree: Box<dyn TierTree>,
    busy: AtomicBool,
}

fn no_answer() -> CgroupError {
    CgroupError::Refused("systemd does not answer".into())
}

impl TierTree for Busy {
    fn shape_root(&self, plan: &WeightPlan) -> Result<(), CgroupError> {
        if self.busy.load(Ordering::SeqCst) {
            return Err(no_answer());
        }
        self.tree.shape_root(plan)
    }

    fn capabilities(&self) -> &Capabilities {
        self.tree.capabilities()
    }

    fn shortfalls(&self, plan: &WeightPlan) -> Vec<String> {
        self.tree.shortfalls(plan)
    }

    fn create(&self, id: TaskId, name: Option<&Label>) -> Result<Group, CgroupError> {
        self.tree.create(id, name)
    }

    fn find_in_place(&self, of: ProcessRef, named: Option<&str>) -> Result<Group, CgroupError> {
        self.tree.find_in_place(of, named)
    }

    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        self.tree.reopen(record)
    }

    fn existing(&self) -> Result<Vec<(TaskId, Group)>, CgroupError> {
        self.tree.existing()
    }

    fn attach_if(
        &self,
        group: &Group,
        process: ProcessRef,
        kin: Kin,
        conditions: Conditions<'_>,
    ) -> Result<Attached, CgroupError> {
        self.tree.attach_if(group, process, kin, conditions)
    }

    fn write_tier(
        &self,
        group: &Group,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        self.tree.write_tier(group, tier, plan)
    }

    fn read_back(&self, group: &Group) -> Result<KernelView, CgroupError> {
        self.tree.read_back(group)
    }

    fn drift(
        &self,
        group: &Group,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        self.tree.drift(group, tier, plan)
    }

    fn processes(&self, group: &Group) -> Result<Vec<Pid>, CgroupError> {
        self.tree.processes(group)
    }

    fn release(&self, group: &Group) -> Result<(), CgroupError> {
        self.tree.release(group)
    }

    fn remove(&self, group: &Group) -> Result<(), CgroupError> {
        self.tree.remove(group)
    }

    fn close(&self) -> Result<(), CgroupError> {
        self.tree.close()
    }
}

#[test]
fn a_refused_weight_is_a_warning_until_it_is_there() {
    let mut tree = None;
    let daemon = Loop::on_tree("busy", "daemon.mode = \"observe\"", |real| {
        let busy = Busy { tree: real, busy: AtomicBool::new(true) };
        Arc::clone(tree.insert(Arc::new(busy)))
    });
    let tree = tree.unwrap();
    let warning = format!(
        "the weight of the LRS root was not written, so tasks compete with other groups as \
         before; it is tried again: {}",
        no_answer()
    );
    daemon.until_warned(&warning, true);
    tree.busy.store(false, Ordering::SeqCst);
    daemon.until_warned(&warning, false);
}
