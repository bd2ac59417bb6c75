//! `lrsctl top`: the node, its slots, tasks and queue, live on a terminal.
//!
//! A pure client of lrsd: it asks for what `lrsctl status`, `tasks`, `queue` and `why` ask for, so lrsd knows
//! nothing of it. In two halves. The pure one gets events (an answer, a key, a click) and says what to do
//! ([`state`], [`ask`]), keeps what was there before ([`history`], of [`figures`]) and draws into a buffer ([`view`]):
//! all of it is tested without a terminal. The other half ([`shell`], [`screen`]) owns the terminal, the
//! connection and the signals, and decides nothing.
//!
//! Of ratatui it takes the core alone, with a backend of 60 lines over crossterm: the widgets and the backend
//! that comes with it cost a dozen crates more, among them procedural macros.
//!
//! Limits. What was before it began is not there to scroll back to: lrsd keeps no figures of the past. It
//! keeps an hour of the node, and of the tasks as much as [`history`] has room for. Rights are guessed from
//! uid and settings; lrsd decides.

mod ask;
mod figures;
mod history;
mod keys;
mod pick;
mod screen;
mod shell;
mod state;
mod view;

#[cfg(test)]
mod tests;

pub use ask::Rights;
pub use screen::usable;
pub use shell::{Host, Kill, Problem, run};
