//! What the doctor says of a YARN node.

use super::*;
use crate::doctor::yarn::Yarn;
use lrs_hadoop_conf::site::Site;

/// The same as a YARN node whose yarn-site.xml has these properties.
fn hadoop(properties: &[(&str, &str)]) -> Facts {
    let all = [("yarn.nodemanager.local-dirs", "/disk1/yarn,/disk2/yarn")];
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let text: String = all.iter().chain(properties).map(property).collect();
    let site = Site::parse(&format!("<configuration>{text}</configuration>")).unwrap();
    let dirs = site.local_dirs().unwrap();
    let managers = site.resource_managers().unwrap();
    with(v2(), |facts| {
        facts.yarn = Some(Yarn {
            local_dirs: Ok(dirs.into_iter().map(|dir| (dir, Ok(()))).collect()),
            resource_managers: Ok(managers.into_iter().map(|rm| (rm.url, Ok(()))).collect()),
            site: Ok(site),
            unread: Some(("lrs-yarn".to_owned(), Vec::new())),
        });
    })
}

const RECOVERY: (&str, &str) = ("yarn.nodemanager.recovery.enabled", "true");
const ADDRESS: (&str, &str) = ("yarn.nodemanager.address", "${yarn.nodemanager.hostname}:45454");
const SUPERVISED: (&str, &str) = ("yarn.nodemanager.recovery.supervised", "true");

#[test]
fn a_node_without_yarn_is_not_asked_about_it() {
    let report = report(&v2(), "");
    assert!(!report.checks.iter().any(|check| check.id.starts_with("yarn")), "{report:?}");
}

#[test]
fn a_good_yarn_node_has_no_complaint() {
    let memory = ("yarn.nodemanager.resource.memory-mb", "4096");
    let facts = hadoop(&[ADDRESS, RECOVERY, SUPERVISED, memory]);
    let report = report(&facts, "[yarn]\nenabled = true\noffer = true\n");
    let ids: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| check.id.starts_with("yarn"))
        .inspect(|check| assert_eq!(check.verdict, Verdict::Ok, "{check:?}"))
        .map(|check| check.id.as_str())
        .collect();
    let all =
        ["conf", "executor", "recovery", "local_dirs", "resource_manager", "service", "offer"];
    assert_eq!(ids, all.map(|id| format!("yarn.{id}")));
    let offer = report.checks.iter().find(|check| check.id == "yarn.offer").unwrap();
    // 8 GiB less 5 % less 4 GiB.
    assert!(offer.found.ends_with("room for 3 slots more"), "{offer:?}");
}

#[test]
fn what_a_yarn_node_lacks_is_said() {
    const LCE: (&str, &str) = (
        "yarn.nodemanager.container-executor.class",
        "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor",
    );
    const CPU: (&str, &str) = ("yarn.nodemanager.resource.cpu.enabled", "true");
    const STRICT: (&str, &str) =
        ("yarn.nodemanager.linux-container-executor.cgroups.strict-resource-usage", "true");
    let on = "[yarn]\nenabled = true\n";
    let found = |properties: &[(&str, &str)], toml: &str, id: &str, words: &str| {
        let check = check(&hadoop(properties), toml, id);
        assert!(check.verdict > Verdict::Ok, "{check:?}");
        assert!(check.found.contains(words), "{check:?}");
        assert!(check.remedy.is_some(), "{check:?}");
    };
    for recovery in [&[][..], &[SUPERVISED]] {
        found(recovery, on, "yarn.recovery", "after a NodeManager that was killed");
    }
    let stopped = "one that is stopped in order kills them all";
    found(&[ADDRESS, RECOVERY], on, "yarn.recovery", stopped);
    // Hadoop's default, and the same written out.
    const RANDOM: (&str, &str) = ("yarn.nodemanager.address", "0.0.0.0:0");
    for recovery in [&[RECOVERY][..], &[RECOVERY, SUPERVISED], &[RANDOM, RECOVERY, SUPERVISED]] {
        let check = check(&hadoop(recovery), on, "yarn.recovery");
        assert_eq!(check.verdict, Verdict::Fail, "{check:?}");
        assert!(check.found.contains("refuses to start"), "{check:?}");
        assert!(check.remedy.unwrap().contains("yarn.nodemanager.address to a fixed port"));
    }
    const NOWHERE: (&str, &str) = ("yarn.nodemanager.address", "a b");
    found(&[NOWHERE, RECOVERY, SUPERVISED], on, "yarn.recovery", "\"a b\", which is not a host");
    let moved = check(&hadoop(&[LCE]), on, "yarn.executor");
    assert_eq!(moved.verdict, Verdict::Ok, "{moved:?}");
    assert!(moved.found.contains("without cgroups: each container is moved"), "{moved:?}");
    found(&[LCE, CPU, STRICT], on, "yarn.executor", "quotas below /hadoop-yarn");
    found(
        &[("hadoop.security.authentication", "kerberos")],
        on,
        "yarn.resource_manager",
        "no ticket",
    );
    found(&[("yarn.nodemanager.local-dirs", "/tmp/yarn")], on, "yarn.local_dirs", "/tmp/yarn");
    let away = format!("{on}conf_dir = \"/home/hadoop/conf\"\nca_file = \"/var/tmp/ca.pem\"\n");
    found(&[], &away, "yarn.conf", "does not see /home/hadoop/conf, /var/tmp/ca.pem");
    let offer = format!("{on}offer = true\n");
    found(&[], &offer, "yarn.offer", "not even one slot of 1.0 GiB fits beside, and vcores are");
    let without = check(&hadoop(&[]), &format!("{offer}slot_vcores = 0\n"), "yarn.offer");
    assert!(without.found.ends_with("fits beside"), "{without:?}");
    found(
        &[("yarn.nodemanager.resource.memory-mb", "2048")],
        &format!("{offer}[daemon]\nmode = \"observe\"\n"),
        "yarn.offer",
        "observe mode",
    );
    let detected = [("yarn.nodemanager.resource.detect-hardware-capabilities", "true")];
    found(&detected, &offer, "yarn.offer", "measures the node's memory itself");
}

#[test]
fn what_lrs_yarn_lacks_is_said() {
    let on = "[yarn]\nenabled = true\n";
    let served = Socket::Served { pid: None, answers: true };
    let found = |change: &dyn Fn(&mut Facts), id: &str, words: &str| {
        let check = check(&with(hadoop(&[]), change), on, id);
        assert!(check.verdict == Verdict::Warn && check.found.contains(words), "{check:?}");
    };
    found(&|facts| facts.services.yarn_unit = None, "yarn.service", "no lrs-yarn.service");
    let stopped = |facts: &mut Facts| {
        facts.services.yarn_runs = false;
        facts.socket = served.clone();
    };
    found(&stopped, "yarn.service", "does not run");
    let private = |facts: &mut Facts| {
        let files = vec!["/etc/hadoop/conf/core-site.xml".into()];
        facts.yarn.as_mut().unwrap().unread = Some(("lrs-yarn".to_owned(), files));
    };
    found(&private, "yarn.conf", "may not read /etc/hadoop/conf/core-site.xml");
    let by_hand = with(hadoop(&[]), |facts| facts.services.unit = None);
    let report = report(&by_hand, on);
    assert!(report.checks.iter().all(|check| check.id != "yarn.service"), "{report:?}");
    let old = "rmadmin = [\"/usr/bin/systemd-run\", \"--wait\", \"yarn\", \"rmadmin\"]\n";
    let check = check(&hadoop(&[]), &format!("{on}{old}"), "config");
    assert!(check.remedy.unwrap().contains("begins with systemd-run"));
}

#[test]
fn one_failed_disk_is_not_all_of_them() {
    let failing = |dirs: usize| {
        with(hadoop(&[RECOVERY]), |facts| {
            let all = facts.yarn.as_mut().unwrap().local_dirs.as_mut().unwrap();
            for (dir, found) in all.iter_mut().take(dirs) {
                *found = Err(format!("cannot read {}/nmPrivate: EIO", dir.display()));
            }
        })
    };
    let remedy = |facts: &Facts| {
        let check = check(facts, "[yarn]\nenabled = true\n", "yarn.local_dirs");
        assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
        check.remedy.unwrap()
    };
    assert_eq!(remedy(&failing(1)), "look at that disk");
    assert!(remedy(&failing(2)).starts_with("start the NodeManager"));
    let down = with(hadoop(&[RECOVERY]), |facts| {
        let managers = &mut facts.yarn.as_mut().unwrap().resource_managers;
        *managers = Ok(vec![("http://rm1:8088".into(), Err("http://rm1:8088: refused".into()))]);
    });
    let check = check(&down, "[yarn]\nenabled = true\n", "yarn.resource_manager");
    assert_eq!((check.verdict, check.found.as_str()), (Verdict::Warn, "http://rm1:8088: refused"));
}
