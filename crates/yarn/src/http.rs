//! One HTTP call: bounded in time and size, following no redirect, with errors an operator can act
//! on.
//!
//! A web service of Hadoop's answers with more than JSON: a login asked for by SPNEGO, an HTML
//! page of a proxy or of the wrong port, a redirect of a standby ResourceManager. Each is an
//! error of its own here, because what to do about it differs. Redirects are not followed: where
//! the node's resource is written is decided by [`super::client`], not by an answer.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Largest answer taken. One node or one application has a few KiB; a NodeManager's list of a
/// thousand containers stays below 1 MiB.
pub const MAX_ANSWER_BYTES: u64 = 2 << 20;

/// How much of an unexpected answer an error shows.
const EXCERPT_CHARS: usize = 120;

const JSON: &str = "application/json";

/// Where distributions keep the certificates of the system (Debian, RHEL, SUSE, Alpine).
const SYSTEM_CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A call that brought no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct CallError {
    /// What was called.
    pub url: String,
    /// What came instead.
    pub problem: Problem,
}

/// What came instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error("cannot be reached: {0}; is the service running, and are host and port right?")]
    Unreachable(String),
    #[error(
        "lrs-yarn may not connect: {0}; a drop-in of lrs-yarn.service takes network sockets away \
         (RestrictAddressFamilies=, IPAddressDeny=): remove it on a YARN node"
    )]
    Forbidden(String),
    #[error("no answer within {0:?}; it is overloaded or hangs, or yarn.timeout is too short")]
    TimedOut(Duration),
    #[error("no secure connection: {0}; {advice}", advice = trust(.0))]
    Tls(String),
    #[error(
        "status {0} asks for Kerberos and LRS has no ticket here; offers are made where \
         yarn.offer_by = \"rmadmin\", with what gets one from a keytab (k5start, kinit) before yarn.rmadmin"
    )]
    Kerberos(u16),
    #[error(
        "status {status} refuses user {user:?} ({excerpt}); set yarn.user to one who may, or \
         yarn.offer_by = \"rmadmin\""
    )]
    Refused { status: u16, user: String, excerpt: String },
    #[error("status 404, nothing by this name ({0})")]
    NotFound(String),
    #[error(
        "status {status} sends elsewhere ({to}); LRS follows no redirect: is it a standby \
         ResourceManager, or is another address right?"
    )]
    Redirected { status: u16, to: String },
    #[error("status {status} ({excerpt}); its log says why")]
    Status { status: u16, excerpt: String },
    #[error(
        "answers {content_type} instead of JSON ({excerpt}); is this the address of the web \
         service, or of a proxy or another server?"
    )]
    NotJson { content_type: String, excerpt: String },
    #[error("the answer is longer than {0} bytes; is this the right address?")]
    TooLong(u64),
    #[error("the answer is not what it should be: {reason} ({excerpt})")]
    Malformed { reason: String, excerpt: String },
}

impl Problem {
    /// Whether it is the cluster's word and not this one server's: another would say the same.
    pub fn is_of_the_cluster(&self) -> bool {
        matches!(self, Problem::Kerberos(_) | Problem::Refused { .. })
    }
}

/// Certificates that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CertificateError {
    #[error("yarn.ca_file {path}: {reason}; give a PEM file with certificates", path = path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error(
        "no certificates of the system are found in {0}; install ca-certificates or set yarn.ca_file"
    )]
    NoneOfTheSystem(String),
}

/// Makes calls.
#[derive(Debug, Clone)]
pub struct Http {
    agent: Agent,
    user: String,
    timeout: Duration,
}

impl Http {
    /// Calls as `user` where no proof is asked for. `ca_file` replaces the system's certificates;
    /// they are only read for `https`.
    ///
    /// # Errors
    /// Certificates that are missing or no PEM.
    pub fn new(
        user: &str,
        timeout: Duration,
        https: bool,
        ca_file: Option<&Path>,
    ) -> Result<Http, CertificateError> {
        let roots = match (https, ca_file) {
            (false, _) => RootCerts::new_with_certs(&[]),
            (true, Some(path)) => RootCerts::new_with_certs(&certificates(path)?),
            (true, None) => RootCerts::new_with_certs(&system_certificates()?),
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy of the environment is for the way out of the site, not into its cluster.
            .proxy(None)
            .user_agent(concat!("lrs-yarn/", env!("CARGO_PKG_VERSION")))
            .accept("application/json")
            .max_idle_connections_per_host(1)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build()
            .new_agent();
        Ok(Http { agent, user: user.to_owned(), timeout })
    }

    /// How long one call may take from now on, connecting and reading included.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// GET of JSON, at most `limit` bytes of it.
    pub fn get<T: DeserializeOwned>(&self, url: &str, limit: u64) -> Result<T, CallError> {
        // Without a name "dr.who" asks, whom ACLs on applications and nodes show less.
        crate::notify::alive();
        let request = self.agent.get(url).query("user.name", &self.user);
        let answer = request.config().timeout_global(Some(self.timeout)).build().call();
        self.taken(answer, limit).map_err(|problem| at(url, problem))
    }

    /// POST of XML in the name of the user. What is answered says nothing to rely on (see
    /// [`super::client`]), so long as it comes from the service.
    pub fn post_xml(&self, url: &str, xml: &str) -> Result<(), CallError> {
        crate::notify::alive();
        let answer = self
            .agent
            .post(url)
            .query("user.name", &self.user)
            .content_type("application/xml")
            .config()
            .timeout_global(Some(self.timeout))
            .build()
            .send(xml);
        self.read(answer, MAX_ANSWER_BYTES, &[JSON, "application/xml"])
            .map(drop)
            .map_err(|problem| at(url, problem))
    }

    fn taken<T: DeserializeOwned>(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
        limit: u64,
    ) -> Result<T, Problem> {
        let bytes = self.read(answer, limit, &[JSON])?;
        serde_json::from_slice(&bytes).map_err(|error| Problem::Malformed {
            reason: error.to_string(),
            excerpt: excerpt(&String::from_utf8_lossy(&bytes)),
        })
    }

    fn read(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
        limit: u64,
        types: &[&str],
    ) -> Result<Vec<u8>, Problem> {
        let answer = answer.map_err(|error| self.problem(error))?;
        let (head, body) = answer.into_parts();
        let mut bytes = Vec::new();
        body.into_reader()
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.problem(ureq::Error::from(error)))?;
        self.accept(head.status, &head.headers, types, &String::from_utf8_lossy(&bytes))?;
        if bytes.len() as u64 > limit {
            return Err(Problem::TooLong(limit));
        }
        Ok(bytes)
    }

    /// Whether an answer with this head is one of the service.
    fn accept(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        types: &[&str],
        text: &str,
    ) -> Result<(), Problem> {
        let word = |name: header::HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
        let code = status.as_u16();
        if status.is_redirection() {
            let to = excerpt(word(header::LOCATION).unwrap_or("nowhere"));
            return Err(Problem::Redirected { status: code, to });
        }
        if let Some(to) = word(header::REFRESH) {
            // A standby ResourceManager that knows of no active one says so with status 200.
            return Err(Problem::Redirected { status: code, to: excerpt(to) });
        }
        match code {
            401 | 403 => {
                let asks = headers.get_all(header::WWW_AUTHENTICATE).iter();
                let negotiate = |v: &header::HeaderValue| {
                    v.as_bytes().to_ascii_lowercase().starts_with(b"negotiate")
                };
                if asks.into_iter().any(negotiate) {
                    return Err(Problem::Kerberos(code));
                }
                Err(Problem::Refused {
                    status: code,
                    user: self.user.clone(),
                    excerpt: excerpt(text),
                })
            }
            404 => Err(Problem::NotFound(excerpt(text))),
            _ if !status.is_success() => {
                Err(Problem::Status { status: code, excerpt: excerpt(text) })
            }
            _ => {
                let content_type = word(header::CONTENT_TYPE).unwrap_or("no content type");
                let found = content_type.to_ascii_lowercase();
                if types.iter().any(|wanted| found.starts_with(wanted)) {
                    return Ok(());
                }
                Err(Problem::NotJson {
                    content_type: excerpt(content_type),
                    excerpt: excerpt(text),
                })
            }
        }
    }

    fn problem(&self, error: ureq::Error) -> Problem {
        match error {
            ureq::Error::Timeout(_) => Problem::TimedOut(self.timeout),
            ureq::Error::Io(error) if is_timeout(&error) => Problem::TimedOut(self.timeout),
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => {
                Problem::Tls(error.to_string())
            }
            // rustls wraps what is wrong with a certificate into an error of the stream.
            ureq::Error::Io(error)
                if error.kind() == std::io::ErrorKind::InvalidData
                    && error.to_string().contains("certificate") =>
            {
                Problem::Tls(error.to_string())
            }
            // What systemd's RestrictAddressFamilies= and IPAddressDeny= come to.
            ureq::Error::Io(error)
                if error.kind() == std::io::ErrorKind::PermissionDenied
                    || error.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
            {
                Problem::Forbidden(error.to_string())
            }
            ureq::Error::Protocol(error) => Problem::Malformed {
                reason: format!("it does not speak HTTP: {error}"),
                excerpt: "nothing to show".into(),
            },
            error => Problem::Unreachable(error.to_string()),
        }
    }
}

/// What to do about a certificate, by what rustls says of it.
fn trust(reason: &str) -> &'static str {
    if reason.contains("CaUsedAsEndEntity") {
        "the server shows the certificate of an authority, which yarn.ca_file may name but no \
         server may have: give the server one with basicConstraints CA:FALSE"
    } else if reason.contains("not valid for name") {
        "the certificate has to have that name as subjectAltName, or the address in yarn-site.xml \
         (or yarn.resource_managers, yarn.node_manager) to be a name it has"
    } else {
        "yarn.ca_file names the certificates to trust"
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock)
}

fn at(url: &str, problem: Problem) -> CallError {
    CallError { url: url.to_owned(), problem }
}

/// The beginning of what came, on one line and harmless to a terminal.
pub(super) fn excerpt(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text.split_whitespace();
    for word in rest.by_ref() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !c.is_control()).take(EXCERPT_CHARS + 1));
        if words.chars().count() >= EXCERPT_CHARS {
            break;
        }
    }
    if words.is_empty() {
        return "empty".into();
    }
    let cut = words.chars().count() > EXCERPT_CHARS || rest.next().is_some();
    let mut shown: String = words.chars().take(EXCERPT_CHARS).collect();
    if cut {
        shown.push_str(" ...");
    }
    shown
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, CertificateError> {
    let unusable = |reason: String| CertificateError::Unusable { path: path.to_owned(), reason };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(unusable(error.to_string())),
        }
    }
    if found.is_empty() {
        return Err(unusable("it has no certificate".into()));
    }
    Ok(found)
}

fn system_certificates() -> Result<Vec<Certificate<'static>>, CertificateError> {
    // Which of the places there is depends on the distribution; what is read must be right.
    match SYSTEM_CERTIFICATES.iter().map(Path::new).find(|path| path.exists()) {
        Some(path) => certificates(path),
        None => Err(CertificateError::NoneOfTheSystem(SYSTEM_CERTIFICATES.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::test_server::{Answer, Server};
    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    fn http() -> Http {
        Http::new("yarn", Duration::from_secs(5), false, None).unwrap()
    }

    fn problem(answer: Answer) -> Problem {
        let server = Server::start(move |_| answer.clone());
        http().get::<Value>(&server.url("/x"), 1000).unwrap_err().problem
    }

    #[test]
    fn json_is_taken_and_the_request_is_as_documented() {
        let server = Server::start(|_| Answer::json(r#"{"a":1}"#));
        let value: Value = http().get(&server.url("/y"), 1000).unwrap();
        assert_eq!(value["a"], 1);
        http().post_xml(&server.url("/x"), "<a/>").unwrap();
        let request = server.requests().remove(1);
        assert_eq!(request.line, "POST /x?user.name=yarn HTTP/1.1");
        assert_eq!(request.header("content-type"), Some("application/xml"));
        assert_eq!(request.header("accept"), Some("application/json"));
        assert_eq!(request.body, "<a/>");
    }

    #[test]
    fn a_missing_daemon_is_reported() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", gone.local_addr().unwrap());
        drop(gone);
        let error = http().get::<Value>(&url, 1000).unwrap_err();
        assert!(matches!(error.problem, Problem::Unreachable(_)), "{error}");
        assert!(error.to_string().starts_with(&url), "{error}");
    }

    #[test]
    fn a_server_that_hangs_costs_the_timeout_and_not_more() {
        for answer in [Answer::Nothing, Answer::Halfway] {
            let server = Server::start(move |_| answer.clone());
            let mut http = http();
            http.set_timeout(SOON);
            let before = lrs_host::clock::boot_time();
            let error = http.get::<Value>(&server.url("/x"), 1000).unwrap_err();
            assert_eq!(error.problem, Problem::TimedOut(SOON));
            assert!(lrs_host::clock::boot_time().since(before) < Duration::from_secs(3));
        }
    }

    #[test]
    fn kerberos_is_distinguished_from_a_refusal() {
        let negotiate = Answer::status(401).with("WWW-Authenticate", "Negotiate");
        let found = problem(negotiate);
        assert_eq!(found, Problem::Kerberos(401));
        let text = found.to_string();
        assert!(text.contains("rmadmin") && text.contains("keytab"), "{text}");
        assert!(matches!(problem(Answer::status(403)), Problem::Refused { status: 403, .. }));
    }

    #[test]
    fn what_is_not_the_service_is_named() {
        let html = Answer::text(200, "text/html; charset=utf-8", "<html>\n  <b>Hi</b></html>");
        let text = problem(html).to_string();
        assert!(text.contains("text/html") && text.contains("<html> <b>Hi</b></html>"), "{text}");
        assert!(matches!(problem(Answer::status(404)), Problem::NotFound(_)));
        assert!(matches!(problem(Answer::status(500)), Problem::Status { status: 500, .. }));
        assert!(matches!(problem(Answer::json("{")), Problem::Malformed { .. }));
        assert!(matches!(problem(Answer::json("\u{1b}[31m")), Problem::Malformed { .. }));
        assert_eq!(problem(Answer::json(&"9".repeat(1001))), Problem::TooLong(1000));
        assert!(matches!(problem(Answer::Raw(b"SSH-2.0-x\r\n")), Problem::Malformed { .. }));
    }

    #[test]
    fn redirects_are_not_followed() {
        let elsewhere = Server::start(|_| Answer::json("{}"));
        let moved = Answer::status(307).with("Location", &elsewhere.url("/x"));
        assert!(matches!(problem(moved), Problem::Redirected { status: 307, .. }));
        let refresh = Answer::text(200, "text/plain", "There is currently no active RM")
            .with("Refresh", "3; url=/x");
        assert!(matches!(problem(refresh), Problem::Redirected { status: 200, .. }));
        assert!(elsewhere.requests().is_empty());
    }

    #[test]
    fn an_excerpt_is_one_harmless_line() {
        assert_eq!(excerpt(" a\n\tb\u{1b}[0m "), "a b[0m");
        assert_eq!(excerpt(""), "empty");
        assert_eq!(excerpt(&"ä".repeat(500)).chars().count(), EXCERPT_CHARS + 4);
    }

    #[test]
    fn advice_about_a_certificate_is_for_what_is_wrong_with_it() {
        let text = |reason: &str| Problem::Tls(reason.to_owned()).to_string();
        assert!(text("invalid peer certificate: UnknownIssuer").contains("yarn.ca_file"));
        let authority = text("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(authority.contains("CA:FALSE"), "{authority}");
        let other = text("invalid peer certificate: certificate not valid for name \"a\"");
        assert!(other.contains("subjectAltName"), "{other}");
    }

    #[test]
    fn certificates_are_read_and_their_faults_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let fault = || Http::new("yarn", SOON, true, Some(&file)).unwrap_err().to_string();
        assert!(fault().contains("ca.pem"));
        std::fs::write(&file, "not a certificate").unwrap();
        assert!(fault().contains("it has no certificate"));
    }
}
