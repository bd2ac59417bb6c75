//! Commands that need no daemon: `doctor` and `config check`.

use std::path::Path;

use lrs_api::client::DEFAULT_ENDPOINT;

use super::client::{Lrsd, ask};
use super::failure::{Exit, Failure, Purpose};
use super::output::{Output, printable, say};
use crate::config::{Config, check_file};
use crate::doctor::{DoctorOptions, Report, examine, examine_file};
use crate::proto::{GetConfigRequest, VerifyTiersRequest};

/// Options of `lrsctl doctor`.
pub(super) struct Doctor {
    /// Only what is not well.
    pub(super) quiet: bool,
    /// With a test of the tiers.
    pub(super) verify: bool,
    /// Checks to leave out.
    pub(super) except: Vec<String>,
}

/// `lrsctl doctor [--config FILE]`: exit 1 when LRS cannot work here. Of a daemon that is not the default one,
/// with the settings that it has.
pub(super) fn doctor(
    lrsd: &Lrsd,
    config: Option<&Path>,
    how: Doctor,
    out: &mut Output,
) -> Result<(), Failure> {
    let tested = how.verify.then(|| {
        ask(lrsd, Purpose::Other, |mut lrsd| async move {
            lrsd.verify_tiers(VerifyTiersRequest {}).await.map(tonic::Response::into_inner)
        })
    });
    let tested = tested.transpose()?.and_then(|answer| answer.cgroup);
    let mut report = match config {
        None if lrsd.endpoint.to_string() != DEFAULT_ENDPOINT => examine_daemon(lrsd),
        config => examine_file(config),
    };
    if let Some(tested) = tested {
        report.add_test(&tested);
    }
    report.leave_out(&how.except);
    if how.quiet {
        report.keep_faults();
    }
    if out.is_json() {
        out.json(&report)?;
    } else {
        let (width, colour) = (out.width(), out.has_colour());
        out.text(match how.quiet {
            true => report.render_checks(width, colour),
            false => report.render(width, colour),
        })?;
    }
    if report.has_failures() {
        out.flush()?;
        return Err(Failure::ended(Exit::Failed.into()));
    }
    Ok(())
}

fn examine_daemon(lrsd: &Lrsd) -> Report {
    let answer = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        lrsd.get_config(GetConfigRequest {}).await.map(|config| config.into_inner().toml)
    });
    let path = lrsd.endpoint.path();
    let (mut config, config_of) = match answer.map(|toml| Config::from_toml(&toml, path)) {
        Ok(Ok(config)) => (config, format!("the settings in force of the lrsd at {lrsd}")),
        // Another version's.
        Ok(Err(errors)) => {
            (Config::default(), format!("defaults, since of the lrsd at {lrsd} {errors}"))
        }
        Err(failure) => (Config::default(), format!("defaults: {failure}")),
    };
    config.grpc.listen = vec![path.to_owned()];
    examine(&config, DoctorOptions { config_of: Some(config_of), ..DoctorOptions::default() })
}

/// `lrsctl config check FILE`: every fault a line on stderr (in JSON: in the object),
/// exit 1; or the verdict on stdout, with a warning if lrsd would not believe the file.
pub(super) fn check(file: &Path, out: &mut Output) -> Result<(), Failure> {
    let checked = check_file(file);
    if out.is_json() {
        let faults = checked.as_ref().err().map(|errors| errors.faults()).unwrap_or_default();
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let file = file.to_string_lossy();
        out.json(&serde_json::json!({
            "file": file,
            "valid": checked.is_ok(),
            "faults": faults,
        }))?;
    }
    match checked {
        Ok(_) if out.is_json() => Ok(()),
        Ok(lines) => lines.lines().try_for_each(|line| out.line(printable(line))),
        Err(errors) => {
            out.flush()?;
            for fault in errors.faults().iter().filter(|_| !out.is_json()) {
                say(format_args!("lrsctl: {}", printable(&fault.to_string())));
            }
            Err(Failure::ended(Exit::Failed.into()))
        }
    }
}
