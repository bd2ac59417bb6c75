//! What the tasks do. The benchmark starts itself again with the hidden word `work`, so that it
//! needs no program of the node.
//!
//! Every worker dies with the benchmark (PR_SET_PDEATHSIG), however that ends.

use std::hint::black_box;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lrs::clock::boot_time;
use rustix::process::Signal;

use crate::client::Rpc;

/// First argument of a worker.
pub const WORD: &str = "work";

/// A worker process of this benchmark.
pub fn command(arguments: &[&str]) -> Command {
    let me = std::env::current_exe().expect("the path of this benchmark");
    let mut command = Command::new(me);
    command.arg(WORD).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts one.
pub fn start(arguments: &[&str]) -> Child {
    command(arguments).spawn().expect("a worker starts")
}

/// Entry of a worker.
pub fn main(arguments: &[String]) {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .expect("prctl(PR_SET_PDEATHSIG)");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["sleep"] => sleep(),
        ["hog"] => loop {
            black_box(spin(1 << 20));
        },
        ["pulse", busy, period] => pulse(micros(busy), micros(period)),
        ["stamp"] => stamp(),
        ["wait", socket] => {
            let rpc = Rpc::connect(Path::new(socket)).expect("lrsd serves");
            rpc.wait_for_slot();
            stamp();
        }
        ["ask", rounds, pause, time] => ask(rounds, micros(pause), micros(time)),
        ["answer", rounds] => answer(number(rounds)),
        ["nest", count] => nest(number(count)),
        ["threads", count] => {
            for _ in 1..number(count) {
                let small = std::thread::Builder::new().stack_size(64 << 10);
                small.spawn(sleep).expect("a thread");
            }
            sleep();
        }
        ["touch", kib, slice_ms, time_ms] => {
            let time = Duration::from_millis(number(time_ms));
            crate::switches::touch(number(kib), number(slice_ms), time);
        }
        ["cpu", rounds] => timed(|| {
            black_box(spin(number(rounds)));
        }),
        ["fsync", rounds, path] => timed(|| sort_and_sync(number(rounds), Path::new(path))),
        ["exec", program, ..] => {
            let error = Command::new(program).args(&words[2..]).exec();
            panic!("cannot execute {program}: {error}");
        }
        ["join", file, program, ..] => {
            std::fs::write(file, "0").expect("cgroup.procs");
            let error = Command::new(program).args(&words[3..]).exec();
            panic!("cannot execute {program}: {error}");
        }
        _ => panic!("no such worker: {words:?}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn micros(text: &str) -> Duration {
    Duration::from_micros(number(text))
}

fn sleep() {
    loop {
        std::thread::park();
    }
}

/// Says when it is, in microseconds, and sleeps.
fn stamp() {
    println!("{}", boot_time().0.as_micros());
    sleep();
}

/// Forks `count` processes that sleep, and says their pids: 10,000 of them cost the node their
/// page tables, where as many programs would cost it 10,000 starts. They end with this one.
fn nest(count: u64) {
    // SAFETY: sets a disposition; ended children need no wait then.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    for _ in 0..count {
        // SAFETY: this process has one thread, so the child may do what it likes.
        match unsafe { libc::fork() } {
            0 => {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                    .expect("prctl(PR_SET_PDEATHSIG)");
                sleep();
            }
            pid if pid > 0 => println!("{pid}"),
            _ => panic!("fork: {}", std::io::Error::last_os_error()),
        }
    }
    println!();
    std::io::stdout().flush().expect("stdout");
    sleep();
}

/// `rounds` of dependent arithmetic: nothing but the CPU.
fn spin(rounds: u64) -> u64 {
    (0..rounds).fold(rounds, |sum, round| {
        black_box(sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round))
    })
}

fn pulse(busy: Duration, period: Duration) {
    loop {
        let begun = boot_time();
        while boot_time().since(begun) < busy {
            black_box(spin(1000));
        }
        std::thread::sleep(period.saturating_sub(boot_time().since(begun)));
    }
}

/// Asks a child, over and over for `time`, with a pause after each answer; then says how many
/// microseconds each answer took, a line each.
fn ask(rounds: &str, pause: Duration, time: Duration) {
    let mut child = command(&["answer", rounds])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker starts");
    let (mut to, mut from) =
        (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let (begun, mut times, mut byte) = (boot_time(), Vec::new(), [0]);
    while boot_time().since(begun) < time {
        let asked = boot_time();
        to.write_all(&byte).expect("a request");
        from.read_exact(&mut byte).expect("an answer");
        times.push(boot_time().since(asked).as_micros().to_string());
        std::thread::sleep(pause);
    }
    drop(to);
    child.wait().expect("wait");
    println!("{}", times.join("\n"));
}

/// Rounds of arithmetic that a CPU does in `time`, when nothing else uses it.
pub fn rounds_in(time: Duration) -> u64 {
    let rounds = || {
        let (begun, mut rounds) = (boot_time(), 0);
        while boot_time().since(begun) < time {
            black_box(spin(1000));
            rounds += 1000;
        }
        rounds
    };
    (0..5).map(|_| rounds()).max().unwrap_or_default()
}

fn answer(rounds: u64) {
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut byte = [0];
    while from.read_exact(&mut byte).is_ok() {
        black_box(spin(rounds));
        to.write_all(&byte).expect("an answer");
        to.flush().expect("an answer");
    }
}

/// Says "ready", starts at a line on stdin, says how many microseconds it took, ends at the
/// end of stdin: so it keeps its slot until all are done, and no task is promoted meanwhile.
fn timed(work: impl FnOnce()) {
    let mut line = String::new();
    let say = |text: String| {
        println!("{text}");
        std::io::stdout().flush().expect("stdout");
    };
    say("ready".into());
    std::io::stdin().lock().read_line(&mut line).expect("stdin");
    let begun = boot_time();
    work();
    say(boot_time().since(begun).as_micros().to_string());
    std::io::stdin().lock().read_line(&mut line).expect("stdin");
}

/// What a reducer does: sort some, write some, wait for the disk.
fn sort_and_sync(rounds: u64, path: &Path) {
    const WORDS: u64 = 16 << 10;
    let file = std::fs::File::create(path).expect("the file of a worker");
    for round in 0..rounds {
        let mut words: Vec<u64> = (0..WORDS)
            .map(|word| spin(1).wrapping_add(word ^ round).rotate_left(word as u32))
            .collect();
        words.sort_unstable();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_at(&bytes, (round % 64) * bytes.len() as u64).expect("write");
        file.sync_data().expect("fdatasync");
    }
}

/// A worker of the kinds that say how long they took.
pub struct Timed {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Timed {
    pub fn start(arguments: &[&str]) -> Timed {
        let mut child = command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker starts");
        let stdout = child.stdout.take().expect("piped");
        let mut timed = Timed { child, lines: std::io::BufReader::new(stdout).lines() };
        assert_eq!(timed.line(), "ready");
        timed
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line of the worker").expect("a line of the worker")
    }

    pub fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(b"go\n").expect("the worker reads");
    }

    pub fn took(&mut self) -> Duration {
        micros(&self.line())
    }

    pub fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("wait");
    }
}
