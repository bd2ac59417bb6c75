//! Durations, sizes and shares of memory as text: `"1.5m"`, `"512MiB"`, `"5%"`.
//!
//! They are read and written exactly, in integers; a percentage is read and written by moving
//! its decimal point as text. So what `config show` prints reads back to the same value.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serializer;

use super::Auto;
use super::error::excerpt;
use super::value::{Node, Rejection, Taken, because, number, text};
use lrs_core::units::{Bytes, MemoryAmount, Share};

/// Units and what one of them is, the smallest first.
type Units = [(&'static str, u64)];

const DURATION_UNITS: &Units = &[("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000)];

const SIZE_UNITS: &Units = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// Largest size taken, in bytes: far above any node, and small enough to calculate with.
pub(super) const MAX_SIZE: u64 = 1 << 60;

/// `text` as digits, optional point and digits, and the rest: the number times 10^places,
/// 10^places, the unit. `None` when it does not start with a digit or is too long to be meant.
fn decimal(text: &str) -> Option<(u128, u128, &str)> {
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
    Some((number, 10u128.pow(fraction.len() as u32), unit.trim_start()))
}

/// `amount` in the largest unit that divides it, or `of_zero`.
fn show(amount: u64, units: &Units, of_zero: &str) -> String {
    let divides = |(_, factor): &&(&str, u64)| amount >= *factor && amount.is_multiple_of(*factor);
    let unit = units.iter().rev().find(divides);
    unit.map_or_else(|| of_zero.to_owned(), |(unit, factor)| format!("{}{unit}", amount / factor))
}

/// `"500ms"`, `"3s"`, `"1.5m"`, `"1h"`: whole milliseconds within `range`.
pub(super) fn duration(node: &Node<'_>, range: RangeInclusive<Duration>) -> Taken<Duration> {
    let written = match node.get_ref().is_integer() || node.get_ref().is_float() {
        true => Some((0, 1, "")),
        false => decimal(text(node)?),
    };
    let (number, divisor, unit) = written.ok_or(Rejection::OutOfRange)?;
    let Some((_, factor)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        return match unit {
            "" => because(
                "a duration needs a unit",
                "write it as \"500ms\", \"3s\", \"10m\" or \"1h\"",
            ),
            _ => because(format!("unknown unit of time {:?}", excerpt(unit)), "use ms, s, m or h"),
        };
    };
    let scaled = number.checked_mul(u128::from(*factor)).ok_or(Rejection::OutOfRange)?;
    if !scaled.is_multiple_of(divisor) {
        return because("is not a whole number of milliseconds", "round it");
    }
    let duration = u64::try_from(scaled / divisor).map(Duration::from_millis);
    duration.ok().filter(|duration| range.contains(duration)).ok_or(Rejection::OutOfRange)
}

/// As [`duration`] reads it; parts of a millisecond, which it does not take, are cut off.
pub(super) fn show_duration<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration_text(*duration))
}

/// A duration as the settings have it: "10m".
pub fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    show(millis, DURATION_UNITS, "0s")
}

/// `"auto"` or a duration.
pub(super) fn show_auto_duration<S: Serializer>(
    duration: &Auto<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Auto::Auto => serializer.serialize_str("auto"),
        Auto::Fixed(duration) => show_duration(duration, serializer),
    }
}

/// `"5%"`, `"1.5GiB"`, or a number of bytes.
pub(super) fn memory_amount(node: &Node<'_>) -> Taken<MemoryAmount> {
    let percent = node.get_ref().as_str().and_then(|written| written.strip_suffix('%'));
    match percent {
        Some(percent) => parse_percent(percent.trim_end())
            .map(MemoryAmount::OfTotal)
            .ok_or(Rejection::OutOfRange),
        None => size(node).map(MemoryAmount::Bytes),
    }
}

/// `"1.5GiB"`, or a number of bytes.
fn size(node: &Node<'_>) -> Taken<Bytes> {
    if node.get_ref().is_integer() {
        return number(node, 0..=MAX_SIZE).map(Bytes);
    }
    let (number, divisor, unit) = decimal(text(node)?).ok_or(Rejection::OutOfRange)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    if unit == "%" {
        return Err(Rejection::OutOfRange);
    }
    let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return because(
            format!("unknown unit of size {:?}", excerpt(unit)),
            "use B, KiB, MiB, GiB or TiB (powers of 1024), or a percentage",
        );
    };
    let scaled = number.checked_mul(u128::from(*factor)).ok_or(Rejection::OutOfRange)?;
    // A part of a byte means nothing to memory; it is cut off.
    let bytes = u64::try_from(scaled / divisor).ok().filter(|&bytes| bytes <= MAX_SIZE);
    bytes.map(Bytes).ok_or(Rejection::OutOfRange)
}

/// A size up to `most`, in whole mebibytes.
pub(super) fn whole_mebibytes(node: &Node<'_>, most: Bytes) -> Taken<Bytes> {
    let size = size(node)?;
    let fits = size.0.is_multiple_of(1 << 20) && size <= most;
    fits.then_some(size).ok_or(Rejection::OutOfRange)
}

/// As [`memory_amount`] reads it.
pub(super) fn show_memory_amount<S: Serializer>(
    amount: &MemoryAmount,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match amount {
        MemoryAmount::OfTotal(share) => serializer.serialize_str(&show_percent(*share)),
        MemoryAmount::Bytes(bytes) => show_size(bytes, serializer),
    }
}

/// As [`size`] reads it.
pub(super) fn show_size<S: Serializer>(size: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show(size.0, SIZE_UNITS, "0B"))
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
    if rest.is_empty() { format!("{whole}%") } else { format!("{whole}.{rest}%") }
}
