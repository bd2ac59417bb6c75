//! What prevents admissions, in the same words wherever it is met: lrsd, which does not
//! start without tasks then, doctor, and a refusal.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use super::{CgroupError, Version, files};

/// What was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) found: String,
    pub(crate) remedy: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.found, self.remedy)
    }
}

impl From<Obstacle> for CgroupError {
    fn from(obstacle: Obstacle) -> CgroupError {
        CgroupError::Unsupported(obstacle.to_string())
    }
}

/// What an operator may do instead of giving lrsd what it lacks.
const OBSERVE: &str = "set daemon.mode = \"observe\"";

/// Whether pidfd_open(2) works here, by which every process is held while it is admitted.
pub(crate) fn pidfd() -> Result<(), Obstacle> {
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map(drop).map_err(pidfd_refused)
}

fn pidfd_refused(errno: Errno) -> Obstacle {
    let remedy = match errno {
        // Old filters answer EPERM to calls they do not know, newer ones ENOSYS as old kernels do.
        Errno::NOSYS => {
            "boot Linux 5.4 or later, or allow pidfd_open in the seccomp filter of the container \
             or service"
        }
        Errno::PERM | Errno::ACCESS => {
            "allow pidfd_open in the seccomp filter of the container or service"
        }
        _ => "see pidfd_open(2)",
    };
    let found = format!("pidfd_open is refused, so no process can be admitted: {errno}");
    Obstacle { found, remedy: remedy.to_owned() }
}

/// No hierarchy has the cpu controller. `unified`: where cgroup2 is mounted.
pub(crate) fn no_cpu(wanted: Option<Version>, unified: Option<&Path>) -> Obstacle {
    const AUTO: &str = "set cgroup.version = \"auto\"";
    let without = unified.map(|point| {
        let point = point.display();
        format!("the cgroup2 mount {point} has no cpu controller (bound to v1 or not delegated)")
    });
    let (found, remedy) = match (wanted, without) {
        (Some(Version::V2), Some(without)) => {
            (format!("cgroup.version = 2, but {without}"), AUTO.to_owned())
        }
        (Some(Version::V2), None) => (
            "cgroup.version = 2, but no cgroup2 file system is mounted".to_owned(),
            format!("mount it (mount -t cgroup2 none /sys/fs/cgroup), or {AUTO}"),
        ),
        (Some(Version::V1), _) => (
            "cgroup.version = 1, but no cgroup v1 file system with the cpu controller is mounted"
                .to_owned(),
            AUTO.to_owned(),
        ),
        (None, without) => (
            std::iter::once(
                "no cgroup file system with the cpu controller is mounted here".to_owned(),
            )
            .chain(without)
            .collect::<Vec<_>>()
            .join("; "),
            format!("mount one, run lrsd outside of the container, or {OBSERVE}"),
        ),
    };
    Obstacle { found, remedy }
}

/// What is mounted at `point` shows the groups below `root` alone, and this process is not there.
pub(crate) fn out_of_sight(point: &Path, root: &str) -> Obstacle {
    let point = point.display();
    Obstacle {
        found: format!(
            "{point} shows the groups from {root} on (a bind mount of a part, or that of another \
             cgroup namespace), and the group of this process is not among them, so no process \
             can be shown to be in its group"
        ),
        remedy: format!(
            "mount the whole hierarchy there, start lrsd where its own group is seen, or {OBSERVE}"
        ),
    }
}

/// `dir`, the root or a group on the way to it, cannot be made or written.
pub(crate) fn unusable(dir: &Path, error: &io::Error) -> Obstacle {
    Obstacle {
        found: format!("cannot create or use the cgroup {}: {error}", dir.display()),
        remedy: format!("{}, or {OBSERVE}", permission(dir, error)),
    }
}

/// `dir`, the group of a task, cannot be made.
pub(super) fn not_made(dir: &Path, error: &io::Error) -> Obstacle {
    Obstacle {
        found: format!("cannot create the cgroup {}: {error}", dir.display()),
        remedy: permission(dir, error),
    }
}

/// What has to be done before the kernel lets lrsd make or use `dir`.
fn permission(dir: &Path, error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(libc::EROFS) => "the cgroup file system is mounted read-only: remount it writable",
        Some(libc::EACCES | libc::EPERM) if rustix::process::geteuid().is_root() => {
            lrs_host::files::REFUSED_TO_ROOT
        }
        Some(libc::EACCES | libc::EPERM) => "run lrsd as root or have the group delegated to it",
        Some(libc::EAGAIN | libc::ENOSPC) => return limit_of_groups(dir, error),
        _ => "see mkdir(2)",
    };
    text.to_owned()
}

/// What keeps the kernel from making the group `dir`, as a sentence's end (cgroup-v2.rst,
/// "cgroup.max.descendants").
fn limit_of_groups(dir: &Path, error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::ENOSPC) {
        return "the kernel has no ids left for groups (65,535 a controller, those included that \
                were removed and still hold memory: nr_dying_descendants in cgroup.stat)"
            .to_owned();
    }
    // The parent's own level counts as the first.
    for (above, group) in dir.ancestors().skip(1).enumerate() {
        let number = |file: &str| files::read_number(&group.join(file)).ok();
        let reached = |file: &str, limit: u64| {
            format!("{} is {limit}, which is reached: raise it", group.join(file).display())
        };
        if let Some(most) = number("cgroup.max.descendants") {
            let stat = std::fs::read(group.join("cgroup.stat")).unwrap_or_default();
            let now = crate::kernfs::parse::keyed(&stat, b"nr_descendants");
            if now.is_some_and(|now| now >= most) {
                return reached("cgroup.max.descendants", most);
            }
        }
        if let Some(most) = number("cgroup.max.depth")
            && above as u64 + 1 > most
        {
            return reached("cgroup.max.depth", most);
        }
    }
    "cgroup.max.descendants or cgroup.max.depth of a group above is reached: raise it".to_owned()
}

/// Whether tasks can live below `dir`, a group of cgroup2: not in or below a threaded one
/// (cgroup-v2.rst, "Threads").
pub(crate) fn no_thread_root(dir: &Path) -> Result<(), Obstacle> {
    // The real root has no such file, nor have kernels before 4.14.
    let kind = files::read_value(&dir.join("cgroup.type")).unwrap_or_default();
    if !matches!(kind.as_str(), "threaded" | "domain invalid") {
        return Ok(());
    }
    Err(Obstacle {
        found: format!(
            "{} is in or below a threaded group (its cgroup.type is \"{kind}\"), where no group \
             takes processes",
            dir.display()
        ),
        remedy: "choose a cgroup.root that is not below it".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn a_refused_pidfd_names_the_filter() {
        assert_eq!(pidfd(), Ok(()));
        for (errno, words) in [(Errno::PERM, "seccomp"), (Errno::NOSYS, "5.4")] {
            let text = pidfd_refused(errno).to_string();
            assert!(text.contains("pidfd_open") && text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_group_that_the_kernel_does_not_make_names_the_limit() {
        let top = tempfile::tempdir().unwrap();
        let parent = top.path().join("lrs");
        std::fs::create_dir(&parent).unwrap();
        let group = parent.join("task");
        let put =
            |dir: &Path, file: &str, text: &str| std::fs::write(dir.join(file), text).unwrap();
        let text = |errno| unusable(&group, &failure(errno)).to_string();
        put(&parent, "cgroup.max.descendants", "max\n");
        put(&parent, "cgroup.stat", "nr_descendants 7\nnr_dying_descendants 0\n");
        assert!(text(libc::EAGAIN).contains("of a group above"), "{}", text(libc::EAGAIN));
        put(&parent, "cgroup.max.descendants", "7\n");
        let file = parent.join("cgroup.max.descendants");
        assert!(text(libc::EAGAIN).contains(&format!("{} is 7", file.display())));
        put(&parent, "cgroup.max.descendants", "8\n");
        put(top.path(), "cgroup.max.depth", "1\n");
        let file = top.path().join("cgroup.max.depth");
        assert!(text(libc::EAGAIN).contains(&format!("{} is 1", file.display())));
        assert!(text(libc::ENOSPC).contains("65,535"));
        assert!(text(libc::EROFS).contains("read-only"));
    }

    #[test]
    fn a_root_below_a_threaded_group_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(no_thread_root(dir.path()), Ok(()), "the real root");
        for (kind, fits) in [
            ("domain\n", true),
            ("domain threaded\n", true),
            ("threaded\n", false),
            ("domain invalid\n", false),
        ] {
            std::fs::write(dir.path().join("cgroup.type"), kind).unwrap();
            let found = no_thread_root(dir.path());
            assert_eq!(found.is_ok(), fits, "{kind}");
            assert!(found.err().is_none_or(|it| it.to_string().contains("threaded group")));
        }
    }

    #[test]
    fn without_a_cpu_controller_the_words_fit_what_is_asked_for() {
        let point = Path::new("/sys/fs/cgroup/unified");
        for (wanted, unified, words) in [
            (Some(Version::V2), Some(point), "/sys/fs/cgroup/unified has no cpu controller"),
            (Some(Version::V2), None, "no cgroup2 file system"),
            (Some(Version::V1), Some(point), "cgroup.version = 1"),
            (None, Some(point), "/sys/fs/cgroup/unified has no cpu controller"),
            (None, None, "observe"),
        ] {
            let text = no_cpu(wanted, unified).to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
