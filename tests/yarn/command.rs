//! Offers by Hadoop's own command, to a ResourceManager that shows lrsd nothing, as behind
//! Kerberos: lrsd's calls get a 401, the command talks to the real one.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::beside::Lrs;
use crate::cluster::Cluster;
use crate::conf::{CONTAINER, Options};
use crate::kerberos::kerberos;
use crate::site::settings;

/// The offer is one an earlier lrsd left, so that nothing depends on how idle this machine is.
#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn a_stop_takes_back_what_the_command_offered() {
    let cluster = Cluster::start(Options::default());
    let id = cluster.patiently("the node", |c| Some(c.node(0)?["id"].as_str()?.to_owned()));
    let configured = cluster.advertised(0).expect("a node");
    let offered = configured + 2;
    let mut java = cluster.hadoop.java(&cluster.conf(0), "128m");
    java.push("org.apache.hadoop.yarn.client.cli.RMAdminCLI".into());
    let memory = |containers: u32| u64::from(containers) * u64::from(CONTAINER);
    let status = Command::new(&java[0])
        .args(&java[1..])
        .args(["-updateNodeResource", &id])
        .args([memory(offered).to_string(), offered.to_string(), "-1".to_owned()])
        .status()
        .unwrap();
    assert!(status.success());
    cluster.patiently("the offer", |c| (c.advertised(0) == Some(offered)).then_some(()));

    let ticket = cluster.dir().join("ticket");
    let script =
        format!("[ -e '{}' ] || {{ echo no ticket; exit 1; }}; exec \"$@\"", ticket.display());
    let wrapped = ["sh", "-c", &script, "sh"].map(str::to_owned).into_iter().chain(java);
    let yarn = format!(
        "offer_by = \"rmadmin\"\nnode_id = {id:?}\nnode_manager = {:?}\n\
         resource_managers = [{:?}]\nrmadmin = {:?}",
        cluster.node_url(0),
        kerberos(),
        wrapped.collect::<Vec<_>>()
    );
    let mut daemon = Lrs::new("command", &settings(&cluster, "", &yarn));
    let state = daemon.ledger();
    fs::create_dir_all(&state).unwrap();
    let resource = |count: u32| serde_json::json!({"memory_mib": memory(count), "vcores": count});
    let ledger = serde_json::json!({"version": 1, "node": id, "configured": resource(configured),
        "sent": [resource(offered)], "era": {}});
    fs::write(state.join("yarn.json"), ledger.to_string()).unwrap();
    daemon.launch();
    daemon.eventually("a first try", |daemon| {
        daemon.events().iter().any(|event| event["type"] == "offer_failed").then_some(())
    });
    assert_eq!(cluster.advertised(0), Some(offered));

    fs::write(ticket, "").unwrap();
    let (code, took) = daemon.stop();
    println!("the stop took {:.2} s", took.as_secs_f64());
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(7), "{took:?}");
    cluster
        .patiently("what is configured", |c| (c.advertised(0) == Some(configured)).then_some(()));
    assert!(!daemon.log().contains("may still stand"), "{}", daemon.log());
}
