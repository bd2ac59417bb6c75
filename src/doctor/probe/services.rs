//! What there is of systemd and the bus on this node.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::reading::Reading;
use crate::config::{Auto, Config};

/// Where packages and administrators put bus policies (dbus-daemon(1)).
pub(in crate::doctor) const POLICY_DIRS: [&str; 3] =
    ["/etc/dbus-1/system.d", "/usr/share/dbus-1/system.d", "/usr/local/share/dbus-1/system.d"];

pub(in crate::doctor) const POLICY: &str = "org.lrs.Shaper1.conf";

/// Where unit files are (systemd.unit(5)).
const UNIT_DIRS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The service that talks to YARN's managers.
pub(in crate::doctor) const YARN_UNIT: &str = "lrs-yarn.service";

/// What was found of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Services {
    /// systemd is the init of this node.
    pub(in crate::doctor) systemd: bool,
    /// The unit file of the daemon.
    pub(in crate::doctor) unit: Option<PathBuf>,
    /// The unit file of what talks to YARN's managers.
    pub(in crate::doctor) yarn_unit: Option<PathBuf>,
    /// Whether the system bus takes connections.
    pub(in crate::doctor) bus: Reading<()>,
    /// The bus policy that lets lrsd have its name.
    pub(in crate::doctor) policy: Option<PathBuf>,
}

impl Services {
    pub(in crate::doctor) fn read() -> Services {
        let first = |dirs: &[&str], name: &str| {
            dirs.iter().map(|dir| Path::new(dir).join(name)).find(|file| file.exists())
        };
        const SOCKET: &str = "/run/dbus/system_bus_socket";
        Services {
            systemd: crate::systemd::is_running(),
            unit: first(&UNIT_DIRS, "lrsd.service"),
            yarn_unit: first(&UNIT_DIRS, YARN_UNIT),
            bus: UnixStream::connect(SOCKET)
                .map(drop)
                .map_err(|error| format!("no service answers at {SOCKET} ({error})")),
            policy: first(&POLICY_DIRS, POLICY),
        }
    }

    /// Whether tasks live in systemd's scope on this node: they do when lrsd is its service.
    pub(in crate::doctor) fn use_scope(&self, config: &Config) -> bool {
        self.systemd && self.unit.is_some() && config.cgroup.root == Auto::Auto
    }
}
