//! A private daemon: its own runtime directory, socket and cgroup root; the built binary, the
//! real kernel. Dropped, it leaves nothing behind; killed, its supervisor sees to that.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs_testbed::groups::cpu_mount;

use crate::client::Rpc;
use crate::harness::Daemon;
use crate::work;

/// Name of the cgroup root of the benchmark with this supervisor.
pub fn root_name(supervisor: u32) -> String {
    format!("lrs-bench-{supervisor}")
}

/// Name of the group for a bare write to cgroup.procs.
pub fn bare_name(supervisor: u32) -> String {
    format!("lrs-bench-{supervisor}-bare")
}

pub struct Node {
    daemon: Daemon,
    rpc: Option<Rpc>,
    tasks: Vec<Child>,
}

impl Node {
    /// Starts a daemon with `settings` (TOML).
    pub fn start(settings: &str) -> Node {
        let dir = tempfile::tempdir_in(crate::scratch()).expect("a directory");
        let mut daemon = Daemon::placed(dir, root_name(crate::supervisor()));
        daemon.configure(&format!("{settings}\n"));
        // So that it ends with this benchmark.
        let me = std::env::current_exe().expect("the path of this benchmark");
        daemon.wrapper = [&*me.to_string_lossy(), work::WORD, "exec"].map(str::to_owned).to_vec();
        if let Ok(lrsd) = std::env::var("LRS_BENCH_LRSD") {
            daemon.program = lrsd;
        }
        let mut node = Node { daemon, rpc: None, tasks: Vec::new() };
        node.launch();
        node
    }

    /// Starts the daemon; answers how long it took until it had answered a first status.
    pub fn launch(&mut self) -> Duration {
        let begun = boot_time();
        self.daemon.spawn();
        let rpc = self.daemon.serving(|daemon| {
            Rpc::connect(&daemon.socket()).or_else(|| {
                std::thread::sleep(Duration::from_millis(1));
                None
            })
        });
        rpc.status();
        self.rpc = Some(rpc);
        boot_time().since(begun)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.rpc = None;
        self.daemon.kill();
    }

    /// Waits for the end of a daemon after the signal to end.
    pub fn ended(&mut self) {
        self.rpc = None;
        self.daemon.wait_exit();
    }

    pub fn pid(&self) -> u32 {
        self.daemon.pid() as u32
    }

    pub fn rpc(&self) -> &Rpc {
        self.rpc.as_ref().expect("lrsd serves")
    }

    pub fn socket(&self) -> PathBuf {
        self.daemon.socket()
    }

    pub fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.daemon.ctl_command(arguments);
        command.stdout(Stdio::null());
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
        self.daemon.eventually("the benchmark", |_| {
            std::thread::sleep(Duration::from_millis(2));
            done(self).then_some(())
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in &mut self.tasks {
            // Ended by itself is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
        // An open connection delays a stop.
        self.rpc = None;
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
        let (mount, v1) = cpu_mount().expect("cgroups");
        let dir = mount.join(path);
        Files {
            weight: dir.join(if v1 { "cpu.shares" } else { "cpu.weight" }),
            idle: dir.join("cpu.idle"),
            usage: match v1 {
                true => mount.with_file_name("cpuacct").join(path).join("cpuacct.usage"),
                false => dir.join("cpu.stat"),
            },
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
