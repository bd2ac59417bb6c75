//! What the daemons say over HTTP.

use std::time::Duration;

use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The JSON at an address, or `None` while no server answers it with success.
pub fn get(address: &str) -> Option<Value> {
    ask(address, TlsConfig::default())
}

/// The same of a service with this certificate (PEM).
pub fn get_trusting(address: &str, pem: &[u8]) -> Option<Value> {
    let certificate = Certificate::from_pem(pem).expect("a certificate");
    let roots = RootCerts::new_with_certs(&[certificate]);
    ask(address, TlsConfig::builder().root_certs(roots).build())
}

fn ask(address: &str, tls: TlsConfig) -> Option<Value> {
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10)));
    let agent: ureq::Agent = config.tls_config(tls).build().into();
    let mut answer = agent.get(address).header("Accept", "application/json").call().ok()?;
    let text = answer.body_mut().read_to_string().ok()?;
    serde_json::from_str(&text).ok()
}

/// The members of a list that Hadoop leaves out, sets to null or shortens when it is empty.
pub fn list(answer: &Value, outer: &str, inner: &str) -> Vec<Value> {
    match &answer[outer][inner] {
        Value::Array(items) => items.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    }
}
