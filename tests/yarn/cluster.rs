//! A real cluster for one test: ResourceManager, NodeManagers and JobHistoryServer as processes on
//! loopback, with files, ports and a cgroup of their own. Dropped, it leaves nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::certificate;
use crate::conf::{self, Files, FreePorts, NodePorts, Options, Ports};
use crate::hadoop::Hadoop;
use crate::harness::groups_below;
use crate::process::{self, Container, Process};
use crate::rest;

/// Longest wait for anything: a start takes 10 s, of a job as well, three times that on a busy node.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a daemon is asked whether it is there.
const STEP: Duration = Duration::from_millis(100);

/// A daemon of the cluster. Each can be killed, stopped and started on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    ResourceManager(usize),
    NodeManager(usize),
    History,
    NameNode,
    DataNode,
}

impl Role {
    fn class(self) -> &'static str {
        match self {
            Role::ResourceManager(_) => {
                "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
            }
            Role::NodeManager(_) => "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
            Role::History => "org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer",
            Role::NameNode => "org.apache.hadoop.hdfs.server.namenode.NameNode",
            Role::DataNode => "org.apache.hadoop.hdfs.server.datanode.DataNode",
        }
    }
}

pub struct Cluster {
    dir: Option<tempfile::TempDir>,
    pub hadoop: Hadoop,
    options: Options,
    ports: Ports,
    nodes: Vec<NodePorts>,
    /// Index of the ResourceManager that was made the active one last.
    active: usize,
    daemons: BTreeMap<Role, Process>,
    /// That of the NodeManagers, as a systemd unit would have one.
    group: PathBuf,
    /// Names given to clients' logs and to files of jobs.
    names: usize,
    began: Instant,
}

impl Cluster {
    /// Starts one and waits until every node is RUNNING.
    pub fn start(options: Options) -> Cluster {
        let mut cluster = Cluster::prepare(options);
        if cluster.options.hdfs {
            cluster.start_hdfs();
        }
        for index in 0..cluster.ports.managers.len() {
            cluster.launch(Role::ResourceManager(index));
        }
        for index in 0..cluster.nodes.len() {
            cluster.launch(Role::NodeManager(index));
        }
        cluster.launch(Role::History);
        if cluster.ports.managers.len() > 1 {
            cluster.activate(0);
        }
        cluster.wait_running();
        println!("a cluster was up after {:.1} s", cluster.began.elapsed().as_secs_f64());
        cluster
    }

    fn prepare(options: Options) -> Cluster {
        let began = Instant::now();
        let hadoop = Hadoop::find(options.version);
        let dir = tempfile::Builder::new().prefix("lrs-yarn-").tempdir().expect("a directory");
        let mut free = FreePorts::new();
        let ports = free.cluster(options.resource_managers);
        let nodes: Vec<NodePorts> = (0..options.node_managers).map(|_| free.node()).collect();
        let group = group_for(dir.path());
        fs::create_dir(&group).expect("a cgroup: this test needs root and cgroups");
        let cluster = Cluster {
            dir: Some(dir),
            hadoop,
            options,
            ports,
            nodes,
            active: 0,
            daemons: BTreeMap::new(),
            group,
            names: 0,
            began,
        };
        for name in ["logs", "java", "staging", "tmp"] {
            fs::create_dir(cluster.dir().join(name)).expect("a directory");
        }
        if cluster.options.helper.is_some() {
            cluster.open_to_no_other();
        }
        if cluster.options.https {
            certificate::make(cluster.dir(), &cluster.hadoop.java_home);
        }
        for index in 0..cluster.nodes.len() {
            fs::create_dir_all(cluster.local_dir(index)).expect("a local directory");
            cluster.configure(index, 0, &cluster.conf(index));
        }
        for index in 1..cluster.ports.managers.len() {
            cluster.configure(0, index, &cluster.manager_conf(index));
        }
        cluster
    }

    /// What a job reads and writes that is not run by the user of the daemons.
    fn open_to_no_other(&self) {
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(self.dir(), 0o711);
        for name in ["java", "staging", "tmp"] {
            mode(&self.dir().join(name), 0o1777);
        }
    }

    /// Writes a configuration directory: of a NodeManager, and which ResourceManager that makes of
    /// one that reads it.
    fn configure(&self, node: usize, manager: usize, conf: &Path) {
        let files = Files {
            conf,
            cluster: self.dir(),
            node: &self.node_dir(node),
            local: &self.local_dir(node),
            hierarchy: &self.hierarchy(),
            node_ports: &self.nodes[node],
            manager,
            hadoop: &self.hadoop,
            options: &self.options,
            ports: &self.ports,
        };
        files.write();
    }

    fn start_hdfs(&mut self) {
        let format = ["-format", "-nonInteractive"];
        let mut client = self.client(Role::NameNode.class(), &format.map(String::from));
        let status = self.patiently("a formatted name node", |_| client.ended());
        assert!(status.success(), "no name node:\n{}", client.output());
        self.launch(Role::NameNode);
        self.launch(Role::DataNode);
    }

    /// Where a LinuxContainerExecutor makes its groups, from the root of the hierarchy on.
    pub fn hierarchy(&self) -> String {
        let own = self.group.file_name().and_then(|name| name.to_str()).expect("our own name");
        format!("/{own}/containers")
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("there until the drop").path()
    }

    fn node_dir(&self, index: usize) -> PathBuf {
        self.dir().join(format!("node-{index}"))
    }

    /// The configuration directory of a NodeManager; the first one's is that of all others.
    pub fn conf(&self, index: usize) -> PathBuf {
        self.node_dir(index).join("conf")
    }

    /// The configuration directory of a ResourceManager.
    fn manager_conf(&self, index: usize) -> PathBuf {
        match index {
            0 => self.conf(0),
            _ => self.dir().join(format!("manager-{index}")).join("conf"),
        }
    }

    /// A NodeManager's local directory.
    pub fn local_dir(&self, index: usize) -> PathBuf {
        self.data_dir().join(format!("node-{index}")).join("local")
    }

    /// Where a NodeManager's containers write their output, which stays.
    pub fn logs_of_containers(&self, index: usize) -> PathBuf {
        self.node_dir(index).join("containers")
    }

    /// Where tasks read and write.
    fn data_dir(&self) -> &Path {
        self.options.data.as_deref().unwrap_or_else(|| self.dir())
    }

    /// `http://127.0.0.1:port`, or https, of the ResourceManager that is active.
    pub fn manager_url(&self) -> String {
        self.url_of_manager(self.active)
    }

    /// The same of any.
    pub fn url_of_manager(&self, index: usize) -> String {
        self.url(self.ports.managers[index].web)
    }

    /// `http://127.0.0.1:port` of a NodeManager.
    pub fn node_url(&self, index: usize) -> String {
        self.url(self.nodes[index].web)
    }

    /// Of any web service but those of HDFS.
    fn url(&self, port: u16) -> String {
        format!("{}://127.0.0.1:{port}", self.options.scheme())
    }

    /// What a web service of YARN answers; see [`rest::get`].
    pub fn get(&self, address: &str) -> Option<Value> {
        if !self.options.https {
            return rest::get(address);
        }
        let pem = fs::read(certificate::pem(self.dir())).expect("the certificate");
        rest::get_trusting(address, &pem)
    }

    /// Makes a ResourceManager the active one of two, and the other, if it runs, the standby.
    pub fn activate(&mut self, index: usize) {
        let other = 1 - index;
        if self.daemons.contains_key(&Role::ResourceManager(other)) {
            self.await_state(other, None);
            self.administer(&["-transitionToStandby", &conf::manager_id(other)]);
        }
        self.await_state(index, None);
        // Without that a standby is refused while the other does not answer.
        self.administer(&["-transitionToActive", "--forceactive", &conf::manager_id(index)]);
        self.await_state(index, Some("ACTIVE"));
        self.active = index;
    }

    /// Waits until a ResourceManager answers, with this state if it is given.
    fn await_state(&self, index: usize, state: Option<&str>) {
        let address = format!("{}/ws/v1/cluster/info", self.url_of_manager(index));
        self.patiently("a resource manager's state", |cluster| {
            let found = cluster.get(&address)?["clusterInfo"]["haState"].as_str()?.to_owned();
            state.is_none_or(|state| found == state).then_some(())
        });
    }

    /// Runs `yarn rmadmin`.
    pub fn administer(&mut self, words: &[&str]) {
        let arguments: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut client = self.client("org.apache.hadoop.yarn.client.cli.RMAdminCLI", &arguments);
        let status = self.patiently("the administration's client", |_| client.ended());
        assert!(status.success(), "{words:?}: {}", client.output());
    }

    /// Starts a daemon without waiting for it.
    pub fn launch(&mut self, role: Role) {
        let (conf, group) = match role {
            Role::NodeManager(index) => (self.conf(index), Some(self.group.as_path())),
            Role::ResourceManager(index) => (self.manager_conf(index), None),
            _ => (self.conf(0), None),
        };
        let mut words = self.hadoop.java(&conf, "256m");
        words.push(format!("-Dhadoop.log.dir={}", self.dir().join("logs").display()));
        words.push(self.scratch());
        words.push(role.class().to_owned());
        let log = self.dir().join("logs").join(format!("{role:?}.log"));
        let process = Process::start(&words, &self.hadoop.java_home, group, &log);
        self.daemons.insert(role, process);
    }

    /// Where a web application unpacks its pages, which a kill would leave there.
    fn scratch(&self) -> String {
        format!("-Djava.io.tmpdir={}", self.dir().join("java").display())
    }

    /// SIGKILL; containers stay.
    pub fn kill(&mut self, role: Role) {
        self.daemons.remove(&role).expect("a daemon that runs").kill();
    }

    /// SIGTERM; containers stay, for the NodeManager is to be supervised.
    pub fn stop(&mut self, role: Role) {
        self.daemons.remove(&role).expect("a daemon that runs").stop();
    }

    pub fn pid(&self, role: Role) -> i32 {
        self.daemons.get(&role).expect("a daemon that runs").pid()
    }

    /// Waits until the ResourceManager has every NodeManager, each of this life, and the history
    /// answers.
    pub fn wait_running(&mut self) {
        // By yarn.http.policy too, whatever its own says.
        let history = format!("{}/ws/v1/history/info", self.url(self.ports.history[1]));
        self.patiently("the job history", |cluster| cluster.get(&history));
        for index in 0..self.nodes.len() {
            self.patiently("a node manager", |cluster| {
                cluster.get(&format!("{}/ws/v1/node/info", cluster.node_url(index)))
            });
        }
        self.patiently("running nodes", |cluster| {
            let running = |index| cluster.node(index).is_some_and(|n| n["state"] == "RUNNING");
            (0..cluster.nodes.len()).all(running).then_some(())
        });
    }

    /// What the ResourceManager says of a node. Its id begins with the name that the loopback
    /// address resolves to, so it is found by its port.
    pub fn node(&self, index: usize) -> Option<Value> {
        let answer = self.get(&format!("{}/ws/v1/cluster/nodes", self.manager_url()))?;
        let port = format!(":{}", self.nodes[index].rpc);
        rest::list(&answer, "nodes", "node")
            .into_iter()
            .find(|node| node["id"].as_str().is_some_and(|id| id.ends_with(&port)))
    }

    /// The containers the ResourceManager may place on a node, by its memory.
    pub fn advertised(&self, index: usize) -> Option<u32> {
        let memory = self.node(index)?["totalResource"]["memory"].as_u64()?;
        u32::try_from(memory / u64::from(conf::CONTAINER)).ok()
    }

    /// The attempts an application's master needed.
    pub fn masters(&self, application: &str) -> usize {
        let address =
            format!("{}/ws/v1/cluster/apps/{application}/appattempts", self.manager_url());
        let answer = self.patiently("the attempts", |cluster| cluster.get(&address));
        rest::list(&answer, "appAttempts", "appAttempt").len()
    }

    /// The containers that run, by the NodeManagers' pid files.
    pub fn containers(&self) -> Vec<Container> {
        let dirs: Vec<PathBuf> = (0..self.nodes.len()).map(|index| self.local_dir(index)).collect();
        process::containers(&dirs)
    }

    /// An unused path for the files of a job.
    pub fn fresh(&mut self, name: &str) -> PathBuf {
        let name = self.name(name);
        self.data_dir().join(name)
    }

    /// A name that nothing of this cluster has yet.
    fn name(&mut self, name: &str) -> String {
        self.names += 1;
        format!("{name}-{}", self.names)
    }

    /// Starts a program of Hadoop's as a client of this cluster.
    pub fn client(&mut self, class: &str, arguments: &[String]) -> Process {
        self.client_of(&[], class, arguments)
    }

    /// The same of a framework with libraries of its own, behind those of Hadoop.
    pub fn client_of(&mut self, libs: &[&Path], class: &str, arguments: &[String]) -> Process {
        let mut words = self.hadoop.java(&self.conf(0), "256m");
        for lib in libs {
            let paths = words.last_mut().expect("the class path");
            *paths += &format!(":{}/*", lib.display());
        }
        // Below which DistributedShell keeps what its containers are to find.
        words.push(format!("-Duser.home={}", self.dir().join("staging").display()));
        words.push(self.scratch());
        words.push(class.to_owned());
        words.extend_from_slice(arguments);
        if self.options.helper.is_some() {
            // In the local file system a job's files belong to who submits it.
            let account = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"];
            words.splice(..0, account.map(str::to_owned));
        }
        self.program(&words)
    }

    /// Starts any program that is a client of this cluster.
    pub fn program(&mut self, words: &[String]) -> Process {
        let name = self.name("client");
        let log = self.dir().join("logs").join(name);
        Process::start(words, &self.hadoop.java_home, None, &log)
    }

    /// Asks again and again until there is an answer; a daemon that has ended meanwhile fails.
    pub fn patiently<T>(&self, what: &str, mut ask: impl FnMut(&Cluster) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            for process in self.daemons.values() {
                assert!(!process.is_over(), "waiting for {what}: {}", process.last_words());
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(STEP);
        }
    }
}

/// The group of a cluster in `dir`: below the mount with the cpu controller, and on the unified
/// hierarchy below the only one. `run` knows its name.
pub fn group_for(dir: &Path) -> PathBuf {
    let own = dir.file_name().and_then(|name| name.to_str()).expect("a name of our own");
    let name = format!("lrs-test-{own}");
    let mount = Path::new("/sys/fs/cgroup");
    let cpu = mount.join("cpu");
    if cpu.join("cgroup.procs").exists() { cpu.join(name) } else { mount.join(name) }
}

/// A killed process is in its group until it has ended, which takes a moment.
fn remove_group(group: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = fs::remove_dir(group) {
        if Instant::now() > deadline {
            eprintln!("{} stays: {error}", group.display());
            return;
        }
        std::thread::sleep(STEP);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.daemons.values_mut() {
            process.kill();
        }
        process::sweep(self.dir());
        for group in groups_below(&self.group) {
            remove_group(&group);
        }
        if std::thread::panicking() {
            let kept = self.dir.take().expect("there until the drop").keep();
            eprintln!("the cluster's files and logs: {}", kept.display());
        }
    }
}
