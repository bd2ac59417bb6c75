//! systemd's own socket, with no message broker in between.
//!
//! It is the one that systemctl uses as root. On it systemd writes its well-known name into the
//! sender of each message (sd_bus_set_sender(3)). The D-Bus specification wants a unique name
//! there, and zbus 5 panics over any other. So the name is made a unique one as it is read: its
//! first letter becomes a colon.
//!
//! systemd sends all its signals to each client of this socket, and queues them for one that does
//! not read. So no such connection is kept between two calls.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;

use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use zbus::connection::socket::{BoxedSplit, ReadHalf};

/// Where systemd listens.
pub(super) const SOCKET: &str = "/run/systemd/private";

/// What systemd calls itself.
pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";

/// Connects to systemd at `socket`.
///
/// # Errors
/// Nothing listens there, or this process may not connect (systemd wants root).
pub(super) async fn connect(socket: &Path) -> zbus::Result<zbus::Connection> {
    let (reader, writer) = UnixStream::connect(socket).await?.into_split();
    let reader = MessageReader { inner: reader, sender: SenderName::default() };
    let split = BoxedSplit::new(Box::new(reader), Box::new(writer));
    zbus::connection::Builder::socket(split).p2p().build().await
}

/// The receiving end, which corrects the sender.
#[derive(Debug)]
struct MessageReader {
    inner: OwnedReadHalf,
    sender: SenderName,
}

/// What [`ReadHalf::recvmsg`] answers.
type Received = io::Result<(usize, Vec<OwnedFd>)>;

impl ReadHalf for MessageReader {
    /// Not for the descriptors, of which there are none, but for the handshake: its last question
    /// makes zbus wait for an answer before it sends a call. A call that systemd reads together
    /// with the end of the handshake lies there until the next one comes (*measured* on 252).
    fn can_pass_unix_fd(&self) -> bool {
        true
    }

    fn recvmsg<'s, 'b, 'f>(
        &'s mut self,
        buffer: &'b mut [u8],
    ) -> Pin<Box<dyn Future<Output = Received> + Send + 'f>>
    where
        's: 'f,
        'b: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let (length, descriptors) = self.inner.recvmsg(buffer).await?;
            self.sender.correct(buffer.get_mut(..length).unwrap_or_default());
            Ok((length, descriptors))
        })
    }
}

/// Finds the header field with systemd's name as the sender, wherever a read ends in it.
#[derive(Debug, Default)]
struct SenderName {
    /// The last eight bytes, the newest last.
    seen: [u8; 8],
}

impl SenderName {
    /// A header field up to its text (D-Bus specification, "Message Format"): the code of SENDER,
    /// the signature "s", the length. It begins at a multiple of eight, so there is no padding. No
    /// message of systemd has these bytes in its body: there a variant follows a string.
    fn field() -> [u8; 8] {
        let [a, b, c, d] = (SYSTEMD.len() as u32).to_ne_bytes();
        [7, 1, b's', 0, a, b, c, d]
    }

    fn correct(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.seen == SenderName::field() && *byte == b'o' {
                *byte = b':';
            }
            self.seen.rotate_left(1);
            self.seen[7] = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream as StdStream};

    use zbus::message::Message;
    use zbus::names::UniqueName;
    use zbus::zvariant::NATIVE_ENDIAN;
    use zbus::zvariant::serialized::{Context, Data};

    use super::*;

    /// A signal as systemd sends it, with the name in its body too.
    fn from_systemd() -> Vec<u8> {
        let sender = UniqueName::from_static_str_unchecked(SYSTEMD);
        let message = Message::signal("/org/freedesktop/systemd1", SYSTEMD, "Reloading");
        let message = message.unwrap().sender(sender).unwrap().build(&(7u8, SYSTEMD)).unwrap();
        message.data().to_vec()
    }

    /// Reads until `complete` finds an end in what was heard; answers what is before it.
    fn hear(
        client: &mut StdStream,
        heard: &mut Vec<u8>,
        complete: impl Fn(&[u8]) -> Option<usize>,
    ) -> Vec<u8> {
        loop {
            if let Some(end) = complete(heard) {
                return heard.drain(..end).collect();
            }
            let mut more = [0; 512];
            let length = client.read(&mut more).unwrap();
            assert_ne!(length, 0, "the client hung up after {heard:?}");
            heard.extend(&more[..length]);
        }
    }

    /// What systemd does on its socket: it lets a client in, sends an unrequested signal, and
    /// answers one call without arguments.
    fn answer_one_call(listener: &UnixListener) {
        let (mut client, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        let line = |heard: &[u8]| heard.windows(2).position(|two| two == b"\r\n").map(|at| at + 2);
        hear(&mut client, &mut heard, line);
        client.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").unwrap();
        assert_eq!(hear(&mut client, &mut heard, line), b"NEGOTIATE_UNIX_FD\r\n");
        assert_eq!(hear(&mut client, &mut heard, line), b"BEGIN\r\n");
        assert!(heard.is_empty(), "a call before the end of the handshake: {heard:?}");
        client.write_all(&[b"AGREE_UNIX_FD\r\n", &from_systemd()[..]].concat()).unwrap();
        let call = hear(&mut client, &mut heard, |heard| {
            let fields = u32::from_ne_bytes(heard.get(12..16)?.try_into().unwrap());
            let end = 16 + (fields as usize).next_multiple_of(8);
            (heard.len() >= end).then_some(end)
        });
        let reply = Message::method_return(&parse(call).header()).unwrap();
        let reply = reply.sender(UniqueName::from_static_str_unchecked(SYSTEMD)).unwrap();
        client.write_all(reply.build(&"pong").unwrap().data()).unwrap();
    }

    fn parse(bytes: Vec<u8>) -> Message {
        let data = Data::new(bytes, Context::new_dbus(NATIVE_ENDIAN, 0));
        // SAFETY: another message's bytes; an invalid one would only fail the test.
        unsafe { Message::from_bytes(data) }.unwrap()
    }

    #[tokio::test]
    async fn a_call_is_answered_though_the_sender_is_no_unique_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        let listener = UnixListener::bind(&path).unwrap();
        let systemd = std::thread::spawn(move || answer_one_call(&listener));
        let connection = connect(&path).await.unwrap();
        let reply = connection.call_method(Some(SYSTEMD), "/", Some(SYSTEMD), "Ping", &()).await;
        assert_eq!(reply.unwrap().body().deserialize::<&str>().unwrap(), "pong");
        systemd.join().unwrap();
    }

    #[test]
    fn a_sender_that_is_no_unique_name_becomes_one_wherever_a_read_ends() {
        for cut in 0..from_systemd().len() {
            let mut bytes = from_systemd();
            let mut sender = SenderName::default();
            let (first, second) = bytes.split_at_mut(cut);
            sender.correct(first);
            sender.correct(second);
            let message = parse(bytes);
            let header = message.header();
            assert_eq!(header.sender().unwrap().as_str(), ":rg.freedesktop.systemd1", "{cut}");
            assert_eq!(header.interface().unwrap().as_str(), SYSTEMD);
            let (_, text): (u8, String) = message.body().deserialize().unwrap();
            assert_eq!(text, SYSTEMD);
        }
    }
}
