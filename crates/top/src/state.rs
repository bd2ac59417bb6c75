//! What top shows and what a key does: events in, state changed, effects out. Pure.
//!
//! What is selected is a task, not a line, so it stays selected while the order changes. A moment of the past
//! has a number ([`crate::history`]); while one is shown, the present goes on being recorded. Nothing that acts
//! on a task happens without a question that names the task.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use lrs_api::proto;
use lrs_core::units::WallTime;
use ratatui_core::layout::{Position, Rect};

use crate::ask::{Call, Dialog, Rights};
use crate::figures::{Answer, Node, Reader, Row, Waiting, Who};
use crate::history::{History, Moment};
use crate::pick::{Sort, SortKey, matches};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// The terminal has another size, or was written to by others.
    Redraw,
    /// lrsd answered.
    Answer(Box<Answer>),
    /// lrsd does not answer: why.
    Lost(String),
    /// lrsd answered about one task.
    Detail(Box<Detail>),
    /// What became of a call.
    Done(Result<String, String>),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End.
    Quit,
    /// Give the terminal back and stop until SIGCONT.
    Suspend,
    /// Draw everything anew.
    Clear,
    /// Ask for all about this task.
    Detail(String),
    /// Change something.
    Call(Call),
}

/// What is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as they are called on the screen
pub enum Page {
    Tasks,
    Queue,
    Graphs,
}

/// All about one task.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Its id.
    pub id: String,
    /// The task; `None`: not read yet, or over.
    pub task: Option<proto::Task>,
    /// What was decided, the oldest first.
    pub story: Vec<proto::Event>,
    /// Why one of the two is not there.
    pub problem: Option<String>,
}

/// What a click does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Selects a line; the selected one opens.
    Line(usize),
    /// Sorts by a column, or turns its order round.
    Sort(SortKey),
    /// As a key.
    Key(KeyCode),
}

/// How it may be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Colours beside bold and reverse.
    pub colour: bool,
    /// Nothing beyond ASCII.
    pub ascii: bool,
}

/// See the module.
pub struct Top {
    /// How it may be drawn.
    pub look: Look,
    /// Seconds between answers.
    pub interval_seconds: f64,
    /// Who the caller is.
    pub rights: Rights,
    /// What was seen.
    pub history: History,
    /// The last status; figures of moments are in the history.
    pub status: proto::Status,
    /// What is on the screen.
    pub page: Page,
    /// In front of the tasks.
    pub detail: Option<(Arc<Who>, Detail)>,
    /// In front of all.
    pub dialog: Option<Dialog>,
    /// Words.
    pub filter: String,
    /// Only the active, only the passive ones.
    pub tier: Option<bool>,
    /// The order of tasks.
    pub sort: Sort,
    /// The moment that is shown; `None`: the last.
    pub moment: Option<usize>,
    /// Indices of the rows that are shown.
    pub order: Vec<usize>,
    /// Which of them is selected.
    pub selected: usize,
    /// The first line on the screen, of a list or a text.
    pub scroll: usize,
    /// Lines that fit; set by the view.
    pub lines: usize,
    /// Where a click does what; set by the view.
    pub hits: Vec<(Rect, Target)>,
    /// A word on what happened: text, and whether it is bad.
    pub note: Option<(String, bool)>,
    /// Why lrsd does not answer.
    pub lost: Option<String>,
    /// A time as people read it.
    pub time_of: Box<dyn Fn(WallTime) -> String>,
    reader: Reader,
    selected_serial: Option<u64>,
}

impl Top {
    /// One that has seen nothing.
    pub fn new(look: Look, rights: Rights, name_of: fn(u32) -> Option<String>) -> Top {
        Top {
            look,
            interval_seconds: 2.0,
            rights,
            history: History::default(),
            status: proto::Status::default(),
            page: Page::Tasks,
            detail: None,
            dialog: None,
            filter: String::new(),
            tier: None,
            sort: Sort::by(SortKey::Tier),
            moment: None,
            order: Vec::new(),
            selected: 0,
            scroll: 0,
            lines: 1,
            hits: Vec::new(),
            note: None,
            lost: None,
            time_of: Box::new(|time| time.to_string()),
            reader: Reader::new(name_of),
            selected_serial: None,
        }
    }

    /// The number of the moment that is shown.
    pub fn shown(&self) -> usize {
        self.moment.unwrap_or_else(|| self.history.last())
    }

    /// The moment that is shown, once there is one.
    pub fn now(&self) -> Option<&Moment> {
        self.history.at(self.shown())
    }

    /// Its figures of the node.
    pub fn node(&self) -> Node {
        self.now().map(|moment| moment.node).unwrap_or_default()
    }

    /// The task on a line.
    pub fn task(&self, line: usize) -> Option<&Row> {
        self.now()?.tasks().get(*self.order.get(line)?)
    }

    /// The request on a line.
    pub fn request(&self, line: usize) -> Option<&Waiting> {
        self.now()?.queue().get(*self.order.get(line)?)
    }

    fn who(&self, line: usize) -> Option<&Arc<Who>> {
        match self.page {
            Page::Tasks => self.task(line).map(|row| &row.who),
            Page::Queue => self.request(line).map(|one| &one.who),
            Page::Graphs => None,
        }
    }

    /// What keys act on.
    pub fn subject(&self) -> Option<&Arc<Who>> {
        self.detail.as_ref().map(|(who, _)| who).or_else(|| self.who(self.selected))
    }

    /// Takes one event in.
    pub fn handle(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Redraw => {}
            Event::Answer(answer) => return self.answer(*answer),
            Event::Lost(why) => self.lost = Some(why),
            Event::Done(Ok(text)) => self.note = Some((text, false)),
            Event::Done(Err(text)) => self.note = Some((text, true)),
            Event::Detail(detail) => {
                if let Some((_, kept)) = self.detail.as_mut().filter(|(who, _)| who.id == detail.id)
                {
                    *kept = *detail;
                }
            }
            Event::Key(key) => {
                self.note = None;
                return self.key(key);
            }
            Event::Mouse(mouse) => return self.mouse(mouse),
        }
        None
    }

    fn answer(&mut self, answer: Answer) -> Option<Effect> {
        self.lost = None;
        let rows = self.reader.read(&answer);
        let node = Node::of(&answer.status, answer.at);
        self.status = answer.status;
        self.history.push(Moment { node, rows: Some(rows) });
        if self.moment.is_none() {
            self.arrange();
        }
        self.detail.as_ref().map(|(who, _)| Effect::Detail(who.id.clone()))
    }

    /// Filters and sorts anew, and keeps what is selected.
    pub(crate) fn arrange(&mut self) {
        let mut order: Vec<usize> = Vec::new();
        if let Some(moment) = self.history.at(self.shown()) {
            match self.page {
                Page::Tasks | Page::Graphs => {
                    let rows = moment.tasks();
                    let shown = |row: &Row| {
                        let tier = row.active.map(|is| if is { "active" } else { "passive" });
                        (self.tier.is_none() || row.active == self.tier)
                            && matches(&self.filter, &row.who, &row.flags, tier)
                    };
                    order.extend((0..rows.len()).filter(|index| shown(&rows[*index])));
                    order.sort_by(|one, other| self.sort.compare(&rows[*one], &rows[*other]));
                }
                Page::Queue => {
                    let queue = moment.queue();
                    let shown = |one: &Waiting| matches(&self.filter, &one.who, &one.reason, None);
                    order.extend((0..queue.len()).filter(|index| shown(&queue[*index])));
                }
            }
        }
        self.order = order;
        let wanted = self.selected_serial;
        let line =
            (0..self.order.len()).find(|line| self.who(*line).map(|who| who.serial) == wanted);
        self.select(line.unwrap_or(self.selected));
    }

    fn select(&mut self, line: usize) {
        self.selected = line.min(self.order.len().saturating_sub(1));
        self.selected_serial = self.who(self.selected).map(|who| who.serial);
    }

    fn go_to(&mut self, page: Page) {
        if self.page != page {
            (self.page, self.detail, self.scroll, self.selected) = (page, None, 0, 0);
            self.selected_serial = None;
            self.arrange();
        }
    }

    /// Shows another moment; the last one is the present, and goes on.
    fn travel(&mut self, number: usize) {
        self.moment = (number < self.history.last()).then_some(number);
        self.arrange();
    }

    fn mouse(&mut self, mouse: MouseEvent) -> Option<Effect> {
        // What is asked is answered by keys: no click that was meant for the list acts.
        if self.dialog.as_ref().is_some_and(|dialog| !matches!(dialog, Dialog::Help(_))) {
            return None;
        }
        let press = |code| KeyEvent::new(code, KeyModifiers::NONE);
        match mouse.kind {
            MouseEventKind::ScrollUp => (0..3).find_map(|_| self.key(press(KeyCode::Up))),
            MouseEventKind::ScrollDown => (0..3).find_map(|_| self.key(press(KeyCode::Down))),
            MouseEventKind::Down(MouseButton::Left) => {
                let at = Position::new(mouse.column, mouse.row);
                let hit = self.hits.iter().rev().find(|(area, _)| area.contains(at));
                match hit.map(|(_, target)| *target)? {
                    Target::Line(line) if line == self.selected => self.key(press(KeyCode::Enter)),
                    Target::Line(line) => {
                        self.select(line);
                        None
                    }
                    Target::Sort(key) => {
                        self.sort_by(key);
                        None
                    }
                    Target::Key(code) => self.key(press(code)),
                }
            }
            _ => None,
        }
    }

    /// Sorts by a key, or turns its order round.
    pub(crate) fn sort_by(&mut self, key: SortKey) {
        let descending =
            if self.sort.key == key { !self.sort.descending } else { Sort::by(key).descending };
        self.sort = Sort { key, descending };
        self.arrange();
    }

    fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Quit),
                KeyCode::Char('z') => Some(Effect::Suspend),
                KeyCode::Char('l') => Some(Effect::Clear),
                _ => None,
            };
        }
        // Esc and a key that were read together: over a slow line, or beside a change of size.
        if key.modifiers.contains(KeyModifiers::ALT) {
            let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
            return self.key(plain(KeyCode::Esc)).or_else(|| self.key(plain(key.code)));
        }
        if key.code == KeyCode::F(10) {
            return Some(Effect::Quit);
        }
        match self.dialog.take() {
            Some(dialog) => self.in_dialog(dialog, key.code),
            None => self.in_page(key.code),
        }
    }

    fn in_page(&mut self, code: KeyCode) -> Option<Effect> {
        let (shown, last) = (self.shown(), self.history.last());
        match code {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::F(1) | KeyCode::Char('?' | 'h') => self.dialog = Some(Dialog::Help(0)),
            KeyCode::F(2) | KeyCode::Tab => self.go_to(match self.page {
                Page::Tasks => Page::Queue,
                Page::Queue => Page::Graphs,
                Page::Graphs => Page::Tasks,
            }),
            KeyCode::Char('1') => self.go_to(Page::Tasks),
            KeyCode::Char('2') => self.go_to(Page::Queue),
            KeyCode::Char('3') => self.go_to(Page::Graphs),
            KeyCode::F(3) | KeyCode::Char('/' | '\\') => {
                self.dialog = Some(Dialog::Filter(self.filter.clone()));
            }
            KeyCode::Char('u') => self.narrow(|who| format!("user:={}", who.user)),
            KeyCode::Char('j') => self.narrow(|who| format!("job:={}", who.job)),
            KeyCode::F(4) | KeyCode::Char('t') => {
                self.tier = match self.tier {
                    None => Some(true),
                    Some(true) => Some(false),
                    Some(false) => None,
                };
                self.arrange();
            }
            KeyCode::F(5) | KeyCode::Char(' ' | 'p') => {
                self.moment = if self.moment.is_some() { None } else { Some(last) };
                self.arrange();
            }
            KeyCode::Left => self.travel(shown.saturating_sub(1)),
            KeyCode::Right => self.travel(shown + 1),
            KeyCode::Char('[') => self.travel(self.history.before(shown, 60)),
            KeyCode::Char(']') => self.travel(self.history.before(shown, -60)),
            KeyCode::F(6) | KeyCode::Char('s') => {
                let index = SortKey::ALL.iter().position(|(key, _)| *key == self.sort.key);
                self.dialog = Some(Dialog::Sort(index.unwrap_or(0)));
            }
            KeyCode::Char('I') => self.sort_by(self.sort.key),
            KeyCode::Char('P') => self.sort_by(SortKey::Cpu),
            KeyCode::Char('M') => self.sort_by(SortKey::Memory),
            KeyCode::Char('T') => self.sort_by(SortKey::Age),
            KeyCode::Char('N') => self.sort_by(SortKey::Id),
            KeyCode::Char('-') | KeyCode::F(7) => self.ask_priority(-1),
            KeyCode::Char('+') | KeyCode::F(8) => self.ask_priority(1),
            KeyCode::Char('k') | KeyCode::F(9) => {
                self.ask("Send a signal to all processes of", |id| {
                    vec![
                        ('t', "t: SIGTERM", Call::Kill(id.clone(), "TERM")),
                        ('k', "k: SIGKILL", Call::Kill(id, "KILL")),
                    ]
                })
            }
            KeyCode::Char('r') => self.ask("It goes on outside LRS. Release", |id| {
                vec![('y', "y: yes", Call::Release(id))]
            }),
            KeyCode::Char('c') => self.ask_cancel(),
            KeyCode::Enter => return self.open(),
            KeyCode::Esc if self.detail.is_some() => (self.detail, self.scroll) = (None, 0),
            KeyCode::Esc if !self.filter.is_empty() || self.tier.is_some() => {
                (self.filter, self.tier) = (String::new(), None);
                self.arrange();
            }
            KeyCode::Esc => self.travel(last),
            code => self.walk(code),
        }
        None
    }

    fn walk(&mut self, code: KeyCode) {
        let is_list = self.detail.is_none() && self.page != Page::Graphs;
        let (from, end) =
            if is_list { (self.selected, self.order.len()) } else { (self.scroll, usize::MAX) };
        let page = self.lines.saturating_sub(1).max(1);
        let to = match code {
            KeyCode::Up => from.saturating_sub(1),
            KeyCode::Down => from.saturating_add(1),
            KeyCode::PageUp => from.saturating_sub(page),
            KeyCode::PageDown => from.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => end,
            _ => return,
        };
        // The view knows where a text ends.
        if is_list { self.select(to) } else { self.scroll = to }
    }

    fn open(&mut self) -> Option<Effect> {
        let who = match self.page {
            _ if self.detail.is_some() => {
                (self.detail, self.scroll) = (None, 0);
                return None;
            }
            Page::Tasks => Arc::clone(self.who(self.selected)?),
            Page::Queue | Page::Graphs => return None,
        };
        let effect = Effect::Detail(who.id.clone());
        let detail = Detail { id: who.id.clone(), ..Detail::default() };
        (self.detail, self.scroll) = (Some((who, detail)), 0);
        Some(effect)
    }

    fn narrow(&mut self, to: impl FnOnce(&Who) -> String) {
        let Some(who) = self.subject() else { return };
        self.filter = to(who);
        self.detail = None;
        self.arrange();
    }
}
