//! The `lrsctl` that belongs to this program.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lrs_term::Failure;
use serde::Deserialize;

/// The one to measure.
pub(crate) fn lrsctl() -> Result<PathBuf, Failure> {
    beside_or_in_path("lrsctl").ok_or_else(|| {
        Failure::failed("lrsctl is neither beside this program nor in PATH")
            .hint("install LRS whole, or put lrsctl where lrs-bench is")
    })
}

/// The program of LRS's own beside this one, as packages and cargo put it; else the first in PATH.
pub(crate) fn beside_or_in_path(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(|file| file.is_file()).or_else(|| in_path(name))
}

/// The first executable file of that name in PATH; a name with a slash is a path.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    found(name, &std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()))
}

/// The answer is absolute, though an entry of PATH may not be: tasks begin in directories of the
/// run.
fn found(name: &str, path: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
    };
    let places: Vec<PathBuf> = match name.contains('/') {
        true => vec![PathBuf::new()],
        false => std::env::split_paths(path).collect(),
    };
    let files = places.into_iter().map(|place| place.join(name));
    files.filter_map(|file| std::path::absolute(file).ok()).find(is_program)
}

/// What `lrsctl config check --json` says.
#[derive(Deserialize)]
struct Checked {
    faults: Vec<String>,
}

/// What lrsd has against `keys`: the index of the key, where it is one's, and the words.
pub(crate) fn judge(lrsctl: &Path, keys: &[(String, String)]) -> Vec<(Option<usize>, String)> {
    match check(lrsctl, keys) {
        Ok(faults) => faults,
        Err(error) => vec![(None, format!("cannot be checked by {}: {error}", lrsctl.display()))],
    }
}

fn check(
    lrsctl: &Path,
    keys: &[(String, String)],
) -> std::io::Result<Vec<(Option<usize>, String)>> {
    // A key a line: the line of a fault says which key it is of.
    let text: String = keys.iter().map(|(path, value)| format!("{path} = {value}\n")).collect();
    let file = std::env::temp_dir().join(format!("lrs-bench-{}.toml", std::process::id()));
    // A file of our own: in a directory of all users, a name may be another's link.
    let mut made = std::fs::File::options().write(true).create_new(true).open(&file)?;
    let written = made.write_all(text.as_bytes());
    let done = Command::new(lrsctl).args(["--json", "config", "check"]).arg(&file).output();
    std::fs::remove_file(&file)?;
    written?;
    let checked: Checked = serde_json::from_slice(&done?.stdout)?;
    let of_key = |fault: String| {
        let words = fault.strip_prefix(&*file.to_string_lossy()).unwrap_or(&fault);
        let mut words = words.trim_start_matches(':').to_owned();
        let mut numbers = Vec::new();
        while let Some((number, rest)) = words.split_once(':')
            && let Ok(number) = number.parse::<usize>()
        {
            numbers.push(number);
            words = rest.to_owned();
        }
        let index = numbers.first().and_then(|line| line.checked_sub(1));
        (index, words.trim().to_owned())
    };
    Ok(checked.faults.into_iter().map(of_key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_relative_entry_of_the_path_has_an_absolute_path() {
        // Not below the source tree, which another user may own.
        let place = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let to_the_root: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = to_the_root.join(place.path().strip_prefix("/").unwrap());
        let file = place.path().join("lrsctl");
        std::fs::write(&file, "").unwrap();
        let path = std::env::join_paths([Path::new("/nonexistent"), &relative]).unwrap();
        assert_eq!(found("lrsctl", &path), None, "it is no program");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&file, mode).unwrap();
        let named = relative.join("lrsctl");
        let absolute = std::path::absolute(&named).ok();
        assert_eq!(found("lrsctl", &path), absolute);
        assert_eq!(found(named.to_str().unwrap(), OsStr::new("")), absolute);
    }
}
