//! The pure half as a user sees it: keys in, screens out.

mod act;
mod screens;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use lrs_api::{proto, wire};
use lrs_core::units::WallTime;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;

use crate::ask::Rights;
use crate::figures::Answer;
use crate::state::{Effect, Event, Look, Top};
use crate::view;

const PLAIN: Look = Look { colour: false, ascii: false };

/// The owner of most tasks, and the caller.
const ANN: u32 = 1000;

fn user_name(uid: u32) -> Option<String> {
    [(ANN, "ann"), (1001, "bob")].iter().find(|one| one.0 == uid).map(|one| one.1.to_owned())
}

fn top() -> Top {
    let mut top = Top::new(PLAIN, Rights { uid: ANN, admin: false }, user_name);
    top.time_of = Box::new(|time| {
        let seconds = time.unix_micros() / 1_000_000;
        format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
    });
    top
}

fn task(number: usize) -> proto::Task {
    let active = number <= 2;
    proto::Task {
        id: format!("t0abc-{number}"),
        name: Some(format!("part-{number}")),
        job: Some(if number.is_multiple_of(3) { "load" } else { "nightly" }.to_owned()),
        kind: Some("map".to_owned()),
        uid: Some(if number.is_multiple_of(5) { 1001 } else { ANN }),
        tier: if active { proto::Tier::Active } else { proto::Tier::Passive }.into(),
        priority: Some(number as i32 % 4),
        class: if active { proto::Class::Cpu } else { proto::Class::Io }.into(),
        computing_rate: (number != 4).then_some(0.25 * (number % 5) as f64),
        cpu_share: (number != 4).then_some(if active { 0.45 } else { 0.02 }),
        write_bytes_per_sec: (number != 4).then_some(1e6 * number as f64),
        elapsed_seconds: Some(60.0 * number as f64),
        attachment: proto::Attachment::Own.into(),
        ..proto::Task::default()
    }
}

/// What a node with two CPUs answers `second` seconds after noon.
fn answer(tasks: usize, second: i64) -> Answer {
    let at = WallTime::from_unix_micros((43_200 + second) * 1_000_000);
    let ago = |seconds: i64| {
        let micros = at.unix_micros() - seconds * 1_000_000;
        Some(wire::proto_time(WallTime::from_unix_micros(micros)))
    };
    let status = proto::Status {
        node: Some(proto::Node {
            hostname: "node7".to_owned(),
            cores: 2,
            cpu: Some(proto::CpuUse {
                effective: Some(0.7),
                iowait: Some(0.1),
                idle: Some(0.2),
                steal: Some(0.0),
                tasks: Some(0.5 + 0.1 * (second % 3) as f64),
            }),
            disk: Some(proto::DiskUse {
                write_bytes_per_sec: Some(3.4e7),
                read_bytes_per_sec: Some(1.2e6),
            }),
            memory: Some(proto::MemoryUse {
                total_bytes: Some(8 << 30),
                available_bytes: Some(5 << 30),
                ..proto::MemoryUse::default()
            }),
            ..proto::Node::default()
        }),
        slots: Some(proto::Slots {
            active: Some(proto::ActiveSlots { capacity: 2, used: 2, reserved: 0, free: 0 }),
            passive: Some(proto::PassiveSlots {
                capacity: 8,
                used: 3,
                reserved: 1,
                free: 4,
                bound: proto::Bound::ActiveTier.into(),
                ..proto::PassiveSlots::default()
            }),
        }),
        state: proto::NodeState::Accepting.into(),
        mode: proto::Mode::Enforce.into(),
        waiting: 1,
        started_at: ago(7_260),
        ..proto::Status::default()
    };
    let waiter = proto::Queued {
        id: "w0abc-9".to_owned(),
        place: Some(1),
        name: Some("sort".to_owned()),
        uid: ANN,
        reason: "full".to_owned(),
        since: ago(95),
        expected_wait_seconds: Some(30.0),
        ..proto::Queued::default()
    };
    let reserved = proto::Queued {
        id: "r0abc-10".to_owned(),
        uid: 1001,
        reason: "reserved".to_owned(),
        tier: proto::Tier::Passive.into(),
        ..proto::Queued::default()
    };
    Answer { at, status, tasks: (1..=tasks).map(task).collect(), queue: vec![waiter, reserved] }
}

/// One that has seen ten answers.
fn running(tasks: usize) -> Top {
    let mut top = top();
    for second in 0..10 {
        top.handle(Event::Answer(Box::new(answer(tasks, second * 2))));
    }
    top
}

fn press(top: &mut Top, code: KeyCode) -> Option<Effect> {
    top.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn write(top: &mut Top, text: &str) {
    for c in text.chars() {
        press(top, KeyCode::Char(c));
    }
}

fn drawn(top: &mut Top, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(top, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen as lines.
fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let buffer = drawn(top, width, height);
    let cells = buffer.content().chunks(usize::from(width.max(1)));
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let text: String = cells.iter().map(ratatui_core::buffer::Cell::symbol).collect();
        format!("{}\n", text.trim_end())
    };
    cells.map(line).collect()
}
