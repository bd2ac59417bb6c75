//! Argument values: endpoints, durations, labels.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::core::model::Label;

/// Where the daemon listens when nobody says otherwise.
pub(crate) const DEFAULT_ENDPOINT: &str = "unix:/run/lrs/lrsd.sock";

/// `sun_path` of unix(7) less the final NUL.
const LONGEST_SOCKET_PATH: usize = 107;

/// Where to reach a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    path: PathBuf,
}

impl Endpoint {
    /// The socket at `path`.
    pub(crate) fn unix(path: &Path) -> Result<Endpoint, String> {
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(format!(
                "the socket path has {length} bytes; the kernel allows {LONGEST_SOCKET_PATH}"
            ));
        }
        Ok(Endpoint { path: path.to_owned() })
    }

    /// Path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unix:{}", self.path.display())
    }
}

impl FromStr for Endpoint {
    type Err = String;

    /// `unix:/path`, `unix:///path` or `unix:relative`.
    fn from_str(text: &str) -> Result<Endpoint, String> {
        if text.starts_with("https:") || text.starts_with("http:") {
            return Err("network endpoints are not built yet; use unix:/path".to_owned());
        }
        let path = text
            .strip_prefix("unix:")
            .ok_or_else(|| format!("expected unix:/path, for example {DEFAULT_ENDPOINT}"))?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("the socket path is empty".to_owned());
        }
        Endpoint::unix(Path::new(path))
    }
}

/// `--wait[=DUR]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// At most this long.
    For(Duration),
    /// Until a slot is free.
    Forever,
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Patience, String> {
        if text == "forever" {
            return Ok(Patience::Forever);
        }
        duration(text).map(Patience::For)
    }
}

/// A duration as people write it: `500ms`, `10s`, `1.5m`, `2h`, `1d`. Only 0 may go without
/// a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wanted = "expected a number and a unit: 500ms, 10s, 5m, 2h, 1d";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit_at =
        text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| wanted.to_owned())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(wanted.to_owned()),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err(wanted.to_owned());
    }
    let number: f64 = number.parse().map_err(|_| wanted.to_owned())?;
    let duration = Duration::try_from_secs_f64(number * seconds_per_unit)
        .map_err(|_| "the duration is too long".to_owned())?;
    // milliseconds are what the wire carries
    Ok(Duration::from_millis(millis(duration)))
}

/// Milliseconds of the wire, rounded to the nearest.
pub(crate) fn millis(duration: Duration) -> u64 {
    let rounded = duration.as_nanos().saturating_add(500_000) / 1_000_000;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

/// Name, job or kind.
pub(crate) fn label(text: &str) -> Result<String, String> {
    Label::new(text).map(|label| label.as_str().to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_stay_exact() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1.5s", 1_500),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0", 0),
            ("0s", 0),
            ("0.1s", 100),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1e3s", "1.s", ".5s", "10 s", "1.2.3s", "5y", "nans"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        assert!(duration(&format!("{}d", "9".repeat(40))).is_err());
    }

    #[test]
    fn endpoints_are_unix_sockets() {
        let path = |text: &str| text.parse::<Endpoint>().map(|e| e.path().to_owned());
        assert_eq!(path("unix:/run/x.sock"), Ok(PathBuf::from("/run/x.sock")));
        assert_eq!(path("unix:///run/x.sock"), Ok(PathBuf::from("/run/x.sock")));
        assert_eq!(path("unix:x.sock"), Ok(PathBuf::from("x.sock")));
        assert!(path("https://localhost:1").unwrap_err().contains("not built yet"));
        assert!(path("/run/x.sock").is_err());
        assert!(path("unix:").is_err());
        assert!(path(&format!("unix:/{}", "x".repeat(106))).is_ok());
        assert!(path(&format!("unix:/{}", "x".repeat(107))).unwrap_err().contains("107"));
    }

    #[test]
    fn patience_is_a_duration_or_endless() {
        assert_eq!("forever".parse(), Ok(Patience::Forever));
        assert_eq!("2s".parse(), Ok(Patience::For(Duration::from_secs(2))));
        assert!("".parse::<Patience>().is_err());
    }
}
