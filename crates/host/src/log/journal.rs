//! Lines for journald in its own protocol (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>): the entry
//! is made where the line is logged and sent by the thread that writes.
//!
//! Not the crate tracing-journald, which has the same entries: it sends where the line is logged,
//! and so waits there for a journald that hangs.
//!
//! Limit. An entry is one datagram: one above `net.core.wmem_default` (208 KiB) is lost, and counted.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::priority;
use super::queue::{Line, Queue};

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Makes entries of log lines.
pub(super) struct Journal {
    pub(super) identifier: String,
    pub(super) queue: &'static Queue,
}

/// A socket for entries.
///
/// # Errors
/// journald is not there.
pub(super) fn socket() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // An empty entry is none. A journald that is there and does not read now is there.
    socket.set_nonblocking(true)?;
    match send(&socket, &[]) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        Ok(()) | Err(_) => socket.set_nonblocking(false)?,
    }
    Ok(socket)
}

/// Sends one entry, waiting for journald if need be.
pub(super) fn send(socket: &UnixDatagram, entry: &[u8]) -> io::Result<()> {
    socket.send_to(entry, SOCKET).map(drop)
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.queue.push(Line::Journal(self.entry(event)));
    }
}

impl Journal {
    fn entry(&self, event: &Event<'_>) -> Vec<u8> {
        let metadata = event.metadata();
        let mut entry = Entry(Vec::with_capacity(512));
        entry.put("PRIORITY", &priority(*metadata.level()).to_string());
        entry.put("SYSLOG_IDENTIFIER", &self.identifier);
        entry.put("TARGET", metadata.target());
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
            entry.put("CODE_FILE", file);
            entry.put("CODE_LINE", &line.to_string());
        }
        event.record(&mut entry);
        entry.0
    }
}

/// Fields, each its name, its length and its value.
struct Entry(Vec<u8>);

impl Entry {
    fn put(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(&name(field.name()), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string fails only where `value` does; then the rest has to do.
        let _ = write!(text, "{value:?}");
        self.put(&name(field.name()), &text);
    }
}

/// As journald takes names (systemd.journal-fields(7)): capitals, digits and `_`.
fn name(field: &str) -> String {
    if field == "message" {
        return "MESSAGE".to_owned();
    }
    let taken = field.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    taken.fold("LRS_".to_owned(), |mut name, c| {
        name.push(c.to_ascii_uppercase());
        name
    })
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    static QUEUE: Queue = Queue::new();

    #[test]
    fn an_entry_has_message_priority_and_prefixed_fields() {
        let journal = Journal { identifier: "lrsd".to_owned(), queue: &QUEUE };
        let seen = tracing_subscriber::registry().with(journal);
        tracing::subscriber::with_default(seen, || {
            tracing::warn!(task = "1f-3", kept.files = 2, "two\nlines");
        });
        let Some(Line::Journal(entry)) = QUEUE.take(std::time::Duration::ZERO) else {
            panic!("no entry")
        };
        for (name, value) in [
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "lrsd"),
            ("MESSAGE", "two\nlines"),
            ("LRS_TASK", "1f-3"),
            ("LRS_KEPT_FILES", "2"),
        ] {
            let mut field = Entry(Vec::new());
            field.put(name, value);
            let found = entry.windows(field.0.len()).any(|part| part == field.0);
            assert!(found, "{name}={value} not in {:?}", String::from_utf8_lossy(&entry));
        }
    }
}
