//! A certificate for the web services of one cluster, made by the JDK's keytool and signed by
//! itself: no client trusts it that was not given it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the key store, which nothing outside the cluster's directory reads.
pub const PASSWORD: &str = "of-a-test";

const ALIAS: &str = "cluster";

/// Where the daemons' key is, below the cluster's directory.
pub fn key_store(cluster: &Path) -> PathBuf {
    cluster.join("keys.p12")
}

/// Where the certificate is as PEM, for clients.
pub fn pem(cluster: &Path) -> PathBuf {
    cluster.join("certificate.pem")
}

/// Makes both.
pub fn make(cluster: &Path, java_home: &Path) {
    let (store, pem) = (key_store(cluster), pem(cluster));
    let key = ["-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2"];
    // The daemons are called by their address.
    let names = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"];
    keytool(java_home, &store, &[&key[..], &names].concat());
    let pem = pem.to_str().expect("a path of our own");
    keytool(java_home, &store, &["-exportcert", "-rfc", "-file", pem]);
}

fn keytool(java_home: &Path, store: &Path, words: &[&str]) {
    let output = Command::new(java_home.join("bin/keytool"))
        .args(words)
        .args(["-alias", ALIAS, "-storetype", "PKCS12", "-storepass", PASSWORD, "-keystore"])
        .arg(store)
        .output()
        .expect("keytool starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "keytool {words:?}: {}\n{stdout}", output.status);
}
