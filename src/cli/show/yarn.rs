//! `lrsctl yarn status`: both managers, the three figures that should agree, the containers; what
//! is wrong stands last, right above the prompt.

use std::time::Duration;

use super::{DASH, age, known};
use crate::cli::failure::Failure;
use crate::cli::output::{Column, Columns, Output, wrap};
use crate::units::WallTime;
use crate::{proto, wire};

/// Columns of the words in front.
const INDENT: usize = 12;

/// The whole screen; `now` turns times into ages.
pub(crate) fn yarn(
    yarn: &proto::YarnStatus,
    now: WallTime,
    out: &mut Output,
) -> Result<(), Failure> {
    if !yarn.enabled {
        return out.line("this is no YARN node: yarn.enabled is false in lrs.toml");
    }
    let mut field = |name: &str, text: &str| {
        let width = out.width();
        out.line(wrap(name, INDENT, text, width))
    };
    let reported = match &yarn.reported_at {
        Some(at) => format!("{} ago", ago(at, now)),
        None => String::from("not since lrsd started"),
    };
    field("reported", &reported)?;
    let node = yarn.node_manager.clone().unwrap_or_default();
    field("node", &format!("{}, {}", or_dash(&node.node_id), or_dash(&node.state)))?;
    field("NM", &manager(&node.url, &node.version, node.last_seen.as_ref(), now))?;
    let rm = yarn.resource_manager.clone().unwrap_or_default();
    let url = rm.active.clone().or_else(|| (!rm.urls.is_empty()).then(|| rm.urls.join(", ")));
    field("RM", &manager(&url, &rm.version, rm.last_seen.as_ref(), now))?;
    let (name, text) = own(yarn);
    field(name, &text)?;
    field("advertised", &format!("{}{}", resource(yarn.advertised), verified(yarn, now)))?;
    field("offered", &offered(yarn))?;
    containers(&yarn.containers, out)?;
    let errors = [&node.error, &rm.error, &yarn.last_error];
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    let mut shown: Vec<&str> = Vec::new();
    for error in errors {
        let Some(error) = error.as_deref().filter(|error| !shown.contains(error)) else { continue };
        let text = wrap("error:", INDENT, error, out.width());
        let rest = text.strip_prefix("error:").unwrap_or(&text);
        out.line(format_args!("{yellow}error:{yellow:#}{rest}"))?;
        shown.push(error);
    }
    Ok(())
}

fn or_dash(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or(DASH)
}

fn manager(
    url: &Option<String>,
    version: &Option<String>,
    seen: Option<&prost_types::Timestamp>,
    now: WallTime,
) -> String {
    let url = url.as_deref().unwrap_or("no address known");
    match seen {
        None => format!("{url}, has not answered yet"),
        Some(at) => format!("{url}, Hadoop {}, answered {} ago", or_dash(version), ago(at, now)),
    }
}

fn ago(at: &prost_types::Timestamp, now: WallTime) -> String {
    let micros = now.unix_micros().saturating_sub(wire::wall_time(at).unix_micros());
    age(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

fn resource(resource: Option<proto::YarnResource>) -> String {
    known(resource, |r| format!("{} MiB, {} vcores", r.memory_mib, r.vcores))
}

/// What the node has without LRS, under the name of where it comes from.
fn own(yarn: &proto::YarnStatus) -> (&'static str, String) {
    let own = resource(yarn.configured);
    match yarn.site {
        site @ Some(_) if yarn.configured.is_some() && site != yarn.configured => {
            ("set to", format!("{own}; yarn-site.xml says {}", resource(site)))
        }
        _ => ("configured", own),
    }
}

fn verified(yarn: &proto::YarnStatus, now: WallTime) -> String {
    match (yarn.verified, &yarn.verified_at) {
        (Some(true), Some(at)) => format!(" (as it should be, read {} ago)", ago(at, now)),
        (Some(false), _) => " (not verified)".into(),
        _ => String::new(),
    }
}

fn offered(yarn: &proto::YarnStatus) -> String {
    if yarn.offer_enabled {
        format!("{} by {}", resource(yarn.offered), yarn.offer_by)
    } else {
        "nothing: yarn.offer is false, or this is observe mode".into()
    }
}

fn containers(containers: &[proto::YarnContainer], out: &mut Output) -> Result<(), Failure> {
    if containers.is_empty() {
        return Ok(());
    }
    let mut table = Columns::new(&[
        ("CONTAINER", Column::Text),
        ("KIND", Column::Text),
        ("TIER", Column::Text),
        ("QUEUE", Column::Elastic(8)),
        ("TASK", Column::Text),
        ("NOTE", Column::Elastic(8)),
    ]);
    for container in containers {
        let opportunistic = container.execution_type.as_deref() == Some("OPPORTUNISTIC");
        let note = container.ignored_reason.clone();
        let note = note.or_else(|| opportunistic.then(|| "opportunistic".to_owned()));
        table.row(vec![
            container.id.clone(),
            or_dash(&container.kind).to_owned(),
            super::tier_word(container.tier).to_owned(),
            or_dash(&container.queue).to_owned(),
            or_dash(&container.task).to_owned(),
            note.unwrap_or_default(),
        ]);
    }
    out.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: &proto::YarnStatus) -> String {
        let (mut out, captured) = Output::captured(false);
        yarn(status, WallTime::from_unix_micros(10_000_000), &mut out).unwrap();
        captured.text()
    }

    #[test]
    fn a_node_that_is_none_says_so() {
        assert!(shown(&proto::YarnStatus::default()).contains("yarn.enabled"));
    }

    #[test]
    fn what_is_unknown_is_a_dash_and_errors_come_last_and_once() {
        let error = Some("http://rm:8088: cannot be reached".to_owned());
        let text = shown(&proto::YarnStatus {
            enabled: true,
            resource_manager: Some(proto::YarnResourceManager {
                urls: vec!["http://rm:8088".into()],
                error: error.clone(),
                ..Default::default()
            }),
            last_error: error,
            ..Default::default()
        });
        assert!(text.contains("configured  -"), "{text}");
        assert!(text.contains("has not answered yet"), "{text}");
        assert_eq!(text.matches("cannot be reached").count(), 1, "{text}");
        assert!(text.lines().last().unwrap().contains("error:"), "{text}");
    }

    #[test]
    fn a_figure_set_by_others_is_not_called_configured() {
        let resource = |memory_mib| Some(proto::YarnResource { memory_mib, vcores: 6 });
        let mut status = proto::YarnStatus {
            enabled: true,
            configured: resource(2048),
            site: resource(3072),
            ..Default::default()
        };
        let text = shown(&status);
        let line = "set to      2048 MiB, 6 vcores; yarn-site.xml says 3072 MiB, 6 vcores";
        assert!(text.contains(line) && !text.contains("configured"), "{text}");
        status.configured = resource(3072);
        assert!(shown(&status).contains("configured  3072 MiB, 6 vcores\n"), "{text}");
    }

    #[test]
    fn an_offer_that_stands() {
        let resource = |memory_mib| Some(proto::YarnResource { memory_mib, vcores: 9 });
        let text = shown(&proto::YarnStatus {
            enabled: true,
            configured: resource(8192),
            advertised: resource(9216),
            offered: resource(9216),
            offer_enabled: true,
            offer_by: "rest".into(),
            verified: Some(true),
            verified_at: Some(prost_types::Timestamp { seconds: 7, nanos: 0 }),
            containers: vec![proto::YarnContainer {
                id: "container_1_0001_01_000002".into(),
                kind: Some("map".into()),
                tier: proto::Tier::Passive.into(),
                execution_type: Some("OPPORTUNISTIC".into()),
                ..Default::default()
            }],
            ..Default::default()
        });
        assert!(text.contains("9216 MiB, 9 vcores (as it should be, read 3s ago)"), "{text}");
        assert!(text.contains("configured  8192 MiB, 9 vcores\n"), "{text}");
        assert!(text.contains("9216 MiB, 9 vcores by rest"), "{text}");
        assert!(text.contains("container_1_0001_01_000002") && text.contains("passive"), "{text}");
    }
}
