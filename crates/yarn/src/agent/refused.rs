//! Updates that came to nothing.
//!
//! An update may be a Java machine that starts and a ticket that is asked for, on each node of a
//! cluster. So it is tried again after a pause that grows from a second to a minute, whatever figure
//! is wanted by then, and until one is carried out: slots open and close meanwhile, and a pass that
//! finds nothing to send is no sign that the next update will do better. Only a figure below all that
//! were tried does not wait, for a raise that failed may have been carried out all the same.
//!
//! The ResourceManager is read on meanwhile: that has a pause of its own.

use std::time::Duration;

use super::{Agent, AgentError, LESS_AFTER, Moment, RETRY_FIRST, RETRY_MOST};
use crate::Resource;
use lrs_core::units::BootTime;

/// The last update that came to nothing, and those before it.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    at: BootTime,
    pause: Duration,
    /// The least figure of them.
    least: Resource,
    reason: String,
    /// Which reason was reported last.
    reported: Option<String>,
}

impl Agent {
    /// Notes that an update came to nothing.
    pub(super) fn refuse(&mut self, sent: Resource, error: AgentError, now: Moment) -> AgentError {
        let before = self.refused.take();
        let pause = before
            .as_ref()
            .map_or(RETRY_FIRST, |before| before.pause.saturating_mul(2).min(RETRY_MOST));
        let least = before.as_ref().map(|before| before.least);
        self.refused = Some(Refused {
            at: now.boot,
            pause,
            least: least.filter(|least| !sent.is_below(*least)).unwrap_or(sent),
            reason: error.to_string(),
            reported: before.and_then(|before| before.reported),
        });
        self.unanswered = Some(now.boot);
        self.raise_at = Some(now.boot.after(pause));
        error
    }

    /// Whether an update may be tried.
    ///
    /// # Errors
    /// Why the last one came to nothing: the pause after it is not over.
    pub(super) fn may_update(&mut self, wanted: Resource, now: Moment) -> Result<(), AgentError> {
        let Some(refused) = &self.refused else { return Ok(()) };
        let pause = if wanted.is_below(refused.least) { LESS_AFTER } else { refused.pause };
        let again = refused.at.after(pause);
        if again <= now.boot {
            return Ok(());
        }
        self.raise_at = Some(again);
        Err(AgentError::Again(refused.reason.clone()))
    }

    /// Whether the reason `text` is news: an update that is refused again for the same one is none,
    /// though there was nothing to send in between.
    pub(super) fn is_news(&mut self, text: &str) -> bool {
        match &mut self.refused {
            Some(refused) if refused.reason == text => {
                refused.reported.replace(text.to_owned()).as_deref() != Some(text)
            }
            _ => true,
        }
    }
}
