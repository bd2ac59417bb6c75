//! The settings as lrsd has them in force: what GetConfig answers.
//!
//! lrsd checks the file, knows the defaults and names every fault; here its answer is only read.
//! It is kept beside the ledger (`settings.toml`), so that an offer can be given back where no lrsd
//! runs any more ([`mod@crate::give_back`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use lrs_core::units::{Bytes, MemoryAmount, Share};
use lrs_hadoop_conf::NodeId;
use lrs_host::files::{self, StateError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// What of lrsd's settings matters here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Settings {
    pub daemon: Daemon,
    pub guard: Guard,
    pub yarn: Yarn,
}

/// Of `[daemon]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Daemon {
    pub mode: Mode,
    pub log: String,
}

/// `daemon.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Mode {
    Enforce,
    Observe,
}

/// Of `[guard]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Guard {
    #[serde(deserialize_with = "memory_amount")]
    pub memory_reserve: MemoryAmount,
}

/// `[yarn]`, as lrs.toml(5) tells it. `None` is "auto".
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Yarn {
    pub enabled: bool,
    #[serde(flatten)]
    pub lasting: Lasting,
    pub offer: bool,
    #[serde(deserialize_with = "size")]
    pub slot_memory: Bytes,
    pub slot_vcores: u32,
    #[serde(deserialize_with = "duration")]
    pub poll: Duration,
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
}

/// What decides whom to talk to, and how. lrsd takes a change with a restart.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Lasting {
    pub conf_dir: PathBuf,
    #[serde(deserialize_with = "auto")]
    pub resource_managers: Option<Vec<String>>,
    #[serde(deserialize_with = "auto")]
    pub node_manager: Option<String>,
    #[serde(deserialize_with = "auto")]
    pub node_id: Option<NodeId>,
    pub offer_by: OfferBy,
    pub rmadmin: Vec<String>,
    pub user: String,
    #[serde(deserialize_with = "auto")]
    pub ca_file: Option<PathBuf>,
}

/// `yarn.offer_by`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferBy {
    /// The node-resource call of the ResourceManager's web services (3.3.0 and later).
    Rest,
    /// `yarn rmadmin -updateNodeResource` (2.8 and later).
    Rmadmin,
}

impl Settings {
    /// From what GetConfig answers.
    ///
    /// # Errors
    /// It is no configuration of an lrsd of this version.
    pub fn from_toml(text: &str) -> Result<Settings, toml::de::Error> {
        toml::from_str(text)
    }

    /// Those that were kept in `dir`; `None`: none were.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept(dir: &Path) -> Result<Option<Settings>, StateError> {
        let path = file(dir);
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let read = Settings::from_toml(&String::from_utf8_lossy(&bytes));
        read.map(Some).map_err(|error| files::at(&path, "read", std::io::Error::other(error)))
    }

    /// Keeps what GetConfig answered in `dir`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(text: &str, dir: &Path) -> Result<(), StateError> {
        files::write_atomically(&file(dir), text.as_bytes())
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("settings.toml")
}

/// "auto", or a value of the operator's.
fn auto<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = toml::Value::deserialize(from)?;
    if value.as_str() == Some("auto") {
        return Ok(None);
    }
    T::deserialize(value).map(Some).map_err(D::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    amount(&String::deserialize(from)?, &units).map(Duration::from_millis).map_err(D::Error::custom)
}

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    amount(&String::deserialize(from)?, SIZES).map(Bytes).map_err(D::Error::custom)
}

fn memory_amount<'de, D: Deserializer<'de>>(from: D) -> Result<MemoryAmount, D::Error> {
    let text = String::deserialize(from)?;
    let Some(percent) = text.strip_suffix('%') else {
        return amount(&text, SIZES).map(Bytes).map(MemoryAmount::Bytes).map_err(D::Error::custom);
    };
    let share = format!("{percent}e-2").parse::<f64>().map_err(D::Error::custom)?;
    Ok(MemoryAmount::OfTotal(Share::clamped(share)))
}

/// As lrsd writes it: a whole number in the largest unit that divides it.
fn amount(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let number = digits.parse::<u64>().ok().zip(factor).and_then(|(n, f)| n.checked_mul(f));
    number.ok_or_else(|| format!("{text:?} is no whole number with a unit"))
}

/// What lrsd has by default.
#[cfg(test)]
pub(crate) fn defaults() -> Settings {
    Settings::from_toml(&lrs::config::Config::default().to_toml()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lrsd_answers_is_read() {
        let yarn = defaults().yarn;
        assert!(!yarn.enabled && !yarn.offer);
        assert_eq!((yarn.slot_memory, yarn.poll), (Bytes(1 << 30), Duration::from_secs(5)));
        assert_eq!((yarn.lasting.node_id, yarn.lasting.offer_by), (None, OfferBy::Rest));
        assert_eq!(
            defaults().guard.memory_reserve,
            lrs::config::Config::default().guard.memory_reserve
        );
        let written = "guard.memory_reserve = \"1.5GiB\"\n[yarn]\nenabled = true\npoll = \"1.5m\"\n\
             node_id = \"n:1\"\nresource_managers = [\"http://a:1\"]\nslot_memory = \"768MiB\"\n\
             offer_by = \"rmadmin\"\nca_file = \"/a/b\"\n[daemon]\nmode = \"observe\"";
        let config = lrs::config::Config::from_toml(written, Path::new("x")).unwrap();
        let read = Settings::from_toml(&config.to_toml()).unwrap();
        assert_eq!(read.daemon.mode, Mode::Observe);
        assert_eq!(read.guard.memory_reserve, MemoryAmount::Bytes(Bytes(3 << 29)));
        assert_eq!(read.yarn.poll, Duration::from_secs(90));
        assert_eq!(read.yarn.slot_memory, Bytes(768 << 20));
        let lasting = read.yarn.lasting;
        assert_eq!(lasting.node_id, Some("n:1".parse().unwrap()));
        assert_eq!(lasting.resource_managers, Some(vec![String::from("http://a:1")]));
        assert_eq!(lasting.ca_file, Some(PathBuf::from("/a/b")));
        assert_eq!(lasting.offer_by, OfferBy::Rmadmin);
    }

    #[test]
    fn they_are_kept_for_who_gives_back_without_lrsd() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Settings::kept(dir.path()).unwrap(), None);
        Settings::keep(&lrs::config::Config::default().to_toml(), dir.path()).unwrap();
        assert_eq!(Settings::kept(dir.path()).unwrap(), Some(defaults()));
        Settings::keep("x", dir.path()).unwrap();
        assert!(Settings::kept(dir.path()).unwrap_err().to_string().contains("settings.toml"));
    }
}
