//! The values of a suite, each with its range, and how they are read.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Value;

use super::Arrival;

/// A name that is part of file names and of `--load`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Name, &'static str> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        fits.then_some(Name(text)).ok_or("expected 1 to 64 of a-z, 0-9 and -; correct it")
    }
}

/// A text of one line.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Line(pub(super) String);

impl TryFrom<String> for Line {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Line, &'static str> {
        let fits = (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
        fits.then_some(Line(text))
            .ok_or("expected a text of 1 to 256 bytes on one line; correct it")
    }
}

/// An absolute path.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "PathBuf")]
pub(super) struct Absolute(pub(super) PathBuf);

impl TryFrom<PathBuf> for Absolute {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Absolute, &'static str> {
        if path.is_absolute() {
            Ok(Absolute(path))
        } else {
            Err("expected an absolute path; correct it")
        }
    }
}

/// A whole number between two others.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Whole<const LEAST: i64, const MOST: i64>(i64);

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// As what the range fits in.
    pub(super) fn get<T: TryFrom<i64> + Default>(self) -> T {
        T::try_from(self.0).unwrap_or_default()
    }
}

impl<const LEAST: i64, const MOST: i64> TryFrom<i64> for Whole<LEAST, MOST> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let fits = (LEAST..=MOST).contains(&number);
        fits.then_some(Whole(number))
            .ok_or_else(|| format!("expected {LEAST}..={MOST}; correct it"))
    }
}

/// A number from a few thousandths on: `MOST` and `LEAST` in thousandths.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Number<const LEAST: u32, const MOST: u32>(pub(super) f64);

impl<const LEAST: u32, const MOST: u32> TryFrom<f64> for Number<LEAST, MOST> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let (least, most) = (f64::from(LEAST) / 1e3, f64::from(MOST) / 1e3);
        let fits = (least..=most).contains(&number);
        fits.then_some(Number(number))
            .ok_or_else(|| format!("expected {least}..={most}; correct it"))
    }
}

/// A number and its unit: `1.5` and `s`.
fn parted(text: &str) -> Option<(f64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let plain = number.starts_with(|c: char| c.is_ascii_digit()) && !number.ends_with('.');
    Some((number.parse().ok().filter(|_| plain)?, unit.trim_start()))
}

const NEEDS_UNIT: &str =
    "a duration needs a unit; write it as \"500ms\", \"3s\", \"10m\" or \"1h\"";

/// `500ms`, `3s`, `1.5m`, `1h`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = parted(text).ok_or(NEEDS_UNIT)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(NEEDS_UNIT),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "is too long; correct it")
}

/// A duration between two others, in milliseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Time<const LEAST: u64, const MOST: u64>(pub(super) Duration);

/// A day, in milliseconds.
pub(super) const DAY: u64 = 24 * 3_600_000;

impl<const LEAST: u64, const MOST: u64> TryFrom<Value> for Time<LEAST, MOST> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let time = duration(value.as_str().ok_or(NEEDS_UNIT)?)?;
        let (least, most) = (Duration::from_millis(LEAST), Duration::from_millis(MOST));
        let fits = (least..=most).contains(&time);
        fits.then_some(Time(time))
            .ok_or_else(|| format!("expected {least:?}..={most:?}; correct it"))
    }
}

/// Bytes: a number, or a text such as `1.5GiB`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Size(pub(super) u64);

impl TryFrom<Value> for Size {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Size, &'static str> {
        const WANTED: &str = "expected a size, such as \"64MiB\"; correct it";
        if let Some(bytes) = value.as_integer() {
            return u64::try_from(bytes).map(Size).map_err(|_| WANTED);
        }
        let (number, unit) = value.as_str().and_then(parted).ok_or(WANTED)?;
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let power = units.iter().position(|known| *known == unit);
        let power = power.ok_or("expected a unit of size; use B, KiB, MiB, GiB or TiB")?;
        let bytes = number * 1024_f64.powi(i32::try_from(power).unwrap_or(0));
        // An exbibyte is far above any node, and small enough to calculate with.
        // A part of a byte means nothing; it is cut off.
        if bytes <= (1_u64 << 60) as f64 { Ok(Size(bytes as u64)) } else { Err(WANTED) }
    }
}

/// How many: a number, or `"8 per core"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) enum Count {
    Fixed(u32),
    PerCore(u32),
}

/// The most tasks or parts, on this node too.
const MOST: u32 = 10_000;

/// What [`Count`] takes.
pub(super) const COUNT: &str = "expected 1..=10000, or \"N per core\"; correct it";

impl TryFrom<Value> for Count {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Count, &'static str> {
        let per_core = value.as_str().and_then(|text| text.strip_suffix("per core"));
        let per_core = per_core.and_then(|number| number.trim_end().parse().ok());
        let fixed = value.as_integer().and_then(|number| u32::try_from(number).ok());
        let count = fixed.map(Count::Fixed).or(per_core.map(Count::PerCore));
        count.filter(|count| count.on(1).is_some()).ok_or(COUNT)
    }
}

impl Count {
    /// On a node of `cpus` CPUs; `None` if that is too many.
    pub(super) fn on(self, cpus: u32) -> Option<u32> {
        let count = match self {
            Count::Fixed(count) => count,
            Count::PerCore(each) => each.checked_mul(cpus)?,
        };
        Some(count).filter(|count| (1..=MOST).contains(count))
    }
}

impl TryFrom<String> for Arrival {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Arrival, &'static str> {
        const WANTED: &str =
            "expected \"at once\", \"every 500ms\" or \"exponential 2s\"; correct it";
        if text == "at once" {
            return Ok(Arrival::AtOnce);
        }
        let (word, pause) = text.split_once(' ').ok_or(WANTED)?;
        let pause = duration(pause.trim())?;
        if !(Duration::from_millis(1)..=Duration::from_millis(DAY)).contains(&pause) {
            return Err("expected a pause of 1ms to 24h; correct it");
        }
        match word {
            "every" => Ok(Arrival::Every(pause)),
            "exponential" => Ok(Arrival::Exponential(pause)),
            _ => Err(WANTED),
        }
    }
}
