//! `lrsctl yarn`: how the node stands with YARN, and what its NodeManager is to be given.

use std::time::Duration;

use super::args::YarnCommand;
use super::client::{self, Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::output::Output;
use super::show;
use crate::{clock, proto, wire};

/// What a NodeManager waits for. It runs the script again soon; a daemon that is slower counts
/// as down.
const ATTRIBUTES_WITHIN: Duration = Duration::from_millis(700);

/// What a NodeManager takes (NodeLabelUtil): longest name and value.
const LONGEST: usize = 255;

/// The fragment of yarn-site.xml.
const SITE: &str = include_str!("site.xml");

/// Where packages put this program; for one that does not know its own path.
const PACKAGED: &str = "/usr/bin/lrsctl";

/// Carries out `lrsctl yarn ...`.
pub(super) fn execute(command: &YarnCommand, lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    match command {
        YarnCommand::Status => status(lrsd, out),
        YarnCommand::NodeAttributes => node_attributes(lrsd, out),
        YarnCommand::Site => out.text(site(&this_program())),
    }
}

fn status(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let yarn = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        lrsd.get_yarn(proto::GetYarnRequest {}).await.map(tonic::Response::into_inner)
    })?;
    if out.is_json() { out.json(&yarn) } else { show::yarn::yarn(&yarn, clock::now().wall, out) }
}

/// Valid lines and status 0 whatever happens, for a script that fails is a NodeManager's log full
/// of it; a daemon that does not answer is a state like others.
fn node_attributes(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let status = super::runtime()?.block_on(async {
        let asked = async {
            let mut lrsd = client::connect(lrsd).await.ok()?;
            lrsd.get_status(proto::GetStatusRequest {}).await.ok()
        };
        tokio::time::timeout(ATTRIBUTES_WITHIN, asked).await.ok().flatten()
    });
    let status = status.map(tonic::Response::into_inner);
    for (name, value) in attributes(status.as_ref()) {
        out.line(format_args!("NODE_ATTRIBUTE:{name},STRING,{value}"))?;
    }
    Ok(())
}

/// What is published. No figure that changes with every task: each change goes through the
/// ResourceManager's store, and constraints can only ask for equality.
fn attributes(status: Option<&proto::Status>) -> Vec<(&'static str, String)> {
    let Some(status) = status else {
        return vec![("lrs-state", "down".into()), ("lrs-spare", "no".into())];
    };
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let cgroup = status.cgroup.clone().unwrap_or_default();
    let spare = if active.free + passive.free > 0 { "yes" } else { "no" };
    let mut attributes = vec![
        ("lrs-state", wire::node_state_word(status.state).unwrap_or("starting").to_owned()),
        ("lrs-mode", wire::mode_word(status.mode).unwrap_or_default().to_owned()),
        ("lrs-spare", spare.to_owned()),
        ("lrs-active-slots", active.capacity.to_string()),
        ("lrs-passive-slots", passive.capacity.to_string()),
        ("lrs-cpu-tiers", cgroup.cpu_tiers),
        ("lrs-io-tiers", cgroup.io_tiers),
    ];
    // One bad line and the NodeManager rejects them all.
    attributes.retain(|(_, value)| is_valid(value));
    attributes
}

/// `[0-9a-zA-Z][0-9a-zA-Z-_.]*`, as NodeLabelUtil has it.
fn is_valid(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    value.len() <= LONGEST
        && value.bytes().all(inner)
        && value.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

fn site(lrsctl: &str) -> String {
    // It is part of a comment, where two hyphens are forbidden.
    let path = quick_xml::escape::escape(lrsctl).replace("--", "-&#45;");
    SITE.replace("@LRSCTL@", &path)
}

fn this_program() -> String {
    let path = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    path.unwrap_or_else(|| PACKAGED.to_owned())
}

#[cfg(test)]
mod tests {
    use quick_xml::events::Event;

    use super::*;

    fn full() -> proto::Status {
        proto::Status {
            state: proto::NodeState::Holding.into(),
            mode: proto::Mode::Enforce.into(),
            slots: Some(proto::Slots {
                active: Some(proto::ActiveSlots { capacity: 2, free: 1, ..Default::default() }),
                passive: Some(proto::PassiveSlots { capacity: 5, ..Default::default() }),
            }),
            cgroup: Some(proto::CgroupStatus {
                cpu_tiers: "idle".into(),
                io_tiers: "a,b\nNODE_ATTRIBUTE:x".into(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn attributes_are_words_a_node_manager_takes() {
        for status in [None, Some(proto::Status::default()), Some(full())] {
            for (name, value) in attributes(status.as_ref()) {
                assert!(is_valid(&value), "{name}={value:?}");
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
            }
        }
        let shown = attributes(Some(&full()));
        let value = |wanted: &str| {
            shown.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
        };
        assert_eq!(value("lrs-state"), Some("holding"));
        assert_eq!(value("lrs-spare"), Some("yes"));
        assert_eq!(value("lrs-passive-slots"), Some("5"));
        assert_eq!(value("lrs-io-tiers"), None, "what no NodeManager takes is left out");
        assert_eq!(attributes(None)[0], ("lrs-state", "down".to_owned()));
    }

    /// The names of the properties in `xml`, and the comments.
    fn properties(xml: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("<configuration>{xml}</configuration>");
        let mut reader = quick_xml::Reader::from_str(&text);
        reader.config_mut().check_comments = true;
        let (mut names, mut comments) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                Event::Start(tag) if tag.name().as_ref() == "name" => {
                    names.push(reader.read_text(tag.name()).unwrap().to_string());
                }
                Event::Comment(comment) => comments.push(comment.to_string()),
                Event::Eof => return (names, comments),
                _ => {}
            }
        }
    }

    #[test]
    fn the_fragment_is_xml_and_so_is_what_it_has_in_comments() {
        let text = site("/opt/a&b--c/lrsctl");
        assert!(text.contains("/opt/a&amp;b-&#45;c/lrsctl") && !text.contains("@LRSCTL@"));
        let (_, dir) = text.split_once("install -d -o yarn -g hadoop ").unwrap();
        let dir = dir.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("<value>{dir}</value>")), "the directory that is named");
        let (names, comments) = properties(&text);
        let nodes = ["address", "recovery.enabled", "recovery.dir", "recovery.supervised"];
        assert_eq!(names, nodes.map(|name| format!("yarn.nodemanager.{name}")));
        let commented = |prefix: &str| {
            let inner = comments.iter().filter_map(|text| Some(&text[text.find("<property>")?..]));
            let names = inner.flat_map(|inner| properties(inner).0);
            names.filter(|name| name.starts_with(prefix)).count()
        };
        assert_eq!(commented("yarn.nodemanager.resource."), 2);
        // It names a program, without which no NodeManager starts.
        assert_eq!(commented("yarn.nodemanager.node-attributes.provider"), 5);
        assert_eq!(commented("yarn.scheduler."), 1);
    }
}
