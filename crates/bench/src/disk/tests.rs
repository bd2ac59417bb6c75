use super::*;

#[test]
fn a_directory_without_a_disk_needs_no_sweep() {
    let workdir = tempfile::tempdir().unwrap();
    assert!(sweep(workdir.path()).is_empty(), "no directory");
    std::fs::create_dir(workdir.path().join(MOUNT)).unwrap();
    assert!(sweep(workdir.path()).is_empty(), "not a mount");
    assert!(!is_server(std::process::id() as i32, workdir.path()));
}
