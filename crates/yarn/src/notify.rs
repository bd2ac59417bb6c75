//! Messages to the service manager (sd_notify(3)).
//!
//! A sign of life goes out before each call to a manager, each run of the command and each wait: all of
//! them end by themselves, so that only a process that hangs for good goes unheard.

use std::time::Duration;

use sd_notify::NotifyState;

/// It runs. `lrsd` may come later.
pub fn ready() {
    say(NotifyState::Ready);
}

/// It lives.
pub fn alive() {
    say(NotifyState::Watchdog);
}

/// It stops.
pub fn stopping() {
    say(NotifyState::Stopping);
}

/// The longest that is done at a stretch: the watchdog must wait for longer than that.
pub fn patience(longest: Duration) {
    let wanted = longest.saturating_mul(2);
    if sd_notify::watchdog_enabled().is_some_and(|period| period < wanted) {
        say(NotifyState::WatchdogUsec(u32::try_from(wanted.as_micros()).unwrap_or(u32::MAX)));
    }
}

/// Without a service manager there is no listener, which is no error.
fn say(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager does not hear of us: {error}");
    }
}
