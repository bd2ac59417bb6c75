//! From what an earlier daemon left to a loop on this node.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use lrs_host::spare::NoThread;
use tokio::sync::watch as watch_channel;

use super::outbox::Inward;
use super::rights::rights;
use super::watch::Watcher;
use super::worker::Workers;
use super::{Node, ReloadLog, Remote, Signal};
use crate::access::CommandReceiver;
use crate::cgroup::{CgroupError, TierTree};
use crate::clock;
use crate::config::Config;
use crate::core::model::TaskId;
use crate::discover::HintSender;
use crate::executor::message::Message;
use crate::executor::world::Facts;
use crate::executor::{Loop, OwnGroup, Resumed, Tickets};
use crate::publish::{EventRing, Snapshot};
use crate::sample::Sampler;
use crate::state::{Recovered, Store};

/// Everything a loop is made of.
pub struct Parts {
    /// The settings.
    pub config: Config,
    /// Where they came from, for reloading.
    pub config_file: PathBuf,
    /// Changes the log filter; the error says what is wrong with the new one.
    pub reload_log: ReloadLog,
    /// The applier.
    pub tree: Arc<TierTree>,
    /// The state directory and what was in it.
    pub store: Store,
    /// See `store`.
    pub recovered: Recovered,
    /// Reads the node.
    pub sampler: Sampler,
    /// Where hints of schedulers go.
    pub hints: HintSender,
    /// The loop's end of the command queue.
    pub commands: CommandReceiver,
    /// Where snapshots go.
    pub snapshot: watch_channel::Sender<Arc<Snapshot>>,
    /// Where events go; holds the recovered ones already.
    pub events: Arc<EventRing>,
}

/// Why the loop cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// epoll, inotify or eventfd.
    #[error("cannot set up waiting for events: {0}")]
    Watch(io::Error),
    /// A thread.
    #[error("cannot start the thread of {what}: {}", NoThread(source))]
    Thread {
        /// Which one.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The cgroup tree.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Recovers and publishes the first snapshot. Serving may begin when this returns.
///
/// # Errors
/// What is missing.
pub fn start(parts: Parts) -> Result<(Loop<Node>, Remote), StartError> {
    let Parts { config, config_file, reload_log, tree, store, recovered, .. } = parts;
    let mut sampler = parts.sampler;
    let now = clock::now();
    let watcher = Watcher::new(parts.commands.wake_fd()).map_err(StartError::Watch)?;
    let recorded: BTreeSet<TaskId> = recovered.tasks.iter().map(|task| task.id).collect();
    let own_groups = tree.existing()?.into_iter().map(|(task, group)| {
        let uid = if recorded.contains(&task) { None } else { tree.sole_owner(&group) };
        OwnGroup { task, group, uid }
    });
    let own_groups = own_groups.collect();
    let first = sampler.sample(now.boot, &[]);
    let whole_disks = sampler.whole_disks();
    let descriptors = sampler.descriptors();
    let (workers, messages, inbox) = Workers::start(Arc::clone(&tree), sampler, watcher.waker())
        .map_err(|source| StartError::Thread { what: "a worker", source })?;
    let waker = watcher.waker();
    let remote = Remote::new(move |signal| {
        let inward = match signal {
            Signal::Stop => Inward::Stop,
            Signal::Reload => Message::Reload.into(),
        };
        // A loop that has ended needs neither.
        let _ = messages.send(inward);
        waker.wake();
    });
    let waiter_epoch = crate::state::new_epoch();
    let resumed = Resumed {
        rights: rights(&config),
        tickets: Tickets::with_key(
            &crate::state::ticket_key::of(&config.daemon.runtime_dir),
            waiter_epoch,
            now.boot,
        ),
        config,
        recovered,
        history_state: store.standing().clone(),
        own_groups,
        first: (first.at, first.node),
        whole_disks,
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        time_namespace: time_namespace(),
        waiter_epoch,
        hints: parts.hints,
        snapshot: parts.snapshot,
        events: parts.events,
        recorder: None,
    };
    let facts = Facts {
        capabilities: tree.capabilities(),
        root_follows: tree.root_follows(),
        root_is_systemds: tree.root_is_systemds(),
        systemd_runs: crate::systemd::is_running(),
    };
    let node = Node {
        tree,
        store,
        watcher,
        workers,
        inbox,
        commands: parts.commands,
        config_file,
        reload_log,
        ended: Vec::new(),
        ready: Vec::new(),
        unreaped: BTreeMap::new(),
        facts,
        descriptors,
        buffer: Vec::new(),
        stop: false,
    };
    Ok((Loop::resume(node, resumed, now), remote))
}

/// The time namespace of this process (namespaces(7)); `None`: the kernel has none.
fn time_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/time").ok()?;
    Some(link.to_string_lossy().into_owned())
}
