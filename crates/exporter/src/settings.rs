//! The settings as lrsd has them in force: what GetConfig answers.

use std::net::SocketAddr;

use serde::Deserialize;

/// What of lrsd's settings matters here; what an lrsd of another version does not have is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// `[daemon]`
    pub daemon: Daemon,
    /// `[metrics]`
    pub metrics: Metrics,
}

/// Of `[daemon]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Daemon {
    /// What is logged.
    pub log: String,
}

impl Default for Daemon {
    fn default() -> Daemon {
        Daemon { log: "info".to_owned() }
    }
}

/// `[metrics]`, as lrs.toml(5) tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Metrics {
    pub listen: String,
    pub jobs: u64,
}

impl Settings {
    /// From what GetConfig answers.
    ///
    /// # Errors
    /// It is no TOML, or a value is of another type.
    pub fn from_toml(text: &str) -> Result<Settings, toml::de::Error> {
        toml::from_str(text)
    }

    /// Where to serve; `None`: nowhere. lrsd has checked it.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.metrics.listen.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_what_is_missing_is_off() {
        let settings = Settings::from_toml("[metrics]\nlisten = \"[::1]:9753\"\njobs = 3").unwrap();
        assert_eq!(settings.listen(), Some("[::1]:9753".parse().unwrap()));
        assert_eq!((settings.metrics.jobs, settings.daemon.log.as_str()), (3, "info"));
        for off in ["", "[metrics]\nlisten = \"\""] {
            assert_eq!(Settings::from_toml(off).unwrap().listen(), None);
        }
        assert!(Settings::from_toml("[metrics]\njobs = \"many\"").is_err());
    }
}
