use std::fs;
use std::time::Duration;

use super::*;
use crate::sample::Settings;
use crate::units::Bytes;

/// A machine made of files: a partition, a loop device, a dm device on the disk, zram, a
/// multipath member and a second disk.
pub(super) struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
        fixture.put("sys/devices/system/cpu/online", "0-3\n");
        fixture.put(
            "proc/stat",
            "cpu  99 0 0 0\ncpu0 1 0 0 10 0 0 0 0 0 0\ncpu1 2 0 0 10 0 0 0 0 0 0\n\
             cpu2 4 0 0 10 0 0 0 0 0 0\ncpu3 8 0 0 10 0 0 0 0 0 0\ncpu4 16 0 0 10 0 0 0 0 0 0\n",
        );
        let line = |device: &str, sectors: u32| {
            format!("{device} 1 0 {sectors} 0 1 0 {} 0 0 0 0\n", sectors * 2)
        };
        fixture.put(
            "proc/diskstats",
            &[
                line("8 0 sda", 10),
                line("8 1 sda1", 10),
                line("7 0 loop0", 1000),
                line("253 0 dm-0", 10),
                line("252 0 zram0", 1000),
                line("259 1 nvme0c0n1", 1000),
                line("104 0 cciss/c0d0", 5),
            ]
            .concat(),
        );
        for dir in ["sda/slaves", "loop0/slaves", "dm-0/slaves/sda", "zram0", "cciss!c0d0"] {
            fs::create_dir_all(fixture.path("sys/block").join(dir)).unwrap();
        }
        fixture.put("sys/block/nvme0c0n1/hidden", "1\n");
        fixture.put(
            "proc/meminfo",
            "MemTotal: 8 kB\nMemAvailable: 4 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        );
        fixture
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            proc: self.path("proc"),
            sys: self.path("sys"),
            quota_dirs: Vec::new(),
            cpuset_dirs: Vec::new(),
            memory_groups: None,
            kept_files: 100,
            ticks_per_second: 100,
            page_size: 4096,
        }
    }
}

fn read(reader: &mut NodeReader) -> NodeSample {
    let mut node = NodeSample::default();
    reader.read(&mut node, &Descriptors::new(100), &mut Vec::new());
    node
}

#[test]
fn whole_disks_count_once() {
    let fixture = Fixture::new();
    let node = read(&mut NodeReader::new(&fixture.settings()));
    assert_eq!(node.problems, Vec::<String>::new());
    assert_eq!(node.disk, Some(DiskBytes { read: Bytes(15 * 512), written: Bytes(30 * 512) }));
}

#[test]
fn a_disk_that_appears_is_counted_from_then_on() {
    let fixture = Fixture::new();
    let mut reader = NodeReader::new(&fixture.settings());
    read(&mut reader);
    assert!(!reader.is_whole_disk((8, 16)));
    let text = fs::read_to_string(fixture.path("proc/diskstats")).unwrap();
    fixture.put("proc/diskstats", &format!("{text}8 16 sdb 1 0 7 0 1 0 0 0 0 0 0\n"));
    fs::create_dir_all(fixture.path("sys/block/sdb/slaves")).unwrap();
    assert_eq!(read(&mut reader).disk.unwrap().read, Bytes(22 * 512));
    assert!(reader.is_whole_disk((8, 16)));
}

#[test]
fn without_sysfs_disks_are_reported_unknown() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.path("sys/block")).unwrap();
    let node = read(&mut NodeReader::new(&fixture.settings()));
    assert_eq!(node.disk, None);
    assert!(node.problems[0].contains("sys/block"), "{:?}", node.problems);
}

#[test]
fn a_kernel_without_psi_is_no_problem_and_garbage_is_one() {
    let fixture = Fixture::new();
    let mut reader = NodeReader::new(&fixture.settings());
    let node = read(&mut reader);
    assert_eq!(node.pressure, None);
    assert_eq!(node.problems, Vec::<String>::new());
    fixture.put("proc/meminfo", "MemTotal: lots\n");
    fixture.put("proc/stat", "");
    let node = read(&mut reader);
    assert_eq!((node.memory, node.cpu), (None, None));
    assert_eq!(node.problems.len(), 2, "{:?}", node.problems);
}

#[test]
fn a_pressure_file_that_is_missing_costs_itself() {
    let fixture = Fixture::new();
    let line = |name, total| format!("{name} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
    fixture.put("proc/pressure/cpu", &line("some", 3));
    fixture.put("proc/pressure/io", &[line("some", 5), line("full", 4)].concat());
    let node = read(&mut NodeReader::new(&fixture.settings()));
    let micros = |n| Some(Duration::from_micros(n));
    let expected = NodePressure {
        cpu_some: micros(3),
        io_some: micros(5),
        io_full: micros(4),
        ..NodePressure::default()
    };
    assert_eq!((node.pressure, node.problems), (Some(expected), Vec::new()));
}

#[test]
fn an_odd_row_costs_itself_and_is_no_problem_of_the_node() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.path("proc/diskstats")).unwrap();
    fixture.put("proc/diskstats", &format!("nonsense\n{text} 8 x sdb 1\n"));
    let stat = fs::read_to_string(fixture.path("proc/stat")).unwrap();
    fixture.put("proc/stat", &format!("cpu1x 1\n{stat}"));
    let mut reader = NodeReader::new(&fixture.settings());
    let node = read(&mut reader);
    assert_eq!(node.problems, Vec::<String>::new());
    assert_eq!(node.disk, Some(DiskBytes { read: Bytes(15 * 512), written: Bytes(30 * 512) }));
    assert_eq!(node.cpu.unwrap().user, Duration::from_millis(150));
    let reported = reader.reported.0.len() + reader.cpus.reported.0.len();
    assert_eq!(reported, 2, "each file is reported once");
}
