use proptest::prelude::*;

use super::*;
use crate::kernfs::process::Stat;
use crate::units::Uids;

fn cpus(list: &str) -> CpuSet {
    cpu_list(list.as_bytes()).unwrap()
}

#[test]
fn numbers_are_whole_and_bounded() {
    assert_eq!(number(b"42\n"), Some(42));
    assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
    for text in ["", " ", "-1", "1.5", "18446744073709551616", "1 2", "0x1"] {
        assert_eq!(number(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn cpu_lists() {
    assert_eq!(cpus("0-3,5\n").len(), 5);
    assert!(cpus("0-3,5").contains(5) && !cpus("0-3,5").contains(4));
    assert!(cpus("\n").is_empty());
    for text in ["3-1", "a", "0,", "-", "1-", "99999999999", "0-4294967295"] {
        assert_eq!(cpu_list(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(cpus("0-3").intersection(&cpus("2-9")), cpus("2-3"));
}

const STAT: &[u8] = b"cpu  31466 0 13312 294553 2516 7 117 32 5 0
cpu0 14646 0 4399 151465 447 3 15 10 5 0
cpu1 16819 0 8913 143088 2068 4 102 22 0 0
intr 381142 0 0
ctxt 1234
btime 1700000000
";

#[test]
fn stat_is_summed_over_the_allowed_cpus() {
    let ticks = |n: u64| Duration::from_millis(n * 10);
    let all = proc_stat(STAT, &cpus("0-1"), 100, &mut Odd::default()).unwrap();
    assert_eq!(all.user, ticks(14646 + 16819));
    assert_eq!(all.steal, ticks(32));
    let one = proc_stat(STAT, &cpus("1"), 100, &mut Odd::default()).unwrap();
    assert_eq!(
        one,
        CpuTimes {
            user: ticks(16819),
            nice: ticks(0),
            system: ticks(8913),
            idle: ticks(143_088),
            iowait: ticks(2068),
            irq: ticks(4),
            softirq: ticks(102),
            steal: ticks(22),
        }
    );
    assert_eq!(proc_stat(STAT, &cpus("7"), 100, &mut Odd::default()), None);
    assert_eq!(proc_stat(b"cpu0 1 x 3 4\n", &cpus("0"), 100, &mut Odd::default()), None);
}

#[test]
fn diskstats_gives_bytes_of_every_device() {
    let text = b" 254       0 vda 76505 8900 6350026 69023 35592 53817 24741944 129368 0 30384 199560 7793 61 933696 905 5092 263
   8       1 sda1 1 2 3 4 5 6 7 8
 nonsense
";
    let mut odd = Odd::default();
    let lines: Vec<_> = diskstats(text, &mut odd).collect();
    let vda = lines[0];
    assert_eq!((vda.device, vda.name), ((254, 0), b"vda".as_slice()));
    assert_eq!(vda.bytes.read, Bytes(6_350_026 * 512));
    assert_eq!(vda.bytes.written, Bytes(24_741_944 * 512));
    assert_eq!(lines[1].bytes.written, Bytes(7 * 512));
    assert_eq!((lines.len(), odd.row()), (2, Some(b" nonsense".as_slice())));
}

#[test]
fn pressure_with_and_without_full() {
    let text = b"some avg10=0.03 avg60=0.57 avg300=0.90 total=22435226
full avg10=0.00 avg60=0.00 avg300=0.00 total=17
";
    let micros = Duration::from_micros;
    assert_eq!(pressure(text, &mut Odd::default()), Some((micros(22_435_226), Some(micros(17)))));
    // /proc/pressure/cpu before Linux 5.13 has no full line.
    let old = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
    assert_eq!(pressure(old, &mut Odd::default()), Some((micros(1), None)));
    assert_eq!(pressure(b"some avg10=0.00\n", &mut Odd::default()), None);
    assert_eq!(pressure(b"", &mut Odd::default()), None);
}

#[test]
fn meminfo_is_in_bytes() {
    let text = b"MemTotal:        8000000 kB
MemFree:          100000 kB
MemAvailable:    5000000 kB
SwapTotal:       1000000 kB
SwapFree:         999000 kB
";
    assert_eq!(
        meminfo(text),
        Some(MemorySample {
            total: Bytes(8_000_000 * 1024),
            available: Bytes(5_000_000 * 1024),
            swap_used: Some(Bytes(1000 * 1024)),
        })
    );
    assert_eq!(meminfo(b"MemTotal: 1 kB\n"), None);
}

#[test]
fn group_files_of_both_versions() {
    assert_eq!(cpuacct_usage(b"2235000001\n"), Some(Duration::from_nanos(2_235_000_001)));
    let stat = b"usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n";
    assert_eq!(cpu_stat_usage(stat), Some(Duration::from_micros(1500)));
    assert_eq!(cpu_stat_usage(b"nr_periods 0\n"), None);

    let v1 = b"254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 8192\n254:0 Async 4096
254:0 Discard 0\n254:0 Total 12288\n253:0 Read 1\n253:0 Write 1\nTotal 12290\n";
    let v2 = b"254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0
253:0 rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n";
    let expected = DiskBytes { read: Bytes(4096), written: Bytes(8192) };
    for text in [v1.as_slice(), v2] {
        assert_eq!(
            group_io(text, |device| device == (254, 0), &mut Odd::default()),
            Some(expected)
        );
    }
    assert_eq!(group_io(b"", |_| true, &mut Odd::default()), Some(DiskBytes::default()));
    assert_eq!(group_io(b"Total 0\n", |_| true, &mut Odd::default()), Some(DiskBytes::default()));
    assert_eq!(group_io(b"254:0 Read\n", |_| true, &mut Odd::default()), None);

    // Devices without a number: NVMe multipath, ZFS.
    for text in [
        b"(unknown) Read 4096\n(unknown) Total 4096\n254:0 Read 512\n254:0 Total 512\nTotal 4608\n"
            .as_slice(),
        b"(unknown) rbytes=0 wbytes=0\n254:0 rbytes=512 wbytes=0\n",
    ] {
        let mut odd = Odd::default();
        let expected = DiskBytes { read: Bytes(512), written: Bytes(0) };
        assert_eq!(group_io(text, |_| true, &mut odd), Some(expected));
        assert!(odd.row().unwrap().starts_with(b"(unknown)"), "{odd:?}");
    }
    let only = group_io(b"(unknown) rbytes=9\n", |_| true, &mut Odd::default());
    assert_eq!(only, Some(DiskBytes::default()), "no disk that counts was used");

    let memory = b"anon 1000\nfile 5000\nkernel 7\nshmem 24\nanon_thp 3\n";
    assert_eq!(memory_stat_resident(memory), Some(Bytes(1024)));
    assert_eq!(statm_private_pages(b"631 300 280 5 0 88 0\n"), Some(20));
}

#[test]
fn ids_leave_out_what_has_no_name_here() {
    assert_eq!(ids(b"12\n0\n345\n").collect::<Vec<_>>(), [12, 345]);
}

#[test]
fn small_files() {
    assert_eq!(
        schedstat(b"48000000 14930000000 999\n"),
        Some((Duration::from_millis(48), Duration::from_millis(14_930), 999))
    );
    let status = b"Name:\tx\nCpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t993\n";
    assert_eq!(status_field(status, b"Cpus_allowed_list:"), Some(b"0-1".as_slice()));
    assert_eq!(status_field(status, b"voluntary_ctxt_switches:"), Some(b"993".as_slice()));
    assert_eq!(cpu_max(b"max 100000\n"), Some(None));
    assert_eq!(cpu_max(b"150000 100000\n"), Some(Some(1.5)));
    assert_eq!(cpu_max(b"1 0\n"), None);
}

fn parse_all(text: &[u8]) {
    number(text);
    cpu_list(text);
    let mut one = CpuSet::default();
    one.insert(0);
    proc_stat(text, &one, 100, &mut Odd::default());
    proc_stat(text, &one, 0, &mut Odd::default());
    diskstats(text, &mut Odd::default()).count();
    pressure(text, &mut Odd::default());
    meminfo(text);
    cpuacct_usage(text);
    cpu_stat_usage(text);
    memory_stat_resident(text);
    statm_private_pages(text);
    group_io(text, |_| true, &mut Odd::default());
    ids(text).count();
    Stat::parse(text);
    Uids::parse(text);
    schedstat(text);
    status_field(text, b"x");
    cpu_max(text);
}

proptest! {
    #[test]
    fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_all(&text);
    }

    /// Near misses: real text, cut and with bytes changed.
    #[test]
    fn damaged_text_never_panics(
        cut in 0usize..400,
        changes in proptest::collection::vec((0usize..400, any::<u8>()), 0..8),
        pick in 0usize..4,
    ) {
        let texts: [&[u8]; 4] = [
            STAT,
            b"254:0 Read 18446744073709551615\n254:0 Read 18446744073709551615\nTotal 1\n",
            b" 254 0 vda 1 2 18446744073709551615 4 5 6 18446744073709551615 8\n",
            b"some avg10=0.03 avg60=0.57 avg300=0.90 total=18446744073709551615\n",
        ];
        let mut text = texts[pick].to_vec();
        for (at, byte) in changes {
            let at = at % text.len();
            text[at] = byte;
        }
        text.truncate(cut);
        parse_all(&text);
    }

    /// A row that is not understood costs itself: what the others say stays.
    #[test]
    fn an_odd_row_changes_nothing_else(
        row in proptest::collection::vec(any::<u8>().prop_filter("one line", |b| *b != b'\n'), 0..40),
        begin in 0usize..12,
        place in any::<prop::sample::Index>(),
        pick in 0usize..7,
    ) {
        // Near misses of rows that are understood, and anything; each cannot be one that is.
        let begins: [&[u8]; 12] = [
            b"cpu0 x ", b"cpu0x", b"cpu ", b"(unknown) Read 4096 ", b"254:0 Read x", b"8:x Read 1 ",
            b"some avg10=x ", b"full total=", b"MemTotal: x ", b"anon x", b"  254 x vda 1 ", b"\xff\xc3",
        ];
        let odd = [begins[begin], &row[..], b"\xff"].concat();
        let texts: [&[u8]; 7] = [
            STAT,
            b"254:0 Read 4096\n254:0 Write 8192\n254:0 Total 12288\nTotal 12288\n",
            b"254:0 rbytes=4096 wbytes=8192 rios=1\n8:0 rbytes=1 wbytes=2\n",
            b"some avg10=0.03 avg60=0.57 avg300=0.90 total=9\nfull avg10=0.00 total=17\n",
            b"MemTotal: 8 kB\nMemAvailable: 5 kB\nSwapTotal: 3 kB\nSwapFree: 1 kB\n",
            b"anon 1000\nfile 5000\nshmem 24\nusage_usec 7\n",
            b" 254 0 vda 1 0 6 0 1 0 7 1 0 3 1\n   8 1 sda1 1 2 3 4 5 6 7 8\n",
        ];
        let rows: Vec<&[u8]> = texts[pick].split_inclusive(|&byte| byte == b'\n').collect();
        let place = place.index(rows.len() + 1);
        let mut inserted = rows[..place].concat();
        inserted.extend_from_slice(&odd);
        inserted.push(b'\n');
        inserted.extend(rows[place..].concat());
        prop_assert_eq!(all_of(&inserted), all_of(texts[pick]), "{}", inserted.escape_ascii());
    }
}

/// What every parser of files with rows makes of a text.
fn all_of(text: &[u8]) -> impl PartialEq + std::fmt::Debug {
    let odd = &mut Odd::default();
    let disks: Vec<_> = diskstats(text, odd).map(|line| (line.device, line.bytes)).collect();
    (
        proc_stat(text, &cpus("0-1"), 100, odd),
        group_io(text, |_| true, odd).filter(|bytes| *bytes != DiskBytes::default()),
        pressure(text, odd),
        meminfo(text),
        (memory_stat_resident(text), cpu_stat_usage(text)),
        disks,
    )
}
