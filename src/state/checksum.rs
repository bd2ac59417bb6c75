//! A checksum in every record and every line of the journal, so that no change of one is taken for
//! what lrsd wrote.
//!
//! It is the last key of the object, `"crc32":"0a1b2c3d"`: the CRC-32 (IEEE, as in gzip) of all bytes
//! before its comma. So the text stays one object of JSON for people and their tools. It guards
//! against damage, not against who may write the file and can compute it anew.

/// What precedes the eight digits.
const KEY: &[u8] = br#","crc32":""#;

/// What follows them.
const END: &[u8] = br#""}"#;

/// Bytes of all that is added, less the brace it replaces.
const BYTES: usize = KEY.len() + 8 + END.len();

/// `object`, which is JSON of an object that is not empty, with its checksum.
pub fn add(mut object: Vec<u8>) -> Vec<u8> {
    object.pop();
    let sum = digits(&object);
    object.extend_from_slice(KEY);
    object.extend_from_slice(sum.as_bytes());
    object.extend_from_slice(END);
    object
}

/// What the checksum of a text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It fits: the object as it was before it was added.
    Fits(Vec<u8>),
    /// It does not: the text was changed.
    Differs,
    /// There is none where one would be.
    Absent,
}

/// Compares the checksum at the end of `text`.
pub fn check(text: &[u8]) -> Checked {
    let parts = text.len().checked_sub(BYTES).map(|at| text.split_at(at));
    let sum = |end: &'_ [u8]| -> Option<Vec<u8>> {
        Some(end.strip_prefix(KEY)?.strip_suffix(END)?.to_owned())
    };
    let Some((body, sum)) = parts.and_then(|(body, end)| Some((body, sum(end)?))) else {
        return Checked::Absent;
    };
    if digits(body).as_bytes() == sum {
        Checked::Fits([body, b"}"].concat())
    } else {
        Checked::Differs
    }
}

fn digits(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_gzip_and_a_key_of_the_object() {
        let text = add(br#"{"version":3}"#.to_vec());
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"{\"version\":3"))'
        assert_eq!(String::from_utf8_lossy(&text), r#"{"version":3,"crc32":"607bab33"}"#);
        assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        assert_eq!(check(&text), Checked::Fits(br#"{"version":3}"#.to_vec()));
        for without in [&b""[..], b"{}", br#"{"version":2}"#, &text[..text.len() - 1]] {
            assert_eq!(check(without), Checked::Absent);
        }
    }

    #[test]
    fn every_flipped_bit_differs_or_takes_the_checksum_away() {
        let text = add(br#"{"version":3,"boot_id":"a","record":{"uid":41001}}"#.to_vec());
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(check(&flipped), Checked::Fits(_)), "bit {bit}");
        }
    }
}
