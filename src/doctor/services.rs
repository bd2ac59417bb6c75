//! What the node's services have to do with LRS: systemd and the bus.

use super::Check;
use super::probe::Facts;
use super::probe::services::{POLICY, POLICY_DIRS};
use crate::config::{Auto, Bus, Config};
use crate::systemd::{SCOPE, SLICE};

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
