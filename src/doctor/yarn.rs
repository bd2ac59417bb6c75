//! Whether a YARN node is as `[yarn]` needs it: Hadoop's files, the private directories, the
//! NodeManager's unit, room for an offer, the ResourceManager's port, the service that talks to it,
//! which reports to lrsd.
//!
//! Limits: what a NodeManager runs with may differ from its files, and what the services see differs
//! from what this process sees below `/tmp` and `/home`, which it says. Whether the user of lrs-yarn
//! may read Hadoop's files follows from owner, group and mode, not by access lists.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Check;
use super::probe::services::YARN_UNIT;
use super::probe::{Facts, ManagerUnit, Reported, Yarn};
use crate::config::{Auto, Config, Mode, OfferBy};
use crate::units::Bytes;
use lrs_hadoop_conf::Site;
use lrs_hadoop_conf::site::ExecutorClass;

/// After so long without a report of lrs-yarn, which makes one every 20 seconds, it is away.
const REPORT_EXPECTED: Duration = Duration::from_secs(60);

/// All checks of a YARN node; none where LRS is not to join one.
pub(super) fn checks(facts: &Facts, config: &Config) -> Vec<Check> {
    let Some(yarn) = &facts.yarn else { return Vec::new() };
    let mut checks = Vec::new();
    match &yarn.site {
        Ok(site) => {
            checks.push(files(site, yarn, facts, config));
            checks.push(executor(site));
            checks.push(recovery(site, yarn, config));
            checks.extend(manager_unit(site, yarn));
        }
        Err(reason) => checks.push(Check::fail(
            "yarn.conf",
            reason,
            "set yarn.conf_dir to the directory with the NodeManager's yarn-site.xml",
        )),
    }
    checks.push(local_dirs(yarn, facts));
    checks.push(resource_managers(yarn, config));
    checks.extend(service(yarn, facts));
    if config.yarn.offer {
        checks.push(offer(yarn, facts, config));
    }
    checks
}

/// Whether lrs-yarn is at work, which lrsd knows, or will be; `None` where it is unknown: no lrsd
/// answers, and it is no service.
fn service(yarn: &Yarn, facts: &Facts) -> Option<Check> {
    const ID: &str = "yarn.service";
    const START: &str = "systemctl start lrs-yarn, and look at journalctl -u lrs-yarn";
    let away = |found: String| {
        Check::warn(ID, format!("{found}: nothing is offered, and no priority is read"), START)
    };
    let services = &facts.services;
    Some(match (&yarn.reported, &services.yarn_unit) {
        (Some(Ok(Reported { age: Some(age), .. })), _) if *age < REPORT_EXPECTED => {
            Check::ok(ID, format!("lrs-yarn runs: it reported to lrsd {} s ago", age.as_secs()))
        }
        (Some(Ok(Reported { status, .. })), _) if !status.enabled => Check::warn(
            ID,
            "the running lrsd has yarn.enabled = false, and lrs-yarn ends at once there",
            "restart lrsd: tasks keep running",
        ),
        (_, None) if services.systemd && services.unit.is_some() => Check::warn(
            ID,
            format!("there is no {YARN_UNIT}: nothing is offered, and no priority is read"),
            format!("install the package, or lrs-yarn and systemd/{YARN_UNIT}"),
        ),
        (Some(Ok(Reported { age: Some(age), .. })), _) => {
            away(format!("lrs-yarn has not reported to lrsd for {} s", age.as_secs()))
        }
        (Some(Ok(_)), _) => away(String::from("lrs-yarn has not reported since lrsd started")),
        (Some(Err(reason)), _) => Check::unknown(
            ID,
            format!("whether lrs-yarn reports to lrsd is not known: {reason}"),
            "run doctor as a user that may reach the socket",
        ),
        (None, Some(unit)) if services.systemd && services.unit.is_some() => {
            Check::ok(ID, format!("{} starts with lrsd", unit.display()))
        }
        (None, _) => return None,
    })
}

/// Of paths below what the services have to themselves: PrivateTmp= and ProtectHome= of systemd.exec(5).
fn hidden<'a>(
    id: &str,
    paths: impl Iterator<Item = &'a Path>,
    facts: &Facts,
    elsewhere: &str,
) -> Option<Check> {
    const OWN: [&str; 5] = ["/tmp", "/var/tmp", "/home", "/root", "/run/user"];
    let hidden: Vec<&Path> =
        paths.filter(|path| OWN.iter().any(|own| path.starts_with(own))).collect();
    if hidden.is_empty() || facts.services.unit.is_none() {
        return None;
    }
    Some(Check::warn(
        id,
        format!("the service lrsd does not see {}: its homes and /tmp are its own", list(&hidden)),
        format!(
            "{elsewhere}, or systemctl edit lrsd and lrs-yarn: PrivateTmp=no, ProtectHome=read-only"
        ),
    ))
}

fn list(paths: &[&Path]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn files(site: &Site, yarn: &Yarn, facts: &Facts, config: &Config) -> Check {
    const ID: &str = "yarn.conf";
    let certificates = match &config.yarn.ca_file {
        Auto::Fixed(path) => Some(path.as_path()),
        Auto::Auto => None,
    };
    let read = [Some(config.yarn.conf_dir.as_path()), certificates].into_iter().flatten();
    let elsewhere = "put it where the service sees it, such as below /etc";
    if let Some(check) = hidden(ID, read, facts, elsewhere) {
        return check;
    }
    match &yarn.unread {
        Some((user, files)) if !files.is_empty() => {
            let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
            Check::warn(
                ID,
                format!("the user {user} of {YARN_UNIT} may not read {}", list(&files)),
                "systemctl edit lrs-yarn: SupplementaryGroups= with a group that may, or chmod o+r",
            )
        }
        _ => Check::ok(ID, format!("{} is read", site.file().display())),
    }
}

fn executor(site: &Site) -> Check {
    const ID: &str = "yarn.executor";
    const ASK: &str = "correct the file";
    let (executor, layout) = match (site.executor(), site.cgroups()) {
        (Ok(executor), Ok(layout)) => (executor, layout),
        (Err(error), _) | (_, Err(error)) => return Check::unknown(ID, error.to_string(), ASK),
    };
    match (executor, layout) {
        (ExecutorClass::Default, _) => Check::ok(
            ID,
            "DefaultContainerExecutor: each container is moved into a cgroup of LRS's, once",
        ),
        (ExecutorClass::Linux, Some(layout)) if layout.strict => Check::warn(
            ID,
            format!(
                "LinuxContainerExecutor with strict resource usage: quotas below {} keep \
                 containers from spare CPU, whatever their tier",
                layout.hierarchy
            ),
            "set yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage to \
             false",
        ),
        (ExecutorClass::Linux, Some(layout)) => Check::ok(
            ID,
            format!(
                "LinuxContainerExecutor: weights of the groups below {} are changed in place",
                layout.hierarchy
            ),
        ),
        (ExecutorClass::Linux, None) => Check::ok(
            ID,
            "LinuxContainerExecutor without cgroups: each container is moved into a cgroup of \
             LRS's, once; with yarn.nodemanager.resource.cpu.enabled none would be moved",
        ),
        (ExecutorClass::Other(class), _) => Check::warn(
            ID,
            format!("{class}: LRS knows the Default and the LinuxContainerExecutor"),
            "look at lrsctl yarn status once containers run: those in a group LRS does not know \
             are left alone",
        ),
    }
}

/// Whether systemd leaves containers alone when it stops or restarts the NodeManager; `None` where that
/// is no question: none runs in a service, or a NodeManager that is stopped ends them itself.
fn manager_unit(site: &Site, yarn: &Yarn) -> Option<Check> {
    const ID: &str = "yarn.unit";
    if !matches!((site.recovery(), site.supervised()), (Ok(true), Ok(true))) {
        return None;
    }
    let units = match &yarn.units {
        Ok(units) => units,
        Err(reason) => {
            let found = format!("the KillMode of the NodeManager's unit is not known: {reason}");
            return Some(Check::unknown(ID, found, "run doctor as root"));
        }
    };
    // The values of systemd.kill(5) with which only a main process, or none, is killed.
    let spares = |unit: &&ManagerUnit| matches!(&*unit.kill_mode, "process" | "none");
    Some(match units.iter().find(|unit| !spares(unit)) {
        Some(ManagerUnit { id, kill_mode }) => Check::warn(
            ID,
            format!(
                "{id} has KillMode={kill_mode}: its restart or stop kills every container in it, \
                 whatever yarn-site.xml says of recovery (LRS moves none in observe mode, nor those \
                 that have groups of YARN's)"
            ),
            format!("systemctl edit {id}: [Service] KillMode=process"),
        ),
        None => {
            let ids: Vec<&str> = units.iter().map(|unit| unit.id.as_str()).collect();
            let first = units.first()?;
            let found = format!("{} has KillMode={}", ids.join(", "), first.kill_mode);
            Check::ok(ID, format!("{found}: its restart leaves containers alone"))
        }
    })
}

fn recovery(site: &Site, yarn: &Yarn, config: &Config) -> Check {
    const ID: &str = "yarn.recovery";
    let port = site.node_address().map(|address| address.port);
    if let (Ok(true), Ok(Some(_)), Some((dir, Err(reason)))) =
        (site.recovery(), &port, &yarn.recovery_dir)
    {
        let dir = dir.display();
        return Check::fail(
            ID,
            format!(
                "yarn.nodemanager.recovery.dir is {dir}, and the NodeManager does not start: {reason}"
            ),
            format!("install -d -o {} {dir}", config.yarn.user),
        );
    }
    match (site.recovery(), site.supervised(), port) {
        // ContainerManagerImpl: "Cannot support recovery with an ephemeral server port".
        (Ok(true), Ok(_), Ok(None)) => Check::fail(
            ID,
            "yarn.nodemanager.recovery.enabled is true and the port of yarn.nodemanager.address \
             is 0, its default: the NodeManager refuses to start",
            "set yarn.nodemanager.address to a fixed port, such as \
             ${yarn.nodemanager.hostname}:45454",
        ),
        (Ok(true), Ok(true), Ok(Some(_))) => {
            Check::ok(ID, "containers outlive a restart of the NodeManager")
        }
        (Ok(true), Ok(false), Ok(Some(_))) => Check::warn(
            ID,
            "yarn.nodemanager.recovery.supervised is not true: containers outlive a NodeManager \
             that crashed or was killed, but one that is stopped in order kills them all",
            "set it to true where something starts the NodeManager again, such as its unit",
        ),
        (Ok(false), Ok(_), _) => Check::warn(
            ID,
            "yarn.nodemanager.recovery.enabled is not true: after a NodeManager that was killed, \
             containers run on without being collected (they are not in its unit any more)",
            "set it to true, with yarn.nodemanager.recovery.dir, .recovery.supervised and a fixed \
             yarn.nodemanager.address",
        ),
        (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
            Check::unknown(ID, error.to_string(), "correct the file")
        }
    }
}

fn local_dirs(yarn: &Yarn, facts: &Facts) -> Check {
    const ID: &str = "yarn.local_dirs";
    let dirs = match &yarn.local_dirs {
        Ok(dirs) => dirs,
        Err(reason) => return Check::fail(ID, reason, "set yarn.local_dirs"),
    };
    let all: Vec<&Path> = dirs.iter().map(|(dir, _)| dir.as_path()).collect();
    let elsewhere = "set yarn.nodemanager.local-dirs to disks of the node";
    if let Some(check) = hidden(ID, all.iter().copied(), facts, elsewhere) {
        return check;
    }
    let failed: Vec<&str> =
        dirs.iter().filter_map(|(_, found)| found.as_ref().err()).map(String::as_str).collect();
    match failed.first() {
        None => Check::ok(ID, format!("containers are noticed in {}", list(&all))),
        Some(_) if facts.uid != 0 => Check::unknown(ID, failed.join("; "), "run doctor as root"),
        Some(_) if failed.len() == dirs.len() => Check::warn(
            ID,
            failed.join("; "),
            "start the NodeManager, which makes it; until then containers are looked for in /proc",
        ),
        Some(_) => Check::warn(ID, failed.join("; "), "look at that disk"),
    }
}

fn resource_managers(yarn: &Yarn, config: &Config) -> Check {
    const ID: &str = "yarn.resource_manager";
    let found = match &yarn.resource_managers {
        Ok(found) => found,
        Err(reason) => return Check::fail(ID, reason, "set yarn.resource_managers"),
    };
    let kerberos = yarn.site.as_ref().is_ok_and(|site| site.kerberos().unwrap_or(false));
    if kerberos && config.yarn.offer_by == OfferBy::Rest {
        return Check::warn(
            ID,
            "Hadoop is secured by Kerberos, for which LRS has no ticket: priorities and queues \
             are not read, and no slot can be offered over the web services",
            "set yarn.offer_by = \"rmadmin\" and put what gets a ticket from a keytab before \
             yarn.rmadmin (docs/yarn.md)",
        );
    }
    let reached: Vec<&str> =
        found.iter().filter(|(_, found)| found.is_ok()).map(|(url, _)| url.as_str()).collect();
    if !reached.is_empty() {
        return Check::ok(ID, format!("{} answers", reached.join(", ")));
    }
    let reasons: Vec<&str> =
        found.iter().filter_map(|(_, found)| found.as_ref().err()).map(String::as_str).collect();
    Check::warn(
        ID,
        reasons.join("; "),
        "start it, or set yarn.resource_managers; containers are shaped without it, none is \
         offered",
    )
}

fn offer(yarn: &Yarn, facts: &Facts, config: &Config) -> Check {
    const ID: &str = "yarn.offer";
    if config.daemon.mode == Mode::Observe {
        return Check::warn(
            ID,
            "nothing is offered in observe mode",
            "set daemon.mode = \"enforce\", or yarn.offer = false",
        );
    }
    let memory = match &facts.memory {
        Ok(memory) => memory,
        Err(reason) => return Check::unknown(ID, reason, "mount procfs at /proc"),
    };
    // Once lrs-yarn has read the ResourceManager it knows better than the file.
    let known = yarn.reported.as_ref().and_then(|reported| reported.as_ref().ok());
    let own = known.and_then(|reported| reported.status.configured);
    let set = known.filter(|it| it.status.site.is_some() && it.status.site != own).and(own);
    if let (Some(set), Some(site)) = (set, known.and_then(|reported| reported.status.site))
        && (site.memory_mib > set.memory_mib || site.vcores > set.vcores)
    {
        let figure =
            |it: crate::proto::YarnResource| format!("{} MiB, {} vcores", it.memory_mib, it.vcores);
        return Check::warn(
            ID,
            format!(
                "the node has {}, less than the {} that yarn-site.xml says: where another client \
                 set that, to keep the node small, nothing is offered beyond it",
                figure(set),
                figure(site)
            ),
            "nothing, if it is to be so; else restart the NodeManager, or run the command in \
             lrsctl yarn status",
        );
    }
    let own = own.map(|own| Bytes(own.memory_mib.saturating_mul(1 << 20)));
    let configured =
        match yarn.site.as_ref().map(|site| own.map_or_else(|| site.memory(), |own| Ok(Some(own))))
        {
            Ok(Ok(Some(configured))) => configured,
            Ok(Ok(None)) => {
                return Check::warn(
                    ID,
                    "the NodeManager measures the node's memory itself: how much is left to offer \
                 not known before it runs",
                    "set yarn.nodemanager.resource.memory-mb to what two containers a core need",
                );
            }
            Ok(Err(error)) => return Check::unknown(ID, error.to_string(), "correct the file"),
            Err(reason) => return Check::unknown(ID, reason.clone(), "set yarn.conf_dir"),
        };
    let Bytes(reserve) = config.guard.memory_reserve.of(memory.total);
    let room = memory.total.0.saturating_sub(reserve).saturating_sub(configured.0);
    let slots = room.checked_div(config.yarn.slot_memory.0);
    let found = format!(
        "{configured} {}, {} in the node, {} reserved",
        match set {
            Some(_) => "set by another client in place of what yarn-site.xml says",
            None => "configured",
        },
        memory.total,
        Bytes(reserve)
    );
    match slots {
        Some(0) => Check::warn(
            ID,
            format!(
                "{found}: not even one slot of {} fits beside{}",
                config.yarn.slot_memory,
                match config.yarn.slot_vcores {
                    0 => "",
                    _ => ", and vcores are offered all the same",
                }
            ),
            "lower yarn.nodemanager.resource.memory-mb to two containers a core, \
             yarn.slot_memory or guard.memory_reserve; with yarn.slot_vcores = 0 no vcores are \
             offered either",
        ),
        Some(slots) => Check::ok(ID, format!("{found}: room for {slots} slots more")),
        None => Check::ok(ID, format!("{found}: slots are offered by vcores alone")),
    }
}
