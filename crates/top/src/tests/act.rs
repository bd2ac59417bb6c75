//! What keys and the mouse do.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::*;
use crate::ask::{Call, Dialog};
use crate::pick::SortKey;
use crate::state::{Page, Target};

fn ids(top: &Top) -> Vec<&str> {
    (0..top.order.len()).filter_map(|line| top.task(line)).map(|row| row.who.number()).collect()
}

fn subject(top: &Top) -> &str {
    top.subject().map_or("", |who| who.number())
}

#[test]
fn the_order_changes_and_the_selected_task_stays() {
    let mut top = running(6);
    assert_eq!(ids(&top), ["1", "2", "3", "4", "5", "6"]);
    press(&mut top, KeyCode::Down);
    press(&mut top, KeyCode::Down);
    assert_eq!(subject(&top), "3");
    press(&mut top, KeyCode::Char('T'));
    assert_eq!(ids(&top), ["6", "5", "4", "3", "2", "1"], "the oldest first");
    assert_eq!((subject(&top), top.selected), ("3", 3));
    press(&mut top, KeyCode::Char('I'));
    assert_eq!(ids(&top), ["1", "2", "3", "4", "5", "6"]);
    press(&mut top, KeyCode::F(6));
    assert!(matches!(top.dialog, Some(Dialog::Sort(_))));
    for _ in 0..20 {
        press(&mut top, KeyCode::Up);
    }
    for _ in 0..6 {
        press(&mut top, KeyCode::Down);
    }
    press(&mut top, KeyCode::Enter);
    assert_eq!(top.sort.key, SortKey::Cpu);
    assert_eq!(ids(&top).last(), Some(&"4"), "what is not known is last");
    press(&mut top, KeyCode::Char('I'));
    assert_eq!(ids(&top).last(), Some(&"4"), "in either direction");
    // The selected one ends: the line stays.
    let mut less = answer(6, 40);
    less.tasks.retain(|task| task.id != "t0abc-3");
    let line = top.selected;
    top.handle(Event::Answer(Box::new(less)));
    assert_eq!(top.selected, line);
    assert_ne!(subject(&top), "3");
}

#[test]
fn a_filter_narrows_while_it_is_written() {
    let mut top = running(6);
    press(&mut top, KeyCode::Char('/'));
    write(&mut top, "job:loadq");
    assert!(ids(&top).is_empty());
    press(&mut top, KeyCode::Backspace);
    assert_eq!(ids(&top), ["3", "6"]);
    press(&mut top, KeyCode::Enter);
    press(&mut top, KeyCode::F(4));
    assert!(ids(&top).is_empty(), "none of them is active");
    press(&mut top, KeyCode::Esc);
    assert_eq!(ids(&top).len(), 6);
    press(&mut top, KeyCode::F(4));
    assert_eq!(ids(&top), ["1", "2"]);
    press(&mut top, KeyCode::Esc);
    press(&mut top, KeyCode::End);
    press(&mut top, KeyCode::Up);
    press(&mut top, KeyCode::Char('u'));
    assert_eq!((ids(&top), &*top.filter), (vec!["5"], "user:=bob"));
    press(&mut top, KeyCode::F(3));
    write(&mut top, " x");
    press(&mut top, KeyCode::Esc);
    assert_eq!(top.filter, "user:=bob", "Esc takes back what was written");
}

#[test]
fn time_stops_goes_back_and_goes_on() {
    let mut top = running(3);
    press(&mut top, KeyCode::Char(' '));
    top.handle(Event::Answer(Box::new(answer(6, 30))));
    assert_eq!(ids(&top).len(), 3, "it has stopped");
    let text = screen(&mut top, 80, 24);
    assert!(text.contains("12:00:18 12s ago, Esc: now"), "{text}");
    press(&mut top, KeyCode::Char(' '));
    assert_eq!(ids(&top).len(), 6);
    press(&mut top, KeyCode::Left);
    assert_eq!((ids(&top).len(), top.moment), (3, Some(9)));
    press(&mut top, KeyCode::Char('['));
    assert_eq!(top.moment, Some(0), "a minute back, or as far as there is");
    press(&mut top, KeyCode::Left);
    press(&mut top, KeyCode::Char(']'));
    assert_eq!(top.moment, None, "the present");
    press(&mut top, KeyCode::Left);
    press(&mut top, KeyCode::Right);
    assert_eq!(top.moment, None);
}

#[test]
fn what_acts_asks_first_and_only_where_one_may() {
    let mut top = running(6);
    press(&mut top, KeyCode::F(9));
    assert_eq!(press(&mut top, KeyCode::Char('n')), None);
    assert_eq!(top.dialog, None, "any other key is a no");
    press(&mut top, KeyCode::F(9));
    let kill = Effect::Call(Call::Kill("t0abc-1".to_owned(), "TERM"));
    assert_eq!(press(&mut top, KeyCode::Char('t')), Some(kill));
    press(&mut top, KeyCode::Char('r'));
    assert_eq!(press(&mut top, KeyCode::Enter), None, "Enter is no yes");
    press(&mut top, KeyCode::Char('r'));
    let release = Effect::Call(Call::Release("t0abc-1".to_owned()));
    assert_eq!(press(&mut top, KeyCode::Char('y')), Some(release));
    press(&mut top, KeyCode::F(8));
    write(&mut top, "+x");
    press(&mut top, KeyCode::Backspace);
    assert_eq!(press(&mut top, KeyCode::Enter), None, "no number");
    write(&mut top, "-17");
    let priority = Effect::Call(Call::Priority("t0abc-1".to_owned(), -17));
    assert_eq!(press(&mut top, KeyCode::Enter), Some(priority));
    // The fifth is bob's.
    for _ in 0..4 {
        press(&mut top, KeyCode::Down);
    }
    for key in [KeyCode::F(7), KeyCode::F(9), KeyCode::Char('r')] {
        press(&mut top, key);
        assert_eq!(top.dialog, None);
        assert!(top.note.as_ref().is_some_and(|note| note.0.contains("bob's") && note.1));
    }
    top.rights.admin = true;
    press(&mut top, KeyCode::F(9));
    assert!(top.dialog.is_some());
    press(&mut top, KeyCode::Esc);
    press(&mut top, KeyCode::Char('2'));
    press(&mut top, KeyCode::F(9));
    assert!(top.dialog.is_none(), "a request has no task to signal");
    press(&mut top, KeyCode::Char('c'));
    let cancel = Effect::Call(Call::Cancel("w0abc-9".to_owned()));
    assert_eq!(press(&mut top, KeyCode::Char('y')), Some(cancel));
    top.handle(Event::Done(Err("lrsd refuses".to_owned())));
    assert!(screen(&mut top, 80, 24).contains("lrsd refuses"));
}

#[test]
fn the_detail_is_asked_for_again_with_each_answer_and_acts_on_its_task() {
    let mut top = running(6);
    press(&mut top, KeyCode::Down);
    let ask = Some(Effect::Detail("t0abc-2".to_owned()));
    assert_eq!(press(&mut top, KeyCode::Enter), ask);
    assert_eq!(top.handle(Event::Answer(Box::new(answer(1, 50)))), ask, "though it is over");
    let detail = crate::state::Detail {
        id: "t0abc-2".to_owned(),
        problem: Some("it runs no more".to_owned()),
        ..crate::state::Detail::default()
    };
    top.handle(Event::Detail(Box::new(detail)));
    let text = screen(&mut top, 80, 24);
    assert!(text.contains("t0abc-2 nightly/map part-2") && text.contains("runs no more"), "{text}");
    press(&mut top, KeyCode::F(9));
    assert!(matches!(&top.dialog, Some(Dialog::Confirm(text, _)) if text.contains("part-2")));
    press(&mut top, KeyCode::Esc);
    press(&mut top, KeyCode::Esc);
    assert!(top.detail.is_none());
    assert_eq!(press(&mut top, KeyCode::Char('q')), Some(Effect::Quit));
}

#[test]
fn esc_and_a_key_that_are_read_together_are_both_taken() {
    let mut top = running(3);
    press(&mut top, KeyCode::Char('?'));
    top.handle(Event::Key(KeyEvent::new(KeyCode::Char('3'), KeyModifiers::ALT)));
    assert_eq!((&top.dialog, top.page), (&None, Page::Graphs));
}

#[test]
fn the_mouse_selects_opens_sorts_and_presses_keys() {
    let mut top = running(6);
    screen(&mut top, 80, 24);
    let click = |top: &mut Top, wanted: Target| {
        let place = top.hits.iter().find(|(_, target)| *target == wanted).unwrap().0;
        let kind = MouseEventKind::Down(MouseButton::Left);
        let modifiers = KeyModifiers::NONE;
        let mouse = MouseEvent { kind, column: place.x, row: place.y, modifiers };
        top.handle(Event::Mouse(mouse))
    };
    assert_eq!(click(&mut top, Target::Line(3)), None);
    assert_eq!(subject(&top), "4");
    assert_eq!(click(&mut top, Target::Line(3)), Some(Effect::Detail("t0abc-4".to_owned())));
    press(&mut top, KeyCode::Esc);
    click(&mut top, Target::Sort(SortKey::Age));
    assert_eq!(ids(&top)[0], "6");
    click(&mut top, Target::Sort(SortKey::Age));
    assert_eq!(ids(&top)[0], "1");
    click(&mut top, Target::Key(KeyCode::Char('3')));
    assert_eq!(top.page, Page::Graphs);
    assert_eq!(click(&mut top, Target::Key(KeyCode::F(10))), Some(Effect::Quit));
    press(&mut top, KeyCode::Char('1'));
    let wheel = MouseEvent {
        kind: MouseEventKind::ScrollDown,
        column: 0,
        row: 0,
        modifiers: KeyModifiers::NONE,
    };
    top.handle(Event::Mouse(wheel));
    assert_eq!(top.selected, 3);
}
