use proptest::prelude::*;

use super::*;

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
    let all = proc_stat(STAT, &cpus("0-1"), 100).unwrap();
    assert_eq!(all.user, ticks(14646 + 16819));
    assert_eq!(all.steal, ticks(32));
    let one = proc_stat(STAT, &cpus("1"), 100).unwrap();
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
    assert_eq!(proc_stat(STAT, &cpus("7"), 100), None);
    assert_eq!(proc_stat(b"cpu0 1 x 3 4\n", &cpus("0"), 100), None);
}

#[test]
fn diskstats_gives_bytes_of_every_device() {
    let text = b" 254       0 vda 76505 8900 6350026 69023 35592 53817 24741944 129368 0 30384 199560 7793 61 933696 905 5092 263
   8       1 sda1 1 2 3 4 5 6 7 8
 nonsense
";
    let lines: Vec<_> = diskstats(text).collect();
    let vda = lines[0].unwrap();
    assert_eq!((vda.device, vda.name), ((254, 0), b"vda".as_slice()));
    assert_eq!(vda.bytes.read, Bytes(6_350_026 * 512));
    assert_eq!(vda.bytes.written, Bytes(24_741_944 * 512));
    assert_eq!(lines[1].unwrap().bytes.written, Bytes(7 * 512));
    assert_eq!(lines[2], None);
}

#[test]
fn pressure_with_and_without_full() {
    let text = b"some avg10=0.03 avg60=0.57 avg300=0.90 total=22435226
full avg10=0.00 avg60=0.00 avg300=0.00 total=17
";
    let micros = Duration::from_micros;
    assert_eq!(pressure(text), Some((micros(22_435_226), Some(micros(17)))));
    // /proc/pressure/cpu before Linux 5.13 has no full line.
    let old = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
    assert_eq!(pressure(old), Some((micros(1), None)));
    assert_eq!(pressure(b"some avg10=0.00\n"), None);
    assert_eq!(pressure(b""), None);
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
            swap_used: Bytes(1000 * 1024),
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
        assert_eq!(group_io(text, |device| device == (254, 0)), Some(expected));
    }
    assert_eq!(group_io(b"", |_| true), Some(DiskBytes::default()));
    assert_eq!(group_io(b"Total 0\n", |_| true), Some(DiskBytes::default()));
    assert_eq!(group_io(b"254:0 Read\n", |_| true), None);

    let memory = b"anon 1000\nfile 5000\nkernel 7\nshmem 24\nanon_thp 3\n";
    assert_eq!(memory_stat_resident(memory), Some(Bytes(1024)));
    assert_eq!(statm_private_pages(b"631 300 280 5 0 88 0\n"), Some(20));
}

#[test]
fn a_name_cannot_fake_a_state() {
    let text = b"42 (a) R 1 (b) S 1 42 42 0 -1 4194560 95 0 0 0 0 0 0 0 20 0 1 0 777 6221824 200";
    assert_eq!(stat_state(text), Some((b'S', 777)));
    assert_eq!(stat_state(b"42 (x"), None);
    assert_eq!(stat_state(b""), None);
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
    proc_stat(text, &one, 100);
    proc_stat(text, &one, 0);
    diskstats(text).count();
    pressure(text);
    meminfo(text);
    cpuacct_usage(text);
    cpu_stat_usage(text);
    memory_stat_resident(text);
    statm_private_pages(text);
    group_io(text, |_| true);
    ids(text).count();
    stat_state(text);
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
}
