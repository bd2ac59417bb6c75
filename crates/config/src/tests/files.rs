//! Files and drop-ins: which there are, which are believed.

use super::*;

fn fault_of(path: &Path) -> String {
    Config::load(path, Absent::IsError).unwrap_err().to_string()
}

#[test]
fn unreadable_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrs.toml");
    assert_eq!(Config::load(&path, Absent::IsDefault).unwrap(), Loaded::default());
    assert!(fault_of(&path).contains("cannot read the file: No such file"));
    assert!(fault_of(dir.path()).contains("is a directory; give the path of a TOML file"));

    std::os::unix::fs::symlink(dir.path().join("nowhere"), &path).unwrap();
    let error = Config::load(&path, Absent::IsDefault).unwrap_err().to_string();
    assert!(error.contains("is a symbolic link to nothing"), "{error}");
    std::fs::remove_file(&path).unwrap();

    std::fs::write(&path, b"[slots]\nactive = \"\xff\"\n").unwrap();
    let error = fault_of(&path);
    assert!(error.contains("lrs.toml:2: byte 19 of the file is not UTF-8"), "{error}");

    std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(
        fault_of(&path)
            .contains("it has more than 1048576 bytes; give the path of a file of settings")
    );
    std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
    assert!(Config::load(&path, Absent::IsError).is_ok());

    let below_a_file = path.join("lrs.toml");
    assert!(Config::load(&below_a_file, Absent::IsDefault).is_err());
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(fault_of(&path).contains("is a pipe; give the path of a TOML file"));
}

/// A main file and its drop-ins.
fn written(main: Option<&str>, drop_ins: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrs.toml");
    if let Some(text) = main {
        std::fs::write(&path, text).unwrap();
    }
    let beside = crate::files::drop_in_directory(&path);
    assert_eq!(beside, dir.path().join("lrs.toml.d"));
    std::fs::create_dir(&beside).unwrap();
    for (name, text) in drop_ins {
        std::fs::write(beside.join(name), text).unwrap();
    }
    (dir, path)
}

#[test]
fn of_drop_ins_the_last_by_name_counts() {
    let (_dir, path) = written(
        Some("[slots]\nactive = 1\npassive = 2\n[grpc]\nadmins = [1]\n"),
        &[
            ("20-b.toml", "[slots]\nactive = 3\n"),
            ("10-a.toml", "[slots]\nactive = 2\n\npassive = 4\n[grpc]\nadmins = [2]\n"),
            ("3.toml", ""),
            // What editors and package managers leave.
            ("30-c.toml.rpmsave", "broken"),
            ("README", "broken"),
            (".20-b.toml", "broken"),
            ("20-b.toml~", "broken"),
        ],
    );
    let loaded = Config::load(&path, Absent::IsError).unwrap();
    let slots = &loaded.config.slots;
    assert_eq!((slots.active, slots.passive), (Auto::Fixed(3), Auto::Fixed(4)));
    // A list is replaced, not joined.
    assert_eq!(loaded.config.grpc.admins, [2]);
    let names = loaded.sources.files.iter().map(|file| file.file_name().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["lrs.toml", "10-a.toml", "20-b.toml", "3.toml"]);
    let line = |key| {
        let line = &loaded.sources.keys[key];
        (line.file.file_name().unwrap().to_str().unwrap(), line.line)
    };
    assert_eq!(line("slots.active"), ("20-b.toml", 2));
    assert_eq!(line("slots.passive"), ("10-a.toml", 4));
    assert!(!loaded.sources.keys.contains_key("slots.passive_max"));
    assert!(
        loaded.sources.to_string().ends_with(
            "lrs.toml with lrs.toml.d/10-a.toml, lrs.toml.d/20-b.toml, lrs.toml.d/3.toml"
        )
    );
    assert_eq!(Config::load_trusted(&path).unwrap(), loaded);
}

#[test]
fn drop_ins_need_no_main_file() {
    let (_dir, path) = written(None, &[("a.toml", "[slots]\nactive = 3\n")]);
    let loaded = Config::load(&path, Absent::IsDefault).unwrap();
    assert_eq!(loaded.config.slots.active, Auto::Fixed(3));
    assert!(Config::load(&path, Absent::IsError).is_err());
}

#[test]
fn all_faults_of_all_files_are_reported_at_once() {
    let (_dir, path) = written(
        Some("[slots]\nactve = 1\npassive = 9\n"),
        &[
            ("20.toml", "[slots]\npassive_max = 3\n[tiers]\nratio = 0\n"),
            ("10.toml", "[tiers\n"),
            ("30.toml", "\n[[discover]]\nname = \"x\"\ncommand = \"y\"\nuser = [\"root\"]\n"),
            ("40.toml", "[[discover]]\nname = \"x\"\ncommand = \"z\"\nuser = [\"root\"]\n"),
        ],
    );
    let errors = Config::load(&path, Absent::IsError).unwrap_err().to_string();
    let short = errors.replace(&format!("{}", path.display()), "F");
    let lines: Vec<&str> = short.lines().collect();
    assert_eq!(lines.len(), 5, "{short}");
    for (line, begins) in lines.iter().zip([
        "F:2: slots.actve = 1: unknown key; did you mean slots.active?",
        "F.d/10.toml:1:",
        "F.d/20.toml:2: slots.passive_max = 3: is below slots.passive = 9 in ",
        "F.d/20.toml:4: tiers.ratio = 0: expected 1..=10000",
        "F.d/40.toml:2: discover.name = \"x\": another rule has this name",
    ]) {
        assert!(line.starts_with(begins), "{line}\n{begins}");
    }
    assert!(lines[2].contains(" in F:3; set "), "{}", lines[2]);
}

#[test]
fn odd_entries_are_named_and_never_waited_for() {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let (dir, path) = written(Some(""), &[]);
    let at = |name: &str| crate::files::drop_in_directory(&path).join(name);
    let text = "[slots]\nactive = 3\n";
    std::fs::write(dir.path().join("elsewhere"), text).unwrap();
    symlink(dir.path().join("elsewhere"), at("link.toml")).unwrap();
    symlink("/dev/null", at("off.toml")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\x1b.toml");
    let odd = crate::files::drop_in_directory(&path).join(odd);
    std::fs::write(&odd, "[slots]\npassive = 5\n").unwrap();
    let loaded = Config::load(&path, Absent::IsError).unwrap();
    let slots = &loaded.config.slots;
    assert_eq!((slots.active, slots.passive), (Auto::Fixed(3), Auto::Fixed(5)));

    std::fs::write(&odd, "[slots]\npassive = -5\n").unwrap();
    std::fs::create_dir(at("a.toml")).unwrap();
    nix::unistd::mkfifo(&at("b.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("nowhere", at("c.toml")).unwrap();
    symlink("d.toml", at("d.toml")).unwrap();
    std::fs::write(at("e.toml"), b"\n\xff").unwrap();
    let errors = Config::load(&path, Absent::IsError).unwrap_err().to_string();
    for part in [
        "a.toml: is a directory; give",
        "b.toml: is a pipe; give",
        "c.toml: is a symbolic link to nothing; repair",
        "d.toml: cannot read the file: Too many levels of symbolic links",
        "e.toml:2: byte 2 of the file is not UTF-8",
        "\\u{1b}.toml:2: slots.passive = -5: expected",
    ] {
        assert!(errors.contains(part), "{part}:\n{errors}");
    }
    assert_eq!(errors.lines().count(), 6, "{errors}");

    let (_dir, path) = written(Some(""), &[]);
    std::fs::remove_dir(crate::files::drop_in_directory(&path)).unwrap();
    std::fs::write(crate::files::drop_in_directory(&path), text).unwrap();
    assert!(fault_of(&path).contains("lrs.toml.d: cannot read the directory of drop-ins"));
}

#[test]
fn a_drop_in_of_anybodys_is_not_believed() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_dir, path) = written(Some(""), &[("a.toml", ""), ("b.toml", "")]);
    let chmod = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let beside = crate::files::drop_in_directory(&path);
    chmod(&beside.join("b.toml"), 0o666);
    let error = Config::load_trusted(&path).unwrap_err().to_string();
    assert!(error.contains("b.toml: is not believed"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let warning = check_file(&path).unwrap();
    assert!(warning.contains("warning: lrsd does not start with") && warning.contains("b.toml"));
    chmod(&beside, 0o777);
    let error = Config::load_trusted(&path).unwrap_err().to_string();
    assert!(error.contains("lrs.toml.d: is not believed"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn check_says_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrs.toml");
    std::fs::write(&path, example()).unwrap();
    assert!(check_file(&path).unwrap().ends_with(": valid; every key has its default"));
    std::fs::write(&path, "[tiers]\nratio = 7\n").unwrap();
    assert!(check_file(&path).unwrap().ends_with(": valid; not default: tiers.ratio = 7"));
    std::fs::write(&path, "[tiers]\nratio = 0\n").unwrap();
    assert!(check_file(&path).is_err());
}
