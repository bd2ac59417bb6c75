//! Questions: what is asked before something changes, and what an answer does. Pure.
//!
//! Each names its task or request. Enter confirms nothing but a priority that was written, so no key that was
//! meant for the list acts on a task. What a caller may not do is not asked; lrsd, or for signals the kernel,
//! decides anyway.

use std::sync::Arc;

use crossterm::event::KeyCode;

use crate::figures::Who;
use crate::pick::SortKey;
use crate::state::{Effect, Page, Top};

/// A change that a user confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// SetPriority of a task.
    Priority(String, i32),
    /// Release of a task.
    Release(String),
    /// CancelReservation of what is in the queue.
    Cancel(String),
    /// A signal to the processes of a task: TERM or KILL.
    Kill(String, &'static str),
}

/// A question, or what else is in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialog {
    /// The keys, from this line on.
    Help(usize),
    /// By what to sort.
    Sort(usize),
    /// The filter is edited; what it was.
    Filter(String),
    /// A priority is edited: id, title, digits.
    Priority(String, String, String),
    /// What is to happen, and the keys that make it happen.
    Confirm(String, Vec<(char, &'static str, Call)>),
}

/// Who the caller is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights {
    /// Its uid.
    pub uid: u32,
    /// root, or listed in `grpc.admins`.
    pub admin: bool,
}

impl Top {
    /// A key while a question is asked.
    pub(crate) fn in_dialog(&mut self, dialog: Dialog, code: KeyCode) -> Option<Effect> {
        match (dialog, code) {
            (Dialog::Filter(before), KeyCode::Esc) => {
                self.filter = before;
                self.arrange();
            }
            (Dialog::Filter(_), KeyCode::Enter) | (_, KeyCode::Esc) => {}
            (Dialog::Filter(before), code) => {
                match code {
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
                    _ => {}
                }
                self.dialog = Some(Dialog::Filter(before));
                self.arrange();
            }
            (Dialog::Help(line), KeyCode::Up) => {
                self.dialog = Some(Dialog::Help(line.saturating_sub(1)));
            }
            (Dialog::Help(line), KeyCode::Down) => {
                self.dialog = Some(Dialog::Help((line + 1).min(crate::keys::HELP.len())));
            }
            (Dialog::Help(_), _) => {}
            (Dialog::Sort(index), code) => {
                let last = SortKey::ALL.len() - 1;
                match code {
                    KeyCode::Up => self.dialog = Some(Dialog::Sort(index.saturating_sub(1))),
                    KeyCode::Down => self.dialog = Some(Dialog::Sort((index + 1).min(last))),
                    KeyCode::Enter => self.sort_by(SortKey::ALL[index.min(last)].0),
                    _ => self.dialog = Some(Dialog::Sort(index)),
                }
            }
            (Dialog::Priority(id, title, mut text), code) => {
                let value = text.parse::<i32>().ok();
                match (code, value) {
                    (KeyCode::Enter, Some(value)) => {
                        return Some(Effect::Call(Call::Priority(id, value)));
                    }
                    (KeyCode::Up | KeyCode::F(8) | KeyCode::Char('+'), Some(value)) => {
                        text = value.saturating_add(1).to_string();
                    }
                    (KeyCode::Down | KeyCode::F(7), Some(value)) => {
                        text = value.saturating_sub(1).to_string();
                    }
                    (KeyCode::Backspace, _) => drop(text.pop()),
                    (KeyCode::Char(c), _) if c.is_ascii_digit() || c == '-' && text.is_empty() => {
                        text.push(c);
                    }
                    _ => {}
                }
                self.dialog = Some(Dialog::Priority(id, title, text));
            }
            // Any other key is a no.
            (Dialog::Confirm(_, choices), KeyCode::Char(c)) => {
                let chosen = choices.into_iter().find(|(key, ..)| *key == c);
                return chosen.map(|(.., call)| Effect::Call(call));
            }
            (Dialog::Confirm(..), _) => {}
        }
        None
    }

    /// Whether the caller may act on it, as far as is known here; if not, says so.
    fn may(&mut self, who: &Who) -> bool {
        let may = self.rights.admin || who.uid == Some(self.rights.uid);
        if !may {
            let text = format!(
                "{} is {}'s: its owner, root or an account in grpc.admins may do that",
                who.number(),
                who.user
            );
            self.note = Some((text, true));
        }
        may
    }

    fn task_to_act_on(&mut self) -> Option<Arc<Who>> {
        let who = (self.page == Page::Tasks).then(|| self.subject().cloned()).flatten();
        if who.is_none() {
            self.note = Some(("select a task first (1, arrows)".to_owned(), true));
        }
        who.filter(|who| self.may(who))
    }

    /// Asks whether to do something to the selected task.
    pub(crate) fn ask(
        &mut self,
        what: &str,
        choices: fn(String) -> Vec<(char, &'static str, Call)>,
    ) {
        if let Some(who) = self.task_to_act_on() {
            let text = format!("{what} {} {}?", who.number(), who.title);
            self.dialog = Some(Dialog::Confirm(text, choices(who.id.clone())));
        }
    }

    /// Asks for a priority, which begins a step from what it is.
    pub(crate) fn ask_priority(&mut self, step: i32) {
        let Some(who) = self.task_to_act_on() else { return };
        let row = self
            .now()
            .and_then(|moment| moment.tasks().iter().find(|row| row.who.serial == who.serial));
        let now = row.and_then(|row| row.priority).unwrap_or(0);
        let title = format!("{} {}", who.number(), who.title);
        let text = now.saturating_add(step).to_string();
        self.dialog = Some(Dialog::Priority(who.id.clone(), title, text));
    }

    /// Asks whether to end the selected wait or reservation.
    pub(crate) fn ask_cancel(&mut self) {
        let Some(one) = self.request(self.selected).filter(|_| self.page == Page::Queue) else {
            self.note = Some(("select a request of the queue first (2, arrows)".to_owned(), true));
            return;
        };
        let what = if one.place.is_some() { "End the wait of" } else { "Cancel the reservation" };
        let who = Arc::clone(&one.who);
        if self.may(&who) {
            let text = format!("{what} {} {}?", who.number(), who.title);
            let choice = ('y', "y: yes", Call::Cancel(who.id.clone()));
            self.dialog = Some(Dialog::Confirm(text, vec![choice]));
        }
    }
}
