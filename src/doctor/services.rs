//! What the node's services have to do with LRS: systemd and the bus.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::Check;
use super::probe::{Facts, Reading};
use crate::config::{Auto, Bus, Config};
use crate::systemd::{SCOPE, SLICE};

/// Where packages and administrators put bus policies (dbus-daemon(1)).
const POLICY_DIRS: [&str; 3] =
    ["/etc/dbus-1/system.d", "/usr/share/dbus-1/system.d", "/usr/local/share/dbus-1/system.d"];

const POLICY: &str = "org.lrs.Shaper1.conf";

/// Where unit files are (systemd.unit(5)).
const UNIT_DIRS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The service that talks to YARN's managers.
pub(super) const YARN_UNIT: &str = "lrs-yarn.service";

/// What was found of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Services {
    /// systemd is the init of this node.
    pub(super) systemd: bool,
    /// The unit file of the daemon.
    pub(super) unit: Option<PathBuf>,
    /// The unit file of what talks to YARN's managers.
    pub(super) yarn_unit: Option<PathBuf>,
    /// Whether the system bus takes connections.
    pub(super) bus: Reading<()>,
    /// The bus policy that lets lrsd have its name.
    pub(super) policy: Option<PathBuf>,
}

impl Services {
    pub(super) fn read() -> Services {
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
    pub(super) fn use_scope(&self, config: &Config) -> bool {
        self.systemd && self.unit.is_some() && config.cgroup.root == Auto::Auto
    }
}

pub(super) fn systemd(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "systemd";
    let services = &facts.services;
    let found = match (&services.unit, &config.cgroup.root) {
        _ if !services.systemd => "is not the init of this node".to_owned(),
        (Some(unit), Auto::Auto) => {
            format!("{} is there: tasks live in {SCOPE} below {SLICE}", unit.display())
        }
        (_, Auto::Fixed(root)) => format!("tasks live in {}, as cgroup.root says", root.0),
        (None, Auto::Auto) => {
            return Check::warn(
                ID,
                "runs, but has no lrsd.service: a daemon started by hand ends with the session, \
                 and nothing starts it again",
                "install the package, or systemd/lrsd.service, systemd/lrsd.slice and systemd/lrs.slice",
            );
        }
    };
    Check::ok(ID, found)
}

pub(super) fn dbus(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "dbus";
    let services = &facts.services;
    match (&config.dbus.bus, &services.bus, &services.policy) {
        (Bus::Off, ..) => Check::ok(ID, "is turned off (dbus.bus)"),
        (Bus::Session | Bus::Address(_), ..) => {
            Check::ok(ID, format!("dbus.bus = {}", config.dbus.bus))
        }
        (Bus::System, Err(reason), _) => Check::warn(
            ID,
            format!("{reason}: lrsd serves gRPC alone until there is a bus"),
            "install and start dbus, or set dbus.bus = \"off\"",
        ),
        (Bus::System, Ok(()), None) => Check::warn(
            ID,
            format!("no {POLICY}: the bus will refuse lrsd its name"),
            format!("install the package, or systemd/{POLICY} to {}", POLICY_DIRS[1]),
        ),
        (Bus::System, Ok(()), Some(policy)) => {
            Check::ok(ID, format!("the system bus answers, {} is there", policy.display()))
        }
    }
}
