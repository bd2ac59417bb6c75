//! Finding a command the way execvp(3) does, and becoming it.
//!
//! Finding and executing are apart because the slot is asked for in between: a command that
//! does not exist must not take one. std's `CommandExt::exec` is not used: it resets the
//! signal mask and SIGPIPE, which belong to whoever started `lrsctl`.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, execv};

use super::failure::Failure;
use super::inherited;
use super::output::printable;

/// What execvp(3) searches when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command that was found, ready to be executed.
#[derive(Debug)]
pub(super) struct Program {
    file: CString,
    arguments: Vec<CString>,
}

impl Program {
    /// Searches `command[0]` in `path` (the value of PATH).
    pub(super) fn find(command: &[OsString], path: Option<&OsStr>) -> Result<Program, Failure> {
        let name = command.first().ok_or_else(|| Failure::usage("no command given"))?;
        let file = search(name, path)?;
        Ok(Program {
            file: c_string(file.as_os_str())?,
            arguments: command.iter().map(|word| c_string(word)).collect::<Result<_, _>>()?,
        })
    }

    /// Becomes the command; returns only when that failed. No other thread may run.
    pub(super) fn execute(self) -> Result<Infallible, Failure> {
        inherited::restore()
            .map_err(|error| Failure::failed(format!("cannot restore SIGPIPE: {error}")))?;
        let error = match execv(&self.file, &self.arguments) {
            Ok(never) => match never {},
            Err(Errno::ENOEXEC) => self.interpret(),
            Err(error) => error,
        };
        let message = format!("cannot execute {}: {}", shown(&self.file), error.desc());
        Err(match error {
            Errno::ENOENT if Path::new(OsStr::from_bytes(self.file.to_bytes())).exists() => {
                Failure::not_executable(format!("{message}; is its interpreter installed?"))
            }
            Errno::ENOENT | Errno::ENOTDIR => Failure::not_found(message),
            _ => Failure::not_executable(message),
        })
    }

    /// A script without `#!` line is one for the shell, as in execvp(3).
    fn interpret(&self) -> Errno {
        let mut arguments = vec![c"sh".to_owned(), self.file.clone()];
        arguments.extend(self.arguments.iter().skip(1).cloned());
        match execv(c"/bin/sh", &arguments) {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}

/// `lrsctl bench`: becomes `lrs-bench`, the one beside this executable or else the first in PATH,
/// as `git foo` becomes `git-foo`.
pub(super) fn bench(json: bool, args: Vec<OsString>) -> Result<Infallible, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("lrs-bench"));
    let beside = beside.filter(|file| matches!(verdict(file), Runnable::Executable));
    let name = beside.map_or_else(|| OsString::from("lrs-bench"), PathBuf::into_os_string);
    let mut command = vec![name];
    command.extend(json.then(|| OsString::from("--json")));
    command.extend(args);
    Program::find(&command, std::env::var_os("PATH").as_deref())
        .map_err(|failure| {
            Failure::failed(failure.to_string()).hint(
                "`lrsctl bench` is the program lrs-bench, of the same package; put it beside \
                 lrsctl or into PATH",
            )
        })?
        .execute()
}

/// The file execvp(3) would execute for `name`, or what is wrong with it.
fn search(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(Failure::not_found("the command is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        return match verdict(Path::new(name)) {
            Runnable::Executable => Ok(PathBuf::from(name)),
            Runnable::Missing => Err(Failure::not_found(format!("{} not found", quoted(name)))),
            Runnable::Unsearchable => Err(Failure::not_executable(format!(
                "{} is in a directory that may not be searched",
                quoted(name)
            ))),
            Runnable::Denied(why) => {
                Err(Failure::not_executable(format!("{} is {why}", quoted(name))))
            }
        };
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut denied = None;
    for directory in std::env::split_paths(path) {
        // An empty element means the working directory; "./" keeps exec from searching again.
        let directory =
            if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let file = directory.join(name);
        match verdict(&file) {
            Runnable::Executable => return Ok(file),
            Runnable::Denied(why) => denied = denied.or(Some((file, why))),
            // Directories of PATH that are not this user's to search hide nothing that is; a
            // shell passes over them too.
            Runnable::Missing | Runnable::Unsearchable => {}
        }
    }
    Err(match denied {
        Some((file, why)) => {
            Failure::not_executable(format!("{} is {why}", quoted(file.as_os_str())))
        }
        None => Failure::not_found(format!("{} not found in PATH", quoted(name))),
    })
}

/// Whether a file can be executed.
enum Runnable {
    Executable,
    Missing,
    Unsearchable,
    Denied(&'static str),
}

/// The kernel decides again at exec time; this is to answer before a slot is taken.
fn verdict(file: &Path) -> Runnable {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Runnable::Unsearchable
        }
        Err(_) => Runnable::Missing,
        Ok(metadata) if metadata.is_dir() => Runnable::Denied("a directory"),
        Ok(_) => match nix::unistd::eaccess(file, AccessFlags::X_OK) {
            Ok(()) => Runnable::Executable,
            Err(_) => Runnable::Denied("not executable"),
        },
    }
}

fn c_string(text: &OsStr) -> Result<CString, Failure> {
    CString::new(text.as_bytes()).map_err(|_| Failure::usage("an argument holds a NUL byte"))
}

fn quoted(text: &OsStr) -> String {
    format!("'{}'", printable(&text.to_string_lossy()))
}

fn shown(text: &CString) -> String {
    quoted(OsStr::from_bytes(text.to_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::failure::Exit;
    use super::*;

    fn found(name: &str, path: &Path) -> Result<PathBuf, Failure> {
        search(OsStr::new(name), Some(path.as_os_str()))
    }

    #[test]
    fn the_search_follows_path_and_tells_missing_from_denied() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        std::fs::write(&tool, "").unwrap();
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
        let text = dir.path().join("text");
        std::fs::write(&text, "").unwrap();
        std::fs::set_permissions(&text, PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();

        assert_eq!(found("tool", dir.path()).unwrap(), tool);
        assert!(found("nothing", dir.path()).unwrap_err().is(Exit::NotFound));
        assert!(found("text", dir.path()).unwrap_err().is(Exit::NotExecutable));
        assert!(found("folder", dir.path()).unwrap_err().is(Exit::NotExecutable));
        assert!(found("", dir.path()).unwrap_err().is(Exit::NotFound));
        let absolute = tool.to_str().unwrap();
        assert_eq!(found(absolute, Path::new("/nonexistent")).unwrap(), tool);
        assert!(found("/nonexistent/tool", dir.path()).unwrap_err().is(Exit::NotFound));
        assert!(found(text.to_str().unwrap(), dir.path()).unwrap_err().is(Exit::NotExecutable));
    }

    #[test]
    fn arguments_with_nul_are_refused_before_anything_happens() {
        let command = [OsString::from("true"), OsString::from("a\0b")];
        assert!(Program::find(&command, None).unwrap_err().is(Exit::Usage));
    }
}
