//! Tickets by which a request that waits keeps its place over a restart of the daemon.
//!
//! A waiting request is not stored: its client asks the next daemon again. What the client says of
//! how long it has waited proves nothing, so its place rests on what the daemon before gave it: a
//! text with the daemon's run, the user, the process, when it first asked and its number in the
//! queue, and an HMAC-SHA256 of these under a key that only lrsd can read, `<runtime_dir>/key`.
//!
//! A ticket counts for the process that it names, of the user that it names, with another run of the
//! daemon than the one that gave it, and in the first minute of that: who waits asks again at once.
//! Any other text is no ticket: the request counts from now on.
//!
//! Limits. A process that keeps a ticket, waits no longer and asks again in the first minute of any
//! later daemon has the place of then. A unit is the process that was its main one when it asked.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use lrs_core::units::{BootTime, ProcessRef, WallTime};

/// How long after the start of a daemon tickets of earlier ones count.
const WITHIN: Duration = Duration::from_secs(60);

/// Bytes of the key (RFC 2104: the length of the hash).
pub const KEY_BYTES: usize = 32;

/// Gives tickets and reads them.
pub struct Tickets {
    /// Begun with the key; each ticket goes on with a copy.
    key: Hmac<Sha256>,
    /// A number of this run of the daemon's.
    run: u32,
    started: BootTime,
}

/// Who waits, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The user the process runs as.
    pub uid: u32,
    /// The process that waits.
    pub process: ProcessRef,
    /// When it first asked.
    pub since: WallTime,
    /// Its number among those that this daemon took in.
    pub number: u64,
}

impl Tickets {
    /// With this key.
    pub fn with_key(key: &[u8; KEY_BYTES], run: u32, started: BootTime) -> Tickets {
        let key = Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
        Tickets { key, run, started }
    }

    /// A ticket for `place`.
    pub(super) fn give(&self, place: Place) -> String {
        let Place { uid, process, since, number } = place;
        let ProcessRef { pid, start_ticks } = process;
        let (run, since) = (self.run, since.unix_micros());
        let text = format!("{run:x}.{uid}.{pid}.{start_ticks}.{since}.{number}");
        let sum = self.key.clone().chain_update(&text).finalize().into_bytes();
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{text}.{sum}")
    }

    /// When the process of `uid` first asked, by a ticket of an earlier daemon's.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn since(
        &self,
        ticket: &str,
        uid: u32,
        process: ProcessRef,
        now: BootTime,
    ) -> Result<WallTime, &'static str> {
        let signed = ticket.rsplit_once('.').and_then(|(text, sum)| Some((text, bytes(sum)?)));
        let (text, sum) = signed.ok_or("it is not written as a ticket")?;
        // Compares in constant time.
        let key = self.key.clone().chain_update(text);
        key.verify_slice(&sum).map_err(|_| "no lrsd with this runtime directory gave it")?;
        let mut parts = text.split('.');
        let mut next = || parts.next().unwrap_or_default();
        if u32::from_str_radix(next(), 16) == Ok(self.run) {
            return Err("it is of this run of lrsd, which knows who waits");
        }
        if next().parse() != Ok(uid) {
            return Err("it is another user's");
        }
        let named = (next().parse(), next().parse());
        if named != (Ok(process.pid.raw()), Ok(process.start_ticks)) {
            return Err("it is another process's");
        }
        if now.since(self.started) > WITHIN {
            return Err("lrsd has been back for longer than a minute");
        }
        next().parse().map(WallTime::from_unix_micros).map_err(|_| "it has no time")
    }
}

/// The bytes of a hexadecimal text.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = digits.chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_core::units::Pid;

    const NOW: BootTime = BootTime(Duration::from_secs(100));

    fn place() -> Place {
        let process = ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 7 };
        Place { uid: 1000, process, since: WallTime::from_unix_micros(-5), number: 3 }
    }

    #[test]
    fn a_ticket_is_good_for_its_process_with_the_next_daemon_and_at_once() {
        let open = |run| Tickets::with_key(&[7; KEY_BYTES], run, NOW);
        let Place { uid, process, since, .. } = place();
        let (ticket, next) = (open(1).give(place()), open(2));
        assert_eq!(next.since(&ticket, uid, process, NOW), Ok(since));
        let minute = NOW.after(WITHIN);
        assert_eq!(next.since(&ticket, uid, process, minute), Ok(since));
        let late = minute.after(Duration::from_micros(1));
        let other = ProcessRef { start_ticks: 8, ..process };
        for (error, words) in [
            (next.since(&ticket, uid, process, late), "minute"),
            (next.since(&ticket, 0, process, NOW), "user's"),
            (next.since(&ticket, uid, other, NOW), "process's"),
            (open(1).since(&ticket, uid, process, NOW), "this run"),
        ] {
            assert!(error.unwrap_err().contains(words), "{words}");
        }
    }

    #[test]
    fn no_changed_ticket_is_one_and_no_text_panics() {
        let open = |run| Tickets::with_key(&[7; KEY_BYTES], run, NOW);
        let Place { uid, process, .. } = place();
        let ticket = open(1).give(place());
        for byte in 0..ticket.len() {
            let mut changed = ticket.clone().into_bytes();
            changed[byte] ^= 1;
            let changed = String::from_utf8_lossy(&changed);
            assert!(open(2).since(&changed, uid, process, NOW).is_err(), "{changed}");
        }
        for text in ["", ".", "é.é", "1.2.3.4.5.6.", "1.2.3.4.5.6.0g", "a.0", &ticket[..9]] {
            assert!(open(2).since(text, uid, process, NOW).is_err(), "{text}");
        }
    }
}
