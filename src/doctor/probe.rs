//! Facts about the node, read once. Nothing is judged here.
//!
//! Everything below `/proc` and `/sys` is read under the roots of [`DoctorOptions`]; what is
//! no file there (pidfd_open, access, the socket) is asked of the kernel.
//! A fact that could not be had carries the reason.
//!
//! What takes more than a few lines to read has a file of its own in `probe/`. None imports a check.

pub(super) mod cgroups;
pub(super) mod cpus;
pub(super) mod finder;
pub(super) mod neighbours;
mod place;
mod reading;
pub(super) mod services;
mod socket;
mod yarn;

use std::path::{Path, PathBuf};

use procfs::FromRead;

use super::DoctorOptions;
use crate::cgroup::MemoryGroups;
use crate::cgroup::mounts::Mounts;
use crate::cgroup::obstacle::{self, Obstacle};
pub(super) use crate::cgroup::probe::Disk;
use crate::config::{Config, Mode};
use crate::core::sample::MemoryLimit;
use crate::units::Bytes;
use cgroups::{Carrier, below_sys, carrier, root_name};
pub(super) use cgroups::{Cgroups, Hierarchy, Unified};
pub(super) use cpus::Cpus;
use finder::Finder;
use neighbours::Neighbour;
pub(super) use place::DirFacts;
use place::{believed, place};
pub(super) use reading::Reading;
use reading::text;
pub(super) use services::Services;
pub(super) use socket::Socket;
use socket::socket;
pub(super) use yarn::{ManagerUnit, Reported, Yarn};

#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Effective uid of the process that asks.
    pub(super) uid: u32,
    pub(super) kernel: Reading<Kernel>,
    /// Whether pidfd_open(2) works here.
    pub(super) pidfd: Result<(), Obstacle>,
    /// CPUs that LRS's tasks may use.
    pub(super) cpus: Reading<Cpus>,
    pub(super) cgroups: Reading<Cgroups>,
    pub(super) disks: Reading<Vec<Disk>>,
    /// The scheduler in BPF that all tasks run under.
    pub(super) sched_ext: Option<String>,
    /// Resources of /proc/pressure that can be read, or why none.
    pub(super) pressure: Reading<Vec<&'static str>>,
    pub(super) memory: Reading<Memory>,
    pub(super) memory_limits: MemoryLimits,
    /// `None`: the kernel has no autogroups.
    pub(super) autogroup: Reading<Option<bool>>,
    pub(super) runtime_dir: DirFacts,
    /// Whether the group of [`DoctorOptions::group`] exists.
    pub(super) group: Reading<bool>,
    pub(super) descriptors: Descriptors,
    /// The first socket of `grpc.listen`.
    pub(super) socket: Socket,
    /// Whether a process holds `<runtime_dir>/lock`.
    pub(super) locked: Reading<bool>,
    /// The LRS root in the CPU controller's hierarchy and whether a process holds its lock;
    /// `None`: there is no such hierarchy.
    pub(super) root_lock: Option<(PathBuf, Reading<bool>)>,
    /// Busy groups beside the LRS root; `None`: there is no hierarchy with the CPU controller.
    pub(super) neighbours: Option<Reading<Vec<Neighbour>>>,
    pub(super) services: Services,
    /// The daemon's thread that finds tasks; `None`: no daemon is seen.
    pub(super) finder: Option<Reading<Finder>>,
    /// `None`: `yarn.enabled` is off.
    pub(super) yarn: Option<Yarn>,
}

/// The release of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) text: String,
    /// Major and minor number.
    pub(super) version: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: Bytes,
    pub(super) available: Option<Bytes>,
    pub(super) swap_total: Bytes,
    pub(super) swap_free: Bytes,
}

/// Limits of memory above the tasks, as lrsd reads them, and what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryLimits {
    pub(super) found: Vec<MemoryLimit>,
    pub(super) problems: Vec<String>,
}

/// RLIMIT_NOFILE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Of the daemon where it answers, else of this process.
    pub(super) of_daemon: bool,
    /// `None` is unlimited.
    pub(super) soft: Option<u64>,
    /// `None` is unlimited.
    pub(super) hard: Option<u64>,
}

impl Facts {
    pub(super) fn read(config: &Config, options: &DoctorOptions) -> Facts {
        let (proc, sys) = (options.proc.as_path(), options.sys.as_path());
        let runtime_dir = config.daemon.runtime_dir.as_path();
        let socket = match config.grpc.listen.first() {
            Some(path) => socket(path),
            None => Socket::Unknown(String::from("grpc.listen is empty")),
        };
        let services = Services::read();
        let cgroups = cgroups::read(proc, sys, config, &services);
        let root_lock = cgroups.as_ref().ok().and_then(|cgroups| {
            let carrier = carrier(cgroups, config)?;
            let root = &carrier.hierarchy().root.path;
            Some((root.clone(), locked(proc, &root.join(crate::cgroup::LOCK))))
        });
        let memory_limits = memory_limits((proc, sys), config, &services, &cgroups, &socket);
        // The topmost group of LRS stands directly below the mount.
        let neighbours = root_lock.as_ref().and_then(|(root, _)| {
            let depth = Path::new(root_name(config, &services)).components().count();
            let own = root.ancestors().nth(depth.checked_sub(1)?)?;
            Some(neighbours::read(own.parent()?, own))
        });
        Facts {
            uid: rustix::process::geteuid().as_raw(),
            kernel: kernel(proc),
            pidfd: obstacle::pidfd(),
            cpus: cpus::read((proc, sys), config, root_name(config, &services), &cgroups, &socket),
            cgroups,
            disks: disks(sys),
            sched_ext: crate::cgroup::probe::sched_ext(sys),
            pressure: pressure(proc),
            memory: memory(proc),
            memory_limits,
            autogroup: autogroup(proc),
            runtime_dir: believed(place(runtime_dir)),
            group: nix::unistd::Group::from_name(&options.group)
                .map(|group| group.is_some())
                .map_err(|errno| format!("cannot look up group {}: {errno}", options.group)),
            descriptors: descriptors(proc, &socket),
            locked: locked(proc, &runtime_dir.join("lock")),
            root_lock,
            neighbours,
            finder: finder::read(proc, &socket),
            yarn: Yarn::read(config, &socket, services.systemd),
            services,
            socket,
        }
    }
}

fn kernel(proc: &Path) -> Reading<Kernel> {
    let text = text(&proc.join("sys/kernel/osrelease"))?.trim().to_owned();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok(Kernel { version: (major, minor), text }),
        _ => Err(format!("kernel release {text:?} does not start with two numbers")),
    }
}

fn disks(sys: &Path) -> Reading<Vec<Disk>> {
    let path = sys.join("block");
    crate::cgroup::probe::disks(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn pressure(proc: &Path) -> Reading<Vec<&'static str>> {
    let dir = proc.join("pressure");
    let mut reason = None;
    let readable: Vec<&str> = ["cpu", "io", "memory"]
        .into_iter()
        // With psi=0 the files are there and reading them fails (EOPNOTSUPP).
        .filter(|name| match text(&dir.join(name)) {
            Ok(_) => true,
            Err(why) => {
                reason.get_or_insert(why);
                false
            }
        })
        .collect();
    match reason {
        Some(reason) if readable.is_empty() => Err(reason),
        _ => Ok(readable),
    }
}

fn memory(proc: &Path) -> Reading<Memory> {
    let path = proc.join("meminfo");
    let meminfo = procfs::Meminfo::from_file(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(Memory {
        total: Bytes(meminfo.mem_total),
        available: meminfo.mem_available.map(Bytes),
        swap_total: Bytes(meminfo.swap_total),
        swap_free: Bytes(meminfo.swap_free),
    })
}

/// The groups are those that lrsd goes by: its own where it runs, else as it would start.
fn memory_limits(
    (proc, sys): (&Path, &Path),
    config: &Config,
    services: &Services,
    cgroups: &Reading<Cgroups>,
    socket: &Socket,
) -> MemoryLimits {
    let carrier = cgroups.as_ref().ok().and_then(|found| carrier(found, config));
    let groups = match carrier {
        None => None,
        Some(Carrier::V2(unified)) => {
            let point = &unified.hierarchy.point;
            let root =
                if config.daemon.mode == Mode::Enforce { root_name(config, services) } else { "/" };
            Some(MemoryGroups::v2(point, root))
        }
        Some(Carrier::V1(_)) => {
            let of = match socket {
                _ if services.use_scope(config) => String::from("1"),
                Socket::Served { pid: Some(pid), .. } => pid.to_string(),
                _ => String::from("self"),
            };
            let mounts = Mounts::read_file(&proc.join("self/mountinfo")).ok();
            mounts.and_then(|mounts| MemoryGroups::v1(&mounts, &proc.join(of).join("cgroup")))
        }
    };
    let groups = groups.map(|groups| MemoryGroups {
        dirs: groups.dirs.iter().map(|dir| below_sys(dir, sys)).collect(),
        ..groups
    });
    let (found, problems) = crate::sample::read_memory_limits(groups.as_ref());
    MemoryLimits { found, problems }
}

fn autogroup(proc: &Path) -> Reading<Option<bool>> {
    let path = proc.join("sys/kernel/sched_autogroup_enabled");
    if !path.exists() {
        return Ok(None);
    }
    match text(&path)?.trim() {
        "0" => Ok(Some(false)),
        "1" => Ok(Some(true)),
        other => Err(format!("{} holds {other:?}", path.display())),
    }
}

fn descriptors(proc: &Path, socket: &Socket) -> Descriptors {
    if let Socket::Served { pid: Some(pid), .. } = socket {
        // Another user's limits may be hidden; then our own have to do.
        if let Ok(limits) = procfs::process::Limits::from_file(proc.join(format!("{pid}/limits"))) {
            let number = |limit| match limit {
                procfs::process::LimitValue::Value(number) => Some(number),
                procfs::process::LimitValue::Unlimited => None,
            };
            return Descriptors {
                of_daemon: true,
                soft: number(limits.max_open_files.soft_limit),
                hard: number(limits.max_open_files.hard_limit),
            };
        }
    }
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Descriptors { of_daemon: false, soft: own.current, hard: own.maximum }
}

/// Whether a lock on the file or directory is listed in /proc/locks (proc_locks(5)).
fn locked(proc: &Path, file: &Path) -> Reading<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("cannot look at {}: {error}", file.display())),
    };
    let device = metadata.dev();
    let wanted = format!(
        "{:02x}:{:02x}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device),
        metadata.ino()
    );
    // A line with "->" is a process that waits for a lock.
    let locks = text(&proc.join("locks"))?;
    let held = |line: &str| !line.contains("->") && line.split_whitespace().any(|w| w == wanted);
    Ok(locks.lines().any(held))
}

#[cfg(test)]
mod tests;
