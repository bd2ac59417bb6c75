//! What `lrsctl doctor` says of lrs-yarn, beside a real lrsd.

use crate::beside::Lrs;
use crate::harness::Daemon;

/// Verdict and finding of `yarn.service`.
fn service(daemon: &Daemon) -> (String, String) {
    let config = daemon.config();
    let config = config.to_str().expect("UTF-8");
    // It fails for other reasons: there is no Hadoop here.
    let output = daemon.ctl(&["doctor", "--json", "--config", config]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["id"] == "yarn.service").expect("yarn.service");
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("found"))
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_doctor_knows_from_lrsd_whether_lrs_yarn_runs() {
    let mut lrs = Lrs::new("doctor", "");
    let conf = lrs.dir.path().join("conf");
    std::fs::create_dir(&conf).unwrap();
    // No server listens there.
    let address =
        |name: &str| format!("<property name='yarn.{name}.webapp.address' value='127.0.0.1:1'/>");
    let (managers, node) = (address("resourcemanager"), address("nodemanager"));
    let text = format!("<configuration>{managers}{node}</configuration>");
    std::fs::write(conf.join("yarn-site.xml"), text).unwrap();
    lrs.configure(&format!("[yarn]\nenabled = true\nconf_dir = {conf:?}\n"));
    lrs.lrsd().launch();
    let (verdict, found) = service(&lrs);
    assert_eq!(verdict, "warn", "{found}");
    assert!(found.contains("has not reported since lrsd started"), "{found}");

    lrs.launch_yarn();
    lrs.eventually("a report", |daemon| {
        daemon.json(&["yarn", "status"])["reported_at"].as_str().map(drop)
    });
    let (verdict, found) = service(&lrs);
    assert_eq!(verdict, "ok", "{found}");
    assert!(found.contains("lrs-yarn runs: it reported to lrsd"), "{found}");
    assert_eq!(lrs.stop().0, Some(0));
}
