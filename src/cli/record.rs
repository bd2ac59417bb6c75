//! `lrsctl record`: what lrsd decides from now on, into a file.
//!
//! lrsd sends, and this side packs and writes: so lrsd writes no file, and without names nothing that has
//! one ever reaches the disk. Where lrsd ends the recording goes on with the next one, with the state it has
//! then; whatever else lrsd answers ends it. Only whole entries are written: what is left of a recording that was killed can be played.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use lrs_recording::anonymous::Anonymous;
use lrs_recording::{MOST_ENTRY, Writer, decode, encode};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::args::RecordArgs;
use super::client::{self, Lrsd, in_time};
use super::failure::{Exit, Failure, Purpose, from_status};
use super::output::{printable, say};
use super::values::DECIDING;
use crate::config::Config;
use crate::core::recording::Entry;
use crate::proto;

/// The most bytes that a recording has as a file.
const MOST_BYTES: u64 = 256 << 20;

/// Before the first attempt to reach an lrsd that ended; before each further one twice as long, up to
/// [`AGAIN_MOST`].
const AGAIN: Duration = Duration::from_millis(200);

/// The longest time between two attempts.
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// At the latest what is recorded is in the file.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Why most recordings end.
const OVER: &str = "its time was over";

/// Why a recording ends before its time.
enum Ended {
    /// The daemon did.
    Daemon,
    /// It is over, for this reason.
    Over(String),
}

/// `lrsctl record FILE`
pub(super) fn record(lrsd: &Lrsd, args: &RecordArgs) -> Result<(), Failure> {
    super::runtime()?.block_on(async {
        let first = in_time(lrsd, open(lrsd)).await??;
        // Never over another file, and not for others: it says who runs what.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file);
        let file = file.map_err(|error| not_written(args, &error))?;
        let mut recording = Recording {
            args,
            writer: Writer::new(file),
            anonymous: args.anonymous.then(Anonymous::default),
            interrupt: signal(SignalKind::interrupt()).map_err(no_signals)?,
            terminate: signal(SignalKind::terminate()).map_err(no_signals)?,
            until: Instant::now() + args.time,
            flushed: Instant::now(),
            steps: 0,
        };
        say(format_args!("recording into {}; Ctrl-C ends it", shown(args)));
        let written = recording.follow(lrsd, first).await;
        recording.writer.flush().map_err(|error| not_written(args, &error))?;
        let why = written?;
        let (steps, bytes) = (recording.steps, recording.writer.written());
        say(format_args!("{steps} inputs in {bytes} bytes in {}: {why}", shown(args)));
        Ok(())
    })
}

/// What a call answers.
type Opened = (Option<String>, tonic::Streaming<proto::RecordPiece>);

/// The settings that decide, and what is recorded.
async fn open(lrsd: &Lrsd) -> Result<Opened, Failure> {
    let mut connection = client::connect(lrsd).await?;
    let refused = |status| from_status(&status, Purpose::Other);
    let settings = connection.get_config(proto::GetConfigRequest {}).await.map_err(refused)?;
    let stream = connection.record(proto::RecordRequest {}).await.map_err(refused)?;
    // An lrsd of another version may have settings that are not known here.
    let settings = Config::from_toml(&settings.into_inner().toml, "lrsd".as_ref()).ok();
    Ok((settings.as_ref().map(deciding), stream.into_inner()))
}

/// The settings that decide, one `key = value` a line.
pub(super) fn deciding(config: &Config) -> String {
    let keys = crate::config::keys::keys().filter(|key| DECIDING.contains(&key.section()));
    keys.map(|key| format!("{} = {}\n", key.path, config.show(key.path))).collect()
}

fn shown(args: &RecordArgs) -> String {
    printable(&args.file.to_string_lossy()).into_owned()
}

fn not_written(args: &RecordArgs, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", shown(args)))
        .hint("name a file that is not there yet, in a directory with room")
}

/// Whether there is no daemon that could answer: it may come back.
fn is_away(failure: &Failure) -> bool {
    matches!(failure, Failure::Message { exit: Exit::Unreachable, .. })
}

fn no_signals(error: io::Error) -> Failure {
    Failure::failed(format!("cannot wait for signals: {error}"))
}

/// One under way.
struct Recording<'a> {
    args: &'a RecordArgs,
    writer: Writer<File>,
    /// `--anonymous`.
    anonymous: Option<Anonymous>,
    interrupt: Signal,
    terminate: Signal,
    until: Instant,
    flushed: Instant,
    steps: u64,
}

impl Recording<'_> {
    /// Until it is over; answers why.
    async fn follow(&mut self, lrsd: &Lrsd, first: Opened) -> Result<String, Failure> {
        let mut opened = Ok(first);
        let mut again = AGAIN;
        let why = loop {
            let ended = match opened {
                Ok(opened) => {
                    again = AGAIN;
                    self.read(opened).await
                }
                Err(failure) => Err(failure),
            };
            match ended {
                Ok(Ended::Over(why)) => break why,
                Ok(Ended::Daemon) => {
                    self.add(Entry::End("lrsd ended".to_owned()))?;
                    say(format_args!("lrsctl: lrsd ended; the recording goes on once it is back"));
                }
                Err(failure) if is_away(&failure) => {}
                Err(failure) => {
                    self.add(Entry::End("lrsctl record failed".to_owned()))?;
                    return Err(failure);
                }
            }
            if let Some(why) = self.pause(sleep(again)).await.err() {
                break why;
            }
            again = (again * 2).min(AGAIN_MOST);
            opened = match timeout_at(self.until, open(lrsd)).await {
                Ok(opened) => opened,
                Err(_) => break OVER.to_owned(),
            };
            if opened.is_ok() {
                say(format_args!("lrsctl: lrsd is back"));
            }
        };
        self.add(Entry::End(why.clone()))?;
        Ok(why)
    }

    /// Waits for something, as long as the recording is to go on.
    async fn pause<T>(&mut self, what: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            done = what => Ok(done),
            _ = self.interrupt.recv() => Err("it was ended with Ctrl-C".to_owned()),
            _ = self.terminate.recv() => Err("it was ended by SIGTERM".to_owned()),
            () = tokio::time::sleep_until(self.until) => Err(OVER.to_owned()),
        }
    }

    async fn read(&mut self, (settings, mut stream): Opened) -> Result<Ended, Failure> {
        let mut entry = Vec::new();
        let mut settings = settings.map(Entry::Settings);
        loop {
            let piece = match self.pause(stream.message()).await {
                Err(why) => return Ok(Ended::Over(why)),
                Ok(Ok(None)) => return Ok(Ended::Daemon),
                Ok(Err(status)) => {
                    let failure = from_status(&status, Purpose::Other);
                    return if is_away(&failure) { Ok(Ended::Daemon) } else { Err(failure) };
                }
                Ok(Ok(Some(piece))) => piece,
            };
            entry.extend_from_slice(&piece.data);
            // A replay reads no more, and a client keeps no more.
            if entry.len() as u64 >= MOST_ENTRY {
                return Err(Failure::failed(
                    "what lrsd sent is too large for a recording: 64 MiB or more in one entry",
                )
                .hint("record while fewer tasks are on the node"));
            }
            if !piece.whole {
                continue;
            }
            let decoded = decode(&entry).map_err(|error| {
                Failure::failed(format!("what lrsd sent {error}"))
                    .hint("use the lrsctl of its version (`lrsctl status` shows that)")
            })?;
            entry.clear();
            match &decoded {
                Entry::Decided(_) => self.steps += 1,
                Entry::End(why) => return Ok(Ended::Over(why.clone())),
                _ => {}
            }
            let is_header = matches!(decoded, Entry::Header(_));
            self.add(decoded)?;
            if let Some(settings) = settings.take_if(|_| is_header) {
                self.add(settings)?;
            }
            if self.writer.written() >= MOST_BYTES {
                return Ok(Ended::Over("it is as large as it may be".to_owned()));
            }
        }
    }

    fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        let bytes = match &mut self.anonymous {
            Some(anonymous) => anonymous.entry(entry),
            None => encode(&entry),
        };
        let bytes = bytes.map_err(|error| Failure::failed(format!("not recorded: {error}")))?;
        let mut written = self.writer.add(&bytes);
        // What is left of a recording that is killed has all but the last of it.
        if written.is_ok() && self.flushed.elapsed() >= FLUSH_EVERY {
            self.flushed = Instant::now();
            written = self.writer.flush();
        }
        written.map_err(|error| not_written(self.args, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_config::keys::key;

    #[test]
    fn the_settings_that_decide_are_read_back_and_no_others_are_there() {
        let mut config = Config::default();
        config.slots.shrink_after = 17;
        config.grpc.admins = vec![4711];
        let text = deciding(&config);
        let read = Config::from_toml(&text, "a recording".as_ref()).unwrap();
        let policy = crate::executor::settings::policy;
        assert_eq!(policy(&read), policy(&config));
        assert!(!text.contains("4711"), "{text}");
        assert!(
            DECIDING.iter().all(|section| text.contains(section)) && key("slots.active").is_some()
        );
    }
}
