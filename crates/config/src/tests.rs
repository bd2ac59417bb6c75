use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use lrs_core::model::Label;
use lrs_core::order::QueueOrder;
use lrs_core::probe::Formula;

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

mod files {
    use super::*;

    fn fault_of(path: &Path) -> String {
        Config::load(path, Absent::IsError).unwrap_err().to_string()
    }

    #[test]
    fn unreadable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lrs.toml");
        assert_eq!(Config::load(&path, Absent::IsDefault).unwrap(), Loaded::default());
        assert!(fault_of(&path).contains("cannot read the file: No such file"));
        assert!(fault_of(dir.path()).contains("is a directory; give the path of a TOML file"));

        std::os::unix::fs::symlink(dir.path().join("nowhere"), &path).unwrap();
        let error = Config::load(&path, Absent::IsDefault).unwrap_err().to_string();
        assert!(error.contains("is a symbolic link to nothing"), "{error}");
        std::fs::remove_file(&path).unwrap();

        std::fs::write(&path, b"[slots]\nactive = \"\xff\"\n").unwrap();
        let error = fault_of(&path);
        assert!(error.contains("lrs.toml:2: byte 19 of the file is not UTF-8"), "{error}");

        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        assert!(
            fault_of(&path)
                .contains("it has more than 1048576 bytes; give the path of a file of settings")
        );
        std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
        assert!(Config::load(&path, Absent::IsError).is_ok());

        let below_a_file = path.join("lrs.toml");
        assert!(Config::load(&below_a_file, Absent::IsDefault).is_err());
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(fault_of(&path).contains("is a pipe; give the path of a TOML file"));
    }

    /// A main file and its drop-ins.
    fn written(main: Option<&str>, drop_ins: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lrs.toml");
        if let Some(text) = main {
            std::fs::write(&path, text).unwrap();
        }
        let beside = crate::files::drop_in_directory(&path);
        assert_eq!(beside, dir.path().join("lrs.toml.d"));
        std::fs::create_dir(&beside).unwrap();
        for (name, text) in drop_ins {
            std::fs::write(beside.join(name), text).unwrap();
        }
        (dir, path)
    }

    #[test]
    fn of_drop_ins_the_last_by_name_counts() {
        let (_dir, path) = written(
            Some("[slots]\nactive = 1\npassive = 2\n[grpc]\nadmins = [1]\n"),
            &[
                ("20-b.toml", "[slots]\nactive = 3\n"),
                ("10-a.toml", "[slots]\nactive = 2\n\npassive = 4\n[grpc]\nadmins = [2]\n"),
                ("3.toml", ""),
                // What editors and package managers leave.
                ("30-c.toml.rpmsave", "broken"),
                ("README", "broken"),
                (".20-b.toml", "broken"),
                ("20-b.toml~", "broken"),
            ],
        );
        let loaded = Config::load(&path, Absent::IsError).unwrap();
        let slots = &loaded.config.slots;
        assert_eq!((slots.active, slots.passive), (Auto::Fixed(3), Auto::Fixed(4)));
        // A list is replaced, not joined.
        assert_eq!(loaded.config.grpc.admins, [2]);
        let names = loaded.sources.files.iter().map(|file| file.file_name().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["lrs.toml", "10-a.toml", "20-b.toml", "3.toml"]);
        let line = |key| {
            let line = &loaded.sources.keys[key];
            (line.file.file_name().unwrap().to_str().unwrap(), line.line)
        };
        assert_eq!(line("slots.active"), ("20-b.toml", 2));
        assert_eq!(line("slots.passive"), ("10-a.toml", 4));
        assert!(!loaded.sources.keys.contains_key("slots.passive_max"));
        assert!(loaded.sources.to_string().ends_with(
            "lrs.toml with lrs.toml.d/10-a.toml, lrs.toml.d/20-b.toml, lrs.toml.d/3.toml"
        ));
        assert_eq!(Config::load_trusted(&path).unwrap(), loaded);
    }

    #[test]
    fn drop_ins_need_no_main_file() {
        let (_dir, path) = written(None, &[("a.toml", "[slots]\nactive = 3\n")]);
        let loaded = Config::load(&path, Absent::IsDefault).unwrap();
        assert_eq!(loaded.config.slots.active, Auto::Fixed(3));
        assert!(Config::load(&path, Absent::IsError).is_err());
    }

    #[test]
    fn all_faults_of_all_files_are_reported_at_once() {
        let (_dir, path) = written(
            Some("[slots]\nactve = 1\npassive = 9\n"),
            &[
                ("20.toml", "[slots]\npassive_max = 3\n[tiers]\nratio = 0\n"),
                ("10.toml", "[tiers\n"),
                ("30.toml", "\n[[discover]]\nname = \"x\"\ncommand = \"y\"\nuser = [\"root\"]\n"),
                ("40.toml", "[[discover]]\nname = \"x\"\ncommand = \"z\"\nuser = [\"root\"]\n"),
            ],
        );
        let errors = Config::load(&path, Absent::IsError).unwrap_err().to_string();
        let short = errors.replace(&format!("{}", path.display()), "F");
        let lines: Vec<&str> = short.lines().collect();
        assert_eq!(lines.len(), 5, "{short}");
        for (line, begins) in lines.iter().zip([
            "F:2: slots.actve = 1: unknown key; did you mean slots.active?",
            "F.d/10.toml:1:",
            "F.d/20.toml:2: slots.passive_max = 3: is below slots.passive = 9 in ",
            "F.d/20.toml:4: tiers.ratio = 0: expected 1..=10000",
            "F.d/40.toml:2: discover.name = \"x\": another rule has this name",
        ]) {
            assert!(line.starts_with(begins), "{line}\n{begins}");
        }
        assert!(lines[2].contains(" in F:3; set "), "{}", lines[2]);
    }

    #[test]
    fn odd_entries_are_named_and_never_waited_for() {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::symlink;
        let (dir, path) = written(Some(""), &[]);
        let at = |name: &str| crate::files::drop_in_directory(&path).join(name);
        let text = "[slots]\nactive = 3\n";
        std::fs::write(dir.path().join("elsewhere"), text).unwrap();
        symlink(dir.path().join("elsewhere"), at("link.toml")).unwrap();
        symlink("/dev/null", at("off.toml")).unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"\xff\x1b.toml");
        let odd = crate::files::drop_in_directory(&path).join(odd);
        std::fs::write(&odd, "[slots]\npassive = 5\n").unwrap();
        let loaded = Config::load(&path, Absent::IsError).unwrap();
        let slots = &loaded.config.slots;
        assert_eq!((slots.active, slots.passive), (Auto::Fixed(3), Auto::Fixed(5)));

        std::fs::write(&odd, "[slots]\npassive = -5\n").unwrap();
        std::fs::create_dir(at("a.toml")).unwrap();
        nix::unistd::mkfifo(&at("b.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("nowhere", at("c.toml")).unwrap();
        symlink("d.toml", at("d.toml")).unwrap();
        std::fs::write(at("e.toml"), b"\n\xff").unwrap();
        let errors = Config::load(&path, Absent::IsError).unwrap_err().to_string();
        for part in [
            "a.toml: is a directory; give",
            "b.toml: is a pipe; give",
            "c.toml: is a symbolic link to nothing; repair",
            "d.toml: cannot read the file: Too many levels of symbolic links",
            "e.toml:2: byte 2 of the file is not UTF-8",
            "\\u{1b}.toml:2: slots.passive = -5: expected",
        ] {
            assert!(errors.contains(part), "{part}:\n{errors}");
        }
        assert_eq!(errors.lines().count(), 6, "{errors}");

        let (_dir, path) = written(Some(""), &[]);
        std::fs::remove_dir(crate::files::drop_in_directory(&path)).unwrap();
        std::fs::write(crate::files::drop_in_directory(&path), text).unwrap();
        assert!(fault_of(&path).contains("lrs.toml.d: cannot read the directory of drop-ins"));
    }

    #[test]
    fn a_drop_in_of_anybodys_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, path) = written(Some(""), &[("a.toml", ""), ("b.toml", "")]);
        let chmod = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let beside = crate::files::drop_in_directory(&path);
        chmod(&beside.join("b.toml"), 0o666);
        let error = Config::load_trusted(&path).unwrap_err().to_string();
        assert!(error.contains("b.toml: is not believed"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let warning = check_file(&path).unwrap();
        assert!(
            warning.contains("warning: lrsd does not start with") && warning.contains("b.toml")
        );
        chmod(&beside, 0o777);
        let error = Config::load_trusted(&path).unwrap_err().to_string();
        assert!(error.contains("lrs.toml.d: is not believed"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    #[test]
    fn check_says_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lrs.toml");
        std::fs::write(&path, example()).unwrap();
        assert!(check_file(&path).unwrap().ends_with(": valid; every key has its default"));
        std::fs::write(&path, "[tiers]\nratio = 7\n").unwrap();
        assert!(check_file(&path).unwrap().ends_with(": valid; not default: tiers.ratio = 7"));
        std::fs::write(&path, "[tiers]\nratio = 0\n").unwrap();
        assert!(check_file(&path).is_err());
    }
}

/// A duration as [`value::duration`] takes it: whole milliseconds.
fn millis(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn automatic<T: std::fmt::Debug + Clone + 'static>(
    fixed: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Auto<T>> {
    prop_oneof![Just(Auto::Auto), fixed.prop_map(Auto::Fixed)].boxed()
}

fn share(from: f64) -> impl Strategy<Value = Share> {
    (from..=1.0).prop_map(Share::clamped)
}

fn guard() -> impl Strategy<Value = Guard> {
    let amounts = prop_oneof![
        (0u64..1 << 59, 0u64..1 << 59)
            .prop_map(|(a, b)| (MemoryAmount::Bytes(Bytes(a)), MemoryAmount::Bytes(Bytes(a + b)))),
        (share(0.0), share(0.0)).prop_map(|(a, b)| {
            let (low, high) = if a <= b { (a, b) } else { (b, a) };
            (MemoryAmount::OfTotal(low), MemoryAmount::OfTotal(high))
        }),
        (share(0.0), 0u64..1 << 60)
            .prop_map(|(a, b)| (MemoryAmount::OfTotal(a), MemoryAmount::Bytes(Bytes(b)))),
    ];
    let limits = (share(0.05), (1u64..1 << 20).prop_map(|mebibytes| Bytes(mebibytes << 20)));
    let holds = (millis(0..=86_400_000), millis(0..=86_400_000));
    (any::<bool>(), amounts, limits, holds, any::<bool>()).prop_map(
        |(enabled, amounts, limits, (enter_after, exit_after), dry_run)| Guard {
            enabled,
            memory_reserve: amounts.0,
            memory_resume: amounts.1,
            memory_pressure: limits.0,
            swap_growth: limits.1,
            enter_after,
            exit_after,
            interference: limits.0,
            headroom_after: enter_after.min(exit_after),
            headroom_dry_run: !dry_run,
            freeze_after: enter_after.max(exit_after),
            freeze_dry_run: dry_run,
            freeze_hold: exit_after.clamp(Duration::from_secs(1), Duration::from_secs(3600)),
            freeze_max: enter_after.max(Duration::from_secs(10)),
            dry_run,
        },
    )
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

fn slots() -> impl Strategy<Value = Slots> {
    (
        automatic(1u32..=4096),
        automatic(0u32..=30_000),
        automatic(30_000u32..=65_536),
        (any::<bool>(), prop_oneof![Just(Formula::Lrs), Just(Formula::Probe)]),
        share(0.0),
        share(0.01),
        1u32..=1000,
        (
            prop_oneof![
                Just(QueueOrder::Fit),
                Just(QueueOrder::Fifo),
                Just(QueueOrder::Complement)
            ],
            0u32..=1000,
            any::<bool>(),
        ),
        (millis(100..=86_400_000), millis(100..=86_400_000)),
        any::<i32>(),
    )
        .prop_map(
            |(
                active,
                passive,
                passive_max,
                expand,
                io,
                cpu,
                shrink_after,
                order,
                ttl,
                priority,
            )| Slots {
                active,
                passive,
                passive_max,
                expand: expand.0,
                formula: expand.1,
                io_wait_threshold: io,
                cpu_saturation: cpu,
                shrink_after,
                order: order.0,
                overtake_max: order.1,
                lend: order.2,
                reservation_ttl: ttl.0,
                reservation_ttl_max: ttl.1,
                max_user_priority: priority,
            },
        )
}

fn valid_config() -> impl Strategy<Value = Config> {
    let daemon = (
        "(/[a-zA-Z0-9 _\"'\\\\ü#-]{1,20}){1,3}",
        prop_oneof![Just(Auto::Auto), millis(100..=60_000).prop_map(Auto::Fixed)],
        prop_oneof![Just(Mode::Enforce), Just(Mode::Observe)],
        prop_oneof![Just("info"), Just("off"), Just("warn,lrs::cgroup=debug")],
    )
        .prop_map(|(dir, sample_period, mode, log)| Daemon {
            runtime_dir: dir.into(),
            sample_period,
            mode,
            log: log.into(),
        });
    let tiers = (
        1u32..=10_000,
        prop_oneof![Just(PassiveCpu::Auto), Just(PassiveCpu::Idle), Just(PassiveCpu::Weight)],
        prop_oneof![Just(DiskTiers::Weights), Just(DiskTiers::Idle), Just(DiskTiers::Off)],
        prop_oneof![
            Just(SliceSetting::Auto),
            Just(SliceSetting::Off),
            (1u64..=100).prop_map(|ms| SliceSetting::Fixed(Duration::from_millis(ms)))
        ],
        automatic(1u32..=10_000),
        0.0..=0.2f64,
    )
        .prop_map(|(ratio, passive_cpu, io, slice, root_weight, lane_share)| Tiers {
            ratio,
            passive_cpu,
            io,
            slice,
            root_weight,
            lane_share: Share::clamped(lane_share),
        });
    let classify =
        (share(0.0), share(0.0), 0.0..=1.0f64).prop_map(|(a, b, colocation_threshold)| Classify {
            io_below: if a <= b { a } else { b },
            cpu_above: if a <= b { b } else { a },
            colocation_threshold,
        });
    let cgroup = (
        automatic("[a-z\"\\\\ -]{1,20}(/[a-zü]{5,20}){0,3}".prop_map(RootPath))
            .prop_filter("the word for LRS's choice", |root| {
                *root != Auto::Fixed(RootPath("auto".into()))
            }),
        automatic(prop_oneof![Just(Version::V1), Just(Version::V2)]),
        any::<bool>(),
    )
        .prop_map(|(root, version, memory_controller)| Cgroup {
            root,
            version,
            memory_controller,
        });
    let grpc = (
        proptest::collection::hash_set("/[a-z0-9 \"\\\\-]{1,100}", 1..4),
        proptest::collection::hash_set(0..u32::MAX, 0..4),
        automatic(proptest::collection::vec(0..u32::MAX, 1)),
    )
        .prop_map(|(listen, admins, integrations)| Grpc {
            listen: listen.into_iter().map(PathBuf::from).collect(),
            admins: admins.into_iter().collect(),
            integrations,
        });
    let dbus = prop_oneof![
        Just(Bus::System),
        Just(Bus::Session),
        Just(Bus::Off),
        "[a-z0-9/_.-]{1,40}".prop_map(|path| Bus::Address(format!("unix:path=/{path}"))),
    ]
    .prop_map(|bus| Dbus { bus });
    (
        daemon,
        slots(),
        tiers,
        classify,
        guard(),
        cgroup,
        grpc,
        dbus,
        (yarn(), discover::tests::rules(), labelled()),
    )
        .prop_map(
            |(
                daemon,
                slots,
                tiers,
                classify,
                guard,
                cgroup,
                grpc,
                dbus,
                (yarn, discover, node),
            )| {
                let (history, metrics) = Default::default();
                Config {
                    daemon,
                    node,
                    slots,
                    tiers,
                    classify,
                    guard,
                    cgroup,
                    grpc,
                    dbus,
                    history,
                    metrics,
                    yarn,
                    discover,
                }
            },
        )
}

fn labelled() -> impl Strategy<Value = NodeSettings> {
    let names = proptest::collection::hash_set("[a-z0-9_./-]{1,63}", 0..4);
    names.prop_map(|names| node(names.into_iter().map(|name| (name, "r 1"))))
}

fn yarn() -> impl Strategy<Value = Yarn> {
    let path = || "/[a-z0-9 \"\\\\-]{1,40}[a-z]".prop_map(PathBuf::from);
    let paths = proptest::collection::hash_set(path(), 1..4)
        .prop_map(|paths| paths.into_iter().collect::<Vec<_>>());
    let address = || "https?://[a-z0-9.-]{1,30}:[1-9][0-9]{0,3}";
    let addresses = proptest::collection::hash_set(address(), 1..4)
        .prop_map(|addresses| addresses.into_iter().collect::<Vec<_>>());
    let node = (
        any::<[bool; 2]>(),
        path(),
        automatic(paths),
        automatic(addresses),
        automatic(address()),
        automatic("[a-z0-9.][a-z0-9.-]{0,29}:[1-9][0-9]{0,3}".prop_map(|id| id.parse().unwrap())),
    );
    let offer = (
        prop_oneof![Just(OfferBy::Rest), Just(OfferBy::Rmadmin)],
        proptest::collection::vec("[ -~]{1,20}", 1..6),
        0..=1_u64 << 20,
        0..=1024_u32,
        "[a-z_][a-z0-9_.-]{0,30}",
        automatic(path()),
        1_000..=3_600_000_u64,
        100..=300_000_u64,
    );
    (node, offer).prop_map(|(node, offer)| {
        let ([enabled, offered], conf_dir, local_dirs, managers, manager, id) = node;
        let (offer_by, rmadmin, slot_mib, slot_vcores, user, ca_file, poll, timeout) = offer;
        Yarn {
            enabled,
            conf_dir,
            local_dirs,
            resource_managers: managers,
            node_manager: manager,
            node_id: id,
            offer: offered,
            offer_by,
            rmadmin,
            slot_memory: Bytes(slot_mib << 20),
            slot_vcores,
            user,
            ca_file,
            poll: Duration::from_millis(poll),
            timeout: Duration::from_millis(timeout),
        }
    })
}

/// Text made of the pieces configuration files are made of, in any order.
fn toml_like() -> impl Strategy<Value = String> {
    let keys: Vec<String> = keys::keys()
        .flat_map(|key| [key.path, key.name(), key.section()])
        .map(str::to_owned)
        .collect();
    let piece = prop_oneof![
        proptest::sample::select(keys),
        proptest::sample::select(vec![
            "[",
            "]",
            "[[",
            "=",
            "\n",
            "\"",
            "'''",
            "\"\"\"",
            ".",
            ",",
            "{",
            "}",
            "#",
            "0x",
            "1e9",
            "inf",
            "nan",
            "-",
            "\u{1b}",
            "\u{0}",
            "\u{feff}",
            "5%",
            "1.5GiB",
            "\"3s\"",
            "true",
            "1979-05-27",
            "\\u",
            "\r",
            "unix:/a",
            "auto",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A key of the table with any value.
fn assignment() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}").to_lowercase()),
        "\\PC{0,30}".prop_map(|text| toml::Value::String(text).to_string()),
        "[0-9.]{1,40}(ms|s|m|h|%|B|KiB|PiB)?"
            .prop_map(|text| toml::Value::String(text).to_string()),
        "[0-9.]{1,40}(ms|s|m|h|%|B|KiB|PiB)?".prop_map(|text| format!("[{text:?}, {text:?}]")),
    ];
    (0..keys::keys().count(), value)
        .prop_map(|(index, value)| format!("{} = {value}\n", keys::keys().nth(index).unwrap().path))
}

proptest! {
    #[test]
    fn valid_settings_round_trip(config in valid_config()) {
        let text = config.to_toml();
        prop_assert_eq!(read(&text).map_err(|e| format!("{e}\n{text}")), Ok(config));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}|[ -~\n\t]{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn any_pieces_are_read_or_refused(text in toml_like()) {
        if let Err(errors) = read(&text) {
            let shown = errors.to_string();
            prop_assert_eq!(shown.lines().count(), errors.faults().len());
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{:?}", shown);
            let lines = text.matches('\n').count() + 1;
            prop_assert!(errors.faults().iter().all(|f| f.line.is_some_and(|l| l >= 1 && l <= lines)));
        }
    }

    #[test]
    fn what_is_read_can_be_shown_and_read_again(text in proptest::collection::vec(assignment(), 1..3)) {
        if let Ok(config) = read(&text.concat()) {
            prop_assert_eq!(read(&config.to_toml()), Ok(config));
        }
    }
}

/// Half as much again as the largest reserves would be beyond what a file may say.
#[test]
fn the_default_that_follows_a_huge_reserve_can_be_read_again() {
    let huge = "guard.memory_reserve = 768614336404564652";
    let largest = format!("guard.memory_reserve = {}", quantity::MAX_SIZE);
    for text in [huge, &largest, "guard.memory_reserve = \"80%\""] {
        let config = read(text).unwrap();
        assert_eq!(read(&config.to_toml()), Ok(config));
    }
}

/// Files that cost a careless reader its stack or its time.
#[test]
fn monstrous_files_are_refused_in_reasonable_time() {
    let many = |piece: &str, times: usize| piece.repeat(times);
    let nested = format!("a = {}", many("[", 200_000));
    let inline = format!("a = {}", many("{a=", 100_000));
    let dotted = format!("a{} = 1", many(".a", 100_000));
    let unknown: String = (0..20_000).map(|n| format!("key{n} = 1\n")).collect();
    let lines = many("[slots\n", 20_000);
    let admins = format!("grpc.admins = [{}]", many("1,", 200_000));
    for text in [nested, inline, dotted, unknown, lines, admins] {
        assert!(text.len() <= 1 << 20);
        assert!(read(&text).is_err());
    }
}
