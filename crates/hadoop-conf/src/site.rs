//! What LRS wants to know of a node's Hadoop configuration, as typed answers.
//!
//! Only what is asked for is judged: a node with no ResourceManager in its files
//! can still have its containers found. Where a file does not say, Hadoop's default answers
//! (yarn-default.xml and core-default.xml of 3.4.2), so that an answer is what a running daemon
//! of that configuration uses; [`DEFAULTS`] has the few keys in question.

use std::path::{Path, PathBuf};

use lrs_core::units::Bytes;

use crate::properties::{ConfError, Properties};
use crate::trust::Trust;

/// The defaults of the keys below.
static DEFAULTS: &[(&str, &str)] = &[
    ("hadoop.http.authentication.type", "simple"),
    ("hadoop.security.authentication", "simple"),
    ("hadoop.tmp.dir", "/tmp/hadoop-${user.name}"),
    ("yarn.http.policy", "HTTP_ONLY"),
    ("yarn.nodemanager.address", "${yarn.nodemanager.hostname}:0"),
    (EXECUTOR, "org.apache.hadoop.yarn.server.nodemanager.DefaultContainerExecutor"),
    ("yarn.nodemanager.hostname", "0.0.0.0"),
    (HIERARCHY, "/hadoop-yarn"),
    ("yarn.nodemanager.local-dirs", "${hadoop.tmp.dir}/nm-local-dir"),
    ("yarn.nodemanager.log-dirs", "${yarn.log.dir}/userlogs"),
    ("yarn.nodemanager.opportunistic-containers-max-queue-length", "0"),
    ("yarn.nodemanager.recovery.dir", "${hadoop.tmp.dir}/yarn-nm-recovery"),
    ("yarn.nodemanager.resource.cpu-vcores", "-1"),
    ("yarn.nodemanager.resource.memory-mb", "-1"),
    ("yarn.nodemanager.webapp.address", "${yarn.nodemanager.hostname}:8042"),
    ("yarn.nodemanager.webapp.https.address", "0.0.0.0:8044"),
    ("yarn.resourcemanager.hostname", "0.0.0.0"),
    (
        "yarn.resourcemanager.scheduler.class",
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
    ),
    ("yarn.resourcemanager.webapp.address", "${yarn.resourcemanager.hostname}:8088"),
    ("yarn.resourcemanager.webapp.https.address", "${yarn.resourcemanager.hostname}:8090"),
];

const EXECUTOR: &str = "yarn.nodemanager.container-executor.class";
const HIERARCHY: &str = "yarn.nodemanager.linux-container-executor.cgroups.hierarchy";

/// Most directories, and most ResourceManagers, of a list.
const MAX_ENTRIES: usize = 256;

/// Why an answer cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A file cannot be read.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// The directory is not that of a Hadoop node.
    #[error(
        "there is no {path}; set yarn.conf_dir to the directory the NodeManager has its \
         configuration in",
        path = path.display()
    )]
    Missing {
        /// Which file.
        path: PathBuf,
    },
    /// A value that only the Java process knows in full.
    #[error(
        "{key} in {from} is {value:?}, and only the NodeManager knows what ${{{variable}}} is; \
         {advice}"
    )]
    Unknown {
        /// Which property.
        key: String,
        /// Which file, or "Hadoop's defaults".
        from: String,
        /// As far as it is known.
        value: String,
        /// The first name that is no property.
        variable: String,
        /// What to do.
        advice: String,
    },
    /// A value that is not what Hadoop would take.
    #[error("{key} in {from} is {value:?}, which is not {wanted}")]
    Invalid {
        /// Which property.
        key: String,
        /// Which file, or "Hadoop's defaults".
        from: String,
        /// What it is.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
}

/// The configuration of a Hadoop node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    properties: Properties,
    file: PathBuf,
}

/// How containers are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorClass {
    /// DefaultContainerExecutor: containers stay in the NodeManager's cgroup.
    Default,
    /// LinuxContainerExecutor: a cgroup each, if cgroups are on.
    Linux,
    /// Another class, by its full name.
    Other(String),
}

/// Where the NodeManager puts containers under LinuxContainerExecutor with cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLayout {
    /// The parent of the containers' groups below the mount, with a leading slash and none at
    /// its end: `/hadoop-yarn`.
    pub hierarchy: String,
    /// Where the v1 controllers are mounted by configuration.
    pub mount_path: Option<PathBuf>,
    /// Whether v2 is used (3.5).
    pub v2: bool,
    /// Where cgroup2 is mounted by configuration, beside v1.
    pub v2_mount_path: Option<PathBuf>,
    /// Quotas cap each container: weights cannot give it what others leave.
    pub strict: bool,
}

/// An address as Hadoop writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// As configured; "0.0.0.0" where nothing is.
    pub host: String,
    /// `None`: the daemon takes any port when it starts.
    pub port: Option<u16>,
}

/// Base address of the web services of a ResourceManager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManagerAddress {
    /// Its id among several (`yarn.resourcemanager.ha.rm-ids`).
    pub id: Option<String>,
    /// `http://host:8088`, without a slash at its end.
    pub url: String,
}

impl Site {
    /// Reads core-site.xml, which may be absent, and yarn-site.xml in `conf_dir`, if `trust` lets
    /// them count.
    pub fn read(conf_dir: &Path, trust: &Trust) -> Result<Site, SiteError> {
        let mut properties = Properties::new(DEFAULTS, trust.clone());
        properties.add(&conf_dir.join("core-site.xml"))?;
        let file = conf_dir.join("yarn-site.xml");
        if !properties.add(&file)? {
            return Err(SiteError::Missing { path: file });
        }
        Ok(Site { properties, file })
    }

    /// From the text of one file, for tests of what uses it.
    pub fn parse(text: &str) -> Result<Site, SiteError> {
        let file = PathBuf::from("yarn-site.xml");
        let mut properties = Properties::new(DEFAULTS, Trust::of("yarn"));
        properties.add_text(&file, text)?;
        Ok(Site { properties, file })
    }

    /// yarn-site.xml.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// `yarn.nodemanager.local-dirs`.
    pub fn local_dirs(&self) -> Result<Vec<PathBuf>, SiteError> {
        self.directories("yarn.nodemanager.local-dirs", "set yarn.local_dirs in lrs.toml")
    }

    /// `yarn.nodemanager.log-dirs`.
    pub fn log_dirs(&self) -> Result<Vec<PathBuf>, SiteError> {
        self.directories("yarn.nodemanager.log-dirs", "write the directories out")
    }

    /// `yarn.nodemanager.container-executor.class`.
    pub fn executor(&self) -> Result<ExecutorClass, SiteError> {
        const PACKAGE: &str = "org.apache.hadoop.yarn.server.nodemanager.";
        let class = self.required(EXECUTOR)?;
        Ok(match class.strip_prefix(PACKAGE) {
            Some("DefaultContainerExecutor") => ExecutorClass::Default,
            Some("LinuxContainerExecutor") => ExecutorClass::Linux,
            _ => ExecutorClass::Other(class),
        })
    }

    /// Where containers have groups of their own; `None` where they have none.
    pub fn cgroups(&self) -> Result<Option<CgroupLayout>, SiteError> {
        const PREFIX: &str = "yarn.nodemanager.linux-container-executor";
        let handler = self.value(&format!("{PREFIX}.resources-handler.class"))?;
        let by_handler =
            handler.is_some_and(|class| class.ends_with(".CgroupsLCEResourcesHandler"));
        let v2 = self.flag(&format!("{PREFIX}.cgroups.v2.enabled"))?;
        // With v1 each resource has a hierarchy of its own, and where a container is shared with
        // others or alone is read from that of cpu.
        let resources: &[&str] = if v2 { &["cpu", "disk", "memory", "network"] } else { &["cpu"] };
        let used = by_handler || {
            let mut each = resources.iter();
            each.try_fold(false, |used, resource| {
                let key = format!("yarn.nodemanager.resource.{resource}.enabled");
                Ok::<bool, SiteError>(used || self.flag(&key)?)
            })?
        };
        if !used || self.executor()? != ExecutorClass::Linux {
            return Ok(None);
        }
        let mount_path = |key: &str| -> Result<Option<PathBuf>, SiteError> {
            Ok(self.value(&format!("{PREFIX}.cgroups.{key}"))?.map(PathBuf::from))
        };
        let hierarchy = self.required(HIERARCHY)?;
        let inner = hierarchy.trim_matches('/');
        if inner.is_empty() || inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(self.invalid(HIERARCHY, "a path of a cgroup"));
        }
        Ok(Some(CgroupLayout {
            hierarchy: format!("/{inner}"),
            mount_path: mount_path("mount-path")?,
            v2,
            v2_mount_path: mount_path("v2.mount-path")?,
            strict: self.flag(&format!("{PREFIX}.cgroups.strict-resource-usage"))?,
        }))
    }

    /// `yarn.nodemanager.resource.memory-mb`; `None`: the NodeManager measures the node.
    pub fn memory(&self) -> Result<Option<Bytes>, SiteError> {
        // yarn-default.xml: 8192 unless hardware detection is on.
        let mebibytes = self.resource("yarn.nodemanager.resource.memory-mb", 8192)?;
        Ok(mebibytes.map(|mebibytes| Bytes(u64::from(mebibytes) << 20)))
    }

    /// `yarn.nodemanager.resource.cpu-vcores`; `None`: the NodeManager counts the CPUs.
    pub fn vcores(&self) -> Result<Option<u32>, SiteError> {
        self.resource("yarn.nodemanager.resource.cpu-vcores", 8)
    }

    /// Whether containers outlive the NodeManager (`yarn.nodemanager.recovery.enabled`).
    pub fn recovery(&self) -> Result<bool, SiteError> {
        self.flag("yarn.nodemanager.recovery.enabled")
    }

    /// Where the NodeManager keeps what it needs for that (`yarn.nodemanager.recovery.dir`).
    pub fn recovery_dir(&self) -> Result<PathBuf, SiteError> {
        const KEY: &str = "yarn.nodemanager.recovery.dir";
        let dirs = self.directories(KEY, "write the directory out")?;
        let [dir] = dirs.as_slice() else { return Err(self.invalid(KEY, "an absolute path")) };
        Ok(dir.clone())
    }

    /// Whether containers outlive also a NodeManager that is stopped in order
    /// (`yarn.nodemanager.recovery.supervised`): it leaves them to its supervisor's next one.
    pub fn supervised(&self) -> Result<bool, SiteError> {
        self.flag("yarn.nodemanager.recovery.supervised")
    }

    /// What nodes may have beside memory and vcores: `yarn.resource-types`, as resource-types.xml
    /// or else yarn-site.xml has it, and what the NodeManager's own plug-ins bring
    /// (`yarn.nodemanager.resource-plugins`).
    pub fn other_resource_types(&self) -> Result<Vec<String>, SiteError> {
        let mut properties = self.properties.clone();
        properties.add(&self.file.with_file_name("resource-types.xml"))?;
        let site = Site { properties, file: self.file.clone() };
        let mut types = site.list("yarn.resource-types")?;
        types.extend(site.list("yarn.nodemanager.resource-plugins")?);
        types.retain(|name| !matches!(name.as_str(), "memory-mb" | "vcores"));
        types.sort_unstable();
        types.dedup();
        Ok(types)
    }

    /// `yarn.nodemanager.address`: what the ResourceManager calls this node, if its port is
    /// fixed and its host written as the ResourceManager sees it.
    pub fn node_address(&self) -> Result<HostPort, SiteError> {
        self.host_port("yarn.nodemanager.address", 0)
    }

    /// `yarn.nodemanager.hostname`; `None`: not set.
    pub fn node_host(&self) -> Result<Option<String>, SiteError> {
        let host = self.required("yarn.nodemanager.hostname")?;
        Ok((host != "0.0.0.0").then_some(host))
    }

    /// Base address of the NodeManager's web services, `http://host:port`; `None` where it takes
    /// any port.
    pub fn node_manager(&self) -> Result<Option<String>, SiteError> {
        let address = match self.https()? {
            true => self.host_port("yarn.nodemanager.webapp.https.address", 8044)?,
            false => self.host_port("yarn.nodemanager.webapp.address", 8042)?,
        };
        self.url(&address)
    }

    /// The ResourceManagers, several where high availability is on.
    pub fn resource_managers(&self) -> Result<Vec<ResourceManagerAddress>, SiteError> {
        let ids = match self.flag("yarn.resourcemanager.ha.enabled")? {
            true => self.list("yarn.resourcemanager.ha.rm-ids")?.into_iter().map(Some).collect(),
            false => vec![None],
        };
        if ids.is_empty() {
            return Err(self.invalid("yarn.resourcemanager.ha.rm-ids", "a list of ids"));
        }
        let address = |id: Option<String>| {
            let url = self.resource_manager(id.as_deref())?;
            Ok(ResourceManagerAddress { id, url })
        };
        ids.into_iter().map(address).collect()
    }

    /// Whether the web services are https (`yarn.http.policy`).
    pub fn https(&self) -> Result<bool, SiteError> {
        // YARN has no HTTP_AND_HTTPS.
        Ok(self.required("yarn.http.policy")?.eq_ignore_ascii_case("HTTPS_ONLY"))
    }

    /// Whether Kerberos proves who calls (`hadoop.security.authentication`, or
    /// `hadoop.http.authentication.type` for the web services alone).
    pub fn kerberos(&self) -> Result<bool, SiteError> {
        let keys = ["hadoop.security.authentication", "hadoop.http.authentication.type"];
        let mut kinds = keys.iter().map(|key| self.required(key));
        kinds.try_fold(false, |found, kind| Ok(found || kind?.eq_ignore_ascii_case("kerberos")))
    }

    /// How many opportunistic containers may queue at the NodeManager; 0: there are none.
    pub fn opportunistic_queue(&self) -> Result<u32, SiteError> {
        const KEY: &str = "yarn.nodemanager.opportunistic-containers-max-queue-length";
        let value = self.required(KEY)?;
        value.parse().map_err(|_| self.invalid(KEY, "a number of containers"))
    }

    /// Class name of the ResourceManager's scheduler. It is read from this node's file, and the
    /// ResourceManager's may say something else.
    pub fn scheduler_class(&self) -> Result<String, SiteError> {
        self.required("yarn.resourcemanager.scheduler.class")
    }

    fn resource_manager(&self, id: Option<&str>) -> Result<String, SiteError> {
        let (key, port) = match self.https()? {
            true => ("yarn.resourcemanager.webapp.https.address", 8090),
            false => ("yarn.resourcemanager.webapp.address", 8088),
        };
        // HAUtil: a key with the id, and the host's with it for the default address.
        let key = id.map_or_else(|| key.to_owned(), |id| format!("{key}.{id}"));
        let address = match id {
            Some(id) if self.value(&key)?.is_none() => {
                let host = self.required(&format!("yarn.resourcemanager.hostname.{id}"))?;
                HostPort { host, port: Some(port) }
            }
            _ => self.host_port(&key, port)?,
        };
        let url = self.url(&address)?;
        url.ok_or_else(|| self.invalid(&key, "an address that can be found: its port is 0"))
    }

    /// Where to connect to: what listens on all addresses listens on the loopback too. With https
    /// it is called by the name its certificate has.
    fn url(&self, address: &HostPort) -> Result<Option<String>, SiteError> {
        let https = self.https()?;
        let scheme = if https { "https" } else { "http" };
        let host = match address.host.as_str() {
            "0.0.0.0" | "[::]" if https => self.node_host()?.unwrap_or_else(own_name),
            "0.0.0.0" => "127.0.0.1".to_owned(),
            "[::]" => "[::1]".to_owned(),
            host => host.to_owned(),
        };
        Ok(address.port.map(|port| format!("{scheme}://{host}:{port}")))
    }

    fn host_port(&self, key: &str, default_port: u16) -> Result<HostPort, SiteError> {
        const WANTED: &str = "a host, or host:port";
        let value = self.required(key)?;
        let (host, port) = match value.rsplit_once(':') {
            // The colons of an IPv6 address stand in brackets.
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| self.invalid(key, WANTED))?)
            }
            _ => (value.as_str(), default_port),
        };
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(fits),
        };
        if !is_host {
            return Err(self.invalid(key, WANTED));
        }
        Ok(HostPort { host: host.to_owned(), port: (port != 0).then_some(port) })
    }

    fn directories(&self, key: &str, advice: &str) -> Result<Vec<PathBuf>, SiteError> {
        const WANTED: &str = "a list of absolute paths";
        let value = self.value_or(key, advice)?.unwrap_or_default();
        let entries: Vec<&str> = split(&value).collect();
        if entries.is_empty() || entries.len() > MAX_ENTRIES {
            return Err(self.invalid(key, WANTED));
        }
        let path = |entry: &str| {
            let path = entry.strip_prefix("file://").or_else(|| entry.strip_prefix("file:"));
            let path = PathBuf::from(path.unwrap_or(entry));
            path.is_absolute().then_some(path)
        };
        let paths: Option<Vec<PathBuf>> = entries.into_iter().map(path).collect();
        paths.ok_or_else(|| self.invalid(key, WANTED))
    }

    fn list(&self, key: &str) -> Result<Vec<String>, SiteError> {
        let value = self.value(key)?.unwrap_or_default();
        Ok(split(&value).take(MAX_ENTRIES).map(str::to_owned).collect())
    }

    /// -1 is the NodeManager's own measure where it is to detect hardware, else `default`.
    fn resource(&self, key: &str, default: u32) -> Result<Option<u32>, SiteError> {
        let value: i64 = self
            .required(key)?
            .parse()
            .map_err(|_| self.invalid(key, "a whole number, or -1 for automatic"))?;
        if value < 0 {
            let detected = self.flag("yarn.nodemanager.resource.detect-hardware-capabilities")?;
            return Ok((!detected).then_some(default));
        }
        u32::try_from(value).map(Some).map_err(|_| self.invalid(key, "a number below 2^32"))
    }

    /// Only "true" is true, as for Hadoop; what is not set is false.
    fn flag(&self, key: &str) -> Result<bool, SiteError> {
        Ok(self.value(key)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    fn required(&self, key: &str) -> Result<String, SiteError> {
        self.value(key)?.ok_or_else(|| self.invalid(key, "set, and has to be"))
    }

    /// `None`: not set, or set to nothing.
    fn value(&self, key: &str) -> Result<Option<String>, SiteError> {
        self.value_or(key, "write the value out")
    }

    fn value_or(&self, key: &str, advice: &str) -> Result<Option<String>, SiteError> {
        let Some(expanded) = self.properties.get(key) else { return Ok(None) };
        match expanded.unknown {
            None => Ok((!expanded.text.is_empty()).then_some(expanded.text)),
            Some(variable) => Err(SiteError::Unknown {
                key: key.to_owned(),
                from: from(expanded.from),
                value: expanded.text,
                variable,
                advice: advice.to_owned(),
            }),
        }
    }

    fn invalid(&self, key: &str, wanted: &'static str) -> SiteError {
        let (value, from) = match self.properties.get(key) {
            Some(expanded) => (expanded.text, from(expanded.from)),
            None => (String::new(), self.file.display().to_string()),
        };
        SiteError::Invalid { key: key.to_owned(), from, value, wanted }
    }
}

fn from(file: Option<PathBuf>) -> String {
    file.map_or_else(|| String::from("Hadoop's defaults"), |file| file.display().to_string())
}

/// What the node calls itself.
pub fn own_name() -> String {
    // An error: the name is longer than Linux has any (gethostname(2)).
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// Hadoop's lists: commas, blanks around entries, empty entries dropped.
fn split(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests;
