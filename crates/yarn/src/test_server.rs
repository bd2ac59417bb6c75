//! A web server for tests, on a port of its own choosing, that answers by its script.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET /path HTTP/1.1`
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The path without its query.
    pub fn path(&self) -> &str {
        let target = self.line.split(' ').nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default()
    }
}

/// What the server does about a request.
#[derive(Clone, Debug)]
pub enum Answer {
    Http {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Keeps the connection and says nothing.
    Nothing,
    /// A head, half a body, and no more.
    Halfway,
    Raw(&'static [u8]),
}

impl Answer {
    pub fn text(status: u16, content_type: &str, body: &str) -> Answer {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Answer::Http { status, headers, body: body.to_owned() }
    }

    pub fn json(body: &str) -> Answer {
        Answer::text(200, "application/json;charset=utf-8", body)
    }

    pub fn status(status: u16) -> Answer {
        Answer::text(status, "text/html", "<html>no</html>")
    }

    pub fn with(mut self, name: &str, value: &str) -> Answer {
        if let Answer::Http { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

type Answering = dyn Fn(&Request) -> Answer + Send + Sync;

/// The server; its threads end with the process.
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answering> = Arc::new(answer);
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Server { address, requests }
    }

    /// Without a path.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base())
    }

    /// What came so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// One request; the connection then closes, as Hadoop's does on most errors.
fn serve(stream: TcpStream, answer: &Answering, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    let mut next = || {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end().to_owned())
    };
    let Some(first) = next() else { return };
    let mut headers = Vec::new();
    while let Some(line) = next().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut request = Request { line: first, headers, body: String::new() };
    let length = request.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    request.body = String::from_utf8_lossy(&body).into_owned();
    seen.lock().unwrap().push(request.clone());
    let mut out = &stream;
    // A client that gave up is what some tests are about.
    let _ = match answer(&request) {
        Answer::Http { status, headers, body } => {
            let headers: String = headers.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
            let length = body.len();
            write!(
                out,
                "HTTP/1.1 {status} x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        }
        Answer::Raw(bytes) => out.write_all(bytes),
        Answer::Halfway => {
            let head =
                "HTTP/1.1 200 x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n";
            let _ = write!(out, "{head}\r\n{{");
            until_closed(&stream)
        }
        Answer::Nothing => until_closed(&stream),
    };
}

fn until_closed(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.read(&mut [0]).map(drop)
}
