use super::*;
use crate::discover::made_up::logged;
use crate::publish::{EventRing, Snapshot};
use crate::yarn::rm::Resource;
use crate::yarn::rm::ledger::{Era, Ledger, LedgerFile};

/// What is logged by a thread that is stopped after its first round, or before it.
fn logged_at_a_stop(config: Config, goes_round: bool) -> String {
    let (commands, _taken) = crate::command::queue().unwrap();
    let (_publish, snapshot) = watch::channel(Arc::new(Snapshot::default()));
    let access = Access { commands, snapshot, events: Arc::new(EventRing::new(1, [])) };
    let parts = Parts {
        config: Arc::new(config),
        access,
        lrs_root: None,
        hints: crate::discover::hint_queue().1,
    };
    let (alive, _rest) = Rest::begin(Duration::ZERO, None);
    let (stop, stopping) = watch::channel(!goes_round);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    logged(|| {
        runtime.block_on(async {
            let pulse = Pulse::default();
            let finding = Finding::new(parts, pulse, alive, stopping);
            let stops = async {
                // The first round is over when the thread waits for the second.
                tokio::task::yield_now().await;
                stop.send_replace(true);
            };
            let (ended, ()) = tokio::join!(finding.run(), stops);
            ended.unwrap();
        });
    })
}

#[test]
fn a_stop_says_what_stands_though_nobody_talked_to_yarn() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let mut config = Config::default();
    config.daemon.runtime_dir = dir.path().to_owned();
    config.yarn.enabled = true;
    config.yarn.conf_dir = dir.path().join("nowhere");
    for goes_round in [true, false] {
        let log = logged_at_a_stop(config.clone(), goes_round);
        assert!(!log.contains("may still stand"), "nothing was offered: {log}");
    }
    let configured = Resource { memory_mib: 8192, vcores: 8 };
    let offer = Resource { memory_mib: 9216, vcores: 9 };
    let ledger = Ledger::new("node1:45454".parse().unwrap(), configured);
    let file = LedgerFile::in_runtime_dir(dir.path());
    file.write(&ledger.about_to_send(offer, Era::default())).unwrap();
    for (goes_round, why) in [(true, "nowhere"), (false, "was not called yet")] {
        let log = logged_at_a_stop(config.clone(), goes_round);
        let (_, left) = log.split_once("may still stand: ").expect(&log);
        assert!(left.contains(why), "{left}");
        assert!(left.contains("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
    }
    config.yarn.enabled = false;
    let log = logged_at_a_stop(config, true);
    assert!(!log.contains("may still stand"), "that lrsd has nothing to do with YARN: {log}");
}
