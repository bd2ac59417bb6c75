//! Made-up local directories, and real processes started the way a NodeManager starts them.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::clock;
use crate::core::model::Priority;
use crate::discover::{self, Attach, Presumed, Standing};

const NODE_MANAGER: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";

/// A shell that looks like a java daemon of this main class, and runs the script it gets.
struct Daemon(Child);

impl Daemon {
    fn start(class: &str) -> Daemon {
        Daemon::start_as(class, rustix::process::geteuid().as_raw())
    }

    fn start_as(class: &str, uid: u32) -> Daemon {
        let mut command = Command::new("/bin/bash");
        if uid != rustix::process::geteuid().as_raw() {
            command.uid(uid).gid(uid);
        }
        command.arg0("/usr/lib/jvm/bin/java").args(["-s", class]).stdin(Stdio::piped());
        Daemon(command.spawn().unwrap())
    }

    fn run(&mut self, text: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{text}").unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A node with one local directory.
struct Node {
    dir: tempfile::TempDir,
    finder: NodeFinder,
    hints: Hints,
    /// Sessions to end.
    leaders: Vec<Pid>,
}

impl Drop for Node {
    fn drop(&mut self) {
        for leader in &self.leaders {
            let group = rustix::process::Pid::from_raw(leader.raw()).unwrap();
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("nmPrivate")).unwrap();
        Node::at(dir)
    }

    fn at(dir: tempfile::TempDir) -> Node {
        let finder = NodeFinder::new(&Settings {
            local_dirs: vec![dir.path().to_owned()],
            executor: ExecutorClass::Default,
            layout: None,
            own_root: None,
            rescan: Duration::from_secs(2),
        })
        .unwrap();
        Node { dir, finder, hints: Hints::default(), leaders: Vec::new() }
    }

    fn pass(&mut self, now: Moment) -> Vec<DiscoveredTask> {
        self.finder.pass(&self.hints, now)
    }

    fn hint(&mut self, hint: &discover::Hint) {
        self.finder.hinted(&hint.container.parse().unwrap(), hint.into());
        self.hints.insert(hint.clone());
    }

    fn private(&self, container: ContainerId) -> std::path::PathBuf {
        let application = container.application.to_string();
        let dir = self.dir.path().join("nmPrivate").join(application).join(container.to_string());
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Starts a container with the script `command`, as DefaultContainerExecutor does: a
    /// session script writes the pid file, then execs what execs the command.
    fn launch(&mut self, container: ContainerId, command: &str, environment: &str) -> Child {
        let private = self.private(container);
        let script = format!(
            "export NM_HOST=\"n7\"\nexport NM_PORT=\"4545\"\nexec /bin/bash -c \"{command}\"\n"
        );
        fs::write(private.join("launch_container.sh"), script).unwrap();
        let work = tempfile::Builder::new().tempdir_in(self.dir.path()).unwrap().keep();
        let run = format!("{environment}\nexec /bin/bash -c \"sleep 600\"\n");
        fs::write(work.join("launch_container.sh"), run).unwrap();
        let file = private.join(format!("{container}.pid"));
        let (file, work) = (file.display(), work.display());
        let session = format!(
            "echo $$ > {file}.tmp; /bin/mv -f {file}.tmp {file}; \
             exec setsid /bin/bash {work}/launch_container.sh"
        );
        let child = Command::new("/bin/bash").args(["-c", &session]).env_clear().spawn().unwrap();
        self.leaders.push(Pid::new(child.id() as i32).unwrap());
        child
    }

    fn start(&mut self, container: ContainerId, command: &str) -> Child {
        self.launch(container, command, &format!("export CONTAINER_ID=\"{container}\""))
    }

    fn pid_file(&self, container: ContainerId, pid: u32) {
        fs::write(self.private(container).join(format!("{container}.pid")), format!("{pid}\n"))
            .unwrap();
    }

    /// Passes, each answered with a task, until `enough` says so of all that was found.
    fn until(
        &mut self,
        mut enough: impl FnMut(&[DiscoveredTask], &NodeFinder) -> bool,
    ) -> Vec<DiscoveredTask> {
        let deadline = clock::boot_time().after(Duration::from_secs(60));
        let mut found = Vec::new();
        loop {
            let now = clock::now();
            for proposal in self.finder.pass(&self.hints, now) {
                let task = TaskId { epoch: 1, number: found.len() as u64 };
                self.finder.answered(proposal.process, now, Ok(task));
                found.push(proposal);
            }
            if enough(&found, &self.finder) {
                return found;
            }
            assert!(now.boot < deadline, "found only {found:#?}");
            let wait = self.finder.next_due().since(clock::boot_time());
            let timeout =
                Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let fd = self.finder.fd();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
        }
    }
}

fn id(sequence: u64) -> ContainerId {
    format!("container_1700000000000_0001_01_{sequence:06}").parse().unwrap()
}

fn name(found: &DiscoveredTask) -> &str {
    found.labels.name.as_ref().unwrap().as_str()
}

fn map(task: u64) -> String {
    format!(
        "java -Xmx1g org.apache.hadoop.mapred.YarnChild h 1 attempt_1700000000000_0001_m_{task:06}_0 {task} 1>o 2>e"
    )
}

#[test]
fn no_container_of_a_burst_is_missed_and_none_is_found_twice() {
    const COUNT: u64 = 200;
    let manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    node.until(|_, _| true);
    let mut children = Vec::new();
    children.push(node.start(id(1), "java org.apache.hadoop.mapreduce.v2.app.MRAppMaster 1>o"));
    for number in 2..=COUNT {
        children.push(node.start(id(number), &map(number)));
    }
    let found = node.until(|found, _| found.len() as u64 >= COUNT);
    let names: BTreeSet<&str> = found.iter().map(name).collect();
    assert_eq!(names.len() as u64, COUNT);
    for found in &found {
        assert!(matches!(found.attach, Attach::Session { .. }));
        assert_eq!(found.labels.job.as_ref().unwrap().as_str(), "application_1700000000000_0001");
        let (kind, presumed) = match name(found) == id(1).to_string() {
            true => ("am", Presumed::Slotless),
            false => ("map", Presumed::LeastIsOpportunistic),
        };
        assert_eq!(found.labels.kind.as_ref().unwrap().as_str(), kind);
        assert_eq!((found.standing, found.presumed), (None, presumed));
    }
    for info in node.finder.containers() {
        assert!(info.task.is_some() && info.ignored.is_none());
        assert_eq!(info.node_id.as_deref(), Some("n7:4545"));
    }
    // Another daemon finds the same ones, all of them with its first listing.
    drop(manager);
    let manager = Daemon::start(NODE_MANAGER);
    let mut again = Node::at(tempfile::tempdir().unwrap());
    again.finder = NodeFinder::new(&Settings {
        local_dirs: vec![node.dir.path().to_owned()],
        executor: ExecutorClass::Default,
        layout: None,
        own_root: None,
        rescan: Duration::from_secs(2),
    })
    .unwrap();
    assert_eq!(again.pass(clock::now()).len() as u64, COUNT);
    drop(manager);
    drop(node);
    for mut child in children {
        child.wait().unwrap();
    }
}

#[test]
fn a_clock_that_was_set_forward_since_hides_no_container() {
    const HOUR: Duration = Duration::from_secs(3600);
    let _manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    let mut child = node.start(id(2), &map(2));
    let path = node.private(id(2)).join(format!("{}.pid", id(2)));
    let gone_at = clock::boot_time().after(Duration::from_secs(60));
    let file = loop {
        match fs::File::open(&path) {
            Ok(file) => break file,
            Err(error) => assert!(clock::boot_time() < gone_at, "no pid file: {error}"),
        }
        std::thread::yield_now();
    };
    // By a clock that is an hour on the file was written an hour before its process began.
    file.set_modified(file.metadata().unwrap().modified().unwrap() - HOUR).unwrap();
    let found = node.until(|found, _| !found.is_empty());
    assert_eq!(found[0].process.pid.raw(), child.id() as i32);

    let entry = node.finder.entries.get_mut(&id(2)).unwrap();
    let mut file = entry.file.unwrap();
    let first = entry.first_read(&file);
    assert_eq!(entry.first_read(&file), first, "and not when it was last read");
    file.pid = Pid::new(i32::MAX).unwrap();
    assert!(entry.first_read(&file) > first, "a relaunch");
    drop(node);
    child.wait().unwrap();
}

#[test]
fn what_only_says_that_it_is_a_container_is_left_alone() {
    let _manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    let mut other = node.launch(id(2), &map(2), &format!("export CONTAINER_ID=\"{}\"", id(3)));
    // A process that leads no session, and one that is not there.
    let mut asleep =
        Command::new("sleep").arg("600").env("CONTAINER_ID", id(4).to_string()).spawn().unwrap();
    node.pid_file(id(4), asleep.id());
    node.pid_file(id(5), i32::MAX as u32);
    let ignored = |finder: &NodeFinder, container: ContainerId| {
        let info = finder.containers().find(|info| info.id == container);
        info.and_then(|info| info.ignored)
    };
    let found = node.until(|_, finder| ignored(finder, id(2)).is_some());
    assert_eq!(found, []);
    assert!(ignored(&node.finder, id(2)).unwrap().contains("another CONTAINER_ID"));
    // Much later it is still no container, and that is logged.
    let mut now = clock::now();
    for _ in 0..40 {
        now.boot = now.boot.after(Duration::from_secs(3));
        assert_eq!(node.pass(now), []);
    }
    assert!(ignored(&node.finder, id(4)).unwrap().contains("does not lead its session"));
    assert_eq!(ignored(&node.finder, id(5)), None, "there is no process to ignore");
    asleep.kill().unwrap();
    asleep.wait().unwrap();
    drop(node);
    other.wait().unwrap();
}

#[test]
fn hints_change_how_a_container_stands() {
    let _manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    let container = id(2).to_string();
    let early = discover::Hint { container, opportunistic: Some(true), ..Default::default() };
    node.hint(&early);
    let mut child = node.start(id(2), "python3 task.py");
    let found = node.until(|found, _| !found.is_empty());
    assert_eq!((found[0].standing, found[0].priority), (Some(Standing::Opportunistic), None));
    node.hint(&early);
    assert_eq!(node.pass(clock::now()), [], "nothing new");
    // One that is lost and found again is what was reported of it before.
    node.finder.entries.clear();
    let mut later = clock::now();
    later.boot = later.boot.after(Duration::from_secs(3));
    assert_eq!(node.pass(later)[0].standing, Some(Standing::Opportunistic));
    node.finder.answered(found[0].process, later, Ok(TaskId { epoch: 1, number: 0 }));
    let late = discover::Hint { priority: Some(Priority(7)), opportunistic: Some(false), ..early };
    node.hint(&late);
    let again = node.pass(clock::now());
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].standing, again[0].priority), (Some(Standing::Slot), Some(Priority(7))));
    assert_eq!(again[0].process, found[0].process);
    drop(node);
    child.wait().unwrap();
}

#[test]
fn a_refusal_is_reported_and_asked_again_later() {
    let _manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    let mut child = node.start(id(2), &map(2));
    let process = node.until(|found, _| !found.is_empty())[0].process;
    let now = clock::now();
    let refusal = CommandError::new(ErrorKind::FailedPrecondition, "frozen");
    node.finder.answered(process, now, Err(refusal));
    assert_eq!(node.finder.containers().next().unwrap().ignored.as_deref(), Some("frozen"));
    let later = Moment { boot: now.boot.after(Duration::from_secs(31)), ..now };
    assert_eq!(node.pass(later).len(), 1);
    drop(node);
    child.wait().unwrap();
}

#[test]
fn without_nm_private_descendants_of_the_node_manager_are_found() {
    let mut manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::at(tempfile::tempdir().unwrap());
    let mut stranger = Command::new("setsid")
        .args(["sleep", "600"])
        .env("CONTAINER_ID", id(3).to_string())
        .spawn()
        .unwrap();
    node.leaders.push(Pid::new(stranger.id() as i32).unwrap());
    manager.run(&format!("CONTAINER_ID={} setsid sleep 600 &", id(2)));
    // Another Hadoop on this machine may be found too; it is left alone.
    let own = |found: &&DiscoveredTask| name(found).starts_with("container_1700000000000_");
    let found = node.until(|found, _| found.iter().any(|found| own(&found)));
    let found: Vec<&DiscoveredTask> = found.iter().filter(own).collect();
    node.leaders.extend(found.iter().map(|found| found.process.pid));
    assert_eq!(found.into_iter().map(name).collect::<Vec<_>>(), [id(2).to_string()]);
    let troubles: Vec<&Path> = node.finder.troubles().map(|(path, _)| path).collect();
    assert_eq!(troubles, [node.dir.path().join("nmPrivate")]);
    drop(node);
    stranger.wait().unwrap();
}

/// Another user's NodeManager is a program of that name.
#[test]
#[ignore = "needs root and cgroups"]
fn who_owns_no_local_directory_has_no_containers() {
    const NOBODY: u32 = 65534;
    const MASTER: &str = "org.apache.hadoop.mapreduce.v2.app.MRAppMaster";
    let mut impostor = Daemon::start_as(NODE_MANAGER, NOBODY);
    let mut manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::at(tempfile::tempdir().unwrap());
    impostor.run(&format!(
        "CONTAINER_ID={} setsid bash -c 'exec -a java bash -s {MASTER} < <(sleep 600)' &",
        id(2)
    ));
    // Proof that looking was of use: one that is a container, of the same kind and begun later.
    manager.run(&format!(
        "CONTAINER_ID={} setsid bash -c 'exec -a java bash -s {MASTER} < <(sleep 600)' &",
        id(1)
    ));
    let found = node.until(|found, _| found.iter().any(|found| name(found) == id(1).to_string()));
    let named = |wanted: &str| found.iter().any(|found| name(found) == wanted);
    assert!(!named(&id(2).to_string()));
    let own = found.iter().find(|found| name(found) == id(1).to_string()).unwrap();
    assert_eq!(own.standing, None, "no pid file, no script: no master's place");
    for seen in proc::all().unwrap() {
        let at = proc::variable(seen.process.pid, "CONTAINER_ID").ok().flatten();
        let ours = [Some(id(2).to_string()), Some(id(1).to_string())].contains(&at);
        if seen.leads && ours {
            node.leaders.push(seen.process.pid);
        }
    }
}

/// What a listing costs while a thousand containers run.
#[test]
#[ignore = "a measurement"]
fn a_listing_of_a_thousand_known_containers() {
    if std::env::var_os("LRS_TEST_MEASURE").is_none() {
        println!("SKIPPED: a measurement; set LRS_TEST_MEASURE to take it");
        return;
    }
    const COUNT: u64 = 1000;
    let _manager = Daemon::start(NODE_MANAGER);
    let mut node = Node::new();
    node.until(|_, _| true);
    let mut children: Vec<Child> =
        (1..=COUNT).map(|number| node.start(id(number), &map(number))).collect();
    node.until(|found, _| found.len() as u64 >= COUNT);
    let mut now = clock::now();
    for _ in 0..3 {
        now.boot = now.boot.after(Duration::from_secs(61));
        let begun = clock::boot_time();
        assert_eq!(node.pass(now), []);
        println!("a listing takes {:?}", clock::boot_time().since(begun));
    }
    drop(node);
    for child in &mut children {
        child.wait().unwrap();
    }
}
