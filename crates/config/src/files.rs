//! Which files settings are in: the main one, and its drop-ins, `*.toml` in `FILE.d/` beside it.
//!
//! As with systemd's units a drop-in says only what differs, so that a package, a role of a configuration
//! management or an operator can each have a file of their own. They are read in the order of their names,
//! byte by byte; of a key in several the last one counts. Rules of `[[discover]]` add up in the same order.
//! All that reads settings reads them here, whole or not at all.
//!
//! What is not named `*.toml` or begins with a dot (a backup, what a package manager or an editor leaves) is
//! no drop-in, nor is a link to /dev/null, by which systemd's users switch a drop-in off. All else of that
//! name has to be a file that can be read: left out silently it would be missed only when it matters.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lrs_host::trust::{self, Objection};

use super::discover::TABLE;
use super::error::{ConfigErrors, Fault, excerpt};
use super::{Config, read};

/// What a missing file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The defaults.
    IsDefault,
    /// A fault, like any other unreadable file.
    IsError,
}

/// Largest file read: a configuration is a few KiB, and a mistaken path must not fill memory.
const MAX_FILE: u64 = 1 << 20;

/// Most drop-ins.
const MAX_DROP_INS: usize = 256;

/// Settings, and where they are from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where they are from.
    pub sources: Sources,
}

/// The files that settings were read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The main one, if it is there, then its drop-ins; in the order in which they were read.
    pub files: Vec<PathBuf>,
    /// Where each key that is in a file has its value.
    pub keys: BTreeMap<&'static str, Line>,
    /// Where each rule of `[[discover]]` begins.
    pub rules: Vec<Line>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", excerpt(&self.file.to_string_lossy()), self.line)
    }
}

/// Where the drop-ins of the file at `path` are: `lrs.toml.d` beside `lrs.toml`.
pub fn drop_in_directory(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".d");
    PathBuf::from(name)
}

/// The settings in the file at `path` and its drop-ins. `trusted`: it, they and the way to them have to be
/// root's or the daemon's own.
pub(super) fn load(path: &Path, absent: Absent, trusted: bool) -> Result<Loaded, ConfigErrors> {
    let (drop_ins, mut faults) = match drop_ins(path, trusted) {
        Ok(drop_ins) => (drop_ins, Vec::new()),
        Err(fault) => (Vec::new(), vec![*fault]),
    };
    let mut texts = Vec::new();
    let all = [(path.to_owned(), absent)].into_iter();
    // One that was removed since the directory was read is none.
    for (file, absent) in all.chain(drop_ins.into_iter().map(|file| (file, Absent::IsDefault))) {
        let refused = trusted.then(|| distrust(&file)).flatten();
        match refused.map_or_else(|| read_text(&file, absent, trusted), Err) {
            Ok(text) => texts.extend(text.map(|text| (file, text))),
            Err(fault) => faults.push(*fault),
        }
    }
    let texts: Vec<_> = texts.iter().map(|(file, text)| (file.as_path(), text.as_str())).collect();
    match read::merged(&texts, faults.is_empty()) {
        Ok(loaded) if faults.is_empty() => return Ok(loaded),
        Ok(_) => {}
        Err(more) => faults.extend(more),
    }
    Err(ConfigErrors::new(faults))
}

/// The drop-ins of the file at `path`, in their order.
fn drop_ins(path: &Path, trusted: bool) -> Result<Vec<PathBuf>, Box<Fault>> {
    let dir = drop_in_directory(path);
    let unreadable = |error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::NotADirectory => "move it into a directory of that name, or remove it",
            ErrorKind::PermissionDenied => "run as root or make the directory readable",
            _ => "make it a directory that can be read, or remove it",
        };
        whole_file(&dir, format!("cannot read the directory of drop-ins: {error}"), remedy)
    };
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound && !dir.is_symlink() => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(unreadable)?,
    };
    // Whoever may write it could stop the daemon by a file that it does not believe.
    if let Some(fault) = trusted.then(|| distrust_directory(&dir)).flatten() {
        return Err(fault);
    }
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let (name, file) = (entry.file_name(), entry.path());
        let is_named = name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b".");
        let is_off = || std::fs::read_link(&file).is_ok_and(|to| to == Path::new("/dev/null"));
        if is_named && !is_off() {
            files.push(file);
        }
    }
    if files.len() > MAX_DROP_INS {
        let problem = format!("has {} drop-ins; {MAX_DROP_INS} are taken", files.len());
        return Err(whole_file(&dir, problem, "join some of them"));
    }
    files.sort();
    Ok(files)
}

/// Why a daemon of this user does not believe the file at `path`, and what to do. What cannot be looked
/// at is for whoever reads it to say.
fn distrust(path: &Path) -> Option<Box<Fault>> {
    let refused = trust::check_path(path).err()?;
    let remedy = trust::objection_in(&refused.source)?.remedy();
    let place = refused.path.display();
    let problem = format!("is not believed, because of {place}: {}", refused.source);
    Some(whole_file(path, problem, remedy))
}

/// The same of a directory of drop-ins, in which also with the sticky bit anybody who may write it can put one.
fn distrust_directory(dir: &Path) -> Option<Box<Fault>> {
    distrust(dir).or_else(|| {
        let objection = trust::objection(&std::fs::metadata(dir).ok()?, &trust::own())?;
        Some(whole_file(dir, format!("is not believed: {objection}"), objection.remedy()))
    })
}

fn whole_file(path: &Path, problem: String, remedy: &str) -> Box<Fault> {
    Box::new(Fault {
        file: path.to_owned(),
        line: None,
        column: None,
        key: None,
        found: None,
        problem,
        remedy: remedy.to_owned(),
    })
}

/// The text of a file of settings; `None` when it is absent and may be. `trusted`: also a file that came since
/// the way to it was looked at has to be root's or the daemon's own.
fn read_text(path: &Path, absent: Absent, trusted: bool) -> Result<Option<String>, Box<Fault>> {
    let whole_file = |problem: String, remedy: &str| whole_file(path, problem, remedy);
    let unreadable = |error: std::io::Error| {
        if let Some(Objection::Kind(kind)) = trust::objection_in(&error) {
            return whole_file(format!("is {kind}"), "give the path of a TOML file");
        }
        let remedy = match error.kind() {
            ErrorKind::NotFound => "create the file or correct its path",
            ErrorKind::PermissionDenied => "run as root or make the file readable",
            ErrorKind::FileTooLarge => "give the path of a file of settings",
            _ => "give the path of a readable TOML file",
        };
        whole_file(format!("cannot read the file: {error}"), remedy)
    };
    let file = match trust::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && absent == Absent::IsDefault => {
            // A link that leads nowhere was meant to lead somewhere.
            if path.is_symlink() {
                return Err(whole_file(
                    String::from("is a symbolic link to nothing"),
                    "repair or remove the link",
                ));
            }
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let owned = || Ok(trust::objection(&file.metadata()?, &trust::own()));
    if trusted && let Some(objection) = owned().map_err(unreadable)? {
        return Err(whole_file(format!("is not believed: {objection}"), objection.remedy()));
    }
    let bytes = trust::read_whole(&file, MAX_FILE).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
        let problem = format!("byte {} of the file is not UTF-8", valid + 1);
        Box::new(Fault {
            line: Some(line + 1),
            ..*whole_file(problem, "save the file as UTF-8 text")
        })
    })?;
    Ok(Some(text))
}

/// Reads and checks the file at `path`, which has to exist, and its drop-ins. `Ok` is for people: one line
/// with the verdict and the keys that differ from their defaults, and a warning for each file that lrsd would
/// not believe.
pub fn check_file(path: &Path) -> Result<String, ConfigErrors> {
    let Loaded { config, sources } = load(path, Absent::IsError, false)?;
    let changed = Config::default().changed_keys(&config).into_iter();
    let mut changed: Vec<String> = changed
        .filter(|changed| changed.key != TABLE)
        .map(|changed| format!("{} = {}", changed.key, config.show(changed.key)))
        .collect();
    let rules = config.discover.iter();
    changed.extend(rules.map(|rule| format!("[[discover]] {}", excerpt(rule.name.as_str()))));
    let verdict = if changed.is_empty() {
        format!("{sources}: valid; every key has its default")
    } else {
        format!("{sources}: valid; not default: {}", changed.join(", "))
    };
    let directory = drop_in_directory(path);
    let of_directory = if directory.is_dir() { distrust_directory(&directory) } else { None };
    let of_files = sources.files.iter().filter_map(|file| distrust(file));
    let distrust = of_directory.into_iter().chain(of_files).map(|fault| {
        let Fault { file, problem, remedy, .. } = *fault;
        let file = excerpt(&file.to_string_lossy());
        format!("\nwarning: lrsd does not start with {file}: it {problem}; {remedy}")
    });
    Ok(std::iter::once(verdict).chain(distrust).collect())
}

impl std::fmt::Display for Sources {
    /// `/etc/lrs/lrs.toml with lrs.toml.d/10-site.toml`; nothing without a file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |file: &Path| excerpt(&file.to_string_lossy());
        let parent = self.files.first().and_then(|file| file.parent());
        for (index, file) in self.files.iter().enumerate() {
            let within = parent.and_then(|parent| file.strip_prefix(parent).ok());
            match index {
                0 => f.write_str(&shown(file))?,
                1 => write!(f, " with {}", shown(within.unwrap_or(file)))?,
                _ => write!(f, ", {}", shown(within.unwrap_or(file)))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_came_after_its_way_was_looked_at_is_looked_at_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |mode, trusted| {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            read_text(file.path(), Absent::IsDefault, trusted)
        };
        assert_eq!(read(0o666, false).unwrap(), Some(String::new()));
        assert_eq!(read(0o644, true).unwrap(), Some(String::new()));
        let fault = read(0o666, true).unwrap_err();
        assert!(fault.problem.contains("others than its owner may write it"), "{fault:?}");
    }
}
