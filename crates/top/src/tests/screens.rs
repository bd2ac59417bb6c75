//! What is on the screen, at which size.

use lrs_api::proto;
use ratatui_core::style::Color;

use super::*;
use crate::ask::Dialog;

/// The whole screen, as a file has it; `LRS_REGENERATE=1 cargo test -p lrs-top` writes the file anew.
fn is_as_kept(name: &str, screen: &str) {
    let path = format!("{}/src/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("LRS_REGENERATE").is_some() {
        std::fs::write(&path, screen).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == screen, "{path} differs (LRS_REGENERATE=1 writes it):\n{screen}");
}

#[test]
fn tasks_queue_graphs_and_detail_at_80x24_and_60x15() {
    let mut top = running(5);
    is_as_kept("tasks-80x24", &screen(&mut top, 80, 24));
    is_as_kept("tasks-60x15", &screen(&mut top, 60, 15));
    press(&mut top, KeyCode::F(2));
    is_as_kept("queue-80x24", &screen(&mut top, 80, 24));
    press(&mut top, KeyCode::F(2));
    is_as_kept("graphs-80x24", &screen(&mut top, 80, 24));
    press(&mut top, KeyCode::Char('1'));
    press(&mut top, KeyCode::Enter);
    let at = Some(wire::proto_time(answer(0, 3).at));
    let event = |r#type: &str, from: &str, reason: &str| proto::Event {
        at,
        r#type: r#type.to_owned(),
        from: Some(from.to_owned()).filter(|from| !from.is_empty()),
        to: Some("active".to_owned()),
        reason: Some(reason.to_owned()),
        ..proto::Event::default()
    };
    let why = "an active slot came free, and of the passive tasks it has the highest priority and waits longest";
    let story =
        vec![event("admitted", "", "an active slot is free"), event("promoted", "passive", why)];
    let detail = crate::state::Detail {
        id: "t0abc-1".to_owned(),
        task: Some(task(1)),
        story,
        problem: None,
    };
    top.handle(Event::Detail(Box::new(detail)));
    is_as_kept("detail-80x24", &screen(&mut top, 80, 24));
}

#[test]
fn many_tasks_and_a_wide_screen() {
    for tasks in [500, 2_000] {
        let mut top = running(tasks);
        for (width, height, least) in [(60, 15, 8), (80, 24, 15), (200, 60, 50)] {
            let text = screen(&mut top, width, height);
            let shown = text.lines().filter(|line| line.contains("nightly/map part")).count();
            assert!(shown >= least * 2 / 3, "{shown} at {width}x{height}:\n{text}");
            assert!(text.contains(&format!("1 Tasks {tasks}")), "{text}");
            assert!(text.contains("10Quit"), "{text}");
        }
        let text = screen(&mut top, 200, 60);
        for word in ["USER", "MEM", "READ", "ann", "bob", "no more open: active tier"] {
            assert!(text.contains(word), "{word}:\n{text}");
        }
        press(&mut top, KeyCode::End);
        let text = screen(&mut top, 60, 15);
        assert!(text.contains(&format!("part-{tasks}")), "the last one:\n{text}");
    }
}

#[test]
fn no_size_and_no_state_breaks_it() {
    let mut tops: Vec<Top> = vec![top(), running(0), running(3), running(50)];
    for code in [KeyCode::F(1), KeyCode::F(6), KeyCode::F(7), KeyCode::F(9), KeyCode::F(3)] {
        let mut top = running(5);
        press(&mut top, code);
        assert!(top.dialog.is_some(), "{code:?}");
        tops.push(top);
    }
    for code in ['2', '3'] {
        let mut top = running(5);
        press(&mut top, KeyCode::Char(code));
        tops.push(top);
    }
    let mut open = running(5);
    press(&mut open, KeyCode::Enter);
    tops.push(open);
    for top in &mut tops {
        // Down and up again, as a terminal that is dragged smaller.
        for (width, height) in (0..45).flat_map(|width| (0..15).map(move |height| (width, height)))
        {
            drawn(top, width, height);
        }
        assert!(screen(top, 20, 5).contains("F1 help  q ends") || top.dialog.is_some());
        screen(top, 200, 60);
    }
    let five = screen(&mut running(5), 20, 5);
    assert!(five.contains("1 act"), "a task at 20x5:\n{five}");
}

#[test]
fn names_do_not_steer_the_terminal_and_unknown_is_a_dash() {
    let mut evil = answer(5, 0);
    let name = "\u{1b}[2J\u{202e}evil\u{9b}\r\n".to_owned();
    evil.tasks[0].name = Some(name.clone());
    evil.tasks[0].job = Some(name.clone());
    evil.queue[0].name = Some(name.clone());
    evil.queue[0].reason.clone_from(&name);
    evil.status.warnings = vec![name.clone()];
    evil.status.node.as_mut().unwrap().hostname.clone_from(&name);
    let mut top = top();
    top.handle(Event::Answer(Box::new(evil)));
    top.handle(Event::Done(Err(name.clone())));
    let is_harmless = |text: &str| {
        let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{text:?}");
        assert!(text.contains("evil"), "{text}");
    };
    is_harmless(&screen(&mut top, 120, 24));
    press(&mut top, KeyCode::Char('j'));
    is_harmless(&screen(&mut top, 120, 24));
    press(&mut top, KeyCode::Char('2'));
    is_harmless(&screen(&mut top, 120, 24));
    press(&mut top, KeyCode::Char('1'));
    press(&mut top, KeyCode::Enter);
    let mut task = task(1);
    task.cgroup = Some(name.clone());
    let event =
        proto::Event { reason: Some(name.clone()), r#type: name, ..proto::Event::default() };
    let detail = crate::state::Detail {
        id: task.id.clone(),
        task: Some(task),
        story: vec![event],
        problem: None,
    };
    top.handle(Event::Detail(Box::new(detail)));
    is_harmless(&screen(&mut top, 120, 40));
    let text = screen(&mut running(5), 80, 24);
    let fourth = text.lines().find(|line| line.contains("part-4")).unwrap();
    let dashes = fourth.split_whitespace().filter(|word| *word == "-").count();
    assert_eq!(dashes, 3, "rate, CPU, bytes: {fourth}");
    assert!(text.contains("stalls cpu - io - memory -"), "{text}");
}

#[test]
fn without_colours_or_beyond_ascii_the_same_is_there() {
    let mut top = running(50);
    for (width, height) in [(60, 15), (80, 24), (200, 60)] {
        top.look = PLAIN;
        let plain = drawn(&mut top, width, height);
        let coloured =
            |cell: &&ratatui_core::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        assert!(plain.content().iter().find(coloured).is_none());
        top.look = Look { colour: true, ascii: false };
        let vivid = drawn(&mut top, width, height);
        assert!(vivid.content().iter().any(|cell| coloured(&cell)));
        let text = |buffer: &Buffer| -> String {
            buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect()
        };
        assert_eq!(text(&plain), text(&vivid), "colours add nothing that is not there without");
        top.look.ascii = true;
        for page in ['1', '2', '3'] {
            press(&mut top, KeyCode::Char(page));
            assert!(text(&drawn(&mut top, width, height)).is_ascii());
        }
        press(&mut top, KeyCode::Char('1'));
    }
}

#[test]
fn the_help_names_every_key_and_dialogs_name_the_task() {
    let mut top = running(5);
    press(&mut top, KeyCode::Char('?'));
    let text = screen(&mut top, 80, 30);
    for (keys, what) in crate::keys::HELP {
        assert!(text.contains(keys) && text.contains(what), "{keys} {what}:\n{text}");
    }
    press(&mut top, KeyCode::Down);
    assert_eq!(top.dialog, Some(Dialog::Help(1)));
    press(&mut top, KeyCode::Esc);
    press(&mut top, KeyCode::F(9));
    let text = screen(&mut top, 60, 15);
    assert!(
        text.contains("1 nightly/map") && text.contains("part-1?") && text.contains("k: SIGKILL"),
        "{text}"
    );
}

#[test]
fn an_lrsd_that_is_away_is_named_and_what_was_seen_stays() {
    let mut top = running(5);
    top.handle(Event::Lost("cannot reach lrsd at /x".to_owned()));
    let text = screen(&mut top, 80, 24);
    assert!(text.contains("no answer") && text.contains("cannot reach lrsd"), "{text}");
    assert!(text.contains("part-1"), "{text}");
    top.handle(Event::Answer(Box::new(answer(5, 30))));
    assert!(!screen(&mut top, 80, 24).contains("no answer"));
}
