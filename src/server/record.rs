//! Writes out what the loop records, for the client that asked: on a thread of its own, since to encode the
//! state of a busy node takes longer than a server may be kept from others.
//!
//! The thread ends with the client or with the loop. It waits for the client and for nothing else; what the
//! loop decides meanwhile waits in the recorder's queue, which is bounded there.

use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::command::{CommandError, ErrorKind};
use crate::core::recording::Entry;
use crate::executor::recorder::Recorded;
use crate::proto;

/// Bytes of one message: two of them wait for the client at most.
const PIECE: usize = 64 << 10;

/// What is sent of a recording.
type Piece = Result<proto::RecordPiece, Status>;

/// All of it, in pieces.
///
/// # Errors
/// No thread can be started.
pub(super) fn pieces(
    recorded: UnboundedReceiver<Recorded>,
) -> Result<ReceiverStream<Piece>, CommandError> {
    let (pieces, stream) = channel(2);
    let server = Handle::current();
    let thread = std::thread::Builder::new().name("lrs-record".into());
    thread.spawn(move || write_out(recorded, &pieces, &server)).map_err(|error| {
        let message = format!("no thread could be started that records: {error}");
        CommandError::new(ErrorKind::Unavailable, message)
    })?;
    Ok(ReceiverStream::new(stream))
}

fn write_out(mut recorded: UnboundedReceiver<Recorded>, pieces: &Sender<Piece>, server: &Handle) {
    let send = |entry: &Entry| {
        let (bytes, error) = match lrs_recording::encode(entry) {
            Ok(bytes) => (bytes, None),
            Err(error) => (Vec::new(), Some(Status::internal(format!("not recorded: {error}")))),
        };
        let last = bytes.len().div_ceil(PIECE).saturating_sub(1);
        let parts = bytes.chunks(PIECE).enumerate();
        let parts = parts
            .map(|(at, data)| Ok(proto::RecordPiece { data: data.to_vec(), whole: at == last }));
        // A client that has gone ends it: what is recorded is dropped, which the loop sees.
        let is_whole = error.is_none();
        parts.chain(error.map(Err)).all(|piece| pieces.blocking_send(piece).is_ok()) && is_whole
    };
    let mut is_sent = send(&lrs_recording::header());
    while is_sent {
        let next = async {
            tokio::select! {
                next = recorded.recv() => next,
                () = pieces.closed() => None,
            }
        };
        // The loop or the client has ended, or it is the last entry.
        let Some((entry, _room)) = server.block_on(next) else { return };
        is_sent = send(&entry) && !matches!(entry, Entry::End(_));
    }
}
