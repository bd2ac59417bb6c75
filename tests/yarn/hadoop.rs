//! Where Hadoop is: the libraries `tests/yarn/run` fetched, and the Java that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The version most tests use: the newest, the first made for Java 17.
pub const NEWEST: &str = "3.5.0";
/// Its answers come from another web stack (Jersey 1), and its daemons are older in all else.
pub const OLDER: &str = "3.4.2";

/// What Hadoop's older libraries reach into; without these a web application ends with
/// ExceptionInInitializerError on Java 17.
const OPENED: &[&str] = &[
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.util",
    "java.util.concurrent",
    "java.util.zip",
    "sun.security.util",
    "sun.security.x509",
];

/// Starts fast and stays small: nothing here runs long enough for the second compiler to pay.
pub const SMALL_JVM: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// One version of Hadoop on this machine.
#[derive(Clone, Debug)]
pub struct Hadoop {
    pub version: String,
    pub lib: PathBuf,
    /// `$JAVA_HOME`, which a NodeManager must have in its environment.
    pub java_home: PathBuf,
}

impl Hadoop {
    /// The one `tests/yarn/run` fetched.
    pub fn find(version: &str) -> Hadoop {
        let lib =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hadoop").join(version).join("lib");
        assert!(
            lib.join(format!("hadoop-common-{version}.jar")).exists(),
            "no Hadoop {version} in {}: tests/yarn/run fetches it",
            lib.display()
        );
        Hadoop { version: version.to_owned(), lib, java_home: java_home() }
    }

    /// `java`, with a class path of `conf` before the libraries.
    pub fn java(&self, conf: &Path, heap: &str) -> Vec<String> {
        let mut words = vec![self.java_home.join("bin/java").display().to_string()];
        words.extend(OPENED.iter().map(|name| format!("--add-opens=java.base/{name}=ALL-UNNAMED")));
        words.extend(SMALL_JVM.iter().map(|&word| word.to_owned()));
        words.push(format!("-Xmx{heap}"));
        words.extend(["-cp".to_owned(), format!("{}:{}/*", conf.display(), self.lib.display())]);
        words
    }
}

/// What `tests/yarn/run` fetched of a framework beside Hadoop, below its directory.
pub fn framework(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hadoop").join(path);
    assert!(path.exists(), "no {}: tests/yarn/run frameworks fetches it", path.display());
    path
}

/// The helper of LinuxContainerExecutor that `tests/yarn/run --executor` built.
pub fn container_executor() -> PathBuf {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hadoop/executor/bin/container-executor");
    assert!(
        path.exists(),
        "no {}: it is native and published nowhere; tests/yarn/run --executor SOURCES builds it \
         from a release's sources",
        path.display()
    );
    path
}

fn java_home() -> PathBuf {
    if let Some(home) = std::env::var_os("JAVA_HOME") {
        return home.into();
    }
    let found = Command::new("sh").args(["-c", "command -v java"]).output().expect("sh");
    let path = String::from_utf8(found.stdout).expect("a path");
    let binary = std::fs::canonicalize(path.trim()).expect("java: not on PATH, and no JAVA_HOME");
    binary.ancestors().nth(2).expect("a java in <home>/bin").to_owned()
}
