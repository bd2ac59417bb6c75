//! A private daemon: its own runtime directory, socket and cgroup root; the built binary, the
//! real kernel. Dropped, it leaves nothing behind; killed, its supervisor sees to that.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs::proto::event_stream_item::Item;
use lrs::proto::shaper_client::ShaperClient;
use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::{Channel, Endpoint};

use crate::work;

/// Beyond this something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Name of the cgroup root of the benchmark with this supervisor.
pub fn root_name(supervisor: u32) -> String {
    format!("lrs-bench-{supervisor}")
}

/// Name of the group for a bare write to cgroup.procs.
pub fn bare_name(supervisor: u32) -> String {
    format!("lrs-bench-{supervisor}-bare")
}

pub struct Node {
    dir: tempfile::TempDir,
    root: String,
    daemon: Option<Child>,
    rpc: Option<Rpc>,
    tasks: Vec<Child>,
}

impl Node {
    /// Starts a daemon with `settings` (TOML).
    pub fn start(settings: &str) -> Node {
        let dir = tempfile::tempdir_in(crate::scratch()).expect("a directory");
        let root = root_name(crate::supervisor());
        let text = format!(
            "cgroup.root = {root:?}\ndaemon.runtime_dir = {:?}\ndbus.bus = \"off\"\n{settings}\n",
            dir.path().join("run")
        );
        fs::write(dir.path().join("lrs.toml"), text).expect("the configuration");
        let mut node = Node { dir, root, daemon: None, rpc: None, tasks: Vec::new() };
        node.launch();
        node
    }

    /// Starts the daemon; answers how long it took until it had answered a first status.
    pub fn launch(&mut self) -> Duration {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("the log");
        let config = self.dir.path().join("lrs.toml");
        let begun = boot_time();
        let lrsd = std::env::var("LRS_BENCH_LRSD");
        let lrsd = lrsd.as_deref().unwrap_or(env!("CARGO_BIN_EXE_lrsd"));
        let daemon = work::command(&["exec", lrsd, "--config"])
            .arg(config)
            .stderr(log)
            .spawn()
            .expect("lrsd starts");
        self.daemon = Some(daemon);
        loop {
            if let Some(rpc) = Rpc::connect(&self.socket()) {
                rpc.status();
                self.rpc = Some(rpc);
                return boot_time().since(begun);
            }
            let status = self.daemon.as_mut().and_then(|daemon| daemon.try_wait().expect("wait"));
            assert!(status.is_none(), "lrsd ended instead of serving:\n{}", self.log());
            assert!(boot_time().since(begun) < PATIENCE, "lrsd does not serve:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.rpc = None;
        let mut daemon = self.daemon.take().expect("lrsd runs");
        daemon.kill().expect("kill");
        daemon.wait().expect("wait");
    }

    /// Waits for the end of a daemon that was told to.
    pub fn ended(&mut self) {
        self.rpc = None;
        self.daemon.take().expect("lrsd runs").wait().expect("wait");
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("lrsd runs").id()
    }

    pub fn rpc(&self) -> &Rpc {
        self.rpc.as_ref().expect("lrsd serves")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/lrsd.sock")
    }

    pub fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lrsctl"));
        command.args(arguments).env("LRS_ENDPOINT", format!("unix:{}", self.socket().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts a worker and puts it in a slot.
    pub fn task(&mut self, arguments: &[&str]) -> proto::Task {
        let child = work::start(arguments);
        let task = self.rpc().admit(child.id() as i32);
        self.tasks.push(child);
        task
    }

    /// Puts `count` sleeping processes of one [`work`] nest into slots.
    pub fn nest(&mut self, count: usize) -> Vec<i32> {
        let mut nest = work::command(&["nest", &count.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a nest starts");
        let lines = BufReader::new(nest.stdout.take().expect("piped")).lines();
        let pids: Vec<i32> = lines
            .map(|line| line.expect("a line of the nest"))
            .take_while(|line| !line.is_empty())
            .map(|line| line.parse().expect("a pid"))
            .collect();
        self.tasks.push(nest);
        for pid in &pids {
            self.rpc().admit(*pid);
        }
        pids
    }

    /// Kills the workers started with [`Node::task`], the newest first.
    pub fn end_hogs(&mut self) {
        while let Some(mut child) = self.tasks.pop() {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }

    /// The same, and waits until the daemon has no task left.
    pub fn end_all(&mut self) {
        self.end_hogs();
        self.until(|node| node.rpc().tasks().is_empty());
    }

    /// Gives up a child that another part of the benchmark waits for.
    pub fn disown(&mut self, pid: i32) -> Child {
        let index = self.tasks.iter().position(|child| child.id() as i32 == pid);
        self.tasks.swap_remove(index.expect("a task of ours"))
    }

    pub fn until(&self, mut done: impl FnMut(&Node) -> bool) {
        let begun = boot_time();
        while !done(self) {
            assert!(boot_time().since(begun) < PATIENCE, "waited in vain\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in &mut self.tasks {
            // Ended by itself is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
        kill_members(&self.root);
        if let Some(mut daemon) = self.daemon.take() {
            self.rpc = None;
            signal(daemon.id() as i32, Signal::TERM);
            let _ = daemon.wait();
        }
        sweep(&self.root);
        if std::thread::panicking() {
            eprintln!("--- log of lrsd ---\n{}", self.log());
        }
    }
}

/// Kills what runs below the root and removes the root in every hierarchy.
pub fn sweep(root: &str) {
    kill_members(root);
    for dir in root_dirs(root) {
        for group in groups_below(&dir) {
            // What cannot be removed holds a process that is just ending; said by the caller.
            let _ = fs::remove_dir(group);
        }
    }
}

/// What is left of the root.
pub fn root_dirs(root: &str) -> Vec<PathBuf> {
    let mount = Path::new("/sys/fs/cgroup");
    let mut dirs = vec![mount.join(root)];
    dirs.extend(fs::read_dir(mount).into_iter().flatten().flatten().map(|e| e.path().join(root)));
    dirs.retain(|dir| dir.exists());
    dirs
}

fn kill_members(root: &str) {
    for _ in 0..100 {
        let pids: Vec<i32> = root_dirs(root)
            .iter()
            .flat_map(|dir| groups_below(dir))
            .flat_map(|dir| fs::read_to_string(dir.join("cgroup.procs")))
            .flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        if pids.is_empty() {
            return;
        }
        pids.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(groups_below(&entry.path()));
        }
    }
    found.push(dir.to_owned());
    found
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Gone already is fine.
        let _ = kill_process(pid, signal);
    }
}

/// The files of a task's group: CPU weight, and CPU time used.
pub struct Files {
    pub weight: PathBuf,
    pub idle: PathBuf,
    usage: PathBuf,
}

impl Files {
    pub fn of(task: &proto::Task) -> Files {
        let path = task.cgroup.as_deref().expect("a cgroup").trim_start_matches('/');
        let mount = Path::new("/sys/fs/cgroup");
        let v1 = mount.join("cpu").join(path);
        if v1.join("cpu.shares").exists() {
            return Files {
                weight: v1.join("cpu.shares"),
                idle: v1.join("cpu.idle"),
                usage: mount.join("cpuacct").join(path).join("cpuacct.usage"),
            };
        }
        let v2 = mount.join(path);
        Files {
            weight: v2.join("cpu.weight"),
            idle: v2.join("cpu.idle"),
            usage: v2.join("cpu.stat"),
        }
    }

    pub fn cpu(&self) -> Duration {
        let text = fs::read_to_string(&self.usage).expect("the group's CPU time");
        match text.strip_prefix("usage_usec ") {
            Some(rest) => {
                let micros = rest.lines().next().and_then(|number| number.parse().ok());
                Duration::from_micros(micros.expect("a number"))
            }
            None => Duration::from_nanos(text.trim().parse().expect("a number")),
        }
    }

    pub fn is_idle(&self) -> bool {
        fs::read_to_string(&self.idle).is_ok_and(|text| text.trim() == "1")
    }

    pub fn weight(&self) -> u64 {
        let text = fs::read_to_string(&self.weight).expect("the group's weight");
        text.trim().parse().expect("a number")
    }
}

/// A connection, used from one thread.
pub struct Rpc {
    runtime: tokio::runtime::Runtime,
    client: ShaperClient<Channel>,
}

impl Rpc {
    /// `None`: nobody listens.
    pub fn connect(socket: &Path) -> Option<Rpc> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).ok()?;
        let channel = runtime.block_on(endpoint.connect()).ok()?;
        let client = ShaperClient::new(channel).max_decoding_message_size(64 << 20);
        Some(Rpc { runtime, client })
    }

    /// One call, which has to succeed.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(ShaperClient<Channel>) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> T {
        self.runtime.block_on(call(self.client.clone())).expect("an answer").into_inner()
    }

    /// Events from now on, until `last` says that one was the last. `opened` is called before the
    /// first can come.
    pub fn events(&self, opened: impl FnOnce(), mut last: impl FnMut(&Item) -> bool) -> Vec<Item> {
        self.runtime.block_on(async {
            let request = proto::WatchEventsRequest::default();
            let stream = self.client.clone().watch_events(request).await;
            let mut stream = stream.expect("a stream").into_inner();
            opened();
            let mut items = Vec::new();
            while let Some(item) = stream.message().await.expect("an item") {
                items.extend(item.item);
                if items.last().is_some_and(&mut last) {
                    break;
                }
            }
            items
        })
    }

    pub fn status(&self) -> proto::Status {
        self.call(async |mut client| client.get_status(proto::GetStatusRequest {}).await)
    }

    pub fn tasks(&self) -> Vec<proto::Task> {
        let mut tasks = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListTasksRequest { page_size: 1000, page_token };
            let page = self.call(async |mut client| client.list_tasks(request).await);
            tasks.extend(page.tasks);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return tasks;
            }
        }
    }

    pub fn admit(&self, pid: i32) -> proto::Task {
        let request = proto::AdmitRequest { pid, ..Default::default() };
        self.call(async |mut client| client.admit(request).await).task.expect("a task")
    }
}
