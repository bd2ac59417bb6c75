//! Values of single keys: from TOML, and back to TOML.
//!
//! Sizes and durations are read and written exactly, in integers; a share of memory is read
//! and written by moving its decimal point as text. So what `config show` prints reads back
//! to the same value.

use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Auto, Bus, MAX_SOCKET_PATH, MemoryAmount, RootPath};
use crate::units::{Bytes, Share};

/// A value as it stands in the file.
pub(crate) type Node<'a> = Spanned<DeValue<'a>>;

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Not what the key's documented range says.
    OutOfRange,
    /// What is wrong, and what to do.
    Because(String, String),
}

/// The value, or why not.
pub(crate) type Taken<T> = Result<T, Rejection>;

pub(crate) fn because<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Taken<T> {
    Err(Rejection::Because(problem.into(), remedy.into()))
}

/// A value of the contract that this version does not take; `remedy`: what to do instead.
pub(super) fn not_built<T>(remedy: &str) -> Taken<T> {
    because("not built yet in this version of LRS", remedy)
}

pub(crate) fn text<'a>(node: &'a Node<'_>) -> Taken<&'a str> {
    node.get_ref().as_str().ok_or(Rejection::OutOfRange)
}

pub(crate) fn boolean(node: &Node<'_>) -> Taken<bool> {
    node.get_ref().as_bool().ok_or(Rejection::OutOfRange)
}

/// A whole number in any of TOML's notations. `i128` holds any i64 with room to spare; what
/// does not fit is out of every range we have.
fn whole_number(node: &Node<'_>) -> Option<i128> {
    let number = node.get_ref().as_integer()?;
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

pub(crate) fn integer<T: TryFrom<i128> + PartialOrd>(
    node: &Node<'_>,
    range: RangeInclusive<T>,
) -> Taken<T> {
    whole_number(node)
        .and_then(|number| T::try_from(number).ok())
        .filter(|number| range.contains(number))
        .ok_or(Rejection::OutOfRange)
}

/// `"auto"`, or what `fixed` makes of the value.
pub(super) fn auto<T>(
    node: &Node<'_>,
    fixed: impl FnOnce(&Node<'_>) -> Taken<T>,
) -> Taken<Auto<T>> {
    if node.get_ref().as_str() == Some("auto") {
        return Ok(Auto::Auto);
    }
    fixed(node).map(Auto::Fixed)
}

/// A number in `range`, with or without a point. NaN is in no range.
pub(crate) fn number(node: &Node<'_>, range: RangeInclusive<f64>) -> Taken<f64> {
    let number = match node.get_ref() {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(_) => whole_number(node).map(|number| number as f64),
        _ => None,
    };
    number.filter(|number| range.contains(number)).ok_or(Rejection::OutOfRange)
}

pub(super) fn share(node: &Node<'_>, range: RangeInclusive<f64>) -> Taken<Share> {
    number(node, range).map(Share::clamped)
}

/// A word for a bus, or its address.
pub(super) fn bus(node: &Node<'_>) -> Taken<Bus> {
    match text(node)? {
        "system" => Ok(Bus::System),
        "session" => Ok(Bus::Session),
        "off" => Ok(Bus::Off),
        address if !address.contains(':') => Err(Rejection::OutOfRange),
        // The bus says who calls. Over TCP nobody knows whom it talks to, and other kinds start
        // programs or look into an environment.
        address if address.split(';').any(|one| !one.starts_with("unix:")) => because(
            "is not the address of a unix socket, over which alone the kernel says who calls",
            "write it as \"unix:path=/run/my-bus\"",
        ),
        address => match address.parse::<zbus::Address>() {
            Ok(_) => Ok(Bus::Address(address.to_owned())),
            Err(error) => because(
                format!("is no address of a bus ({error})"),
                "write it as \"unix:path=/run/my-bus\"",
            ),
        },
    }
}

/// One of the words in `choices`.
pub(crate) fn choice<T: Copy>(node: &Node<'_>, choices: &[(&str, T)]) -> Taken<T> {
    let word = text(node)?;
    choices
        .iter()
        .find_map(|&(name, value)| (name == word).then_some(value))
        .ok_or(Rejection::OutOfRange)
}

/// `text` as digits, optional point and digits, and the rest: the number times 10^places, the
/// places, the unit. `None` when it does not start with a digit or is too long to be meant.
fn decimal(text: &str) -> Option<(u128, u32, &str)> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let (whole, fraction) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (digits, ""),
    };
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 12 || fraction.contains('.') {
        return None;
    }
    let number = format!("{whole}{fraction}").parse().ok()?;
    Some((number, fraction.len() as u32, unit.trim_start()))
}

const DURATION_UNITS: [(&str, u64); 4] =
    [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000)];

/// `"500ms"`, `"3s"`, `"1.5m"`, `"1h"`: whole milliseconds within `range`.
pub(crate) fn duration(node: &Node<'_>, range: RangeInclusive<Duration>) -> Taken<Duration> {
    if node.get_ref().is_integer() || node.get_ref().is_float() {
        return because(
            "a duration needs a unit",
            "write it as \"500ms\", \"3s\", \"10m\" or \"1h\"",
        );
    }
    let (number, places, unit) = decimal(text(node)?).ok_or(Rejection::OutOfRange)?;
    if unit.is_empty() {
        return because(
            "a duration needs a unit",
            "write it as \"500ms\", \"3s\", \"10m\" or \"1h\"",
        );
    }
    let Some((_, factor)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        return because(
            format!("unknown unit of time {:?}", super::error::excerpt(unit)),
            "use ms, s, m or h",
        );
    };
    let scaled = number.checked_mul(u128::from(*factor)).ok_or(Rejection::OutOfRange)?;
    let divisor = 10u128.pow(places);
    if !scaled.is_multiple_of(divisor) {
        return because("is not a whole number of milliseconds", "round it");
    }
    u64::try_from(scaled / divisor)
        .ok()
        .map(Duration::from_millis)
        .filter(|duration| range.contains(duration))
        .ok_or(Rejection::OutOfRange)
}

/// `duration` in the largest unit that divides it; parts of a millisecond are cut off, which
/// no duration read by [`duration`] has.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (unit, factor) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(name, factor)| {
            millis.is_multiple_of(u128::from(*factor)) && (millis > 0 || *name == "s")
        })
        .unwrap_or(&DURATION_UNITS[0]);
    format!("\"{}{unit}\"", millis / u128::from(*factor))
}

const SIZE_UNITS: [(&str, u64); 6] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// Largest size taken, in bytes: far above any node, and small enough to calculate with.
pub(super) const MAX_SIZE: u64 = 1 << 60;

/// `"5%"`, `"1.5GiB"`, or a number of bytes.
pub(super) fn memory_amount(node: &Node<'_>) -> Taken<MemoryAmount> {
    if node.get_ref().is_integer() {
        return integer(node, 0..=MAX_SIZE).map(|bytes| MemoryAmount::Bytes(Bytes(bytes)));
    }
    let written = text(node)?;
    if let Some(percent) = written.strip_suffix('%') {
        return parse_percent(percent.trim_end())
            .map(MemoryAmount::OfTotal)
            .ok_or(Rejection::OutOfRange);
    }
    let (number, places, unit) = decimal(written).ok_or(Rejection::OutOfRange)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return because(
            format!("unknown unit of size {:?}", super::error::excerpt(unit)),
            "use B, KiB, MiB, GiB or TiB (powers of 1024), or a percentage",
        );
    };
    let scaled = number.checked_mul(u128::from(*factor)).ok_or(Rejection::OutOfRange)?;
    // A part of a byte means nothing to memory; it is cut off.
    u64::try_from(scaled / 10u128.pow(places))
        .ok()
        .filter(|&bytes| bytes <= MAX_SIZE)
        .map(|bytes| MemoryAmount::Bytes(Bytes(bytes)))
        .ok_or(Rejection::OutOfRange)
}

/// `"1.5GiB"`, or a number of bytes.
pub(crate) fn size(node: &Node<'_>) -> Taken<Bytes> {
    match memory_amount(node)? {
        MemoryAmount::Bytes(bytes) => Ok(bytes),
        MemoryAmount::OfTotal(_) => Err(Rejection::OutOfRange),
    }
}

/// An amount as [`memory_amount`] reads it.
pub(super) fn show_memory_amount(amount: MemoryAmount) -> String {
    match amount {
        MemoryAmount::OfTotal(share) => format!("\"{}%\"", show_percent(share)),
        MemoryAmount::Bytes(Bytes(bytes)) => {
            let (unit, factor) = SIZE_UNITS
                .iter()
                .rev()
                .find(|(_, factor)| bytes.is_multiple_of(*factor) && bytes >= *factor)
                .unwrap_or(&SIZE_UNITS[0]);
            format!("\"{}{unit}\"", bytes / factor)
        }
    }
}

/// Digits with an optional point, 0..=100, as a share.
fn parse_percent(digits: &str) -> Option<Share> {
    let plain = digits.len() <= 400
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = plain.then(|| format!("{digits}e-2").parse().ok()).flatten()?;
    (0.0..=1.0).contains(&value).then(|| Share::clamped(value))
}

/// The share times 100, exactly: the decimal point moves, no arithmetic rounds.
fn show_percent(share: Share) -> String {
    let text = share.value().to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = format!("{fraction:0<2}");
    let (hundredths, rest) = fraction.split_at(2);
    let whole = format!("{whole}{hundredths}");
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

/// `text` as a TOML string.
pub(super) fn show_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A number as a TOML float: `0.9`, `1.0`.
pub(super) fn show_number(number: f64) -> String {
    format!("{number:?}")
}

/// `"auto"`, or what `fixed` makes of the value.
pub(super) fn show_auto<T>(value: &Auto<T>, fixed: impl FnOnce(&T) -> String) -> String {
    match value {
        Auto::Auto => String::from("\"auto\""),
        Auto::Fixed(value) => fixed(value),
    }
}

/// The word of `choices` for `value`.
pub(super) fn show_choice<T: PartialEq>(value: &T, choices: &[(&str, T)]) -> String {
    let word = choices.iter().find(|(_, choice)| choice == value).map_or("", |(word, _)| word);
    show_text(word)
}

/// An absolute path of a directory other than `/`.
pub(super) fn directory(node: &Node<'_>) -> Taken<PathBuf> {
    let written = text(node)?;
    absolute_path(written)?;
    let path: PathBuf = Path::new(written).components().collect();
    if path == Path::new("/") {
        return because("is the root of the file system", "name a directory of its own");
    }
    Ok(path)
}

fn absolute_path(written: &str) -> Taken<()> {
    if !written.starts_with('/') {
        return because("is not an absolute path", "start it with /");
    }
    if written.chars().any(char::is_control) {
        return because("has a control character", "use printable characters only");
    }
    if Path::new(written).components().any(|part| part == Component::ParentDir) {
        return because("has a \"..\" in it", "write the path without it");
    }
    Ok(())
}

/// `"unix:/absolute/path"`, at most [`MAX_SOCKET_PATH`] bytes of path.
pub(super) fn listen_address(node: &Node<'_>) -> Taken<PathBuf> {
    let written = text(node)?;
    let Some(path) = written.strip_prefix("unix:") else {
        if written.starts_with('/') {
            return because(
                "is a bare path",
                format!("write \"unix:{}\"", super::error::excerpt(written)),
            );
        }
        if written.contains(':') {
            return not_built("listen on \"unix:PATH\" and forward it, for example with ssh -L");
        }
        return Err(Rejection::OutOfRange);
    };
    absolute_path(path)?;
    socket_length(path.len())?;
    if path.ends_with('/') {
        return because("names a directory", "name the socket itself");
    }
    Ok(PathBuf::from(path))
}

/// Whether the kernel takes a socket path of so many bytes.
pub(super) fn socket_length(bytes: usize) -> Taken<()> {
    if bytes > MAX_SOCKET_PATH {
        return because(
            format!("the socket's path has {bytes} bytes; the kernel takes {MAX_SOCKET_PATH}"),
            "choose a shorter path",
        );
    }
    Ok(())
}

/// Longest component of a cgroup path in bytes (NAME_MAX), and longest path here: the mount
/// point, the root, a task's directory and a file name together must stay below PATH_MAX.
const MAX_COMPONENT: usize = 255;
const MAX_ROOT: usize = 1024;

/// `text` as a path below a cgroup mount; the error says what is wrong and what to do.
pub fn root_path(text: &str) -> Result<RootPath, String> {
    check_root(text)
        .map(|()| RootPath(text.to_owned()))
        .map_err(|(problem, remedy)| format!("{problem}; {remedy}"))
}

/// `cgroup.root` other than `"auto"`.
pub(super) fn cgroup_root(node: &Node<'_>) -> Taken<RootPath> {
    let written = text(node)?;
    check_root(written)
        .map(|()| RootPath(written.to_owned()))
        .map_err(|(problem, remedy)| Rejection::Because(problem, remedy.to_owned()))
}

fn check_root(text: &str) -> Result<(), (String, &'static str)> {
    if text == "auto" {
        return Err(("is the word for LRS's own choice".into(), "use another name"));
    }
    if text.starts_with('/') {
        return Err(("starts with \"/\"".into(), "write it relative to the cgroup mount: \"lrs\""));
    }
    if text.is_empty() || text.len() > MAX_ROOT {
        return Err((format!("has {} bytes", text.len()), "use 1 to 1024"));
    }
    for part in text.split('/') {
        if part.is_empty() {
            return Err(("has an empty component".into(), "use single slashes, none at the end"));
        }
        if part == "." || part == ".." {
            return Err((format!("has the component {part:?}"), "use plain names only"));
        }
        if part.len() > MAX_COMPONENT {
            return Err((format!("has a component of {} bytes", part.len()), "use at most 255"));
        }
        if part.chars().any(char::is_control) {
            return Err(("has a control character".into(), "use printable characters only"));
        }
        // The kernel keeps these names for its own files (cgroup-v2.rst, "Basic Operations").
        if part.starts_with("cgroup.") {
            return Err((
                format!("has the component {:?}", super::error::excerpt(part)),
                "names that start with \"cgroup.\" are the kernel's; choose another",
            ));
        }
    }
    Ok(())
}

/// A uid, or the name of an account.
pub(super) fn account(node: &Node<'_>) -> Taken<u32> {
    if node.get_ref().is_integer() {
        // 4294967295 is (uid_t) -1, "no uid" to the kernel.
        return integer(node, 0..=u32::MAX - 1);
    }
    let name = text(node)?;
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) => {
            because("no account has this name", "write a uid without quotes")
        }
        Ok(None) => because("no account has this name", "create it, or name another"),
        Err(errno) => because(
            format!("cannot look up the account: {errno}"),
            "write its uid, or repair the account data base",
        ),
    }
}

/// Directives of a tracing filter.
pub(super) fn log_filter(node: &Node<'_>) -> Taken<String> {
    let directives = text(node)?;
    if directives.trim().is_empty() {
        return because("is empty", "write \"off\" for no log");
    }
    if directives.len() > 4096 || directives.chars().any(char::is_control) {
        return Err(Rejection::OutOfRange);
    }
    match tracing_subscriber::EnvFilter::builder().parse(directives) {
        Ok(_) => Ok(directives.to_owned()),
        Err(error) => because(
            format!("is no log filter: {}", super::error::excerpt(&error.to_string())),
            "write a level (error, warn, info, debug, trace, off) or directives such as \
             \"info,lrs::cgroup=debug\"",
        ),
    }
}
