//! `lrsctl submit` and `log`: a command in the background, as a transient service of systemd's, and
//! its output.
//!
//! The service runs `lrsctl run --wait`, which becomes the command: so its main process is the
//! task's, and the task is in the common tiers like any other. The task leaves the cgroup of the
//! service. Therefore `KillMode=process`, and an `ExecStop=` ([`stop`]) that ends the task's
//! cgroup: `systemctl stop` ends all of it, also while lrsd does not run. The name of the unit
//! contains the name of the task, and the journal finds the output by it: a process that has left
//! the unit is not logged under the unit.
//!
//! Every user can read the environment of a service (`systemctl show`), so only the variables that
//! a command cannot do without are passed.
//!
//! Limits. A process that the main process leaves behind is not reached by `systemctl stop`, since
//! the service has ended then; `lrsctl kill` reaches it. A user needs lingering for a task that is
//! to outlive the last login. Every user may write to the journal under any identifier: of a user's
//! task only lines of that user and of root are shown; of root's tasks, which may run as any user,
//! all lines. systemd takes arguments, directories and variables in UTF-8 only.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lrs_api::client::{Connection, all_tasks};
use lrs_api::proto::{GetTaskRequest, ListHistoryRequest, ListQueueRequest};
use rustix::process::geteuid;
use serde::Serialize;

use super::args::{LogArgs, SubmitArgs};
use super::client::{self, Lrsd, ended_tasks, in_time};
use super::exec::Program;
use super::failure::Failure;
use super::handle::{is_id, is_queued, refers_to, with_id};
use super::kill;
use super::output::{Output, printable, say};
use super::queue::whole;
use crate::{clock, wire};

/// There if systemd is the init (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// What units are called, in front of the task's name.
const PREFIX: &str = "lrs-submit-";

/// The longest name of a unit, without its type (systemd.unit(5)).
const LONGEST: usize = 240;

/// Variables that go along, beside `LC_*`.
const GO_ALONG: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LRS_ENDPOINT",
];

/// How long lrsd may take to know of the request, so that `lrsctl wait` finds it.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// After so long processes of a task that is stopped get SIGKILL; below systemd's `TimeoutStopSec=`.
const PATIENCE: Duration = Duration::from_secs(60);

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
    if is_id(&name) {
        return Err(Failure::usage(
            "--name has the form of an id, and would not stand for the task",
        ));
    }
    let unit = format!("{PREFIX}{}", escaped(&name));
    if unit.len() > LONGEST {
        return Err(Failure::usage("--name is too long for the name of a unit of systemd's"));
    }
    let runtime = super::runtime()?;
    let connection = runtime.block_on(in_time(lrsd, client::connect(lrsd)))??;
    let user = !geteuid().is_root();
    let begun = wire::proto_time(clock::now().wall);
    start(lrsd, &name, &unit, user, args)?;
    let main = main_process(&unit, user)?;
    let known = async {
        let asked = ListHistoryRequest { since: Some(begun), ..ListHistoryRequest::default() };
        let known = async {
            while !is_known(connection.clone(), main, &name, &asked).await {
                // That a request queues is no event.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(KNOWN_WITHIN, known).await.is_ok()
    };
    if !runtime.block_on(known) {
        if !main.is_some_and(lives) {
            return Err(Failure::failed(format!("{} got no slot", printable(&name))).hint(
                "why is in its output: `lrsctl log` with that name, or the file of --output",
            ));
        }
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
        false => {
            let options = if user { "--user " } else { "" };
            say(format_args!("lrsctl: `systemctl {options}stop {unit}` ends all of it"));
            out.line(&name)
        }
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

/// What `systemd-run` takes as the file to append to: no `..` in it.
fn whole_path(file: &Path) -> Result<PathBuf, Failure> {
    let shown = printable(&file.to_string_lossy()).into_owned();
    let name = file.file_name().filter(|_| !file.as_os_str().as_bytes().ends_with(b"/"));
    let name = name.ok_or_else(|| Failure::usage(format!("--output {shown} is no file")))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let parent = parent
        .map_err(|error| Failure::failed(format!("the directory of --output {shown}: {error}")))?;
    Ok(parent.join(name))
}

/// What --env asks for, as `systemd-run` takes it.
fn variable(asked: &OsStr) -> Result<OsString, Failure> {
    if asked.as_bytes().contains(&b'=') {
        return Ok(asked.to_owned());
    }
    let value = std::env::var_os(asked).ok_or_else(|| {
        Failure::usage(format!("--env {}: not set here", printable(&asked.to_string_lossy())))
            .hint("--env NAME=VALUE sets it")
    })?;
    Ok(assigned(asked, &value))
}

fn assigned(name: &OsStr, value: &OsStr) -> OsString {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    text
}

fn start(lrsd: &Lrsd, name: &str, unit: &str, user: bool, args: SubmitArgs) -> Result<(), Failure> {
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
        let file = with("append:", whole_path(file)?.as_os_str());
        properties.extend([with("StandardOutput=", &file), with("StandardError=", &file)]);
    }
    systemd.args(properties.iter().map(|property| with("--property=", property)));
    for (name, value) in std::env::vars_os() {
        if GO_ALONG.iter().any(|other| name == *other) || name.as_bytes().starts_with(b"LC_") {
            systemd.arg(with("--setenv=", &assigned(&name, &value)));
        }
    }
    for asked in &args.env {
        systemd.arg(with("--setenv=", &variable(asked)?));
    }
    systemd.arg("--").arg(&own);
    systemd.arg(unexpanded(OsStr::new(&format!("--endpoint={}", lrsd.endpoint))));
    systemd.args(["run", "--leave-unit"]);
    systemd.args(args.no_command.then_some("--no-command"));
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
    let output = String::from_utf8_lossy(&ended.stderr);
    let failure = Failure::failed(format!("systemd-run failed: {}", printable(output.trim())));
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

/// The program of a command line in a property; systemd puts no variables into that.
fn quoted(word: &OsStr) -> OsString {
    let mut text = vec![b'"'];
    for byte in word.as_bytes() {
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

/// Whether lrsd has the request of a process, or has had it.
async fn is_known(
    mut lrsd: Connection,
    main: Option<i32>,
    name: &str,
    ended: &ListHistoryRequest,
) -> bool {
    if main.is_some() {
        let asked = ListQueueRequest { pid: main, ..ListQueueRequest::default() };
        if lrsd.list_queue(asked).await.is_ok_and(|page| !page.into_inner().queue.is_empty()) {
            return true;
        }
    }
    let runs = all_tasks(lrsd.clone()).await.is_ok_and(|all| {
        all.iter().any(|task| match main {
            Some(_) => task.pid == main,
            None => task.name.as_deref() == Some(name),
        })
    });
    if runs || main.is_some_and(lives) {
        return runs;
    }
    // What is not known proves no failure.
    let ended = ended_tasks(lrsd, ended.clone()).await;
    ended.map_or(true, |all| all.iter().any(|end| end.name.as_deref() == Some(name)))
}

fn lives(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether the user manager goes on without a login (loginctl(1)).
fn lingers() -> bool {
    let own = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    own.is_some_and(|own| Path::new("/var/lib/systemd/linger").join(own.name).exists())
}

/// `lrsctl __stop [PID]`: what a unit of [`submit`] executes to stop. Without a pid its main process
/// has ended.
pub(super) fn stop(pid: Option<i32>) -> Result<(), Failure> {
    pid.map_or(Ok(()), |pid| kill::end(pid, PREFIX, PATIENCE))
}

/// `lrsctl log WORD`: becomes journalctl(1).
pub(super) fn log(lrsd: &Lrsd, args: LogArgs) -> Result<Infallible, Failure> {
    let Logged { name, uid } = name_of(lrsd, args.task)?;
    if args.follow {
        let shown = printable(&name);
        say(format_args!("lrsctl: Ctrl-C ends this output, `lrsctl kill {shown}` the task"));
    }
    let mut command: Vec<OsString> =
        ["journalctl", "--output=cat", "--quiet"].map(Into::into).into();
    command.push(format!("--lines={}", args.lines.map_or("all".into(), |n| n.to_string())).into());
    command.extend(args.follow.then(|| OsString::from("--follow")));
    command.push(format!("SYSLOG_IDENTIFIER={}", identifier(&name)).into());
    // Others may write under this identifier too. A task of root's may run as any user.
    if let Some(uid) = uid.filter(|uid| *uid != 0) {
        command.extend([format!("_UID={uid}").into(), "_UID=0".into()]);
    }
    Program::find(&command, std::env::var_os("PATH").as_deref())
        .map_err(|failure| Failure::failed(failure.to_string()).hint("the journal is systemd's"))?
        .execute()
}

/// The task or unit to print the output of.
struct Logged {
    name: String,
    uid: Option<u32>,
}

/// What runs, waits or has ended under a word; a word that is none of these is a name itself.
fn name_of(lrsd: &Lrsd, word: String) -> Result<Logged, Failure> {
    let found = async {
        let connection = client::connect(lrsd).await?;
        if is_queued(&word) {
            let asked = ListQueueRequest { id: Some(word.clone()), ..ListQueueRequest::default() };
            let queued = whole(connection, asked).await.ok().and_then(|mut all| all.pop());
            return Ok::<_, Failure>(queued.map(|one| (one.name, Some(one.uid))));
        }
        let task = with_id(connection.clone(), word.clone(), |mut lrsd, id| async move {
            lrsd.get_task(GetTaskRequest { id }).await.map(tonic::Response::into_inner)
        });
        if let Ok(task) = task.await {
            return Ok(Some((task.name, task.uid)));
        }
        let kept = ended_tasks(connection.clone(), ListHistoryRequest::default()).await;
        let mut kept = kept.unwrap_or_default();
        kept.retain(|end| refers_to(&word, &end.id, end.name.as_deref()));
        if let Some(end) = kept.pop() {
            return Ok(Some((end.name, end.uid)));
        }
        let queue = whole(connection, ListQueueRequest::default()).await.unwrap_or_default();
        let mut queue = queue.into_iter().filter(|one| one.name.as_deref() == Some(&*word));
        Ok(queue.next().map(|one| (one.name, Some(one.uid))))
    };
    // The journal has the output whether or not lrsd runs.
    let found = super::runtime()?.block_on(in_time(lrsd, found)).and_then(|found| found);
    match found {
        Ok(Some((Some(name), uid))) => Ok(Logged { name, uid }),
        Ok(Some((None, _))) => Err(Failure::failed(format!(
            "{} has no name, so it was not started by `lrsctl submit`",
            printable(&word)
        ))
        .hint("its output is where it was started")),
        // An id is no name.
        found if is_id(&word) => Err(found.err().unwrap_or_else(|| {
            Failure::failed(format!("lrsd does not know {}", printable(&word)))
                .hint("the name that `lrsctl submit` printed serves for longer")
        })),
        Ok(None) if !Path::new(BOOTED).exists() => {
            Err(Failure::failed(format!("lrsd does not know {}", printable(&word)))
                .hint("systemd does not run here, so nothing was submitted"))
        }
        Ok(None) => {
            say(format_args!(
                "lrsctl: lrsd does not know {}; if it was submitted, the journal may",
                printable(&word)
            ));
            Ok(Logged { name: word, uid: None })
        }
        Err(_) => Ok(Logged { name: word, uid: None }),
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
        assert_eq!(quoted(OsStr::new("/a b\\\"$c")), "\"/a b\\\\\\\"$c\"");
    }

    #[test]
    fn the_path_of_the_output_has_no_dots() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("in")).unwrap();
        for file in ["./log", "in/../log", "in/.././log"] {
            assert_eq!(whole_path(&dir.join(file)).unwrap(), dir.join("log"), "{file}");
        }
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(whole_path(Path::new("log")).unwrap(), here.join("log"));
        for file in ["in/..", "in/", "none/log"] {
            assert!(whole_path(&dir.join(file)).is_err(), "{file}");
        }
    }

    #[test]
    fn a_variable_is_taken_from_here_or_given() {
        assert_eq!(variable(OsStr::new("A=b=c")).unwrap(), "A=b=c");
        assert!(variable(OsStr::new("PATH")).unwrap().as_bytes().starts_with(b"PATH=/"));
        assert!(variable(OsStr::new("LRS_TEST_NEVER_SET")).is_err());
    }
}
