#![allow(clippy::unwrap_used)]

use lrs_core::model::{Label, Labels, Ticket};
use lrs_core::recording::Decided;
use lrs_core::shaper::Shaper;
use lrs_core::state::{Need, Policy, Request, Restored};
use lrs_core::step::{Input, Step};
use lrs_core::task::{Finder, Who};
use lrs_core::units::Moment;

use super::*;
use crate::anonymous::Anonymous;
use crate::replay::{accept, replay};

const NAME: &str = "payroll of the \u{202e}board";

/// A request of each of `names`, as a core on two CPUs decides on it.
fn entries(names: &[&str]) -> Vec<Entry> {
    let (mut core, at) =
        (Shaper::new(Policy::simulated(), 2, Restored::default()), Moment::default());
    let mut entries = vec![header(), Entry::Core(Box::new(core.clone()), at)];
    for (number, name) in names.iter().enumerate() {
        let label = Some(Label::new(name).unwrap());
        let found = lrs_core::task::FoundRecord {
            by: Finder::Rule(Label::new(name).unwrap()),
            priority: None,
            standing: None,
            kin: Default::default(),
        };
        let request = Request {
            uid: 0,
            who: Who {
                found: Some(found),
                origin: [("cpu".into(), format!("/{name}"))].into(),
                ..Who::default()
            },
            labels: Labels {
                name: label.clone(),
                job: label.clone(),
                kind: label.clone(),
                group: label.clone(),
                command: label,
                hint: None,
            },
            priority: None,
            reservation: None,
            need: Need::Slot,
            opportunistic: false,
            by_member: false,
        };
        let input = Input::Request { ticket: Ticket(number as u64), request, patience: None };
        let step = core.handle(input.clone(), at);
        entries.push(Entry::Decided(Box::new(Decided { at, input, step })));
    }
    entries.push(Entry::End("so it is".to_owned()));
    entries
}

fn file(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    entries.iter().for_each(|entry| writer.add(&encode(entry).unwrap()).unwrap());
    writer.flush().unwrap();
    file
}

#[test]
fn what_was_decided_is_decided_again_and_a_changed_step_is_named() {
    let mut entries = entries(&[NAME, "b", "c", "d", "e"]);
    let report = replay(&*file(&entries), None).unwrap();
    assert_eq!((report.inputs, report.daemons, report.rules), (5, 1, None));
    assert_eq!(report.end.as_deref(), Some("so it is"));

    // As if the rules had been others.
    let Entry::Decided(third) = &mut entries[4] else { panic!("{:?}", entries[4]) };
    third.step = Step::default();
    let changed = file(&entries);
    let report = replay(&*changed, None).unwrap();
    let rules = report.rules.unwrap();
    assert_eq!((rules.number, &*rules.input, report.inputs), (3, "a client asks for a slot", 3));
    assert_eq!(rules.then, [""; 0]);
    assert!(rules.now.iter().any(|line| line.starts_with("find out where the processes of t")));
    // Which the developer accepts.
    assert_eq!(replay(&*accept(&*changed).unwrap(), None).unwrap().rules, None);
}

#[test]
fn other_settings_are_played_beside_those_that_were() {
    let fewer = Policy { active: Some(1), passive: Some(1), ..Policy::simulated() };
    let report = replay(&*file(&entries(&["a", "b", "c", "d", "e"])), Some(fewer)).unwrap();
    assert_eq!(report.rules, None);
    let first = report.settings.unwrap();
    assert!(first.now.iter().any(|line| line.contains("2 passive to 1 active")), "{first:?}");
    let (was, other) = report.figures;
    // Two active slots and two passive ones, against one of each.
    assert_eq!((was.totals.refused, other.totals.refused), (1, 3));
    assert_eq!(was.rows().len(), other.rows().len());
    let mut entries = entries(&["a"]);
    let same = replay(&*file(&entries), Some(Policy::simulated())).unwrap();
    assert_eq!((same.settings, same.reloads), (None, 0));

    // A reload is of the settings that were, and counted.
    let Entry::Core(core, at) = &entries[1] else { panic!("{:?}", entries[1]) };
    let (mut core, at) = (core.clone(), *at);
    let input = Input::Configure(Policy { passive: Some(9), ..Policy::simulated() });
    let step = core.handle(input.clone(), at);
    entries.insert(2, Entry::Decided(Box::new(Decided { at, input, step })));
    assert_eq!(replay(&*file(&entries), Some(Policy::simulated())).unwrap().reloads, 1);
}

#[test]
fn without_names_none_is_left_and_the_same_is_decided() {
    let named = entries(&[NAME, "b", NAME, "d", "e"]);
    let mut anonymous = Anonymous::default();
    let mut plain = Vec::new();
    for entry in &named {
        let bytes = anonymous.entry(entry.clone()).unwrap();
        plain.push(decode(&bytes).unwrap());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!text.contains("payroll"), "{text}");
    }
    assert_eq!(replay(&*file(&plain), None).unwrap().rules, None);
    let name = |entry: &Entry| match entry {
        Entry::Decided(it) => match &it.input {
            Input::Request { request, .. } => request.labels.name.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(name(&plain[2]), name(&plain[4]), "the same name is the same number");
    assert_ne!(name(&plain[2]), name(&plain[3]));
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_as_far_as_it_goes() {
    // A frame for each entry, as after pauses.
    let mut whole = Vec::new();
    for entry in entries(&["a", "b", "c"]) {
        whole.extend(file(&[entry]));
    }
    let mut most = 0;
    for length in 0..whole.len() {
        match replay(&whole[..length], None) {
            Ok(report) => {
                assert!(report.inputs >= most && report.rules.is_none());
                most = report.inputs;
            }
            Err(Bad::Foreign | Bad::Cut | Bad::Io(_)) => assert_eq!(most, 0),
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
    assert_eq!(most, 3);
    let report = replay(&whole[..whole.len() - 1], None).unwrap();
    assert!(report.end.unwrap().contains("cut"));
}

#[test]
fn a_file_that_is_damaged_is_refused_or_differs_and_never_worse() {
    let whole = file(&entries(&["a", NAME, "c"]));
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x41;
        // Whatever comes of it: an error, an end before the end, a difference, or a name with another letter.
        match replay(&*damaged, None) {
            Ok(report) => assert!(report.inputs <= 3),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn foreign_files_and_those_of_later_versions_say_what_they_are() {
    let of = |bytes: &[u8]| replay(bytes, None).unwrap_err().to_string();
    for foreign in [&b""[..], b"hello, world", &[0; 4096], &MAGIC] {
        assert_eq!(of(foreign), "is no recording of LRS", "{foreign:?}");
    }
    assert_eq!(
        of(&compress_to_vec(&b"hello"[..], CompressionLevel::Fastest)),
        "is no recording of LRS"
    );
    assert_eq!(of(&file(&entries(&["a"])[1..])), "is no recording of LRS", "no header");
    let header = Header { format: FORMAT + 1, version: "9.0\u{1b}[2J".to_owned() };
    let later = of(&file(&[Entry::Header(header)]));
    assert!(later.contains("9.0") && later.contains("formats up to 1"), "{later}");
}

#[test]
fn what_unpacks_to_more_than_an_entry_may_have_is_not_read_on() {
    // A text of 1 GiB that is all zeros, packed into some 100 KiB.
    let mut bomb = file(&[header()]);
    bomb.extend(compress_to_vec(&[0xdb, 0x40, 0, 0, 0][..], CompressionLevel::Fastest));
    let zeros = compress_to_vec(&vec![0; 1 << 20][..], CompressionLevel::Fastest);
    (0..1024).for_each(|_| bomb.extend(&zeros));
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let end = replay(&*bomb, None).unwrap().end.unwrap();
    assert!(end.contains("is too large"), "{end}");
}

#[test]
fn figures_that_no_node_has_end_the_replay() {
    let at = Moment::default();
    let mut all = entries(&[]);
    all.pop();
    // An input before any core, and one that cannot be added up.
    let tick = Entry::Decided(Box::new(Decided { at, input: Input::Tick, step: Step::default() }));
    let report = replay(&*file(&[header(), tick.clone()]), None).unwrap();
    assert!(report.end.unwrap().contains("before the core"));
    all.push(tick);
    assert_eq!(replay(&*file(&all), None).unwrap().inputs, 1);
}

/// A core with a running task, as a recording has it, with some bytes replaced by as many others.
fn damaged(is: &[u8], becomes: &[u8]) -> Vec<u8> {
    let mut core = encode(&entries(&["a"])[1]).unwrap();
    let mut places = core.windows(is.len()).enumerate().filter(|(_, bytes)| *bytes == is);
    let place = places.next().expect("it is in there").0;
    core.splice(place..place + is.len(), becomes.iter().copied());
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    let tick = Decided { at: Moment::default(), input: Input::Tick, step: Step::default() };
    for entry in [encode(&header()).unwrap(), core, encode(&Entry::Decided(tick.into())).unwrap()] {
        writer.add(&entry).unwrap();
    }
    writer.flush().unwrap();
    file
}

/// The encoding of a text and what follows it.
fn text(text: &str, rest: &[u8]) -> Vec<u8> {
    [&[0xa0 | text.len() as u8], text.as_bytes(), rest].concat()
}

#[test]
fn a_core_that_contradicts_itself_or_is_too_large_is_not_played() {
    let end = |bytes: Vec<u8>| replay(&*bytes, None).unwrap().end.unwrap();
    let core = encode(&entries(&["a"])[1]).unwrap();
    let Entry::Core(mut running, at) = decode(&core).unwrap() else { panic!("a core") };
    let Entry::Decided(first) = entries(&["a"]).remove(2) else { panic!("a request") };
    running.handle(first.input.clone(), at);
    let whole = |core: &Shaper| Entry::Core(Box::new(core.clone()), at);
    // The ticket of one that waits is made again.
    let mut twice = vec![header(), whole(&running)];
    for _ in 0..6 {
        let mut input = first.input.clone();
        if let Input::Request { patience, .. } = &mut input {
            *patience = Some(lrs_core::state::Patience {
                first_requested: at.wall,
                deadline: None,
                parks: false,
            });
        }
        let step = running.handle(input.clone(), at);
        twice.push(Entry::Decided(Box::new(Decided { at, input, step })));
    }
    let line = end(file(&twice));
    assert!(line.contains("request 0 is made twice"), "{line}");
    // Two CPUs: two active slots.
    let many = [0xce, 0xff, 0xff, 0xff, 0xff];
    let line = end(damaged(&text("active_capacity", &[2]), &text("active_capacity", &many)));
    assert!(line.contains("it is no state of LRS: there are more than 8192 active"), "{line}");
    let line = end(damaged(&text("passive_max", &[8]), &text("passive_max", &many)));
    assert!(line.contains("it is no state of LRS: there are more than 65536 passive"), "{line}");
    // A slot of a task that is not there.
    let line =
        end(damaged(&text("halted", &[0x90]), &text("halted", &[0x91, 0xa3, b'1', b'-', b'1'])));
    assert!(line.contains("it is no state of LRS") || line.contains("damaged"), "{line}");
    // As a setting a number that is too large ends it, before anybody asks for so many.
    let policy = Policy { active: Some(9000), ..Policy::simulated() };
    let input = Input::Configure(policy);
    let step = running.handle(input.clone(), at);
    let settings = Entry::Decided(Box::new(Decided { at, input, step }));
    let line = end(file(&[header(), entries(&[])[1].clone(), settings]));
    assert!(line.contains("more than 8192 active"), "{line}");
}
