//! `lrsctl submit` and `log`: a command in the background, as a transient service of systemd's, and
//! what it wrote.
//!
//! The service runs `lrsctl run --wait`, which becomes the command: so its main process is the task's,
//! and the task is in the common tiers as any other. That leaves the service, so `KillMode=process` and an
//! `ExecStop=` ([`stop`]) that ends the task's cgroup: `systemctl stop` ends all of it, also while lrsd is
//! away. The name of the task is in that of the unit, and is what the journal knows its output by: a
//! process that has left the unit is not logged under that.
//!
//! The environment of a service can be read by everybody (`systemctl show`), so that only what a command
//! cannot do without goes along.
//!
//! Limits. A process that the main process leaves behind is not reached by `systemctl stop` any more, for
//! the service has ended then; `lrsctl kill` reaches it. Who submits as a user needs lingering if the
//! task is to outlive the last login.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lrs_api::client::{Connection, all_tasks};
use lrs_api::proto::{GetTaskRequest, ListHistoryRequest, ListQueueRequest};
use rustix::process::geteuid;
use serde::Serialize;

use super::args::{LogArgs, SubmitArgs};
use super::client::{self, Lrsd, in_time};
use super::exec::Program;
use super::failure::Failure;
use super::handle::{stands_for, with_id};
use super::kill;
use super::output::{Output, printable, say};
use super::queue::{is_queued, whole};
use super::read::ended_tasks;

/// There if systemd is the init (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// What units are called, in front of the task's name.
const PREFIX: &str = "lrs-submit-";

/// The longest name of a unit, without its type (systemd.unit(5)).
const LONGEST: usize = 240;

/// Variables that go along, beside `LC_*`.
const GO_ALONG: &[&str] = &["PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LRS_ENDPOINT"];

/// How long lrsd may take to know of the request, so that `lrsctl wait` finds it.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// After so long processes of a task that is stopped get SIGKILL; below systemd's `TimeoutStopSec=`.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Serialize)]
struct Submitted<'a> {
    name: &'a str,
    unit: &'a str,
    manager: &'a str,
}

/// `lrsctl submit -- CMD`: prints the name that the task has.
pub(super) fn submit(lrsd: &Lrsd, args: SubmitArgs, out: &mut Output) -> Result<(), Failure> {
    Program::find(&args.command, std::env::var_os("PATH").as_deref())?;
    if !Path::new(BOOTED).exists() {
        return Err(Failure::failed(
            "submit starts a service of systemd's, which does not run here",
        )
        .hint("`setsid lrsctl run --wait -- CMD... >LOG 2>&1 &` goes on in the background too"));
    }
    let name = match &args.slot.name {
        Some(name) => name.clone(),
        None => made_up(&args.command)?,
    };
    let unit = format!("{PREFIX}{}", escaped(&name));
    if unit.len() > LONGEST {
        return Err(Failure::usage("--name is too long for the name of a unit of systemd's"));
    }
    let runtime = super::runtime()?;
    let connection = runtime.block_on(in_time(lrsd, client::connect(lrsd)))??;
    let user = !geteuid().is_root();
    start(lrsd, &name, &unit, user, args)?;
    let main = main_process(&unit, user)?;
    let known = async {
        let known = async {
            while !is_known(connection.clone(), main).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(KNOWN_WITHIN, known).await.is_ok()
    };
    if !runtime.block_on(known) {
        say(format_args!("lrsctl: lrsd does not know of the request yet; {unit} goes on asking"));
    }
    if user && !lingers() {
        say(format_args!(
            "lrsctl: the task ends with your last login, unless `loginctl enable-linger` was called"
        ));
    }
    let manager = if user { "user" } else { "system" };
    match out.is_json() {
        true => out.json(&Submitted { name: &name, unit: &format!("{unit}.service"), manager }),
        false => out.line(&name),
    }
}

/// The command's own name and five random letters.
fn made_up(command: &[OsString]) -> Result<String, Failure> {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let usual = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let program: String = program.to_string_lossy().chars().filter(usual).take(40).collect();
    let mut random = [0; 5];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::failed(format!("no random name (getrandom): {error}")))?;
    let letters = random.map(|byte| char::from(b'a' + byte % 26));
    Ok(format!("{program}-{}", letters.iter().collect::<String>()))
}

/// As `systemd-escape` has it, but that a dash stays.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b':' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

fn start(lrsd: &Lrsd, name: &str, unit: &str, user: bool, args: SubmitArgs) -> Result<(), Failure> {
    let is_set = |name: &&OsString| std::env::var_os(name).is_some();
    if let Some(unset) = args.env.iter().find(|name| !is_set(name)) {
        let unset = unset.to_string_lossy();
        let text = format!("--env {}: no variable of this name is set", printable(&unset));
        return Err(Failure::usage(text).hint("--env takes names: export NAME=VALUE before"));
    }
    let own = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the path of lrsctl is not known: {error}")))?;
    let here = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the working directory is not known: {error}")))?;
    let mut systemd = Command::new("systemd-run");
    systemd.args(["--quiet", "--collect", "--no-ask-password", "--service-type=exec"]);
    systemd.args(user.then_some("--user"));
    systemd.arg(format!("--unit={unit}.service"));
    systemd.arg(with("--working-directory=", here.as_os_str()));
    systemd.arg(format!("--description=lrsctl submit: {}", printable(name)));
    let mut properties = vec![
        // All but the main one are in the task's cgroup, where systemd does not look.
        OsString::from("KillMode=process"),
        OsString::from("TimeoutStopSec=90s"),
        OsString::from(format!("SyslogIdentifier={}", identifier(name))),
        OsString::from(format!("UMask={:04o}", mask())),
        with("ExecStop=", &quoted(own.as_os_str())),
    ];
    if let Some(property) = properties.last_mut() {
        property.push(" __stop $MAINPID");
    }
    if let Some(file) = &args.output {
        // systemd takes no path with dots in it.
        let place = here.join(file);
        let parent = place.parent().and_then(|parent| parent.canonicalize().ok());
        let place = parent.zip(place.file_name()).map(|(parent, name)| parent.join(name));
        let place = place.ok_or_else(|| {
            let text = format!("--output {}: there is no such directory", file.display());
            Failure::usage(text)
        })?;
        let file = with("append:", place.as_os_str());
        properties.extend([with("StandardOutput=", &file), with("StandardError=", &file)]);
    }
    systemd.args(properties.iter().map(|property| with("--property=", property)));
    for (name, value) in std::env::vars_os() {
        let usual = GO_ALONG.iter().any(|other| name == *other);
        if usual || name.as_bytes().starts_with(b"LC_") || args.env.contains(&name) {
            let mut word = with("--setenv=", &name);
            word.push("=");
            word.push(value);
            systemd.arg(word);
        }
    }
    systemd.arg("--").arg(&own).arg("--endpoint");
    systemd.arg(unexpanded(OsStr::new(&lrsd.to_string()))).args(["run", "--leave-unit"]);
    let options = args.slot.options(Some(name.to_owned()));
    systemd.args(options.iter().map(|option| unexpanded(OsStr::new(option)))).arg("--");
    systemd.args(args.command.iter().map(|word| unexpanded(word)));
    let ended = systemd.stdin(Stdio::null()).output().map_err(|error| {
        Failure::failed(format!("cannot execute systemd-run: {error}"))
            .hint("it is part of systemd")
    })?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let failure = Failure::failed(format!("systemd-run failed: {}", printable(said.trim())));
    Err(match user {
        true => failure.hint(
            "it needs your user manager: log in through PAM, or `loginctl enable-linger` and set \
             XDG_RUNTIME_DIR=/run/user/UID; `lrsctl run --wait` needs none",
        ),
        false => failure,
    })
}

fn with(option: &str, value: &OsStr) -> OsString {
    let mut text = OsString::from(option);
    text.push(value);
    text
}

/// A word of a command line in a property.
fn quoted(word: &OsStr) -> OsString {
    let mut text = vec![b'"'];
    for byte in unexpanded(word).as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
    OsString::from_vec(text)
}

/// systemd puts variables into the arguments of a service.
fn unexpanded(word: &OsStr) -> OsString {
    let bytes = word.as_bytes().iter().flat_map(|byte| {
        let times = if *byte == b'$' { 2 } else { 1 };
        std::iter::repeat_n(*byte, times)
    });
    OsString::from_vec(bytes.collect())
}

/// What the journal knows the output by.
fn identifier(name: &str) -> String {
    format!("{PREFIX}{}", escaped(name))
}

fn mask() -> u32 {
    // There is no call that only reads it; no other thread runs.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Of a service that was started; `None`: it has ended.
fn main_process(unit: &str, user: bool) -> Result<Option<i32>, Failure> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(user.then_some("--user"));
    let shown = systemctl
        .args(["show", "--property=MainPID", "--value", &format!("{unit}.service")])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::failed(format!("cannot execute systemctl: {error}")))?;
    let pid: Option<i32> = String::from_utf8_lossy(&shown.stdout).trim().parse().ok();
    Ok(pid.filter(|pid| *pid > 0))
}

/// Whether lrsd has the request of a process, or never will.
async fn is_known(mut lrsd: Connection, main: Option<i32>) -> bool {
    let Some(pid) = main else { return true };
    let asked = ListQueueRequest { pid: Some(pid), ..ListQueueRequest::default() };
    let waits = lrsd.list_queue(asked).await.is_ok_and(|page| !page.into_inner().queue.is_empty());
    let runs =
        async { all_tasks(lrsd).await.is_ok_and(|all| all.iter().any(|task| task.pid == main)) };
    waits || runs.await || !Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether the user manager goes on without a login (loginctl(1)).
fn lingers() -> bool {
    let own = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    own.is_some_and(|own| Path::new("/var/lib/systemd/linger").join(own.name).exists())
}

/// `lrsctl __stop [PID]`: what a unit of [`submit`] executes to stop. Without a pid its main process
/// has ended; one that waits for its slot is in no task, and systemd ends it.
pub(super) fn stop(pid: Option<i32>) -> Result<(), Failure> {
    pid.map_or(Ok(()), |pid| kill::end(pid, PATIENCE))
}

/// `lrsctl log WORD`: becomes journalctl(1).
pub(super) fn log(lrsd: &Lrsd, args: LogArgs) -> Result<Infallible, Failure> {
    let name = name_of(lrsd, args.task)?;
    let mut command: Vec<OsString> =
        ["journalctl", "--output=cat", "--quiet"].map(Into::into).into();
    command.push(format!("--lines={}", args.lines.map_or("all".into(), |n| n.to_string())).into());
    command.extend(args.follow.then(|| OsString::from("--follow")));
    command.push(format!("SYSLOG_IDENTIFIER={}", identifier(&name)).into());
    Program::find(&command, std::env::var_os("PATH").as_deref())
        .map_err(|failure| Failure::failed(failure.to_string()).hint("the journal is systemd's"))?
        .execute()
}

/// The name of what runs, waits or has ended; a word that is none of these is a name itself.
fn name_of(lrsd: &Lrsd, word: String) -> Result<String, Failure> {
    let found = async {
        let connection = client::connect(lrsd).await?;
        if is_queued(&word) {
            let asked = ListQueueRequest { id: Some(word.clone()), ..ListQueueRequest::default() };
            let queued = whole(connection, asked).await.ok().and_then(|mut all| all.pop());
            return Ok::<_, Failure>(queued.map(|one| one.name));
        }
        let task = with_id(connection.clone(), word.clone(), |mut lrsd, id| async move {
            lrsd.get_task(GetTaskRequest { id }).await.map(tonic::Response::into_inner)
        });
        if let Ok(task) = task.await {
            return Ok(Some(task.name));
        }
        // An earlier lrsd knows no history.
        let kept = ended_tasks(connection.clone(), ListHistoryRequest::default()).await;
        let mut kept = kept.unwrap_or_default();
        kept.retain(|end| stands_for(&word, &end.id, end.name.as_deref()));
        Ok(kept.pop().map(|end| end.name))
    };
    // The journal has the output whether or not lrsd runs.
    let found = super::runtime()?.block_on(in_time(lrsd, found)).and_then(|found| found);
    match found {
        Ok(Some(Some(name))) => Ok(name),
        Ok(Some(None)) => Err(Failure::failed(format!(
            "{} has no name, so it was not started by `lrsctl submit`",
            printable(&word)
        ))
        .hint("its output is where it was started")),
        Ok(None) | Err(_) => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units_hold_any_name() {
        assert_eq!(escaped("nightly-7.a_b"), "nightly-7.a_b");
        assert_eq!(escaped("a b/ü"), "a\\x20b\\x2f\\xc3\\xbc");
    }

    #[test]
    fn a_name_is_made_of_the_command() {
        let name = made_up(&["/usr/bin/my tool".into()]).unwrap();
        assert!(name.starts_with("mytool-") && name.len() == 12, "{name}");
        assert_ne!(name, made_up(&["/usr/bin/my tool".into()]).unwrap());
    }

    #[test]
    fn systemd_neither_expands_nor_splits_a_word() {
        assert_eq!(unexpanded(OsStr::new("a $HOME ${x}")), "a $$HOME $${x}");
        assert_eq!(quoted(OsStr::new("/a b\\\"$c")), "\"/a b\\\\\\\"$$c\"");
    }
}
