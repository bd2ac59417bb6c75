//! The calls of the contract, once for every transport: gRPC and D-Bus translate to and from
//! them and add nothing.
//!
//! A changing call is one command for the loop, which checks the rights of the caller where it
//! carries the command out, and one answer. Dropping the call drops the reply slot, by which the
//! loop notices that the client is gone. Reading calls are answered from the newest snapshot and
//! the kept events ([`super::query`]) and need no right; the queue is read by the loop, a page at a time. What a client sends is checked by
//! [`super::request`].

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::access::Access;
use crate::command::{
    AdmitRequest, Caller, Command, CommandError, JobPriority, QueueId, QueuePage, QueueRequest,
    ReserveRequest,
};
use crate::core::event::Change;
use crate::core::model::{Priority, TaskId};
use crate::discover::Hint;
use crate::executor::recorder::Recorded;
use crate::proto;
use crate::publish::{EventRing, Snapshot};

/// The service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    access: Access,
}

macro_rules! commands {
    ($($(#[$doc:meta])* $function:ident($($field:ident: $kind:ty),*) -> $answer:ty = $command:ident;)*) => {
        /// Changing calls. Each fails as its command does, and with Unavailable when the daemon
        /// stops.
        #[allow(missing_docs)] // one rpc of the contract each
        impl Service {
            $($(#[$doc])* pub async fn $function(
                &self,
                caller: Caller,
                $($field: $kind,)*
            ) -> Result<$answer, CommandError> {
                self.access.commands.ask(|reply| Command::$command { caller, $($field,)* reply }).await
            })*
        }
    };
}

commands! {
    admit(request: AdmitRequest) -> proto::Task = Admit;
    reserve(request: ReserveRequest) -> proto::Reservation = Reserve;
    cancel_reservation(id: QueueId) -> () = CancelReservation;
    list_queue(request: QueueRequest) -> QueuePage = ListQueue;
    release(id: TaskId) -> () = Release;
    set_priority(id: TaskId, priority: Priority) -> proto::Task = SetPriority;
    set_job_priority(request: JobPriority) -> proto::SetJobPriorityResponse = SetJobPriority;
    drain() -> () = Drain;
    resume() -> () = Resume;
    /// Answers the keys that changed.
    reload() -> Vec<String> = Reload;
    /// Answers what is recorded from now on.
    record() -> UnboundedReceiver<Recorded> = Record;
    /// Answers what it showed.
    verify_tiers() -> proto::CgroupStatus = VerifyTiers;
    hint(hints: Vec<Hint>) -> () = Hint;
    report_integration(yarn: Option<Box<proto::YarnStatus>>, changes: Vec<Change>) -> () = ReportIntegration;
}

impl Service {
    /// On these ends of the loop.
    pub fn new(access: Access) -> Service {
        Service { access }
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.access.snapshot.borrow())
    }

    /// Node, slots, state, and whether the loop still turns.
    pub fn status(&self) -> Arc<proto::Status> {
        super::query::status(&self.access, crate::clock::boot_time())
    }

    /// What to watch for new snapshots and events.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The kept events.
    pub fn events(&self) -> &Arc<EventRing> {
        &self.access.events
    }
}
