//! The jobs that ship with Hadoop, each with its result held against a computation of our own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::Cluster;
use crate::process::Process;

const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";
const SLEEP: &str = "org.apache.hadoop.mapreduce.SleepJob";

/// Reduces start with the maps, so that a node has both kinds at once.
pub const REDUCES_AT_ONCE: &str = "-Dmapreduce.job.reduce.slowstart.completedmaps=0";

/// A job on its way.
pub struct Job {
    client: Process,
    what: String,
}

impl Job {
    /// One of Hadoop's examples: its name, then its options and arguments.
    pub fn example(cluster: &mut Cluster, words: &[&str]) -> Job {
        Job::start(cluster, EXAMPLES, words)
    }

    /// Any program of Hadoop's that submits one: its class, then its options and arguments.
    pub fn start(cluster: &mut Cluster, class: &str, words: &[&str]) -> Job {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Job::of(cluster.client(class, &words), words.join(" "))
    }

    /// What a client that was started otherwise submits.
    pub fn of(client: Process, what: String) -> Job {
        Job { client, what }
    }

    /// Waits for its end, which must be a success without a failed or killed task.
    pub fn succeeded(mut self, cluster: &Cluster) -> Ended {
        let status = cluster.patiently(&self.what, |_| self.client.ended());
        let output = self.client.output();
        assert!(status.success(), "{}: {status}\n{output}", self.what);
        for word in ["Failed map tasks", "Failed reduce tasks", "Killed map", "Killed reduce"] {
            assert!(!output.contains(word), "{}: {word}\n{output}", self.what);
        }
        Ended { output }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.client.ended().is_none()
    }

    /// `application_1_0001`, once the ResourceManager has given it one.
    pub fn application(&self, cluster: &Cluster) -> String {
        cluster.patiently("an application's id", |_| {
            let over = self.client.is_over();
            let id = application(&self.client.output());
            assert!(id.is_some() || !over, "it never submitted: {}", self.client.last_words());
            id
        })
    }
}

fn application(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("Submitted application ")?;
    let id = rest.split_whitespace().next()?;
    // A line may be read while it is written.
    rest.contains('\n').then(|| id.to_owned())
}

/// What a job's client wrote.
pub struct Ended {
    pub output: String,
}

impl Ended {
    pub fn application(&self) -> String {
        application(&self.output).expect("an application")
    }

    /// A counter as the client prints it: `Launched map tasks=4`.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let line = self.output.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.strip_prefix('=')?.trim().parse().ok()
    }
}

/// Tasks that only wait: `maps` and `reduces` at once, each for as many seconds.
pub fn sleep(cluster: &mut Cluster, maps: u32, reduces: u32, seconds: u32) -> Job {
    sleep_with(cluster, maps, reduces, seconds, &[])
}

/// The same with options of the job's.
pub fn sleep_with(
    cluster: &mut Cluster,
    maps: u32,
    reduces: u32,
    seconds: u32,
    options: &[&str],
) -> Job {
    let millis = (u64::from(seconds) * 1000).to_string();
    let (maps, reduces) = (maps.to_string(), reduces.to_string());
    let words = ["-m", &maps, "-r", &reduces, "-mt", &millis, "-rt", &millis];
    Job::start(cluster, SLEEP, &[&[REDUCES_AT_ONCE], options, &words].concat())
}

/// Words that repeat unevenly, as text does.
pub struct Words {
    dir: PathBuf,
    counts: BTreeMap<String, u64>,
}

impl Words {
    /// `files` files, one map each, below a new directory.
    pub fn write(dir: &Path, files: u32, lines: u32) -> Words {
        fs::create_dir_all(dir).expect("a directory of words");
        let mut counts = BTreeMap::new();
        let mut state = 1_u64;
        for file in 0..files {
            let mut text = String::new();
            for _ in 0..lines {
                for _ in 0..8 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let rank = (state >> 33) % 997;
                    let word = format!("word{}", rank * rank / 997);
                    text += &word;
                    text.push(' ');
                    *counts.entry(word).or_insert(0) += 1;
                }
                text.push('\n');
            }
            fs::write(dir.join(format!("part-{file}")), text).expect("a file of words");
        }
        Words { dir: dir.to_owned(), counts }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The output of wordcount has each word with the number we counted ourselves.
    pub fn check_counts(&self, output: &str) {
        assert_eq!(pairs(output, |a, b| (a, b)), self.counts);
    }

    /// As [`Words::check_counts`] for grep, which prints the number first.
    fn check_matches(&self, output: &str, ending: char) {
        let wanted: BTreeMap<String, u64> =
            self.counts.clone().into_iter().filter(|(word, _)| word.ends_with(ending)).collect();
        assert!(!wanted.is_empty());
        assert_eq!(pairs(output, |a, b| (b, a)), wanted);
    }
}

fn pairs<'a>(
    output: &'a str,
    order: impl Fn(&'a str, &'a str) -> (&'a str, &'a str),
) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in output.lines() {
        let (first, second) = line.split_once('\t').expect("two columns");
        let (word, count) = order(first, second);
        let before = found.insert(word.to_owned(), count.parse().expect("a count"));
        assert_eq!(before, None, "{word} twice");
    }
    found
}

/// The bytes of a job's output in the local file system, in the order of its parts.
pub fn output_of(dir: &Path) -> Vec<u8> {
    assert!(dir.join("_SUCCESS").exists(), "{} is not complete", dir.display());
    let mut parts: Vec<PathBuf> =
        fs::read_dir(dir).expect("an output").flatten().map(|entry| entry.path()).collect();
    parts.retain(|path| {
        path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"part-"))
    });
    parts.sort();
    assert!(!parts.is_empty(), "{} has no parts", dir.display());
    parts.iter().flat_map(|part| fs::read(part).expect("a part")).collect()
}

pub fn text_of(dir: &Path) -> String {
    String::from_utf8(output_of(dir)).expect("text")
}

pub fn show(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

/// Counts words with as many maps as there are files.
pub fn word_count(cluster: &mut Cluster, words: &Words) -> (Job, PathBuf) {
    word_count_with(cluster, words, &[])
}

/// The same with options of the job's.
pub fn word_count_with(cluster: &mut Cluster, words: &Words, options: &[&str]) -> (Job, PathBuf) {
    let out = cluster.fresh("counts");
    let paths = [show(words.dir()), show(&out)];
    let job = Job::example(cluster, &[&["wordcount"], options, &paths].concat());
    (job, out)
}

/// Runs wordcount to its end and checks what it wrote.
pub fn check_word_count(cluster: &mut Cluster, files: u32) -> Ended {
    let words = Words::write(&cluster.fresh("words"), files, 2_000);
    let (job, out) = word_count(cluster, &words);
    let ended = job.succeeded(cluster);
    assert_eq!(ended.counter("Launched map tasks"), Some(u64::from(files)));
    words.check_counts(&text_of(&out));
    ended
}

/// grep: two jobs, the second of which sorts by number.
pub fn check_grep(cluster: &mut Cluster) {
    let (words, out) = (cluster.fresh("words"), cluster.fresh("matches"));
    let words = Words::write(&words, 2, 1_000);
    let pattern = "word[0-9]*7(?![0-9])";
    Job::example(cluster, &["grep", show(words.dir()), show(&out), pattern]).succeeded(cluster);
    let text = text_of(&out);
    words.check_matches(&text, '7');
    let counts: Vec<u64> =
        text.lines().map(|l| l.split('\t').next().unwrap().parse().unwrap()).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "the most frequent come first");
}

/// pi by points of the Halton sequence, which we count ourselves.
pub fn check_pi(cluster: &mut Cluster) {
    let points = Points { maps: 3, samples: 20_000 };
    let ended = points.start(cluster, &[]).succeeded(cluster);
    points.check_estimate(&ended, points.inside());
}

/// The points by which pi estimates.
pub struct Points {
    pub maps: u64,
    /// Of each map.
    pub samples: u64,
}

impl Points {
    pub fn start(&self, cluster: &mut Cluster, options: &[&str]) -> Job {
        let (maps, samples) = (self.maps.to_string(), self.samples.to_string());
        Job::example(cluster, &[&["pi"], options, &[&maps, &samples]].concat())
    }

    /// How many lie in the circle, counted by ourselves.
    pub fn inside(&self) -> usize {
        let inside = |index: &u64| {
            let (x, y) = (radical_inverse(*index, 2) - 0.5, radical_inverse(*index, 3) - 0.5);
            x * x + y * y <= 0.25
        };
        (1..=self.maps * self.samples).filter(inside).count()
    }

    /// The estimate is that of so many points `inside`.
    pub fn check_estimate(&self, ended: &Ended, inside: usize) {
        let value = ended.output.lines().find_map(|l| l.strip_prefix("Estimated value of Pi is "));
        let value: f64 = value.expect("an estimate").trim().parse().expect("a number");
        let points = (self.maps * self.samples) as f64;
        let wanted = 4.0 * inside as f64 / points;
        // Points on the circle itself may be rounded to either side.
        assert!((value - wanted).abs() < 10.0 / points, "{value}, but {wanted}");
    }
}

/// The digits of `index` in a base, mirrored at the point.
fn radical_inverse(mut index: u64, base: u64) -> f64 {
    let (mut value, mut scale) = (0.0, 1.0);
    while index > 0 {
        scale /= base as f64;
        value += (index % base) as f64 * scale;
        index /= base;
    }
    value
}

/// teragen, terasort with two reduces, teravalidate; then our own look at the same files.
pub fn check_terasort(cluster: &mut Cluster, rows: usize) {
    let rows = Rows::make(cluster, rows, 2);
    let (job, out) = rows.sort(cluster, 2, &[]);
    job.succeeded(cluster);
    rows.check_sorted(cluster, &out);
}

/// Records as teragen makes them.
pub struct Rows {
    dir: PathBuf,
    count: usize,
}

impl Rows {
    const ROW: usize = 100;
    const KEY: usize = 10;

    /// `count` rows in as many files as there are `maps`, below a new directory.
    pub fn make(cluster: &mut Cluster, count: usize, maps: u32) -> Rows {
        let dir = cluster.fresh("rows");
        let (maps, rows) = (format!("-Dmapreduce.job.maps={maps}"), count.to_string());
        Job::example(cluster, &["teragen", &maps, &rows, show(&dir)]).succeeded(cluster);
        Rows { dir, count }
    }

    /// Sorts them with a map for each file.
    pub fn sort(&self, cluster: &mut Cluster, reduces: u32, options: &[&str]) -> (Job, PathBuf) {
        let out = cluster.fresh("sorted");
        // Its sampled partitions travel in a file that tasks find only if the job's files are in
        // HDFS.
        let by_key = "-Dmapreduce.terasort.simplepartitioner=true";
        let reduces = format!("-Dmapreduce.job.reduces={reduces}");
        let words = [show(&self.dir), show(&out)];
        let words = [&["terasort", by_key, &reduces], options, &words].concat();
        (Job::example(cluster, &words), out)
    }

    /// teravalidate finds `sorted` in order, and so do we, with every row there once.
    pub fn check_sorted(&self, cluster: &mut Cluster, sorted: &Path) {
        let report = cluster.fresh("report");
        Job::example(cluster, &["teravalidate", show(sorted), show(&report)]).succeeded(cluster);
        let verdict = text_of(&report);
        assert!(verdict.starts_with("checksum\t") && verdict.lines().count() == 1, "{verdict}");

        let (input, output) = (output_of(&self.dir), output_of(sorted));
        assert_eq!(input.len(), self.count * Rows::ROW);
        assert!(
            output.chunks(Rows::ROW).map(|row| &row[..Rows::KEY]).is_sorted(),
            "keys are out of order, though teravalidate saw none"
        );
        let mut wanted: Vec<&[u8]> = input.chunks(Rows::ROW).collect();
        let mut found: Vec<&[u8]> = output.chunks(Rows::ROW).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        assert!(found == wanted, "rows were lost, doubled or changed");
    }
}

/// sort over what randomtextwriter made, as lines of text.
pub fn check_sort(cluster: &mut Cluster) {
    let (random, sorted) = (cluster.fresh("random"), cluster.fresh("sorted-text"));
    let lines = "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat";
    Job::start(
        cluster,
        EXAMPLES,
        &[
            "randomtextwriter",
            "-Dmapreduce.randomtextwriter.totalbytes=400000",
            "-Dmapreduce.randomtextwriter.bytespermap=200000",
            "-outFormat",
            lines,
            show(&random),
        ],
    )
    .succeeded(cluster);
    let text = "org.apache.hadoop.io.Text";
    let pairs = "org.apache.hadoop.mapreduce.lib.input.KeyValueTextInputFormat";
    let words = ["-r", "1", "-inFormat", pairs, "-outFormat", lines];
    let types = ["-outKey", text, "-outValue", text, show(&random), show(&sorted)];
    Job::example(cluster, &[&["sort"], &words[..], &types[..]].concat()).succeeded(cluster);
    let (before, after) = (text_of(&random), text_of(&sorted));
    let keys = after.lines().map(|line| line.split('\t').next().unwrap_or_default());
    assert!(keys.is_sorted(), "keys are out of order");
    let in_order = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(in_order(&after), in_order(&before), "lines were lost, doubled or changed");
}

/// wordcount from HDFS to HDFS.
pub fn check_word_count_in_hdfs(cluster: &mut Cluster) {
    let words = Words::write(&cluster.fresh("words"), 2, 500);
    let shell = |cluster: &mut Cluster, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut client = cluster.client("org.apache.hadoop.fs.FsShell", &words);
        let status = cluster.patiently("the file system's shell", |_| client.ended());
        assert!(status.success(), "{words:?}: {}", client.output());
    };
    shell(cluster, &["-put", show(words.dir()), "/words"]);
    Job::example(cluster, &["wordcount", "/words", "/counts"]).succeeded(cluster);
    let local = cluster.fresh("counts");
    shell(cluster, &["-get", "/counts", show(&local)]);
    words.check_counts(&text_of(&local));
}
