//! `lrsd --pretend`: the daemon for clients that are real, on a node that is not.
//!
//! For those who write a scheduler or an adapter: it needs no root, no cgroups and no systemd, and all of
//! gRPC, D-Bus and `lrsctl` is as on a node. Processes are real as far as their numbers, owners and ends
//! go; where they are, what they weigh and what they use is simulated: each computes on one of four CPUs
//! from its admission to its end. Time is the real one.
//!
//! Limits. No process is moved, weighed or frozen. Descendants are not seen: a task is over with its main
//! process. No rule finds tasks. Nothing outlives the daemon.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use lrs_sim::load::Load;
use lrs_sim::node::Hardware;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::access::{CommandReceiver, take_commands};
use crate::clock;
use crate::command::{Command, Subject};
use crate::config::Config;
use crate::core::exit::Exit;
use crate::core::pace::TURN;
use crate::executor::message::Message;
use crate::executor::turn::Happened;
use crate::executor::world::Settings;
use crate::node::{LoopError, ReloadLog, Remote, Signal, exits, process};
use crate::publish::LastTurn;
use crate::rights::Rights;
use crate::systemd::notify::Watchdog;
use crate::units::{BootTime, Pid, ProcessRef};
use lrs_sim::pretend::{HOME, Machine, Pretend};

/// The node: four CPUs, a disk of eight requests at once, 8 GiB.
const HARDWARE: Hardware = Hardware {
    cpus: 4,
    channels: 8,
    request: Duration::from_millis(10),
    request_bytes: 4096,
    memory: 8 << 30,
};

/// What a process does in its slot.
const LOAD: Load = Load {
    cpu: Duration::from_secs(1_000_000),
    threads: 1,
    requests: 0,
    sleep: Duration::ZERO,
    rounds: None,
    resident: 16 << 20,
    grows: Duration::ZERO,
};

/// A real process.
struct Real {
    process: ProcessRef,
    pidfd: OwnedFd,
    /// It was in a slot and computes since.
    works: bool,
}

impl Real {
    /// How it ended, as on a node. The zombie first: its parent may wait for it at any time.
    fn exit(&self) -> Option<Exit> {
        let of_pidfd = || exits::of_pidfd(self.pidfd.as_fd()).ok().flatten();
        exits::of_zombie(self.process).or_else(of_pidfd)
    }
}

/// See the module.
pub struct Pretended {
    /// The node with its loop.
    pub machine: Machine,
    commands: CommandReceiver,
    signals: Receiver<Signal>,
    /// Readable when there is a signal.
    signalled: Arc<OwnedFd>,
    /// Real processes that a client has named, until they end.
    real: BTreeMap<Pid, Real>,
    /// Until when time has passed on the node.
    passed: BootTime,
}

/// What the operator wants, as on a node.
struct Operator {
    config_file: PathBuf,
    reload_log: ReloadLog,
}

impl Settings for Operator {
    fn load(&mut self) -> Result<Config, String> {
        let loaded = Config::load_trusted(&self.config_file);
        loaded.map(|loaded| loaded.config).map_err(|errors| errors.to_string())
    }

    fn apply(&mut self, config: &Config) -> Result<Rights, String> {
        (self.reload_log)(&config.daemon.log)?;
        Ok(crate::node::rights::rights(config))
    }
}

/// Boots such a node.
///
/// # Errors
/// No descriptor is left.
pub fn start(
    config: Config,
    config_file: PathBuf,
    reload_log: ReloadLog,
    commands: CommandReceiver,
) -> std::io::Result<(Pretended, Remote)> {
    let now = clock::now();
    let rights = crate::node::rights::rights(&config);
    let mut world = Pretend::boot_at(now.wall, HARDWARE, config);
    world.operator = Some(Box::new(Operator { config_file, reload_log }));
    let signalled = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, signals) = std::sync::mpsc::channel();
    let waker = Arc::clone(&signalled);
    let remote = Remote::new(move |signal| {
        // A loop that has ended needs no signal.
        let _ = sender.send(signal);
        // EAGAIN means the counter is at its top, so the loop is woken anyway.
        let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
    });
    let (machine, real) = (Machine::with_rights(world, rights, 1), BTreeMap::new());
    Ok((Pretended { machine, commands, signals, signalled, real, passed: now.boot }, remote))
}

impl Pretended {
    /// Turns until it is to stop; as [`crate::node::run`] does on a node.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn run(
        mut self,
        last_turn: &LastTurn,
        mut watchdog: Option<Watchdog>,
    ) -> Result<(), LoopError> {
        loop {
            let mut timeout = self.machine.until_next().min(TURN);
            if let Some(watchdog) = &watchdog {
                timeout = timeout.min(watchdog.patience(clock::boot_time()));
            }
            let ended = self.wait(timeout).map_err(LoopError::Wait)?;
            self.pass_time();
            for pid in ended {
                let exit = self.real.remove(&pid).and_then(|real| real.exit());
                self.machine.world().end(pid, exit);
            }
            let commands = take_commands(&mut self.commands);
            self.adopt_all(&commands);
            let mut happened = Happened { commands, ..Happened::default() };
            let mut stop = false;
            while let Ok(signal) = self.signals.try_recv() {
                match signal {
                    Signal::Stop => stop = true,
                    Signal::Reload => happened.messages.push(Message::Reload),
                }
            }
            self.machine.take(happened);
            self.machine.finish_all();
            self.begin_work();
            let now = clock::boot_time();
            last_turn.ended(now);
            if let Some(watchdog) = &mut watchdog {
                watchdog.turned(now);
            }
            if stop {
                self.commands.close();
                self.machine.stop();
                return Ok(());
            }
        }
    }

    /// Waits for a command, a signal, or the end of processes, which it answers.
    fn wait(&self, timeout: Duration) -> std::io::Result<Vec<Pid>> {
        let commands = PollFd::from_borrowed_fd(self.commands.wake_fd(), PollFlags::IN);
        let signals = PollFd::from_borrowed_fd(self.signalled.as_fd(), PollFlags::IN);
        let real = self.real.values().map(|real| PollFd::new(&real.pidfd, PollFlags::IN));
        let mut ready: Vec<PollFd<'_>> = [commands, signals].into_iter().chain(real).collect();
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // EAGAIN means that there was none.
        let _ = rustix::io::read(&*self.signalled, &mut [0u8; 8]);
        let ends = self.real.keys().zip(&ready[2..]);
        Ok(ends.filter(|(_, ready)| !ready.revents().is_empty()).map(|(pid, _)| *pid).collect())
    }

    /// As much time passes on the node as has passed.
    fn pass_time(&mut self) {
        let now = clock::boot_time();
        let time = now.since(self.passed);
        self.passed = now;
        self.machine.world().pass_all(time);
    }

    /// Processes that commands name are there from now on.
    fn adopt_all(&mut self, commands: &[Command]) {
        for command in commands {
            if let Command::Admit { request, .. } = command
                && let Subject::Process(pid) = request.subject
            {
                self.adopt(pid);
            }
        }
    }

    /// Whoever is in place works from now on; who waits does nothing.
    fn begin_work(&mut self) {
        let placed = self.machine.core().tasks().filter(|(_, task)| task.is_placed());
        let placed: Vec<Pid> = placed.filter_map(|(_, task)| Some(task.who.process?.pid)).collect();
        for pid in placed {
            if let Some(real) = self.real.get_mut(&pid).filter(|real| !real.works) {
                real.works = true;
                self.machine.world().node().tree.begin(pid, LOAD);
            }
        }
    }

    /// A real process is there from now on. One that cannot be is refused by the loop, which does not find
    /// it.
    fn adopt(&mut self, pid: Pid) {
        if self.real.contains_key(&pid) {
            return;
        }
        match process::pin(pid) {
            Ok(found) => {
                let tree = &mut self.machine.world().node().tree;
                let home = tree.make(HOME);
                tree.adopt(found.process, home, found.uids.effective, Load::sleeper());
                let process = found.process;
                let real = |pidfd| (pid, Real { process, pidfd, works: false });
                self.real.extend(found.pin.0.map(real));
            }
            Err(error) => tracing::debug!(%pid, %error, "process {pid} is not taken: {error}"),
        }
    }
}
