//! What a reader of the report has to know of the node.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::Current;

use super::shared::Bench;
use crate::disk::describe_directory;
use crate::record::{self, Cgroup, Machine, SettingKind};
use crate::suite::How;
use lrs_api::proto;
use lrs_term::Failure;
use lrs_testbed::node::wall_time;

/// Describes the node and the suite. Where a setting takes lrsd it is started once, so that a
/// node on which it cannot shape is known before the data is made.
pub(super) async fn describe(
    bench: &Bench<'_>,
    disk: Option<String>,
    command: &[String],
) -> Result<Machine, Failure> {
    let suite = bench.suite;
    // The reference, or else the first that takes lrsd: how tiers are made may be a key of it.
    let reference = suite.settings.iter().filter(|one| one.kind == SettingKind::Lrs);
    let keys = reference.chain(&suite.settings).find_map(|setting| match &setting.how {
        How::Daemon { keys, .. } => Some(keys),
        How::Processes(_) | How::Alone => None,
    });
    let cgroup = match keys {
        None => None,
        Some(keys) => Some(tiers(&bench.daemon(keys).await?.1)?),
    };
    let uname = rustix::system::uname();
    let cpu = procfs::CpuInfo::current().ok();
    let cpu = cpu.as_ref().and_then(|info| info.get_field(0, "model name"));
    Ok(Machine {
        suite: suite.name.clone(),
        about: suite.about.clone(),
        lrs: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: format!(
            "{} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy()
        ),
        cpu: cpu.map(str::to_owned),
        cpus: bench.cpus,
        memory_bytes: procfs::Meminfo::current().ok().map(|memory| memory.mem_total),
        cgroup,
        disk: disk.unwrap_or_else(|| describe_directory(&bench.places.run)),
        load_average: procfs::LoadAverage::current().ok().map(|load| f64::from(load.one)),
        began: wall_time().to_string(),
        command: command.to_vec(),
        rounds: suite.rounds,
        settings: suite
            .settings
            .iter()
            .map(|setting| record::Setting {
                name: setting.name.clone(),
                kind: setting.kind,
                about: setting.about.clone(),
            })
            .collect(),
        loads: suite
            .loads
            .iter()
            .map(|load| record::Load {
                name: load.name.clone(),
                class: load.class,
                about: load.about.clone(),
                tasks: load.tasks(),
            })
            .collect(),
    })
}

/// How lrsd holds tiers apart, if it can.
fn tiers(status: &proto::Status) -> Result<Cgroup, Failure> {
    let cgroup = status.cgroup.clone().unwrap_or_default();
    if status.mode != proto::Mode::Enforce as i32 || cgroup.cpu_tiers == "none" {
        return Err(Failure::failed(format!("lrsd cannot make tiers here: {}", cgroup.reason))
            .hint("`lrsctl doctor` says what to change; --setting leaves settings out"));
    }
    Ok(Cgroup {
        version: cgroup.version.to_string(),
        cpu_tiers: cgroup.cpu_tiers,
        io_tiers: cgroup.io_tiers,
    })
}

/// Writes `machine.json`.
pub(super) fn write(machine: &Machine, output: &Path) -> Result<(), Failure> {
    let path = output.join("machine.json");
    let cannot = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
    };
    let text = serde_json::to_vec_pretty(machine).map_err(|error| cannot(error.into()))?;
    std::fs::write(&path, text).map_err(cannot)
}

/// The file with the counters of the block device below a directory; `None` where there is no
/// such device (tmpfs, overlay, btrfs).
pub(super) fn disk_counters(directory: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(directory).ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))).filter(|path| path.exists())
}

/// Bytes read and written by a block device since boot, from its file in sysfs: sectors of 512
/// bytes in the third and the seventh field (Documentation/block/stat.rst).
pub(super) fn disk_bytes(stat: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(stat).ok()?;
    let field = |index: usize| text.split_whitespace().nth(index)?.parse::<u64>().ok();
    Some((field(2)? * 512, field(6)? * 512))
}
