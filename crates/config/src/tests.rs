use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use lrs_core::model::Label;
use lrs_core::order::QueueOrder;
use lrs_core::probe::Formula;

mod any;
mod files;

const FILE: &str = "lrs.toml";

fn read(text: &str) -> Result<Config, ConfigErrors> {
    Config::from_toml(text, Path::new(FILE))
}

/// The faults of `text`, one a line.
fn faults(text: &str) -> String {
    match read(text) {
        Ok(_) => String::from("(no fault)"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn nothing_means_the_defaults() {
    assert_eq!(read("").unwrap(), Config::default());
    assert_eq!(read("[slots]\n[guard]\n").unwrap(), Config::default());
}

#[test]
fn the_shipped_file_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/lrs.toml");
    if std::env::var_os("LRS_REGENERATE").is_some() {
        std::fs::write(&path, example()).unwrap();
    }
    let shipped = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        shipped == example(),
        "config/lrs.toml lags behind the table of keys; LRS_REGENERATE=1 cargo test config"
    );
}

#[test]
fn only_the_daemon_of_the_default_runtime_directory_keeps_a_history_by_itself() {
    let directory = |text: &str| read(text).unwrap().history.directory;
    assert_eq!(directory(""), "/var/lib/lrs");
    assert_eq!(directory("[daemon]\nruntime_dir = \"/run/lrs\""), "/var/lib/lrs");
    assert_eq!(directory("[daemon]\nruntime_dir = \"/run/mine\""), "");
    let both = "[daemon]\nruntime_dir = \"/run/mine\"\n[history]\ndirectory = \"/srv/mine\"";
    assert_eq!(directory(both), "/srv/mine");
    assert_eq!(directory("[history]\ndirectory = \"\""), "");
}

#[test]
fn the_shipped_file_says_the_defaults_commented_or_not() {
    let text = example();
    assert_eq!(read(&text).unwrap(), Config::default());
    let mut keys = 0;
    let (settings, _) = text.split_once("#[[discover]]").unwrap();
    let uncommented: String = settings
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => {
                keys += 1;
                format!("{key}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(keys, keys::keys().count());
    assert_eq!(read(&uncommented).unwrap(), Config::default());
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn the_table_is_in_order() {
    for (index, key) in keys::keys().enumerate() {
        assert!(keys::SECTIONS.iter().any(|s| s.name == key.section()), "{}", key.path);
        assert!(!key.doc.is_empty() && key.doc.ends_with('.'), "{}", key.path);
        assert!(!key.range.is_empty() && !key.range.ends_with('.'), "{}", key.path);
        let twice = keys::keys().skip(index + 1).any(|other| other.path == key.path);
        assert!(!twice, "{}", key.path);
    }
}

#[test]
fn values_arrive_in_their_fields() {
    let config = read(
        r#"
        [daemon]
        runtime_dir = "/tmp/lrs-1"
        sample_period = "500ms"
        mode = "observe"
        log = "warn,lrs::cgroup=debug"
        [node]
        labels = { rack = 'r "1"', "example.org/zone" = "z" }
        [slots]
        active = 3
        passive = 5
        passive_max = 0x10
        expand = false
        io_wait_threshold = 0.5
        cpu_saturation = 1
        shrink_after = 7
        formula = "lrs"
        order = "complement"
        lend = false
        overtake_max = 3
        reservation_ttl = "1.5m"
        reservation_ttl_max = "2h"
        max_user_priority = -4
        [tiers]
        ratio = 50
        passive_cpu = "weight"
        io = false
        slice = "20ms"
        root_weight = 300
        lane_share = 0.04
        [classify]
        io_below = 0.1
        cpu_above = 0.9
        colocation_threshold = 0.25
        [guard]
        enabled = false
        memory_reserve = "512MiB"
        memory_resume = "1.5GiB"
        memory_pressure = 0.4
        swap_growth = "3MiB"
        enter_after = "2s"
        exit_after = "1h"
        interference = 0.5
        headroom_after = "4s"
        headroom_dry_run = false
        freeze_after = "5s"
        freeze_dry_run = false
        freeze_hold = "6s"
        freeze_max = "70s"
        dry_run = true
        [cgroup]
        root = "batch/lrs"
        version = 1
        memory_controller = false
        [grpc]
        listen = ["unix:/tmp/lrs-1/a.sock", "unix:/tmp/lrs-1/b.sock"]
        admins = ["root", 1000]
        integrations = ["root"]
        [dbus]
        bus = "unix:path=/tmp/lrs-1/bus"
        [history]
        directory = "/var/lib/lrs-1"
        [metrics]
        listen = "[::1]:9753"
        jobs = 20
        [yarn]
        enabled = true
        conf_dir = "/opt/hadoop/etc/hadoop/"
        local_dirs = ["/disk1/yarn", "/disk2/yarn"]
        resource_managers = ["http://rm1:8088", "https://rm2:8090/"]
        node_manager = "http://[::1]:8042"
        node_id = "node-1.example:45454"
        offer = true
        offer_by = "rmadmin"
        rmadmin = ["k5start", "-q", "-q", "--", "yarn", "rmadmin"]
        slot_memory = "1.5GiB"
        slot_vcores = 2
        user = "yarn-ops"
        ca_file = "/etc/hadoop/ca.pem"
        poll = "2s"
        timeout = "1m"
        [[discover]]
        name = "a rule"
        command = 'java .*\.(?<what>\w+)'
        environment = { A = '^\d+$', "B \" C" = '(?<job>.*)' }
        cgroup = '/(?<id>[^/]+)'
        except = '/.+/own'
        user = [0, 1000]
        id = "x-${id}"
        job = "${job}"
        kind = "${what}"
        attach = "in_place"
        standing = "slotless"
        priority = -3
        [[discover]]
        name = "plain"
        cgroup = '/x'
        user = 7
        "#,
    )
    .unwrap();
    let expected = Config {
        daemon: Daemon {
            runtime_dir: "/tmp/lrs-1".into(),
            sample_period: Auto::Fixed(Duration::from_millis(500)),
            mode: Mode::Observe,
            log: "warn,lrs::cgroup=debug".into(),
        },
        node: node([("rack", "r \"1\""), ("example.org/zone", "z")]),
        slots: Slots {
            active: Auto::Fixed(3),
            passive: Auto::Fixed(5),
            passive_max: Auto::Fixed(16),
            expand: false,
            io_wait_threshold: Share::clamped(0.5),
            cpu_saturation: Share::ONE,
            shrink_after: 7,
            formula: Formula::Lrs,
            order: QueueOrder::Complement,
            lend: false,
            overtake_max: 3,
            reservation_ttl: Duration::from_secs(90),
            reservation_ttl_max: Duration::from_secs(7200),
            max_user_priority: -4,
        },
        tiers: Tiers {
            ratio: 50,
            passive_cpu: PassiveCpu::Weight,
            io: DiskTiers::Off,
            slice: SliceSetting::Fixed(Duration::from_millis(20)),
            root_weight: Auto::Fixed(300),
            lane_share: Share::clamped(0.04),
        },
        classify: Classify {
            io_below: Share::clamped(0.1),
            cpu_above: Share::clamped(0.9),
            colocation_threshold: 0.25,
        },
        guard: Guard {
            enabled: false,
            memory_reserve: MemoryAmount::Bytes(Bytes(512 << 20)),
            memory_resume: MemoryAmount::Bytes(Bytes(3 << 29)),
            memory_pressure: Share::clamped(0.4),
            swap_growth: Bytes(3 << 20),
            enter_after: Duration::from_secs(2),
            exit_after: Duration::from_secs(3600),
            interference: Share::clamped(0.5),
            headroom_after: Duration::from_secs(4),
            headroom_dry_run: false,
            freeze_after: Duration::from_secs(5),
            freeze_dry_run: false,
            freeze_hold: Duration::from_secs(6),
            freeze_max: Duration::from_secs(70),
            dry_run: true,
        },
        cgroup: Cgroup {
            root: Auto::Fixed(RootPath("batch/lrs".into())),
            version: Auto::Fixed(Version::V1),
            memory_controller: false,
        },
        history: History { directory: "/var/lib/lrs-1".into() },
        metrics: Metrics { listen: "[::1]:9753".into(), jobs: 20 },
        dbus: Dbus { bus: Bus::Address("unix:path=/tmp/lrs-1/bus".into()) },
        grpc: Grpc {
            listen: vec!["/tmp/lrs-1/a.sock".into(), "/tmp/lrs-1/b.sock".into()],
            admins: vec![0, 1000],
            integrations: Auto::Fixed(vec![0]),
        },
        yarn: Yarn {
            enabled: true,
            conf_dir: "/opt/hadoop/etc/hadoop".into(),
            local_dirs: Auto::Fixed(vec!["/disk1/yarn".into(), "/disk2/yarn".into()]),
            resource_managers: Auto::Fixed(vec![
                "http://rm1:8088".into(),
                "https://rm2:8090".into(),
            ]),
            node_manager: Auto::Fixed("http://[::1]:8042".into()),
            node_id: Auto::Fixed("node-1.example:45454".parse().unwrap()),
            offer: true,
            offer_by: OfferBy::Rmadmin,
            rmadmin: ["k5start", "-q", "-q", "--", "yarn", "rmadmin"].map(Into::into).into(),
            slot_memory: Bytes(3 << 29),
            slot_vcores: 2,
            user: "yarn-ops".into(),
            ca_file: Auto::Fixed("/etc/hadoop/ca.pem".into()),
            poll: Duration::from_secs(2),
            timeout: Duration::from_secs(60),
        },
        discover: discover::tests::two_rules(),
    };
    assert_eq!(config, expected);
    assert_eq!(read(&config.to_toml()).unwrap(), config);
    let tree = config.tree_settings();
    assert_eq!(tree.root.as_deref(), Some("batch/lrs"));
    assert_eq!(tree.version, Some(Version::V1));
    assert_eq!(
        (tree.passive_cpu, tree.io, tree.root_weight),
        (PassiveCpu::Weight, DiskTiers::Off, Some(300))
    );
}

#[test]
fn defaults_follow_the_keys_they_depend_on() {
    let config = read("[daemon]\nruntime_dir = \"/tmp/x/\"\n[guard]\nmemory_reserve = \"1GiB\"\n");
    let config = config.unwrap();
    assert_eq!(config.daemon.runtime_dir, Path::new("/tmp/x"));
    assert_eq!(config.grpc.listen, [Path::new("/tmp/x/lrsd.sock")]);
    assert_eq!(config.guard.memory_resume, MemoryAmount::Bytes(Bytes(3 << 29)));
    let config = read("[guard]\nmemory_reserve = \"80%\"\n").unwrap();
    assert_eq!(config.guard.memory_resume, MemoryAmount::OfTotal(Share::ONE));
}

/// Text of a file and what its only fault has to say.
const FAULTY: &[(&str, &str)] = &[
    (
        "[slots]\n\nactive = \"two\"\n",
        "lrs.toml:3: slots.active = \"two\": expected \"auto\" or 1..=4096; correct it, or remove \
         the key for the default \"auto\"",
    ),
    (
        "slots.active = 0",
        "lrs.toml:1: slots.active = 0: expected \"auto\" or 1..=4096; correct it, or remove the \
         key for the default \"auto\"",
    ),
    (
        "slots.active = \"4\"",
        "lrs.toml:1: slots.active = \"4\": expected \"auto\" or 1..=4096; remove the quotes",
    ),
    ("[tiers]\nratio = 99999999999999999999999", "ratio = 99999999999999999999999: expected"),
    ("[tiers]\nratio = -1", "lrs.toml:2: tiers.ratio = -1: expected 1..=10000"),
    ("[tiers]\nio = \"true\"", "expected true, \"weights\", \"idle\" or false"),
    ("[tiers]\nslice = \"1s\"", "expected \"auto\", \"off\" or a duration from"),
    ("[tiers]\nslice = false", "expected \"auto\", \"off\" or a duration from"),
    ("[tiers]\npassive_cpu = \"Idle\"", "expected \"auto\", \"idle\" or \"weight\""),
    ("[slots]\nexpand = 1", "slots.expand = 1: expected true or false"),
    ("[slots]\nio_wait_threshold = 1.5", "slots.io_wait_threshold = 1.5: expected 0.0..=1.0"),
    ("[slots]\nio_wait_threshold = nan", "slots.io_wait_threshold = nan: expected 0.0..=1.0"),
    ("[slots]\ncpu_saturation = -inf", "expected 0.01..=1.0"),
    ("[slots]\nactve = 3", "lrs.toml:2: slots.actve = 3: unknown key; did you mean slots.active?"),
    ("[daemon]\nratio = 3", "daemon.ratio = 3: unknown key; did you mean tiers.ratio?"),
    (
        "[tiers]\nzebra = 3",
        "the keys of [tiers] are ratio, passive_cpu, io, slice, root_weight, lane_share",
    ),
    ("active = 3", "active = 3: unknown key; did you mean slots.active? put it below [slots]"),
    ("zebra = 3", "unknown key; every key is in one of [daemon], [node], [slots]"),
    ("\n[solts]\nactive = 3", "lrs.toml:2: solts: unknown section; did you mean [slots]?"),
    ("[zebra]", "zebra: unknown section; the sections are [daemon], [node], [slots]"),
    ("slots = 3", "slots = 3: is a section; write [slots] on a line of its own"),
    ("[[slots]]\nactive = 3", "slots: is a section"),
    ("[\"a\\u001b[31m\\nb\"]", "\"a\\u{1b}[31m\\nb\": unknown section"),
    ("[daemon]\nsample_period = 3", "sample_period = 3: a duration needs a unit"),
    ("[daemon]\nsample_period = \"3\"", "sample_period = \"3\": a duration needs a unit"),
    ("[daemon]\nsample_period = \"3 sec\"", "unknown unit of time \"sec\"; use ms, s, m or h"),
    (
        "[daemon]\nsample_period = \"-3s\"",
        "expected \"auto\" or a duration from \"100ms\" to \"60s\"",
    ),
    (
        "[daemon]\nsample_period = \"0s\"",
        "expected \"auto\" or a duration from \"100ms\" to \"60s\"",
    ),
    (
        "[daemon]\nsample_period = \"61s\"",
        "expected \"auto\" or a duration from \"100ms\" to \"60s\"",
    ),
    ("[daemon]\nsample_period = \"1.0005s\"", "is not a whole number of milliseconds"),
    ("[daemon]\nruntime_dir = \"run\"", "is not an absolute path; start it with /"),
    ("[daemon]\nruntime_dir = \"/\"", "is the root of the file system"),
    ("[daemon]\nruntime_dir = \"/a/../b\"", "has a \"..\" in it"),
    ("[daemon]\nlog = \"\"", "daemon.log = \"\": is empty; write \"off\""),
    ("[daemon]\nlog = \"lrs=loud\"", "is no log filter"),
    ("[daemon]\nmode = \"enforced\"", "expected \"enforce\" or \"observe\""),
    ("[guard]\nmemory_reserve = \"512MB\"", "unknown unit of size \"MB\"; use B, KiB"),
    ("[guard]\nmemory_reserve = \"101%\"", "memory_reserve = \"101%\": expected a size"),
    ("[guard]\nmemory_reserve = \"1e3%\"", "memory_reserve = \"1e3%\": expected a size"),
    ("[guard]\nmemory_reserve = 0.05", "memory_reserve = 0.05: expected a size"),
    ("[cgroup]\nroot = \"/lrs\"", "starts with \"/\"; write it relative"),
    ("[cgroup]\nroot = \"a/../b\"", "has the component \"..\""),
    ("[cgroup]\nroot = \"a/\"", "has an empty component"),
    ("[cgroup]\nroot = \"a\\nb\"", "has a control character"),
    ("[cgroup]\nroot = \"\"", "has 0 bytes"),
    ("[cgroup]\nroot = \"cgroup.procs\"", "has the component \"cgroup.procs\""),
    ("[cgroup]\nversion = \"2\"", "expected \"auto\", 1 or 2; remove the quotes"),
    ("[grpc]\nlisten = []", "expected a list of 1 to 16 addresses"),
    ("[grpc]\nlisten = \"unix:/a\"", "expected a list of 1 to 16 addresses"),
    ("[grpc]\nlisten = [\"/a/b\"]", "is a bare path; write \"unix:/a/b\""),
    ("[grpc]\nlisten = [\"unix:a\"]", "is not an absolute path"),
    (
        "[grpc]\nlisten = [\"unix:/a\",\n\"unix:/a\"]",
        "lrs.toml:3: grpc.listen = \"unix:/a\": stands twice",
    ),
    ("[grpc]\nadmins = [\"no-such-account-here\"]", "no account has this name"),
    ("[grpc]\nadmins = [-1]", "admins = -1: expected a list of at most 1024 uids"),
    ("[dbus]\nbus = \"sytem\"", "expected \"system\", \"session\", \"off\" or an address"),
    ("[dbus]\nbus = true", "expected \"system\", \"session\", \"off\" or an address"),
    ("[dbus]\nbus = \"unix:pigeon=1\"", "is no address of a bus"),
    ("[dbus]\nbus = \"unix:path=\"", "is no address of a bus"),
    ("[dbus]\nbus = \"unix:path=/a,guid=abc\"", "is no address of a bus"),
    ("[dbus]\nbus = \"unix:path=/a,abstract=b\"", "is no address of a bus"),
    ("[dbus]\nbus = \"tcp:host=localhost,port=1\"", "is not the address of a unix socket"),
    ("[dbus]\nbus = \"unixexec:path=/bin/sh\"", "is not the address of a unix socket"),
    ("[dbus]\nbus = \"autolaunch:\"", "is not the address of a unix socket"),
    ("[dbus]\nbus = \"unix:path=/x;tcp:port=1\"", "is not the address of a unix socket"),
    ("[history]\ndirectory = \"lib\"", "history.directory = \"lib\""),
    ("[metrics]\nlisten = \"localhost:9753\"", "expected \"\" or an address and a port"),
    ("[metrics]\nlisten = \"127.0.0.1:0\"", "metrics.listen = \"127.0.0.1:0\""),
    ("[metrics]\nlisten = \"9753\"", "metrics.listen = \"9753\""),
    ("[metrics]\njobs = 1001", "metrics.jobs = 1001"),
    // In the contract, not in this version.
    ("[grpc]\nlisten = [\"127.0.0.1:7777\"]", "grpc.listen = \"127.0.0.1:7777\": not built yet"),
    (
        "[guard]\nfreeze_hold = \"0s\"",
        "guard.freeze_hold = \"0s\": expected a duration from \"1s\"",
    ),
    ("[guard]\nfreeze_max = \"1s\"", "guard.freeze_max = \"1s\": expected a duration from \"10s\""),
    ("[guard]\ninterference = 0", "guard.interference = 0: expected 0.05..=1.0"),
    ("[guard]\nfreeze_after = \"2s\"", "is below guard.headroom_after = \"10s\""),
    ("[guard.freeze]\ndry_run = true", "guard.freeze: unknown key"),
    // Two keys together.
    (
        "[slots]\npassive = 8\npassive_max = 4",
        "lrs.toml:3: slots.passive_max = 4: is below slots.passive = 8",
    ),
    ("[classify]\nio_below = 0.9", "classify.io_below = 0.9: is above classify.cpu_above = 0.8"),
    ("[guard]\nmemory_resume = \"3%\"", "is below guard.memory_reserve = \"5%\""),
    // Syntax.
    ("[slots]\nactive = \n", "lrs.toml:2:10: no valid TOML:"),
    ("[slots\nactive = 1\n", "lrs.toml:1:7: no valid TOML:"),
    ("[slots]\nactive = 1\nactive = 2\n", "lrs.toml:3:1: no valid TOML: duplicate key"),
    (
        "[slots] # ours\nactive = 1\n[yarn]\n[ slots ]\npassive = 2\n",
        "is at line 1 already: put the keys below it there",
    ),
];

#[test]
fn each_fault_says_where_what_and_what_to_do() {
    for (text, expected) in FAULTY {
        let found = faults(text);
        assert!(found.contains(expected), "{text:?}:\n  found    {found}\n  expected {expected}");
        assert_eq!(found.lines().count(), 1, "{text:?}: {found}");
        assert!(
            found.starts_with(FILE) && found.contains("; ") && !found.ends_with('.'),
            "{found}"
        );
    }
}

#[test]
fn every_fault_is_reported_in_the_order_of_lines() {
    let found = faults(
        "[slots]\nactive = \"two\"\nzebra = 1\nexpand = maybe\n[tiers]\nratio = 0\nio = 3\n\
         [grpc]\nadmins = [-1, -2]\n[nonsense]\n[slots.deep]\n",
    );
    let lines: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "lrs.toml:2",
            "lrs.toml:3",
            "lrs.toml:4:10",
            "lrs.toml:6",
            "lrs.toml:7",
            "lrs.toml:9",
            "lrs.toml:9",
            "lrs.toml:10",
            "lrs.toml:11"
        ],
        "{found}"
    );
}

#[test]
fn a_refused_value_starts_no_second_fault() {
    assert_eq!(faults("[classify]\nio_below = 7\ncpu_above = 0.1").lines().count(), 1);
}

#[test]
fn socket_paths_fit_the_kernel() {
    let fits = format!("unix:/{}", "x".repeat(106));
    assert!(read(&format!("[grpc]\nlisten = [\"{fits}\"]")).is_ok());
    let found = faults(&format!("[grpc]\nlisten = [\"{fits}x\"]"));
    assert!(found.contains("has 108 bytes; the kernel takes 107"), "{found}");
    let directory = format!("[daemon]\nruntime_dir = \"/{}\"\n", "x".repeat(100));
    let found = faults(&directory);
    assert!(found.contains("lrs.toml:2: daemon.runtime_dir") && found.contains("107"), "{found}");
    assert!(read(&format!("{directory}[grpc]\nlisten = [\"unix:/a\"]\n")).is_ok());
}

#[test]
fn changed_keys_say_which_need_a_restart() {
    let before = Config::default();
    assert_eq!(before.changed_keys(&before), []);
    let after = read("[daemon]\nmode = \"observe\"\n[slots]\nactive = 3\n[cgroup]\nroot = \"x\"\n");
    let after = after.unwrap();
    let live = |key| ChangedKey { key, needs_restart: false };
    let restart = |key| ChangedKey { key, needs_restart: true };
    assert_eq!(
        before.changed_keys(&after),
        [restart("daemon.mode"), live("slots.active"), restart("cgroup.root")]
    );
    let restarts: Vec<&str> = keys::keys()
        .filter(|key| key.applies == keys::Applies::Restart)
        .map(|key| key.path)
        .collect();
    assert_eq!(
        restarts,
        [
            "daemon.runtime_dir",
            "daemon.mode",
            "tiers.passive_cpu",
            "tiers.io",
            "tiers.slice",
            "tiers.root_weight",
            "cgroup.root",
            "cgroup.version",
            "cgroup.memory_controller",
            "grpc.listen",
            "dbus.bus",
            "history.directory",
            "yarn.enabled",
            "yarn.conf_dir",
            "yarn.local_dirs",
            "yarn.resource_managers",
            "yarn.node_manager",
            "yarn.node_id",
            "yarn.offer_by",
            "yarn.rmadmin",
            "yarn.user",
            "yarn.ca_file",
        ]
    );
}

#[test]
fn settings_are_shown_as_toml_and_json() {
    let text = Config::default().to_toml();
    assert!(text.starts_with("[daemon]\nruntime_dir = \"/run/lrs\"\nsample_period = \"3s\"\n"));
    assert!(text.contains("\nmemory_reserve = \"5%\"\nmemory_resume = \"7.5%\"\n"), "{text}");
    let json = toml_to_json(&text).unwrap();
    assert_eq!(json["slots"]["active"], "auto");
    assert_eq!(json["slots"]["cpu_saturation"], 0.9);
    assert_eq!(json["grpc"]["listen"][0], "unix:/run/lrs/lrsd.sock");
    assert_eq!(toml_to_json("= 3"), None);
}

#[test]
fn memory_amounts_resolve_on_a_node() {
    let total = Bytes(1000 << 20);
    assert_eq!(MemoryAmount::OfTotal(Share::clamped(0.5)).of(total), Bytes(500 << 20));
    assert_eq!(MemoryAmount::Bytes(Bytes(7)).of(total), Bytes(7));
}

fn node<N: Into<String>>(labels: impl IntoIterator<Item = (N, &'static str)>) -> NodeSettings {
    let label = |(name, text): (N, _)| (name.into(), Label::new(text).unwrap());
    NodeSettings { labels: labels.into_iter().map(label).collect() }
}

#[test]
fn labels_of_the_node_have_bounds_and_errors_that_name_the_place() {
    let many: String = (0..33).map(|n| format!("l{n} = \"x\"\n")).collect();
    for (text, found) in [
        ("[node]\nlabels = { rack = 1 }", "is no text"),
        ("[node]\nlabels = { rack = \"\" }", "use 1 to 256 bytes"),
        ("[node]\nlabels = { \"a b\" = \"x\" }", "is no name of a label"),
        ("[node]\nlabels = \"rack\"", "at most 32"),
        (&format!("[node.labels]\n{many}"), "at most 32"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(found) && error.contains("node.labels"), "{error}");
    }
    let plain = read("[node.labels]\nrack = \"r1\"").unwrap();
    assert_eq!(plain.node, node([("rack", "r1")]));
}
