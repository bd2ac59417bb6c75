//! What the daemons say over HTTP.

use std::time::Duration;

use serde_json::Value;

/// The JSON at an address, or `None` while nobody answers it with success.
pub fn get(address: &str) -> Option<Value> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().into();
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
