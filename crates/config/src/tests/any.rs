//! Any settings and any text.

use proptest::prelude::*;

use super::*;

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
