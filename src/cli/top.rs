//! `lrsctl top`: the glue between [`lrs_top`] and what the other commands have.

use std::io;
use std::process::ExitCode;

use lrs_api::proto;
use lrs_top::{Host, Problem, Rights};
use nix::unistd::{Uid, User};
use rustix::process::geteuid;

use super::args::TopArgs;
use super::client::{Lrsd, NAME, ask};
use super::failure::{Failure, Purpose};
use super::kill;
use super::output::Output;
use super::show::when::Times;
use crate::clock;

/// What serves where top cannot.
const INSTEAD: &str = "`lrsctl status` and `lrsctl tasks` print the same once; both take --json";

/// `lrsctl top`: until its user ends it.
pub(super) fn top(lrsd: &Lrsd, args: &TopArgs, times: &Times, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        return Err(Failure::usage("top draws on a terminal and has no JSON").hint(INSTEAD));
    }
    lrs_top::usable().map_err(failure)?;
    // An lrsd that is not there is reported as every command does it; later top waits for it.
    let settings = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        Ok(lrsd.get_config(proto::GetConfigRequest {}).await?.into_inner().toml)
    })?;
    let times = times.clone();
    let host = Host {
        endpoint: lrsd.endpoint.clone(),
        agent: NAME,
        interval: args.delay,
        filter: args.filter.clone(),
        rights: rights(&settings),
        colour: out.has_colour(),
        clock: || clock::now().wall,
        time_of: Box::new(move |time| times.clock(time)),
        user_name: |uid| User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name),
        kill: Box::new(signal),
    };
    super::runtime()?.block_on(lrs_top::run(host)).map_err(failure)
}

/// By the settings in force; those of another version may lack the key.
fn rights(settings: &str) -> Rights {
    let uid = geteuid().as_raw();
    let settings = crate::config::toml_to_json(settings).unwrap_or_default();
    let admins = settings["grpc"]["admins"].as_array();
    let listed = |admins: &Vec<serde_json::Value>| admins.iter().any(|admin| *admin == uid);
    Rights { uid, admin: uid == 0 || admins.is_some_and(listed) }
}

/// As `lrsctl kill` does it.
fn signal(task: &proto::Task, name: &str) -> Result<String, String> {
    let signal = kill::parse(name)?;
    let mut notes = Vec::new();
    let sent = kill::send(task, signal, &mut |note| notes.push(note)).map_err(|f| f.to_string())?;
    let done = format!("{sent} processes of {} have SIG{name}", task.id);
    Ok([vec![done], notes].concat().join("; "))
}

fn failure(problem: Problem) -> Failure {
    match problem {
        Problem::Signal(number) => {
            Failure::ended(ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX)))
        }
        Problem::NoTerminal => Failure::failed(problem.to_string()).hint(INSTEAD),
        Problem::NoCapabilities(_) => Failure::failed(problem.to_string())
            .hint(format!("set TERM to what it is (TERM=xterm); {INSTEAD}")),
        // Whoever closed it does not read this.
        Problem::Terminal(_, error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failure::Output(error)
        }
        Problem::Terminal(..) => Failure::failed(problem.to_string()).hint(INSTEAD),
        Problem::System(..) => Failure::failed(problem.to_string())
            .hint("a limit is reached: `ulimit -n` of descriptors, `ulimit -u` of threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_is_root_or_listed() {
        let uid = geteuid().as_raw();
        let listed = format!("[grpc]\nadmins = [7, {uid}]\n");
        assert!(rights(&listed).admin);
        assert_eq!(rights("[grpc]\nadmins = []\n").admin, uid == 0);
        assert_eq!(rights("no TOML").admin, uid == 0);
    }
}
