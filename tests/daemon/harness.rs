//! A private `lrsd` for one test: its own runtime directory, socket and cgroup root, the real
//! binary, the real kernel. Dropped, it leaves nothing behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lrs_testbed::groups::{cpu_mount, kill_members, remove_groups, root_dirs};
#[allow(unused_imports)] // not every test binary looks at groups
pub use lrs_testbed::groups::{groups_below, members as procs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "panics.rs"]
mod panics;

/// Longest wait for anything that should take milliseconds; under emulation it takes longer.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Daemon {
    pub dir: tempfile::TempDir,
    pub root: String,
    /// What the daemon is started through, for example `unshare --mount sh -c '... exec "$@"'`;
    /// it must become the daemon, as exec does.
    pub wrapper: Vec<String>,
    /// Added to its environment.
    pub environment: Vec<(&'static str, String)>,
    /// The program; `lrsd` of this build.
    pub program: String,
    /// `dbus.bus`
    pub bus: String,
    /// Where it logs; `None`: into a file, which [`Daemon::log`] reads.
    pub stderr: Option<std::os::fd::OwnedFd>,
    child: Option<Child>,
    /// Tasks started by the test, killed when it ends.
    started: Vec<Child>,
}

impl Daemon {
    /// Starts one with `settings` (TOML tables without [cgroup] root and runtime_dir).
    pub fn start(name: &str, settings: &str) -> Daemon {
        let daemon = Daemon::new(name, settings);
        daemon.started()
    }

    /// As [`Daemon::start`], but not running yet.
    pub fn new(name: &str, settings: &str) -> Daemon {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test needs root; run it as root or leave it ignored"
        );
        let dir = tempfile::Builder::new().prefix("lrs-test-").tempdir().expect("a directory");
        let root = format!("lrs-test-{}-{name}", std::process::id());
        let daemon = Daemon::placed(dir, root);
        daemon.configure(settings);
        daemon
    }

    /// One in observe mode, which needs no root, not running yet.
    pub fn observing(settings: &str) -> Daemon {
        let dir = tempfile::Builder::new().prefix("lrs-test-").tempdir().expect("a directory");
        let name = dir.path().file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let root = name.to_owned();
        let daemon = Daemon::placed(dir, root);
        daemon.configure(&format!("daemon.mode = \"observe\"\n{settings}"));
        daemon
    }

    /// One without a configuration.
    pub fn placed(dir: tempfile::TempDir, root: String) -> Daemon {
        Daemon {
            dir,
            root,
            wrapper: Vec::new(),
            environment: Vec::new(),
            program: env!("CARGO_BIN_EXE_lrsd").to_owned(),
            bus: "off".to_owned(),
            stderr: None,
            child: None,
            started: Vec::new(),
        }
    }

    /// Writes the configuration.
    pub fn configure(&self, settings: &str) {
        let text = format!(
            "cgroup.root = {:?}\ndaemon.runtime_dir = {:?}\ndbus.bus = {:?}\n{settings}",
            self.root,
            self.dir.path().join("run"),
            self.bus,
        );
        fs::write(self.config(), text).expect("the configuration");
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("lrs.toml")
    }

    pub fn runtime(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn socket(&self) -> PathBuf {
        self.runtime().join("lrsd.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn started(mut self) -> Daemon {
        self.launch();
        self
    }

    /// Starts the daemon and waits until it answers.
    pub fn launch(&mut self) {
        self.spawn();
        self.serving(|daemon| daemon.try_ctl(&["status", "--json"]));
    }

    /// Waits until it serves, as `ask` finds by its answer.
    pub fn serving<T>(&mut self, mut ask: impl FnMut(&Daemon) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().expect("wait")) {
                panic!("lrsd ended with {status} instead of serving:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "lrsd does not serve:\n{}", self.log());
            std::thread::yield_now();
        }
    }

    /// Starts the daemon without waiting for it.
    pub fn spawn(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("the log");
        let own = self.stderr.as_ref().map(|fd| fd.try_clone().expect("a descriptor"));
        let words: Vec<&String> = self.wrapper.iter().chain([&self.program]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(own.map_or(Stdio::from(log), Stdio::from))
            .spawn()
            .expect("lrsd starts");
        self.child = Some(child);
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("lrsd runs").id() as i32
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("lrsd runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// SIGTERM; answers the exit code and how long it took.
    pub fn stop(&mut self) -> (Option<i32>, Duration) {
        let mut child = self.child.take().expect("lrsd runs");
        let begun = Instant::now();
        signal(child.id() as i32, Signal::TERM);
        let status = child.wait().expect("wait");
        (status.code(), begun.elapsed())
    }

    /// `lrsd --give-back` with its settings: the exit code and its output.
    pub fn give_back(&self) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_lrsd"))
            .arg("--config")
            .arg(self.config())
            .arg("--give-back")
            .output()
            .expect("lrsd");
        assert!(output.stdout.is_empty(), "talk goes to stderr");
        let text = String::from_utf8(output.stderr).expect("text");
        panics::none_in(&text);
        (output.status.code(), text)
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("wait").is_some())
    }

    /// Waits for the end of a daemon that is expected to end by itself.
    pub fn wait_exit(&mut self) -> Option<i32> {
        self.child.take().expect("lrsd runs").wait().expect("wait").code()
    }

    /// `lrsctl` with these arguments.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.ctl_command(arguments).output().expect("lrsctl runs")
    }

    pub fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lrsctl"));
        command
            .args(arguments)
            .env("LRS_ENDPOINT", format!("unix:{}", self.socket().display()))
            .stdin(Stdio::null());
        command
    }

    fn try_ctl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.ctl(arguments);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Standard output of a command that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(
            output.status.success(),
            "lrsctl {arguments:?}: {}\n{}\nlog:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    pub fn status(&self) -> Value {
        self.json(&["status"])
    }

    pub fn tasks(&self) -> Vec<Value> {
        self.json(&["tasks"]).as_array().expect("a list").clone()
    }

    pub fn events(&self) -> Vec<Value> {
        let text = self.ok(&["events", "--since", "1", "--no-follow", "--json"]);
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Starts `lrsctl run` with `options`, then `command`; the child is the task itself.
    pub fn run(&mut self, options: &[&str], command: &[&str]) -> i32 {
        let child = self
            .ctl_command(&[&["run"], options, &["--"], command].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("lrsctl runs");
        let pid = child.id() as i32;
        self.started.push(child);
        pid
    }

    /// Waits for a child started with [`Daemon::run`].
    pub fn join(&mut self, pid: i32) -> std::process::ExitStatus {
        let index =
            self.started.iter().position(|child| child.id() as i32 == pid).expect("a child");
        self.started.remove(index).wait().expect("wait")
    }

    /// Ends a task started with `cat` by closing its input.
    pub fn finish(&mut self, pid: i32) {
        let child = self.started.iter_mut().find(|child| child.id() as i32 == pid);
        drop(child.expect("a child").stdin.take());
    }

    /// Takes over a child, to be killed when the test ends.
    pub fn keep(&mut self, child: Child) -> i32 {
        let pid = child.id() as i32;
        self.started.push(child);
        pid
    }

    /// The command fails with `code`, says `words`, and the daemon goes on.
    pub fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.ctl(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "lrsctl {arguments:?}: {text}");
        assert!(text.contains(words), "lrsctl {arguments:?}: {text}");
    }

    /// The daemon answers, and its totals add up.
    pub fn consistent(&self) {
        self.eventually("totals that add up", |daemon| {
            let (status, tasks) = (daemon.status(), daemon.tasks());
            let number = |path: &str| status.pointer(path).and_then(Value::as_u64);
            let gone = number("/totals/completed")? + number("/totals/released")?;
            let used = |tier| number(&format!("/slots/{tier}/used"));
            let fits = number("/totals/admitted")? == gone + tasks.len() as u64
                && used("active")? == in_tier(&tasks, "active").len() as u64
                && used("passive")? == in_tier(&tasks, "passive").len() as u64
                && used("active")? <= number("/slots/active/capacity")?
                && used("passive")? <= number("/slots/passive/capacity")?;
            fits.then_some(())
        });
    }

    /// All tasks are over, the totals add up, and no cgroup of a task is left.
    pub fn nothing_left(&self) {
        self.eventually("the end of all", |daemon| daemon.tasks().is_empty().then_some(()));
        self.consistent();
        self.eventually("no cgroup left", |daemon| {
            daemon.groups_in_roots().is_empty().then_some(())
        });
    }

    /// Every group below the roots but that of the lock, which is the daemon's own.
    pub fn groups_in_roots(&self) -> Vec<PathBuf> {
        let roots = self.root_dirs();
        let all = roots.iter().flat_map(|root| groups_below(root));
        all.filter(|group| !roots.contains(group) && !group.ends_with("lock")).collect()
    }

    /// A process outside any slot.
    pub fn process(&mut self, command: &[&str]) -> i32 {
        let child = Command::new(command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command runs");
        let pid = child.id() as i32;
        self.started.push(child);
        pid
    }

    /// The task with this main pid, once it is there.
    pub fn task_of(&self, pid: i32) -> Value {
        self.eventually(&format!("a task of process {pid}"), |daemon| {
            daemon.tasks().into_iter().find(|task| task["pid"] == pid)
        })
    }

    /// Asks again and again until there is an answer.
    pub fn eventually<T>(&self, what: &str, mut ask: impl FnMut(&Daemon) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}\nlog:\n{}", self.log());
        }
    }

    /// Directories of the root in every hierarchy mounted.
    pub fn root_dirs(&self) -> Vec<PathBuf> {
        root_dirs(&self.root)
    }

    /// The directory with the CPU weight of the task.
    pub fn cpu_dir(&self, task: &Value) -> PathBuf {
        let path = task["cgroup"].as_str().expect("a cgroup").trim_start_matches('/').to_owned();
        cpu_mount().expect("cgroups").0.join(path)
    }

    /// A raw connection to the socket.
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).expect("the socket")
    }

    /// Sends bytes and reads until the daemon closes or `bytes` came back.
    pub fn talk(&self, text: &[u8], bytes: usize) -> Vec<u8> {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // The daemon may close while we still write: that is an answer too.
        let _ = stream.write_all(text);
        let mut answer = vec![0; bytes];
        let read = stream.read(&mut answer).unwrap_or(0);
        answer.truncate(read);
        answer
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Whatever is left below the root belongs to this test.
        for _ in 0..50 {
            let groups = self.root_dirs().into_iter().flat_map(|root| groups_below(&root));
            if groups.filter(|group| kill_members(group)).count() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        if let Some(mut child) = self.child.take() {
            signal(child.id() as i32, Signal::TERM);
            let _ = child.wait();
        }
        for root in self.root_dirs() {
            if let Err(stays) = remove_groups(&root) {
                eprintln!("left behind: {stays}");
            }
        }
        panics::none_in(&self.log());
    }
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Gone already is fine.
        let _ = kill_process(pid, signal);
    }
}

/// The file of a group's CPU weight.
pub fn weight_file(dir: &Path) -> &'static str {
    if dir.join("cpu.shares").exists() { "cpu.shares" } else { "cpu.weight" }
}

/// cpu.idle and the weight of a group.
pub fn weights(dir: &Path) -> (Option<u64>, Option<u64>) {
    let number = |file| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    (number("cpu.idle"), number(weight_file(dir)))
}

/// A foreign cgroup, removed at the end with whatever is in it.
pub struct Foreign(pub PathBuf);

impl Foreign {
    /// Beside the root, where the CPU weight is. The root need not be there: observe mode makes
    /// none.
    pub fn beside(daemon: &Daemon) -> Foreign {
        let (mount, _) = cpu_mount().expect("cgroups");
        let dir = mount.join(format!("{}-owner", daemon.root));
        fs::create_dir(&dir).expect("a cgroup");
        Foreign(dir)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Err(stays) = remove_groups(&self.0) {
            eprintln!("left behind: {stays}");
        }
    }
}

/// The tier of the slot that a task has: one with an active slot on loan is in a passive one.
pub fn slot_tier(task: &Value) -> &str {
    if task["loan"] == true { "passive" } else { task["tier"].as_str().expect("a tier") }
}

/// The ids of tasks in slots of a tier, in order of admission.
pub fn in_tier(tasks: &[Value], tier: &str) -> Vec<String> {
    tasks
        .iter()
        .filter(|task| slot_tier(task) == tier)
        .map(|task| task["id"].as_str().expect("an id").to_owned())
        .collect()
}
