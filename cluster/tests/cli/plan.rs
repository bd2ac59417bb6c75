//! `lrs-place plan`: the example, faults.

use crate::{Ended, lrs_place};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/two-racks.json");

fn plan(args: &[&str]) -> Ended {
    lrs_place(&[&["plan"], args].concat())
}

#[test]
fn the_example_is_planned() {
    let text = plan(&[EXAMPLE, "--policy", "data-local"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.out.contains("input on the node, any job"), "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&plan(&[EXAMPLE, "--json"]).out).unwrap();
    assert_eq!((&json["version"], &json["policy"]), (&1.into(), &"lrs".into()));
    assert_eq!(json["summary"]["assigned"], 13);
    assert!(json["assigned"][0]["reason"].is_string());
}

#[test]
fn every_policy_is_compared() {
    let compared: serde_json::Value =
        serde_json::from_str(&plan(&[EXAMPLE, "--explain", "--json"]).out).unwrap();
    let compared = compared.as_array().unwrap();
    assert!(compared.len() >= 4);
    assert!(compared.iter().all(|one| one["summary"]["assigned"].is_u64()), "{compared:?}");
    let text = plan(&[EXAMPLE, "--explain"]);
    assert_eq!(text.out.lines().count(), compared.len() + 1, "{text:?}");
}

#[test]
fn each_node_has_its_verdict_for_a_task() {
    let text = plan(&[EXAMPLE, "--policy", "lsap", "--explain", "sort/m3"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert_eq!(text.out.lines().count(), 1 + 4 + 2, "{text:?}");
    assert!(text.out.contains("it starts here") && text.out.contains("best: "), "{text:?}");
    let json = plan(&[EXAMPLE, "--policy", "lsap", "--explain", "sort/m3", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 4);
    assert!(json["nodes"][0]["price"].is_f64() && json["best"].is_string(), "{json}");
    let missing = plan(&[EXAMPLE, "--explain", "sort/x"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("there is no task \"sort/x\""), "{missing:?}");
}

#[test]
fn faults_are_all_named_and_exit_1() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.json");
    let job = r#"{"name": "j", "tasks": [{"name": "t", "replicas": ["x", "y"]}]}"#;
    std::fs::write(&file, format!(r#"{{"nodes": [], "jobs": [{job}]}}"#)).unwrap();
    let file = file.to_str().unwrap();
    let ended = plan(&[file]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert_eq!(ended.err.lines().count(), 3, "{ended:?}");
    assert!(ended.err.contains("jobs[0].tasks[0].replicas[1]: \"y\""), "{ended:?}");
    let json: serde_json::Value = serde_json::from_str(&plan(&[file, "--json"]).out).unwrap();
    assert_eq!(json["faults"].as_array().unwrap().len(), 3);
    assert_eq!(plan(&["/nonexistent.json"]).code, Some(1));
    assert_eq!(plan(&[EXAMPLE, "--policy", "best"]).code, Some(2));
}
