//! The daemon when the thread that finds tasks is of no use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::Daemon;

/// A file system with a server that never answers, as a dead disk or NFS server: who opens
/// something in it waits until the server ends (fuse(4)).
struct DeadMount {
    server: Option<std::fs::File>,
    on: PathBuf,
}

impl DeadMount {
    fn on(dir: &Path) -> DeadMount {
        use std::os::fd::AsRawFd;
        let server = std::fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("dead", dir, "fuse", flags, Some(options.as_c_str())).unwrap();
        DeadMount { server: Some(server), on: dir.to_owned() }
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        self.server = None;
        rustix::mount::unmount(&self.on, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Hadoop's configuration is on a mount that does not answer.
#[test]
#[ignore = "needs root and cgroups"]
fn a_finder_that_hangs_is_reported_and_tasks_are_shaped_meanwhile() {
    let mut daemon = Daemon::new("hang", "");
    let conf = daemon.dir.path().join("conf");
    std::fs::create_dir(&conf).unwrap();
    let mut dead = DeadMount::on(&conf);
    daemon.configure(&format!(
        "[slots]\nactive = 1\npassive = 1\n[yarn]\nenabled = true\nconf_dir = {conf:?}\n"
    ));
    daemon.launch();
    let warning = |daemon: &Daemon| {
        // It takes half a minute until a hang is one, and nothing tells of its coming.
        std::thread::sleep(Duration::from_millis(100));
        let warnings = daemon.status()["warnings"].clone();
        let mut all = warnings.as_array().cloned().unwrap_or_default().into_iter();
        all.find(|warning| warning.as_str().unwrap_or_default().contains("lrs-find"))
    };
    let text = daemon.eventually("a warning", warning);
    assert!(text.as_str().unwrap().contains("hangs"), "{text}");
    assert!(daemon.log().contains("lrs-find hangs"), "{}", daemon.log());

    let (first, second) = (daemon.run(&[], &["cat"]), daemon.run(&[], &["cat"]));
    let tier = |daemon: &Daemon, pid| daemon.task_of(pid)["tier"].clone();
    daemon.eventually("a task in each tier", |daemon| {
        let mut tiers = [tier(daemon, first), tier(daemon, second)].map(|tier| tier.to_string());
        tiers.sort();
        (tiers == [r#""active""#, r#""passive""#]).then_some(())
    });
    let (active, passive) = match tier(&daemon, first) == "active" {
        true => (first, second),
        false => (second, first),
    };
    daemon.finish(active);
    daemon.eventually("a promotion", |daemon| (tier(daemon, passive) == "active").then_some(()));

    // The mount answers, if only with an error.
    dead.server = None;
    daemon.eventually("no warning", |daemon| warning(daemon).is_none().then_some(()));
    daemon.finish(passive);
    daemon.nothing_left();
    // It waits for the configuration again, or for containers: the stop waits for neither.
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
}
