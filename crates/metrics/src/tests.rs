use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lrs_core::units::WallTime;

use super::definitions::{ALL, Kind};
use super::*;

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn passive(job: &str) -> proto::Task {
    proto::Task {
        job: Some(job.to_owned()),
        tier: proto::Tier::Passive.into(),
        class: proto::Class::Cpu.into(),
        cpu_share: Some(0.01),
        ..proto::Task::default()
    }
}

/// A reading with something everywhere.
fn full() -> Reading {
    let status = proto::Status {
        version: "0.1.0".into(),
        started_at: at(1_000),
        last_turn_seconds: Some(0.5),
        waiting: 2,
        warnings: vec!["w".into()],
        state: proto::NodeState::Holding.into(),
        mode: proto::Mode::Enforce.into(),
        node: Some(proto::Node {
            cores: 4,
            cpu_quota: Some(2.5),
            period_ms: 3_000,
            cpu: Some(proto::CpuUse {
                effective: Some(0.75),
                tasks: Some(0.5),
                iowait: Some(0.0),
                idle: Some(0.25),
                steal: Some(0.0),
            }),
            disk: Some(proto::DiskUse {
                write_bytes_per_sec: Some(1e6),
                read_bytes_per_sec: Some(0.0),
            }),
            pressure: Some(proto::Pressure {
                cpu_some: Some(0.1),
                memory_some: Some(0.2),
                memory_full: Some(0.3),
                io_some: Some(0.4),
                io_full: Some(0.5),
            }),
            memory: Some(proto::MemoryUse {
                total_bytes: Some(8 << 30),
                available_bytes: Some(4 << 30),
                swap_used_bytes: Some(0),
                ..proto::MemoryUse::default()
            }),
            ..proto::Node::default()
        }),
        slots: Some(proto::Slots {
            active: Some(proto::ActiveSlots { capacity: 4, used: 3, reserved: 1, free: 0 }),
            passive: Some(proto::PassiveSlots {
                capacity: 6,
                base: 4,
                max: 12,
                ..Default::default()
            }),
        }),
        guard: Some(proto::Guard { enabled: true, stage: 1, ..proto::Guard::default() }),
        cgroup: Some(proto::CgroupStatus {
            cpu_tiers: "idle".into(),
            cpu_effect: "verified".into(),
            io_tiers: "none".into(),
            root_weight: Some(0),
            ..proto::CgroupStatus::default()
        }),
        totals: Some(proto::Totals { admitted: 10, completed: 7, ..proto::Totals::default() }),
        daemon: Some(proto::Daemon {
            cpu_seconds: Some(1.5),
            resident_bytes: Some(1 << 20),
            cycle_seconds: Some(0.002),
            promotion_seconds: Some(proto::Histogram {
                bounds: vec![0.001, 0.01],
                counts: vec![5, 2, 1],
                sum: 0.1,
            }),
            slot_gap_seconds: Some(proto::Histogram {
                bounds: vec![0.001],
                counts: vec![4, 3],
                sum: 0.5,
            }),
            events: [("expanded".to_owned(), 3), ("from a later lrsd".to_owned(), 1)].into(),
            failed: Some(2),
            history_lost: Some(5),
        }),
        ..proto::Status::default()
    };
    let lane = proto::Task { cpu_lane: Some("io".into()), class: 0, ..passive("b") };
    let queued = |job: &str, since| proto::Queued {
        place: Some(1),
        job: Some(job.to_owned()),
        since: at(since),
        reason: "full".into(),
        ..proto::Queued::default()
    };
    let reserved = proto::Queued { since: at(1), reason: "reserved".into(), ..Default::default() };
    let resource = Some(proto::YarnResource { memory_mib: 1_024, vcores: 2 });
    Reading {
        status,
        tasks: vec![passive("a"), passive("a"), lane],
        queue: vec![reserved, queued("a", 1_990), queued("c", 1_900)],
        yarn: proto::YarnStatus {
            enabled: true,
            configured: resource,
            advertised: resource,
            offered: resource,
            reported_at: at(1_995),
            ..proto::YarnStatus::default()
        },
        now: WallTime::from_unix_micros(2_000_000_000),
        took: Duration::from_millis(4),
    }
}

fn text(reading: &Reading, jobs: usize, format: Format) -> String {
    Arc::new(gather(reading, Options { jobs })).text(format).unwrap()
}

/// Series and value of each line that is no comment.
fn series(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).collect()
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_reading_becomes_the_figures_that_it_has() {
    let text = text(&full(), 0, Format::Prometheus);
    assert_lines(
        &text,
        &[
            "lrs_up 1",
            "lrs_build_info{version=\"0.1.0\"} 1",
            "lrs_start_time_seconds 1000",
            "lrs_state{state=\"holding\"} 1",
            "lrs_state{state=\"accepting\"} 0",
            "lrs_slots{tier=\"active\",state=\"used\"} 3",
            "lrs_slots_capacity{tier=\"passive\"} 6",
            "lrs_tasks{tier=\"passive\",class=\"cpu\"} 2",
            "lrs_tasks{tier=\"passive\",class=\"unknown\"} 1",
            "lrs_tasks{tier=\"active\",class=\"cpu\"} 0",
            "lrs_tasks_flagged{flag=\"starving\"} 2",
            "lrs_lane_tasks{lane=\"io\"} 1",
            "lrs_lane_cpu_ratio 0.01",
            "lrs_queue_length 2",
            "lrs_queue_requests{reason=\"full\"} 2",
            "lrs_queue_oldest_wait_seconds 100",
            "lrs_reservations 1",
            "lrs_tasks_admitted_total 10",
            "lrs_tasks_failed_total 2",
            "lrs_events_total{type=\"expanded\"} 3",
            "lrs_events_total{type=\"drift\"} 0",
            "lrs_promotion_seconds_bucket{le=\"0.01\"} 7",
            "lrs_promotion_seconds_bucket{le=\"+Inf\"} 8",
            "lrs_promotion_seconds_count 8",
            "lrs_slot_gap_seconds_bucket{le=\"0.001\"} 4",
            "lrs_slot_gap_seconds_count 7",
            "lrs_slot_gap_seconds_sum 0.5",
            "lrs_guard_stage 1",
            "lrs_tier_effect{resource=\"cpu\",mechanism=\"idle\"} 1",
            "lrs_tier_effect{resource=\"io\",mechanism=\"none\"} 0",
            "lrs_tier_verified{resource=\"cpu\"} 1",
            "lrs_tier_verified{resource=\"io\"} 0",
            "lrs_root_weight 0",
            "lrs_cpu_ratio{by=\"others\"} 0.25",
            "lrs_pressure_ratio{resource=\"io\",stall=\"full\"} 0.5",
            "lrs_memory_total_bytes 8589934592",
            "lrs_cycle_period_seconds 3",
            "lrs_daemon_cpu_seconds_total 1.5",
            "lrs_yarn_report_age_seconds 5",
            "lrs_yarn_memory_bytes{figure=\"offered\"} 1073741824",
        ],
    );
    assert!(!text.contains("later lrsd") && !text.contains("lrs_job"), "{text}");
}

#[test]
fn every_metric_of_the_list_is_shown_and_nothing_else() {
    let of_list: BTreeSet<String> = ALL.iter().map(|one| one.full_name()).collect();
    assert_eq!(of_list.len(), ALL.len(), "no two have a name");
    let text = text(&full(), 1, Format::Prometheus);
    let shown: BTreeSet<String> = series(&text)
        .into_iter()
        .map(|(series, _)| series.split('{').next().unwrap())
        .map(|name| name.trim_end_matches("_bucket").trim_end_matches("_sum"))
        .map(|name| name.trim_end_matches("_seconds_count"))
        .map(|name| match name {
            "lrs_promotion" | "lrs_slot_gap" => format!("{name}_seconds"),
            name => name.to_owned(),
        })
        .collect();
    assert_eq!(shown, of_list);
}

#[test]
fn what_is_not_known_is_absent() {
    let text = text(&Reading::default(), 5, Format::Prometheus);
    for name in [
        "lrs_cpu_ratio",
        "lrs_queue_oldest_wait",
        "lrs_tier_effect",
        "lrs_memory",
        "lrs_build",
        "lrs_start_time",
        "lrs_promotion_seconds",
        "lrs_slot_gap_seconds",
        "lrs_events",
        "lrs_slots",
        "lrs_guard",
        "lrs_job",
        "lrs_yarn_report_age",
        "lrs_tasks_admitted",
    ] {
        assert!(!text.contains(name), "{name} is in\n{text}");
    }
    // No task runs: they used nothing, and that is known. Of one without a share it is not.
    assert_lines(&text, &["lrs_up 1", "lrs_tier_cpu_ratio{tier=\"active\"} 0"]);
    let unmeasured = proto::Task { tier: proto::Tier::Active.into(), ..proto::Task::default() };
    let reading = Reading { tasks: vec![unmeasured], ..Reading::default() };
    let text = self::text(&reading, 5, Format::Prometheus);
    assert!(!text.contains("lrs_tier_cpu_ratio{tier=\"active\"}"), "{text}");
}

#[test]
fn the_largest_jobs_have_a_label_and_the_rest_is_other() {
    let mut reading = full();
    reading.tasks.extend([passive("other"), passive("d\\\"\n")]);
    let none = text(&reading, 0, Format::OpenMetrics);
    assert!(!none.contains("name="), "{none}");
    let two = text(&reading, 2, Format::OpenMetrics);
    assert_lines(
        &two,
        &[
            "lrs_job_tasks{name=\"a\"} 2",
            "lrs_job_waiting{name=\"a\"} 1",
            "lrs_job_cpu_ratio{name=\"a\"} 0.02",
            "lrs_job_tasks{name=\"b\"} 1",
            // c waits, d runs, and the job that is called so.
            "lrs_job_tasks{name=\"other\"} 2",
            "lrs_job_waiting{name=\"other\"} 1",
        ],
    );
    assert_eq!(two.matches("lrs_job_tasks{").count(), 3);
    assert_lines(&text(&reading, 99, Format::OpenMetrics), &[r#"lrs_job_tasks{name="d\\\"\n"} 1"#]);
}

#[test]
fn hostile_messages_make_no_line_that_is_none() {
    let mut reading = full();
    reading.status.version = "1\"}\nlrs_up 7\n\\".into();
    reading.status.last_turn_seconds = Some(f64::NAN);
    let status = &mut reading.status;
    let node = status.node.as_mut().unwrap();
    node.cpu.as_mut().unwrap().tasks = Some(f64::INFINITY);
    let daemon = status.daemon.as_mut().unwrap();
    daemon.cpu_seconds = Some(f64::NEG_INFINITY);
    for bad in [
        proto::Histogram { bounds: vec![1.0], counts: vec![1], sum: 0.0 },
        proto::Histogram { bounds: vec![2.0, 1.0], counts: vec![1, 1, 1], sum: 0.0 },
        proto::Histogram { bounds: vec![f64::NAN], counts: vec![1, 1], sum: 0.0 },
        proto::Histogram { bounds: vec![1.0], counts: vec![u64::MAX, 1], sum: 0.0 },
    ] {
        let mut reading = reading.clone();
        reading.status.daemon.as_mut().unwrap().promotion_seconds = Some(bad);
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = text(&reading, 3, format);
            assert_eq!(text.matches("\nlrs_up ").count(), 1, "{text}");
            assert!(!text.contains("lrs_promotion_seconds"), "{text}");
            for (series, value) in series(&text) {
                assert!(series.starts_with("lrs_"), "{series}");
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{series} {value}");
            }
        }
    }
}

#[test]
fn a_scraper_gets_the_format_it_asks_for() {
    assert_eq!(Format::accepted(""), Format::Prometheus);
    assert_eq!(Format::accepted("text/plain;version=0.0.4"), Format::Prometheus);
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    let open = text(&full(), 0, Format::OpenMetrics);
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE lrs_tasks_admitted counter\n"));
    assert!(open.contains("# UNIT lrs_memory_total_bytes bytes\n"), "{open}");
    let own = text(&full(), 0, Format::Prometheus);
    assert!(own.contains("# TYPE lrs_tasks_admitted_total counter\n") && !own.contains("# EOF"));
    let down = Arc::new(Samples::down()).text(Format::Prometheus).unwrap();
    assert_eq!(series(&down), [("lrs_up", "0")]);
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tracked(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of series that a query may have.
fn known(name: &str) -> bool {
    ALL.iter().any(|one| match one.kind {
        Kind::Histogram => {
            ["_bucket", "_sum", "_count"].iter().any(|ending| one.full_name() + ending == name)
        }
        Kind::Counter | Kind::Gauge | Kind::Info => one.full_name() == name,
    })
}

/// Each name in a query, with the labels that it is selected or grouped by after it, is one of ours.
fn check_query(query: &str) {
    let name = regex::Regex::new(r"\blrs_[a-z_]+").unwrap();
    let names: Vec<_> = name.find_iter(query).map(|found| found.as_str()).collect();
    for name in &names {
        assert!(known(name), "{name} of {query:?} is no metric");
    }
    let label = regex::Regex::new(r#"([a-z_]+)\s*(?:=~|!=|!~|=)\s*""#).unwrap();
    let of_scrape = ["instance", "job", "le"];
    for label in label.captures_iter(query).map(|found| found[1].to_owned()) {
        let is_ours = ALL.iter().any(|one| {
            one.labels.contains(&label.as_str())
                && names.iter().any(|name| name.starts_with(one.full_name().as_str()))
        });
        assert!(is_ours || of_scrape.contains(&label.as_str()), "label {label} of {query:?}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&tracked("packaging/monitoring/grafana.json")).unwrap();
    let mut queries = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    assert!(queries.len() > 15, "{queries:?}");
    queries.iter().for_each(|query| check_query(query));
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"].as_str() {
            check_query(query);
        }
    }
}

/// Anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words.replace(' ', "-").replace(|c: char| !(c.is_alphanumeric() || c == '-'), "")
        })
        .collect()
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_name_headings_that_there_are() {
    let rules = tracked("packaging/monitoring/alerts.yml");
    let (mut alerts, mut runbooks, mut queries) = (0, 0, 0);
    let page = tracked("docs/monitoring.md");
    for line in rules.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts += 1;
            assert!(page.contains(&format!("`{name}`")), "docs/monitoring.md does not name {name}");
        } else if let Some(query) = line.strip_prefix("expr: ") {
            queries += 1;
            assert!(query.contains("lrs_"), "{query}");
            check_query(query);
        } else if let Some(link) = line.strip_prefix("runbook_url: ") {
            runbooks += 1;
            let (path, anchor) = link.trim_matches('"').split_once('#').unwrap();
            let path = path.rsplit_once("/doc/lrs/").unwrap().1;
            let anchors = anchors(&tracked(&format!("docs/{path}")));
            assert!(anchors.contains(anchor), "{link}: the headings are {anchors:?}");
        }
    }
    assert!(
        alerts >= 8 && (alerts, alerts) == (runbooks, queries),
        "{alerts} {runbooks} {queries}"
    );
}

#[test]
fn the_page_has_each_metric_with_its_labels() {
    let page = tracked("docs/monitoring.md");
    let mut table = String::from("| metric | type | labels | what it says |\n|---|---|---|---|\n");
    for one in ALL {
        let kind = format!("{:?}", one.kind).to_lowercase();
        let labels = one.labels.join(", ");
        table += &format!("| `{}` | {kind} | {labels} | {} |\n", one.full_name(), one.help);
    }
    let (begin, end) = ("<!-- metrics: begin -->\n", "<!-- metrics: end -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (found, after) = rest.split_once(end).unwrap();
    if found != table && std::env::var_os("LRS_REGENERATE").is_some() {
        let page = format!("{before}{begin}{table}{end}{after}");
        return std::fs::write(repository().join("docs/monitoring.md"), page).unwrap();
    }
    assert_eq!(found, table, "LRS_REGENERATE=1 cargo test -p lrs-metrics writes it anew");
}
