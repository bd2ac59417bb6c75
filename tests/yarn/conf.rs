//! A cluster's configuration files. Only what must differ from Hadoop's defaults is written.

use std::fmt::Display;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::certificate;
use crate::hadoop::{Hadoop, SMALL_JVM};

/// Memory of a container, MiB; its heap is smaller.
pub const CONTAINER: u32 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    Capacity,
    Fair,
}

/// `container-executor`, and whether it puts containers into groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    pub path: PathBuf,
    pub cgroups: Option<Quota>,
}

/// What YARN's groups say of CPU time beside their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    None,
    /// `strict-resource-usage`: no container gets more than its vcores.
    Strict,
}

/// What a test may choose.
#[derive(Clone, Debug)]
pub struct Options {
    pub version: &'static str,
    pub scheduler: Scheduler,
    /// What each NodeManager has by configuration: containers of [`CONTAINER`].
    pub containers: u32,
    pub node_managers: usize,
    /// Files on a NameNode and a DataNode instead of the local file system.
    pub hdfs: bool,
    /// Two of them share their state, and one is active at a time.
    pub resource_managers: usize,
    /// How many opportunistic containers may queue at a NodeManager; 0: there are none.
    pub opportunistic: u32,
    /// An empty directory for the NodeManagers' local directories and the files of jobs, which then
    /// are on a disk of their own; the caller's to remove.
    pub data: Option<PathBuf>,
    /// LinuxContainerExecutor by this helper; containers and jobs are then those of the account
    /// `nobody`.
    pub helper: Option<Helper>,
    /// Web services, but those of HDFS, by https alone, under a [`certificate`] of the cluster's.
    pub https: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            version: crate::hadoop::NEWEST,
            scheduler: Scheduler::Capacity,
            containers: 3,
            node_managers: 1,
            hdfs: false,
            resource_managers: 1,
            opportunistic: 0,
            data: None,
            helper: None,
            https: false,
        }
    }
}

impl Options {
    /// Of all web services but those of HDFS.
    pub fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }
}

/// Ports of all daemons but the NodeManagers.
#[derive(Clone, Debug)]
pub struct Ports {
    pub managers: Vec<ManagerPorts>,
    pub history: [u16; 3],
    pub name_node: [u16; 2],
    pub data_node: [u16; 3],
}

/// Ports of one ResourceManager.
#[derive(Clone, Debug)]
pub struct ManagerPorts {
    pub rpc: [u16; 4],
    pub web: u16,
}

/// Ports of one NodeManager.
#[derive(Clone, Debug)]
pub struct NodePorts {
    /// Also that of its node id.
    pub rpc: u16,
    pub localizer: u16,
    pub web: u16,
    pub shuffle: u16,
}

/// Hands out ports without a listener.
///
/// They are below those the kernel gives to outgoing connections: a daemon that is stopped must
/// find its port free when it comes back.
pub struct FreePorts {
    next: u16,
    end: u16,
}

impl FreePorts {
    pub fn new() -> FreePorts {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("a range");
        let end: u16 =
            range.split_whitespace().next().and_then(|w| w.parse().ok()).expect("a port");
        let width = u32::from(end - 10_000);
        let offset = std::process::id().wrapping_mul(97) % width;
        FreePorts { next: 10_000 + u16::try_from(offset).expect("below a port"), end }
    }

    pub fn take(&mut self) -> u16 {
        for _ in 10_000..self.end {
            let port = self.next;
            self.next = if port + 1 < self.end { port + 1 } else { 10_000 };
            if TcpListener::bind(("0.0.0.0", port)).is_ok() {
                return port;
            }
        }
        panic!("every port from 10000 to {} is taken", self.end);
    }

    fn several<const N: usize>(&mut self) -> [u16; N] {
        std::array::from_fn(|_| self.take())
    }

    pub fn cluster(&mut self, resource_managers: usize) -> Ports {
        let mut manager = || ManagerPorts { rpc: self.several(), web: self.take() };
        Ports {
            managers: (0..resource_managers).map(|_| manager()).collect(),
            history: self.several(),
            name_node: self.several(),
            data_node: self.several(),
        }
    }

    pub fn node(&mut self) -> NodePorts {
        NodePorts {
            rpc: self.take(),
            localizer: self.take(),
            web: self.take(),
            shuffle: self.take(),
        }
    }
}

type Properties = Vec<(&'static str, String)>;

/// What the configuration directory of one daemon is made of.
pub struct Files<'a> {
    /// The directory.
    pub conf: &'a Path,
    pub cluster: &'a Path,
    /// Directory of the NodeManager that owns the logs and state they name; all other daemons read
    /// the first's.
    pub node: &'a Path,
    /// Its local directory.
    pub local: &'a Path,
    /// For the groups of a LinuxContainerExecutor, from the root of the cpu hierarchy on.
    pub hierarchy: &'a str,
    pub node_ports: &'a NodePorts,
    /// Index of the ResourceManager they make of one that reads them.
    pub manager: usize,
    pub hadoop: &'a Hadoop,
    pub options: &'a Options,
    pub ports: &'a Ports,
}

impl Files<'_> {
    pub fn write(&self) {
        let &Files { conf, cluster, hadoop, options, ports, .. } = self;
        fs::create_dir_all(conf).expect("the configuration's directory");
        // The pages of HDFS's daemons are not in their jars; without a place for them they do not
        // start.
        for name in ["hdfs", "datanode"] {
            fs::create_dir_all(conf.join("webapps").join(name)).expect("a place for pages");
        }
        let file = |name: &str, properties: Properties| {
            fs::write(conf.join(name), xml(properties)).expect("a configuration file");
        };
        file("core-site.xml", core(cluster, options, ports));
        file("hdfs-site.xml", hdfs(cluster, ports));
        file("mapred-site.xml", mapred(cluster, hadoop, ports, self.node_ports));
        file("capacity-scheduler.xml", capacity());
        let fixed = yarn(self).into_iter().map(|(name, value)| (name.to_owned(), value));
        let executor = executor(self).into_iter().map(|(name, value)| (name.to_owned(), value));
        let yarn = xml(managers(self).into_iter().chain(fixed).chain(executor));
        fs::write(conf.join("yarn-site.xml"), yarn).expect("a configuration file");
        if options.https {
            file("ssl-server.xml", key(cluster));
        }
        fs::write(conf.join("fair-scheduler.xml"), FAIR).expect("the fair scheduler's file");
        fs::write(conf.join("log4j.properties"), LOG4J).expect("the log's configuration");
    }
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn under(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

fn core(cluster: &Path, options: &Options, ports: &Ports) -> Properties {
    let root = match options.hdfs {
        true => format!("hdfs://{}", local(ports.name_node[0])),
        false => "file:///".to_owned(),
    };
    vec![("fs.defaultFS", root), ("hadoop.tmp.dir", under(cluster, "tmp"))]
}

fn hdfs(cluster: &Path, ports: &Ports) -> Properties {
    vec![
        ("dfs.replication", "1".to_owned()),
        ("dfs.namenode.name.dir", under(cluster, "name")),
        ("dfs.datanode.data.dir", under(cluster, "data")),
        ("dfs.namenode.http-address", local(ports.name_node[1])),
        ("dfs.datanode.address", local(ports.data_node[0])),
        ("dfs.datanode.ipc.address", local(ports.data_node[1])),
        ("dfs.datanode.http.address", local(ports.data_node[2])),
        ("dfs.namenode.safemode.extension", "0".to_owned()),
    ]
}

/// What a ResourceManager is called where there are two.
pub fn manager_id(index: usize) -> String {
    format!("rm{}", index + 1)
}

/// Where the ResourceManagers are; of two each has keys that end in its id.
fn managers(files: &Files) -> Vec<(String, String)> {
    let managers = &files.ports.managers;
    let web = if files.options.https { "webapp.https.address" } else { "webapp.address" };
    let mut found = Vec::new();
    let mut set = |key: &str, value: &str| {
        found.push((format!("yarn.resourcemanager.{key}"), value.to_owned()));
    };
    for (index, ports) in managers.iter().enumerate() {
        let id = if managers.len() > 1 { format!(".{}", manager_id(index)) } else { String::new() };
        set(&format!("hostname{id}"), "127.0.0.1");
        let [applications, schedule, track, admin] = ports.rpc;
        for (key, port) in [
            ("address", applications),
            ("scheduler.address", schedule),
            ("resource-tracker.address", track),
            ("admin.address", admin),
            (web, ports.web),
        ] {
            set(&format!("{key}{id}"), &local(port));
        }
    }
    if managers.len() > 1 {
        let ids: Vec<String> = (0..managers.len()).map(manager_id).collect();
        set("ha.enabled", "true");
        set("ha.rm-ids", &ids.join(","));
        // For everybody: by itself Hadoop takes the one at an address of this machine, and both
        // are. Clients try all of them whatever is written here.
        set("ha.id", &manager_id(files.manager));
        // Who is active is the test's to say; an election needs ZooKeeper.
        set("ha.automatic-failover.enabled", "false");
        set("cluster-id", "tests");
    }
    found
}

fn yarn(files: &Files) -> Properties {
    let &Files { conf, cluster, node, node_ports, hadoop, options, .. } = files;
    let scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler";
    let scheduler = match options.scheduler {
        Scheduler::Capacity => format!("{scheduler}.capacity.CapacityScheduler"),
        Scheduler::Fair => format!("{scheduler}.fair.FairScheduler"),
    };
    let (policy, node_web) = match options.https {
        true => ("HTTPS_ONLY", "yarn.nodemanager.webapp.https.address"),
        false => ("HTTP_ONLY", "yarn.nodemanager.webapp.address"),
    };
    let beat = || "100".to_owned();
    let yes = || "true".to_owned();
    vec![
        ("yarn.http.policy", policy.to_owned()),
        ("yarn.resourcemanager.scheduler.class", scheduler),
        ("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", beat()),
        ("yarn.resourcemanager.nodemanagers.heartbeat-interval-min-ms", beat()),
        ("yarn.resourcemanager.nodemanagers.heartbeat-interval-max-ms", beat()),
        // A restarted ResourceManager knows its applications, and they go on.
        ("yarn.resourcemanager.recovery.enabled", yes()),
        (
            "yarn.resourcemanager.store.class",
            "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore".into(),
        ),
        (
            "yarn.resourcemanager.fs.state-store.uri",
            format!("file://{}", cluster.join("rm-state").display()),
        ),
        ("yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms", "500".to_owned()),
        ("yarn.resourcemanager.connect.retry-interval.ms", "250".to_owned()),
        ("yarn.client.failover-sleep-base-ms", "250".to_owned()),
        ("yarn.client.failover-sleep-max-ms", "500".to_owned()),
        (
            "yarn.resourcemanager.opportunistic-container-allocation.enabled",
            (options.opportunistic > 0).to_string(),
        ),
        (
            "yarn.nodemanager.opportunistic-containers-max-queue-length",
            options.opportunistic.to_string(),
        ),
        ("yarn.nodemanager.hostname", "127.0.0.1".to_owned()),
        ("yarn.nodemanager.address", local(node_ports.rpc)),
        ("yarn.nodemanager.localizer.address", local(node_ports.localizer)),
        (node_web, local(node_ports.web)),
        ("yarn.nodemanager.aux-services", "mapreduce_shuffle".to_owned()),
        ("yarn.nodemanager.local-dirs", files.local.display().to_string()),
        ("yarn.nodemanager.log-dirs", under(node, "containers")),
        ("yarn.nodemanager.resource.memory-mb", (options.containers * CONTAINER).to_string()),
        ("yarn.nodemanager.resource.cpu-vcores", options.containers.to_string()),
        ("yarn.scheduler.minimum-allocation-mb", CONTAINER.to_string()),
        // The fair scheduler rounds up to these steps, by itself to 1 GiB.
        ("yarn.scheduler.increment-allocation-mb", CONTAINER.to_string()),
        // A raised node must still satisfy the largest request the scheduler lets in.
        ("yarn.scheduler.maximum-allocation-mb", (8 * CONTAINER).to_string()),
        ("yarn.nodemanager.vmem-check-enabled", "false".to_owned()),
        ("yarn.nodemanager.pmem-check-enabled", "false".to_owned()),
        (
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage",
            "99".to_owned(),
        ),
        // A NodeManager that is stopped leaves its containers, and finds them again.
        ("yarn.nodemanager.recovery.enabled", yes()),
        ("yarn.nodemanager.recovery.supervised", yes()),
        ("yarn.nodemanager.recovery.dir", under(node, "state")),
        ("yarn.application.classpath", format!("{},{}/*", conf.display(), hadoop.lib.display())),
    ]
}

fn executor(files: &Files) -> Properties {
    let Some(Helper { path, cgroups }) = &files.options.helper else { return Vec::new() };
    let linux = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor";
    let mut found = vec![
        ("yarn.nodemanager.container-executor.class", linux.to_owned()),
        ("yarn.nodemanager.linux-container-executor.path", path.display().to_string()),
        // As the helper's own container-executor.cfg, which `run` writes, has it.
        ("yarn.nodemanager.linux-container-executor.group", "daemon".to_owned()),
    ];
    if let Some(quota) = cgroups {
        found.extend([
            ("yarn.nodemanager.resource.cpu.enabled", "true".to_owned()),
            (
                "yarn.nodemanager.linux-container-executor.cgroups.hierarchy",
                files.hierarchy.to_owned(),
            ),
            (
                "yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage",
                (*quota == Quota::Strict).to_string(),
            ),
        ]);
    }
    found
}

fn mapred(cluster: &Path, hadoop: &Hadoop, ports: &Ports, node_ports: &NodePorts) -> Properties {
    let jvm = format!("-Xmx300m {}", SMALL_JVM.join(" "));
    let off = || "false".to_owned();
    let [history, history_web, history_admin] = ports.history;
    vec![
        ("mapreduce.framework.name", "yarn".to_owned()),
        ("mapreduce.application.classpath", format!("{}/*", hadoop.lib.display())),
        ("yarn.app.mapreduce.am.resource.mb", CONTAINER.to_string()),
        ("yarn.app.mapreduce.am.command-opts", jvm.clone()),
        ("yarn.app.mapreduce.am.staging-dir", under(cluster, "staging")),
        ("mapreduce.map.memory.mb", CONTAINER.to_string()),
        ("mapreduce.reduce.memory.mb", CONTAINER.to_string()),
        ("mapreduce.map.java.opts", jvm.clone()),
        ("mapreduce.reduce.java.opts", jvm),
        ("mapreduce.task.io.sort.mb", "32".to_owned()),
        // A second attempt would be a task the tests did not count.
        ("mapreduce.map.speculative", off()),
        ("mapreduce.reduce.speculative", off()),
        ("yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", "200".to_owned()),
        ("mapreduce.client.progressmonitor.pollinterval", "200".to_owned()),
        ("mapreduce.client.completion.pollinterval", "200".to_owned()),
        // Here, for mapred-default.xml has it too, and is read after yarn-site.xml.
        ("mapreduce.shuffle.port", node_ports.shuffle.to_string()),
        ("mapreduce.jobhistory.address", local(history)),
        ("mapreduce.jobhistory.webapp.address", local(history_web)),
        ("mapreduce.jobhistory.admin.address", local(history_admin)),
    ]
}

/// The key of all web services.
fn key(cluster: &Path) -> Properties {
    let store = certificate::key_store(cluster).display().to_string();
    let password = || certificate::PASSWORD.to_owned();
    vec![
        ("ssl.server.keystore.location", store),
        ("ssl.server.keystore.type", "pkcs12".to_owned()),
        ("ssl.server.keystore.password", password()),
        ("ssl.server.keystore.keypassword", password()),
    ]
}

fn capacity() -> Properties {
    let calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator";
    vec![
        ("yarn.scheduler.capacity.root.queues", "default".to_owned()),
        ("yarn.scheduler.capacity.root.default.capacity", "100".to_owned()),
        ("yarn.scheduler.capacity.maximum-am-resource-percent", "0.7".to_owned()),
        ("yarn.scheduler.capacity.resource-calculator", calculator.to_owned()),
    ]
}

/// Everything goes to `root.default`: by its own rules a queue is made for each user, and that of
/// user `root` would be the root of all queues.
const FAIR: &str = "\
<allocations>
  <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>
  <queueMaxAMShareDefault>0.7</queueMaxAMShareDefault>
  <queuePlacementPolicy><rule name=\"default\"/></queuePlacementPolicy>
</allocations>
";

const LOG4J: &str = "\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
";

fn xml<N: Display>(properties: impl IntoIterator<Item = (N, String)>) -> String {
    let mut text = "<?xml version=\"1.0\"?>\n<configuration>\n".to_owned();
    for (name, value) in properties {
        let value = value.replace('&', "&amp;").replace('<', "&lt;");
        text += &format!("<property><name>{name}</name><value>{value}</value></property>\n");
    }
    text + "</configuration>\n"
}
