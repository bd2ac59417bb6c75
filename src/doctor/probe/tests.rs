use std::io::Write as _;
use std::os::unix::net::UnixListener;

use super::socket::GREETING;
use super::*;

/// A tree of files below a temporary directory.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

#[test]
fn kernel_releases() {
    for (release, version) in [
        ("6.18.44-fc-v595\n", Some((6, 18))),
        ("5.4.0\n", Some((5, 4))),
        ("5.10+\n", Some((5, 10))),
        ("unheard\n", None),
        ("6\n", None),
        ("", None),
    ] {
        let proc = tree(&[("sys/kernel/osrelease", release)]);
        let found = kernel(proc.path());
        assert_eq!(found.clone().ok().map(|kernel| kernel.version), version, "{found:?}");
    }
    assert!(kernel(Path::new("/nonexistent")).unwrap_err().contains("osrelease"));
}

#[test]
fn whole_disks_only() {
    let sys = tree(&[
        ("block/sda/size", "1000\n"),
        ("block/sda/dev", "8:0\n"),
        ("block/sda/queue/scheduler", "none [mq-deadline] kyber bfq\n"),
        ("block/nvme0n1/size", "1000\n"),
        ("block/nvme0n1/dev", "259:0\n"),
        ("block/nvme0n1/queue/scheduler", "[none] mq-deadline\n"),
        ("block/sda/device/x", ""),
        ("block/nvme0n1/device/x", ""),
        ("block/sdb/size", "0\n"),
        ("block/sdb/dev", "8:16\n"),
        ("block/sdb/device/x", ""),
        ("block/sr0/size", "1000\n"),
        ("block/sr0/dev", "11:0\n"),
        ("block/sr0/device/x", ""),
        ("block/loop0/size", "1000\n"),
        ("block/loop0/dev", "7:0\n"),
        ("block/pmem0/size", "1000\n"),
        ("block/pmem0/dev", "259:9\n"),
        ("block/pmem0/device/x", ""),
    ]);
    let found = disks(sys.path()).unwrap();
    let seen: Vec<_> = found.iter().map(|d| (d.name.as_str(), d.scheduler.as_deref())).collect();
    assert_eq!(seen, [("nvme0n1", Some("none")), ("pmem0", None), ("sda", Some("mq-deadline"))]);
    assert_eq!(found[2].schedulers, ["none", "mq-deadline", "kyber", "bfq"]);
    assert!(disks(Path::new("/nonexistent")).is_err());
}

#[test]
fn hierarchies_under_an_injected_root() {
    let proc = tree(&[
        (
            "self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup \
             rw,cpu,cpuacct\n\
             33 31 0:30 /part /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n\
             42 31 0:39 / /tmp rw,relatime - tmpfs tmpfs rw\n",
        ),
        ("self/cgroup", "3:blkio:/\n2:cpu,cpuacct:/a\n0::/b\n"),
    ]);
    let sys = tree(&[
        ("fs/cgroup/cpu,cpuacct/cpu.idle", "0"),
        ("fs/cgroup/cpu,cpuacct/lrs/cpu.shares", "1024"),
        ("fs/cgroup/unified/cgroup.controllers", "cpu io\n"),
        ("fs/cgroup/unified/cgroup.subtree_control", "cpu\n"),
        ("fs/cgroup/unified/cgroup.type", "domain\n"),
        ("fs/cgroup/unified/cgroup.procs", "1\n"),
        ("fs/cgroup/unified/io.cost.qos", "8:0 enable=1 ctrl=auto\n8:16 enable=0 ctrl=auto\n"),
        ("fs/cgroup/unified/x/cpu.pressure", ""),
    ]);
    let none = Services { systemd: false, unit: None, yarn_unit: None, bus: Ok(()), policy: None };
    let found = cgroups::read(proc.path(), sys.path(), &Config::default(), &none).unwrap();
    let cpu = found.v1_with("cpu").unwrap();
    assert_eq!(cpu.point, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert!(found.v1_with("cpuacct").is_some() && found.v1_with("freezer").is_none());
    assert!(cpu.usable.is_ok() && cpu.in_sight.is_ok());
    let part = found.v1_with("blkio").unwrap().in_sight.clone().unwrap_err().to_string();
    assert!(part.contains("/sys/fs/cgroup/blkio shows the groups from /part on"), "{part}");
    assert!(cpu.has("cpu.idle") && !cpu.child_has("cpu.idle") && cpu.child_has("cpu.shares"));
    assert!(cpu.root.exists && cpu.root.writable.is_ok());
    let unified = found.v2.unwrap();
    assert_eq!(
        (unified.available, unified.enabled),
        (vec!["cpu".into(), "io".into()], vec!["cpu".into()])
    );
    assert!(unified.internal_processes && unified.hierarchy.has("cpu.pressure"));
    assert_eq!(unified.iocost, ["8:0"]);
    assert!(!unified.hierarchy.root.exists);
}

#[test]
fn memory_pressure_and_autogroup() {
    let proc = tree(&[
        ("pressure/cpu", "some avg10=0.00\n"),
        ("pressure/io", "some avg10=0.00\n"),
        ("sys/kernel/sched_autogroup_enabled", "1\n"),
    ]);
    assert_eq!(pressure(proc.path()), Ok(vec!["cpu", "io"]));
    assert_eq!(autogroup(proc.path()), Ok(Some(true)));
    let nothing = tree(&[]);
    assert!(pressure(nothing.path()).unwrap_err().contains("pressure/cpu"));
    assert_eq!(autogroup(nothing.path()), Ok(None));
    assert!(memory(nothing.path()).unwrap_err().contains("meminfo"));
    let here = memory(Path::new("/proc")).unwrap();
    assert!(here.total > Bytes(0) && here.available.is_some_and(|a| a <= here.total));
}

#[test]
fn sockets_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    assert_eq!(socket(&path), Socket::Absent);

    let listener = UnixListener::bind(&path).unwrap();
    let own = std::process::id() as i32;
    // Accepted by the kernel, never answered.
    assert_eq!(socket(&path), Socket::Served { pid: Some(own), answers: false });

    let server = std::thread::spawn(move || {
        // The first connection is the one above, long closed.
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut greeting = vec![0; GREETING.len()];
            std::io::Read::read_exact(&mut stream, &mut greeting).unwrap();
            // The first client is gone; the second waits for this.
            let _ = stream.write_all(b"\0");
        }
    });
    assert_eq!(socket(&path), Socket::Served { pid: Some(own), answers: true });
    server.join().unwrap();
    assert_eq!(socket(&path), Socket::Stale);

    assert!(matches!(socket(&dir.path().join("x".repeat(200))), Socket::Unknown(_)));
}

#[test]
fn locks_are_looked_up_and_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let proc = Path::new("/proc");
    assert_eq!(locked(proc, &path), Ok(false));
    let file = std::fs::File::create(&path).unwrap();
    assert_eq!(locked(proc, &path), Ok(false));
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(locked(proc, &path), Ok(true));
    drop(file);
    assert_eq!(locked(proc, &path), Ok(false));
    // The cgroup root is a directory.
    let directory = std::fs::File::open(dir.path()).unwrap();
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(locked(proc, dir.path()), Ok(true));
}

#[test]
fn places_that_are_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let found = place(&dir.path().join("a/b"));
    assert!(!found.exists && found.writable.is_ok());
    let proc = place(Path::new("/proc/lrs"));
    assert!(!proc.exists);
}
