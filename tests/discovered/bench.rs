//! A loop with its own state directory and cgroup root, and processes for it to find.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use lrs::access::CommandSender;
use lrs::cgroup::TierTree;
use lrs::command::{Command as Order, CommandError};
use lrs::config::{Config, Mode};
use lrs::core::event::{Event, EventKind};
use lrs::core::model::{Label, Labels, TaskId};
use lrs::discover::{Attach, DiscoveredTask, Finder, Presumed};
use lrs::node::{self, LoopError, Parts, Remote};
use lrs::proto;
use lrs::publish::{EventRing, LastTurn, Snapshot};
use lrs::sample::{Sampler, Settings};
use lrs::state::Store;
use lrs::units::{Pid, ProcessRef};
use lrs_testbed::groups::{remove_groups, root_dirs};
use tokio::sync::watch;

/// Longest wait for anything that should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running loop.
pub struct Loop {
    dir: Arc<tempfile::TempDir>,
    pub config: Config,
    running: Option<(Remote, JoinHandle<Result<(), LoopError>>)>,
    commands: CommandSender,
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    pub events: Arc<EventRing>,
    /// Where a finder would get what schedulers say.
    pub hinted: std::sync::Mutex<lrs::discover::HintReceiver>,
    runtime: tokio::runtime::Runtime,
}

impl Loop {
    pub fn start(name: &str, settings: &str) -> Loop {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let text = format!(
            "cgroup.root = \"lrs-test-{}-{name}\"\ndaemon.runtime_dir = {:?}\n\
             daemon.sample_period = \"100ms\"\n{settings}",
            std::process::id(),
            dir.path(),
        );
        Loop::on(dir, Config::from_toml(&text, Path::new("test.toml")).unwrap())
    }

    /// The file that a reload reads.
    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("none.toml")
    }

    fn on(dir: Arc<tempfile::TempDir>, config: Config) -> Loop {
        let tree = Arc::new(open(&config));
        let (store, recovered) =
            Store::open(dir.path(), &lrs::state::boot_id().unwrap(), 7).unwrap();
        let events = Arc::new(EventRing::new(1000, recovered.events.iter().cloned()));
        let (commands, queue) = lrs::access::queue().unwrap();
        let (hints, hinted) = lrs::discover::hint_queue();
        let (sender, snapshot) = watch::channel(Arc::new(Snapshot::default()));
        let parts = Parts {
            config: config.clone(),
            config_file: dir.path().join("none.toml"),
            reload_log: Box::new(|_| Ok(())),
            tree,
            store,
            recovered,
            hints,
            sampler: Sampler::new(Settings::of_this_machine(64)).unwrap(),
            commands: queue,
            snapshot: sender,
            events: Arc::clone(&events),
        };
        let (daemon, remote) = node::start(parts).unwrap();
        let last_turn = LastTurn::new(lrs::clock::boot_time());
        let thread = std::thread::spawn(move || node::run(daemon, &last_turn, None));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let running = Some((remote, thread));
        let hinted = std::sync::Mutex::new(hinted);
        Loop { dir, config, running, commands, snapshot, events, hinted, runtime }
    }

    /// Ends it and begins anew on the same state, as an upgrade does.
    pub fn restart(mut self) -> Loop {
        self.stop();
        Loop::on(Arc::clone(&self.dir), self.config.clone())
    }

    fn stop(&mut self) {
        if let Some((remote, thread)) = self.running.take() {
            remote.stop();
            thread.join().unwrap().unwrap();
        }
    }

    pub fn discover(&self, found: &DiscoveredTask) -> Result<TaskId, CommandError> {
        let found = Box::new(found.clone());
        self.runtime.block_on(self.commands.ask(|reply| Order::Discover { found, reply }))
    }

    /// What an administrator orders.
    pub fn ask<T>(
        &self,
        order: impl FnOnce(lrs::command::Caller, lrs::command::Reply<T>) -> Order,
    ) -> Result<T, CommandError> {
        let caller = lrs::command::Caller {
            uid: rustix::process::geteuid().as_raw(),
            gids: Vec::new(),
            process: lrs::command::CallerProcess::Unseen,
            granted: None,
        };
        self.runtime.block_on(self.commands.ask(|reply| order(caller, reply)))
    }

    /// Sends a command without waiting for an answer.
    pub fn tell(&self, order: Order) {
        self.runtime.block_on(self.commands.send(order)).unwrap();
    }

    /// Until status has a warning that begins so, or has it no more.
    pub fn until_warned(&self, warning: &str, is_there: bool) {
        let mut snapshot = self.snapshot.clone();
        let is = |newest: &Arc<Snapshot>| {
            newest.status.warnings.iter().any(|text| text.starts_with(warning)) == is_there
        };
        let waited = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, snapshot.wait_for(is)).await.map(|seen| seen.is_ok())
        });
        assert_eq!(waited, Ok(true), "{warning}");
    }

    /// The first task that `is` what is waited for; `None`: it is gone.
    pub fn wait<T>(&self, id: TaskId, mut is: impl FnMut(Option<&proto::Task>) -> Option<T>) -> T {
        let mut snapshot = self.snapshot.clone();
        let waited = async {
            loop {
                let seen = {
                    let newest = snapshot.borrow_and_update();
                    is(newest.tasks.get(&id).map(|task| &**task))
                };
                if let Some(found) = seen {
                    return found;
                }
                snapshot.changed().await.unwrap();
            }
        };
        let waited = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, waited).await });
        waited.unwrap_or_else(|_| panic!("waited too long for {id}: {:?}", self.story(id)))
    }

    pub fn task(&self, id: TaskId) -> proto::Task {
        self.wait(id, |task| task.cloned())
    }

    /// Until the task has ended; its events.
    pub fn until_ended(&self, id: TaskId) -> Vec<Arc<Event>> {
        self.wait(id, |task| task.is_none().then_some(()));
        let mut story = self.story(id);
        // How the main process ended may follow, or not.
        story.retain(|event| event.kind != EventKind::Exit);
        story
    }

    pub fn story(&self, id: TaskId) -> Vec<Arc<Event>> {
        self.events.about(&id.to_string()).0
    }
}

fn open(config: &Config) -> TierTree {
    let settings = config.tree_settings();
    match config.daemon.mode {
        Mode::Enforce => lrs::cgroup::open(&settings).expect("needs root and cgroups"),
        Mode::Observe => lrs::cgroup::observe(&settings),
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some((remote, thread)) = self.running.take() {
            remote.stop();
            let ended = thread.join();
            assert!(std::thread::panicking() || matches!(ended, Ok(Ok(()))), "{ended:?}");
            if let Some(root) = self.config.tree_settings().root {
                sweep(&root);
            }
        }
    }
}

/// Removes what a loop left because its tasks were ending while it stopped.
pub fn sweep(root: &str) {
    for root in root_dirs(root) {
        remove_groups(&root).unwrap();
    }
}

/// A session as the DefaultContainerExecutor makes one; ended with all its processes.
pub struct Container(Child, BufReader<ChildStdout>);

impl Container {
    pub fn start(script: &str) -> Container {
        let mut child = Command::new("setsid")
            .args(["bash", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("setsid of util-linux");
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut container = Container(child, out);
        assert_eq!(container.line(), "ready", "the script says so first");
        container
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "the container ended early");
        line.trim().to_owned()
    }

    pub fn process(&self) -> ProcessRef {
        process_of(self.0.id())
    }

    /// As a finder would tell of it.
    pub fn found(&self) -> DiscoveredTask {
        DiscoveredTask {
            process: self.process(),
            labels: Labels {
                name: Some(Label::new("container_1_0001_01_000002").unwrap()),
                ..Labels::default()
            },
            priority: None,
            presumed: Presumed::Slot,
            standing: None,
            attach: Attach::Session { from: None },
            again: false,
            finder: Finder::Yarn,
        }
    }

    pub fn kill(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn process_of(pid: u32) -> ProcessRef {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let field = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let pid = Pid::new(i32::try_from(pid).unwrap()).unwrap();
    ProcessRef { pid, start_ticks: field.parse().unwrap() }
}

/// Path of a process in each hierarchy, by its controllers.
pub fn groups_of(pid: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    fields.map(|(controllers, path)| (controllers.to_owned(), path.to_owned())).collect()
}
