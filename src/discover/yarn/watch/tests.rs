//! Directories as a NodeManager makes them.

use super::*;

fn id(number: u64) -> ContainerId {
    format!("container_1_0001_01_{number:06}").parse().unwrap()
}

/// As a NodeManager does: directories, then the file renamed into place.
fn start(local_dir: &Path, container: ContainerId, pid: &str) -> PathBuf {
    let dir = local_dir
        .join("nmPrivate")
        .join(container.application.to_string())
        .join(container.to_string());
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("tmp"), pid).unwrap();
    let file = dir.join(format!("{container}.pid"));
    fs::rename(dir.join("tmp"), &file).unwrap();
    file
}

fn containers(found: &BTreeSet<ContainerId>) -> Vec<u64> {
    found.iter().map(|container| container.sequence).collect()
}

#[test]
fn each_level_is_noticed_however_fast_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("nmPrivate")).unwrap();
    let mut watch = Watch::new(&[dir.path().to_owned()]).unwrap();
    let mut found = BTreeSet::new();
    watch.list(&mut found);
    assert!(found.is_empty() && watch.troubles().next().is_none());
    for number in 1..=1000 {
        start(dir.path(), id(number), "42\n");
    }
    // Those that were there when their directory was listed, and those renamed later.
    let missed = watch.events(&mut found);
    assert!(!missed);
    assert_eq!(containers(&found), (1..=1000).collect::<Vec<_>>());
    found.clear();
    start(dir.path(), id(1), "43\n");
    watch.events(&mut found);
    assert_eq!(containers(&found), [1], "a relaunch in the same directory");
    let read = watch.pid_file(id(1)).unwrap().unwrap();
    assert!(watch.is_unchanged(id(1), &read) && !watch.is_unchanged(id(2), &read));
    assert_eq!(read.pid, Pid::new(43).unwrap());
    assert_eq!(read.manager_uid, rustix::process::geteuid().as_raw());
}

#[test]
fn one_entry_that_cannot_be_looked_at_hides_no_other() {
    let path = Path::new("/nmPrivate/application_1_0001");
    assert!(is_listed(path, Ok(true)) && !is_listed(path, Ok(false)));
    for error in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
        assert!(!is_listed(path, Err(error.into())), "passed over");
    }
}

#[test]
fn one_disk_of_two_may_fail_and_come_back() {
    let (good, bad) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = [good.path().to_owned(), bad.path().to_owned()];
    start(good.path(), id(1), "42\n");
    let mut watch = Watch::new(&dirs).unwrap();
    let mut found = BTreeSet::new();
    watch.list(&mut found);
    assert_eq!(containers(&found), [1]);
    let trouble: Vec<_> = watch.troubles().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(trouble, [bad.path().join("nmPrivate")]);
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(watch.owners(), BTreeSet::from([own]), "also of the one without nmPrivate");
    start(bad.path(), id(2), "42\n");
    watch.list(&mut found);
    assert_eq!(containers(&found), [1, 2]);
    assert_eq!(watch.troubles().count(), 0);
    fs::rename(bad.path().join("nmPrivate"), bad.path().join("old")).unwrap();
    found.clear();
    assert!(watch.events(&mut found), "renamed: list again");
    watch.list(&mut found);
    assert_eq!(containers(&found), [1]);
    start(bad.path(), id(3), "42\n");
    watch.list(&mut found);
    assert_eq!(containers(&found), [1, 3]);
}

#[test]
fn what_is_no_container_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let private = dir.path().join("nmPrivate");
    let application = private.join("application_1_0001");
    fs::create_dir_all(application.join("container_1_0002_01_000001")).unwrap();
    fs::create_dir_all(application.join("container_1_0001_01_1")).unwrap();
    fs::create_dir_all(private.join("..data")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    start(outside.path(), id(9), "42\n");
    let linked = outside.path().join("nmPrivate/application_1_0001").join(id(9).to_string());
    std::os::unix::fs::symlink(linked, application.join(id(9).to_string())).unwrap();
    let mut watch = Watch::new(&[dir.path().to_owned()]).unwrap();
    let mut found = BTreeSet::new();
    watch.list(&mut found);
    assert!(found.is_empty(), "{found:?}");
    for (number, text) in [(1, ""), (2, "x"), (3, "-1"), (4, "0"), (5, "99999999999")] {
        start(dir.path(), id(number), text);
        assert_eq!(watch.pid_file(id(number)).unwrap(), None, "{text}");
    }
    // A pipe, which to open would wait for a writer.
    let pipe = start(dir.path(), id(6), "");
    fs::remove_file(&pipe).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(watch.pid_file(id(6)).unwrap(), None);
    assert_eq!(watch.pid_file(id(7)).unwrap(), None);
    assert_eq!(watch.script(id(7)).unwrap(), None);
}
