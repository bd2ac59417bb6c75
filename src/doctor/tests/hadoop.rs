//! What the doctor says of a YARN node.

use super::*;
use crate::doctor::probe::{ManagerUnit, Reported, Yarn};
use crate::proto;
use lrs_hadoop_conf::site::Site;

/// The same as a YARN node with these properties in yarn-site.xml.
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
            recovery_dir: Some(("/var/lib/hadoop-yarn/nm-recovery".into(), Ok(()))),
            units: Ok(vec![unit("process")]),
            reported: None,
        });
    })
}

fn unit(kill_mode: &str) -> ManagerUnit {
    let id = String::from("hadoop-yarn-nodemanager.service");
    ManagerUnit { id, kill_mode: kill_mode.to_owned() }
}

/// What lrsd says that lrs-yarn reported so long ago.
fn reported(seconds: Option<u64>) -> Reported {
    let resource = |memory_mib| Some(proto::YarnResource { memory_mib, vcores: 6 });
    let status = proto::YarnStatus {
        enabled: true,
        configured: resource(3072),
        site: resource(3072),
        ..Default::default()
    };
    Reported { status, age: seconds.map(std::time::Duration::from_secs) }
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
    let all = [
        "conf",
        "executor",
        "recovery",
        "unit",
        "local_dirs",
        "resource_manager",
        "service",
        "offer",
    ];
    assert_eq!(ids, all.map(|id| format!("yarn.{id}")));
    let offer = report.checks.iter().find(|check| check.id == "yarn.offer").unwrap();
    // 8 GiB less 5 % less 4 GiB.
    assert!(offer.found.ends_with("room for 3 slots more"), "{offer:?}");
}

#[test]
fn what_a_yarn_node_lacks_is_reported() {
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
fn what_lrs_yarn_lacks_is_reported() {
    let on = "[yarn]\nenabled = true\n";
    let served = Socket::Served { pid: None, answers: true };
    let found = |change: &dyn Fn(&mut Facts), id: &str, words: &str| {
        let check = check(&with(hadoop(&[]), change), on, id);
        assert!(check.verdict == Verdict::Warn && check.found.contains(words), "{check:?}");
    };
    found(&|facts| facts.services.yarn_unit = None, "yarn.service", "no lrs-yarn.service");
    let says = |answer: Result<Reported, String>| {
        let socket = served.clone();
        move |facts: &mut Facts| {
            facts.socket = socket.clone();
            facts.yarn.as_mut().unwrap().reported = Some(answer.clone());
        }
    };
    found(&says(Ok(reported(None))), "yarn.service", "has not reported since lrsd started");
    found(&says(Ok(reported(Some(60)))), "yarn.service", "has not reported to lrsd for 60 s");
    let mut off = reported(None);
    off.status.enabled = false;
    found(&says(Ok(off)), "yarn.service", "yarn.enabled = false");
    let runs = check(&with(hadoop(&[]), says(Ok(reported(Some(59))))), on, "yarn.service");
    assert_eq!(runs.verdict, Verdict::Ok, "{runs:?}");
    let unasked = with(hadoop(&[]), says(Err("permission denied".into())));
    assert_eq!(check(&unasked, on, "yarn.service").verdict, Verdict::Unknown);
    let private = |facts: &mut Facts| {
        let files = vec!["/etc/hadoop/conf/core-site.xml".into()];
        facts.yarn.as_mut().unwrap().unread = Some(("lrs-yarn".to_owned(), files));
    };
    found(&private, "yarn.conf", "may not read /etc/hadoop/conf/core-site.xml");
    let by_hand = with(hadoop(&[]), |facts| facts.services.unit = None);
    let report = report(&by_hand, on);
    assert!(report.checks.iter().all(|check| check.id != "yarn.service"), "{report:?}");
}

#[test]
fn what_would_end_containers_with_their_node_manager_is_reported() {
    let on = "[yarn]\nenabled = true\n";
    let good = || hadoop(&[ADDRESS, RECOVERY, SUPERVISED]);
    let of = |change: &dyn Fn(&mut Yarn), id: &str| {
        check(&with(good(), |facts| change(facts.yarn.as_mut().unwrap())), on, id)
    };
    for mode in ["control-group", "mixed"] {
        let check = of(&|yarn| yarn.units = Ok(vec![unit("process"), unit(mode)]), "yarn.unit");
        assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
        assert!(check.found.contains(&format!("KillMode={mode}")), "{check:?}");
        let remedy = check.remedy.unwrap();
        assert!(remedy.contains("edit hadoop-yarn-nodemanager.service"), "{remedy}");
    }
    let unasked = of(&|yarn| yarn.units = Err("systemd refused".into()), "yarn.unit");
    assert_eq!(unasked.verdict, Verdict::Unknown);
    for quiet in
        [with(good(), |facts| facts.yarn.as_mut().unwrap().units = Ok(vec![])), hadoop(&[])]
    {
        let report = report(&quiet, on);
        assert!(report.checks.iter().all(|check| check.id != "yarn.unit"), "{report:?}");
    }
    let unmade = of(
        &|yarn| yarn.recovery_dir = Some(("/var/lib/x".into(), Err("it is not there".into()))),
        "yarn.recovery",
    );
    assert_eq!(unmade.verdict, Verdict::Fail, "{unmade:?}");
    assert!(unmade.found.contains("/var/lib/x, and the NodeManager does not start"), "{unmade:?}");
    assert_eq!(unmade.remedy.as_deref(), Some("install -d -o yarn /var/lib/x"));
}

#[test]
fn room_for_offers_goes_by_what_the_node_has() {
    let offer = "[yarn]\nenabled = true\noffer = true\n";
    let of = |reported: Reported| {
        let facts = with(hadoop(&[("yarn.nodemanager.resource.memory-mb", "4096")]), |facts| {
            facts.yarn.as_mut().unwrap().reported = Some(Ok(reported));
        });
        check(&facts, offer, "yarn.offer").found
    };
    assert!(of(reported(Some(1))).contains("3.0 GiB configured"), "edited, not in force yet");
    let mut raised = reported(Some(1));
    raised.status.configured = Some(proto::YarnResource { memory_mib: 6144, vcores: 16 });
    let found = of(raised);
    assert!(
        found.contains("6.0 GiB set by another client") && found.contains("room for 1 slots"),
        "{found}"
    );
    for (memory_mib, vcores) in [(2048, 4), (2048, 16), (8192, 2), (0, 0)] {
        let mut kept_small = reported(Some(1));
        kept_small.status.configured = Some(proto::YarnResource { memory_mib, vcores });
        let found = of(kept_small);
        let figures =
            format!("has {memory_mib} MiB, {vcores} vcores, less than the 3072 MiB, 6 vcores");
        assert!(found.contains(&figures) && !found.contains("room for"), "{found}");
    }
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
