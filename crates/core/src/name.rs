//! Names that are bytes, kept as text without a loss.
//!
//! Paths of cgroups are bytes to the kernel and text to all others: records are JSON, messages
//! are text. A byte that is part of no UTF-8 letter is in such a text one character
//! of a private range without a use, U+10FF80 to U+10FFFF for 0x80 to 0xff, as in Python's
//! `surrogateescape`; a name that has a character of that range has it as its four bytes. So
//! [`bytes`] of [`text`] is always what came in, and all that is UTF-8 stays as it is.
//! `lrs_term::printable` shows such a byte as `\xff`, and [`shown`] does so for clients.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Less than what stands for byte 0x80 by as much: ASCII is always UTF-8 and needs no such letter.
const BASE: u32 = 0x10_FF00;

fn raw_byte(c: char) -> Option<u8> {
    u8::try_from(u32::from(c).checked_sub(BASE)?).ok().filter(|byte| !byte.is_ascii())
}

/// The text that stands for these bytes.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let stand = |byte: &u8| char::from_u32(BASE + u32::from(*byte));
        for c in chunk.valid().chars() {
            match raw_byte(c) {
                None => text.push(c),
                Some(_) => {
                    text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().filter_map(stand))
                }
            }
        }
        text.extend(chunk.invalid().iter().filter_map(stand));
    }
    text
}

/// The bytes that `text` stands for.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(|c| raw_byte(c).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match raw_byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The text that stands for a path.
pub fn of_path(path: &Path) -> String {
    text(path.as_os_str().as_bytes())
}

/// `base` and the path below it that `text` stands for.
pub fn join(base: &Path, below: &str) -> std::path::PathBuf {
    base.join(OsStr::from_bytes(&bytes(below)))
}

/// For clients, which read UTF-8 and nothing else: a byte that is none as `\xff`.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| raw_byte(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let spelt = text.chars().map(|c| match raw_byte(c) {
        Some(byte) => format!("\\x{byte:02x}"),
        None => c.to_string(),
    });
    Cow::Owned(spelt.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_letter_is_shown_by_its_number() {
        let kept = text(b"/a\xc3\xa4b\xff\\x2d\xc3");
        assert_eq!(shown(&kept), "/aäb\\xff\\x2d\\xc3");
        assert_eq!(lrs_term::printable(&kept), shown(&kept), "the terminal shows the same");
        assert_eq!(text("/aä\\x2d".as_bytes()), "/aä\\x2d");
        assert_eq!(
            join(Path::new("/m"), &kept[1..]).as_os_str().as_bytes(),
            b"/m/a\xc3\xa4b\xff\\x2d\xc3"
        );
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(
            name in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "\\PC*[\u{10ff00}-\u{10ffff}]\\PC*".prop_map(String::into_bytes),
            ]
        ) {
            let kept = text(&name);
            prop_assert_eq!(&*bytes(&kept), &name[..]);
            let json = serde_json::to_string(&kept).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), kept);
        }
    }
}
