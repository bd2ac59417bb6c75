//! A stand-in for a NodeManager with two disks.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::groups::{Given, Groups, remove};
use crate::harness::Daemon;

const NODE_MANAGER: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";
const APPLICATION: &str = "application_1795301748806_0001";

/// The NodeManager's copies of launch_container.sh, and the containers they are of.
pub const AM: (&str, &str) = (include_str!("../../src/discover/yarn/recorded/am.script"), "000001");
pub const MAP: (&str, &str) =
    (include_str!("../../src/discover/yarn/recorded/map.script"), "000002");

/// Container `number` of the application.
pub fn id(number: u32) -> String {
    format!("container_1795301748806_0001_01_{number:06}")
}

pub struct Node {
    pub dir: tempfile::TempDir,
    manager: Child,
}

impl Node {
    /// One with a private part in each local directory.
    pub fn start() -> Node {
        let dir = tempfile::Builder::new().prefix("lrs-test-nm-").tempdir().expect("a directory");
        let node = Node { dir, manager: manager() };
        node.repair(0);
        node.repair(1);
        fs::create_dir(node.dir.path().join("work")).expect("a directory");
        node
    }

    /// Kills the NodeManager and starts another. Containers stay.
    pub fn restart(&mut self) {
        self.manager.kill().expect("a NodeManager");
        self.manager.wait().expect("a NodeManager");
        self.manager = manager();
    }

    pub fn manager_pid(&self) -> i32 {
        self.manager.id() as i32
    }

    pub fn local_dir(&self, disk: usize) -> PathBuf {
        self.dir.path().join(format!("disk{disk}"))
    }

    fn private(&self, disk: usize) -> PathBuf {
        self.local_dir(disk).join("nmPrivate")
    }

    /// The private part of a disk is there, from now on.
    pub fn repair(&self, disk: usize) {
        let private = self.private(disk);
        fs::create_dir_all(&private).expect("a directory");
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("a mode");
    }

    /// A disk fails, with all that was on it.
    pub fn fail(&self, disk: usize) {
        fs::rename(self.local_dir(disk), self.dir.path().join(format!("failed{disk}")))
            .expect("a rename");
    }

    /// Settings of lrsd: these slots, and this node. No server is at the managers' addresses.
    pub fn settings(&self, slots: &str, groups: Option<&Groups>) -> String {
        let disks = [self.local_dir(0), self.local_dir(1)].map(|dir| dir.display().to_string());
        let mut site = vec![
            ("yarn.nodemanager.local-dirs", disks.join(",")),
            ("yarn.resourcemanager.webapp.address", "127.0.0.1:1".into()),
            ("yarn.nodemanager.webapp.address", "127.0.0.1:1".into()),
        ];
        if let Some(groups) = groups {
            site.extend([
                (
                    "yarn.nodemanager.container-executor.class",
                    "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor".into(),
                ),
                ("yarn.nodemanager.resource.cpu.enabled", "true".into()),
                (
                    "yarn.nodemanager.linux-container-executor.cgroups.hierarchy",
                    groups.hierarchy.trim_start_matches('/').into(),
                ),
            ]);
        }
        let property = |(name, value): &(&str, String)| {
            format!("<property><name>{name}</name><value>{value}</value></property>\n")
        };
        let properties: String = site.iter().map(property).collect();
        let conf = self.dir.path().join("conf");
        fs::create_dir_all(&conf).expect("a directory");
        let text = format!("<configuration>\n{properties}</configuration>\n");
        fs::write(conf.join("yarn-site.xml"), text).expect("yarn-site.xml");
        format!("{slots}\n[yarn]\nenabled = true\nconf_dir = {conf:?}\npoll = \"1s\"\n")
    }

    /// Has the NodeManager's process run these lines.
    pub fn run(&mut self, lines: &str) {
        writeln!(self.manager.stdin.as_mut().expect("a pipe"), "{lines}").expect("a NodeManager");
    }

    /// Makes a container's directories on every disk and its launch script on one of them, as is
    /// done before anything of it runs.
    pub fn prepare(&self, number: u32, recorded: (&str, &str), script_disk: usize) {
        let (script, recorded) = recorded;
        let script = script.replace(&format!("_01_{recorded}"), &format!("_01_{number:06}"));
        for disk in [0, 1].into_iter().filter(|&disk| self.private(disk).is_dir()) {
            fs::create_dir_all(self.container_dir(disk, number)).expect("a directory");
        }
        let file = self.container_dir(script_disk, number).join("launch_container.sh");
        fs::write(file, script).expect("a script");
    }

    pub fn container_dir(&self, disk: usize, number: u32) -> PathBuf {
        self.private(disk).join(APPLICATION).join(id(number))
    }

    pub fn pid_file(&self, disk: usize, number: u32) -> PathBuf {
        self.container_dir(disk, number).join(format!("{}.pid", id(number)))
    }

    /// A file of shell for one container, in a place that is no concern of lrsd's.
    pub fn work(&self, number: u32, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join("work").join(format!("{number:06}.{name}"));
        fs::write(&file, text).expect("a script");
        file
    }

    /// Starts a container as LinuxContainerExecutor does. The script is on the first disk and the
    /// pid file on the second: where each comes to be is chosen apart.
    pub fn start_linux(
        &mut self,
        groups: &Groups,
        number: u32,
        recorded: (&str, &str),
        given: Given,
    ) {
        self.prepare(number, recorded, 0);
        let id = id(number);
        groups.make(&id, given);
        let file = self.pid_file(1, number);
        let (file, group) = (file.display(), groups.dir(&id));
        // 20 ms is the longest that was seen between the pid file and the move.
        let text = format!(
            "printf %s $$ >{file}.tmp; mv -f {file}.tmp {file}\nsleep 0.02\n\
             echo $$ >{}/cgroup.procs\n{}",
            group.display(),
            program(&id, "sleep 600"),
        );
        let helper = self.work(number, "executor", &text);
        self.run(&format!(
            "setsid bash -c 'exec -a /usr/lib/hadoop-yarn/bin/container-executor bash \"$@\"' x {} &",
            helper.display()
        ));
    }

    /// What DefaultContainerExecutor runs for a container with its pid file on `disk`.
    pub fn session(&self, number: u32, disk: usize, command: &str) -> PathBuf {
        let launch = self.work(number, "launch", &program(&id(number), command));
        let file = self.pid_file(disk, number);
        let (file, launch) = (file.display(), launch.display());
        let text = format!(
            "echo $$ >{file}.tmp\n/bin/mv -f {file}.tmp {file}\nexec setsid /bin/bash {launch}\n"
        );
        self.work(number, "session", &text)
    }

    /// Starts a container as DefaultContainerExecutor does, on one disk.
    pub fn start_default(&mut self, number: u32, disk: usize, command: &str) {
        self.prepare(number, MAP, disk);
        let session = self.session(number, disk, command);
        self.run(&format!("/bin/bash {} &", session.display()));
    }

    /// The pid that was written for a container.
    pub fn pid(&self, number: u32) -> Option<i32> {
        let read = |disk| fs::read_to_string(self.pid_file(disk, number)).ok();
        read(0).or_else(|| read(1))?.trim().parse().ok()
    }

    /// Ends a container and tidies up after it: the exit code, the group, the private files.
    pub fn end(&self, number: u32, pid: i32, groups: Option<&Groups>) {
        let leader = Pid::from_raw(pid).expect("a pid");
        kill_process_group(leader, Signal::KILL).expect("a container");
        let code = self.container_dir(1, number).join(format!("{}.pid.exitcode", id(number)));
        fs::write(code, "137").expect("an exit code");
        if let Some(groups) = groups {
            remove(&groups.dir(&id(number)));
        }
        for disk in [0, 1] {
            // A failed disk has none.
            let _ = fs::remove_dir_all(self.container_dir(disk, number));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

fn manager() -> Child {
    Command::new("/bin/bash")
        .arg0("/usr/lib/jvm/java-17-openjdk-amd64/bin/java")
        .args(["-s", NODE_MANAGER])
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash")
}

/// The end of a launch script.
pub fn program(id: &str, command: &str) -> String {
    format!(
        "export CONTAINER_ID=\"{id}\"\nexport NM_HOST=\"localhost\"\nexport NM_PORT=\"28041\"\n\
         exec /bin/bash -c \"{command}\"\n"
    )
}

/// The task of a container, once there is one.
pub fn task(daemon: &Daemon, number: u32) -> Value {
    let name = id(number);
    daemon.eventually(&format!("a task for {name}"), |daemon| {
        daemon.tasks().into_iter().find(|task| task["name"] == name.as_str())
    })
}

/// Why a container is no task, once that is reported.
pub fn ignored_reason(daemon: &Daemon, number: u32) -> String {
    let name = id(number);
    daemon.eventually(&format!("a reason for {name}"), |daemon| {
        let status = daemon.json(&["yarn", "status"]);
        let listed = status["containers"].as_array()?.iter().find(|c| c["id"] == name.as_str())?;
        listed["ignored_reason"].as_str().map(str::to_owned)
    })
}

pub fn pid_of(task: &Value) -> i32 {
    task["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid")
}

/// Whether a process is there that has not ended.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
