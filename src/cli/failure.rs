//! Messages and exit codes for errors that lrsd answers.

use lrs_term::printable;
pub(crate) use lrs_term::{Exit, Failure};

/// Which answer RESOURCE_EXHAUSTED and DEADLINE_EXCEEDED are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The request was for a slot: none is free.
    ForSlot,
    /// Any other request.
    Other,
}

/// The answer of the server, in the codes of `shaper.proto`.
pub(super) fn from_status(status: &tonic::Status, purpose: Purpose) -> Failure {
    use tonic::Code;
    let message = match status.message() {
        "" => format!("lrsd answered {:?} and gave no reason", status.code()),
        // A configuration has a fault a line.
        message => message.lines().map(printable).collect::<Vec<_>>().join("\n  "),
    };
    if is_transport(status) {
        return Failure::unreachable(format!(
            "the connection to lrsd broke before it answered ({message})"
        ))
        .hint("it may be restarting; the request may have been carried out all the same");
    }
    match (status.code(), purpose) {
        (Code::Unavailable, _) => Failure::unreachable(message),
        (Code::ResourceExhausted | Code::DeadlineExceeded, Purpose::ForSlot) => {
            Failure::new(Exit::NoFreeSlot, message)
        }
        (Code::Unimplemented, _) => Failure::failed(message).hint(format!(
            "this lrsctl is {}; `lrsctl status` shows the version of lrsd",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Failure::failed(message),
    }
}

/// Whether the status was made on this side because the connection failed: a status the
/// server sent has no local source.
pub(super) fn is_transport(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_some()
}
