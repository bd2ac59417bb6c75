//! Input of the tasks: the same bytes on every machine for the same seed.
//!
//! All is made of whole numbers, so that no rounding of a machine's own shows in the bytes.

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Lines of eight words of lower-case letters. Few words are frequent and many are rare, as
    /// in a language: the frequency of a word falls as one over its rank (Zipf's law), in steps
    /// of powers of two. Whole lines: some bytes more than asked for.
    Text,
    /// Records of 100 bytes as `gensort -a` makes them (sortbenchmark.org): a key of 10 printable
    /// characters, 2 spaces, the number of the record as 32 hexadecimal digits, 2 spaces, 52 letters,
    /// CR, LF. Programs that sort lines can sort them. Whole records: some bytes more than asked
    /// for.
    Records,
    /// What no program can compress.
    Random,
}

/// Bytes of one record.
pub const RECORD_BYTES: usize = 100;

/// Bytes are handed on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 18;

/// At least `bytes` of a kind, piece by piece, so that signals are heard in between. Parts of one
/// set differ by their seed.
#[derive(Debug)]
pub struct Pieces {
    source: Source,
    random: XorShift,
    piece: Vec<u8>,
    bytes: u64,
    made: u64,
}

#[derive(Debug)]
enum Source {
    Text(Vocabulary),
    /// The number of the next record.
    Records(u64),
    Random,
}

impl Pieces {
    /// Nothing is made yet.
    pub fn new(kind: Kind, bytes: u64, seed: u64) -> Pieces {
        let source = match kind {
            Kind::Text => Source::Text(Vocabulary::new()),
            Kind::Records => Source::Records(seed << 32),
            Kind::Random => Source::Random,
        };
        let piece = Vec::with_capacity(PIECE_BYTES + 256);
        Pieces { source, random: XorShift::new(seed), piece, bytes, made: 0 }
    }

    /// The next one; `None` when there are all bytes.
    pub fn make(&mut self) -> Option<&[u8]> {
        let left = self.bytes.checked_sub(self.made).filter(|&left| left > 0)?;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        self.piece.clear();
        while self.piece.len() < wanted {
            match &mut self.source {
                Source::Text(vocabulary) => vocabulary.line(&mut self.random, &mut self.piece),
                Source::Records(number) => {
                    record(&mut self.random, *number, &mut self.piece);
                    *number = number.wrapping_add(1);
                }
                Source::Random => {
                    let word = self.random.next().to_le_bytes();
                    let rest = (wanted - self.piece.len()).min(word.len());
                    self.piece.extend_from_slice(&word[..rest]);
                }
            }
        }
        self.made += self.piece.len() as u64;
        Some(&self.piece)
    }
}

/// Words by rank.
#[derive(Debug)]
struct Vocabulary {
    /// All words behind each other, each with a space.
    letters: Vec<u8>,
    /// Where the words begin, and the end.
    starts: Vec<u32>,
}

impl Vocabulary {
    /// Octaves of ranks: 16,383 words.
    const OCTAVES: u64 = 14;

    fn new() -> Vocabulary {
        let mut random = XorShift::new(1);
        let mut vocabulary = Vocabulary { letters: Vec::new(), starts: vec![0, 0] };
        for rank in 1_u64..1 << Self::OCTAVES {
            // Frequent words are short.
            let length = 2 + u64::from(rank.ilog2()) / 3 + random.next() % 5;
            for _ in 0..length {
                vocabulary.letters.push(b'a' + (random.next() % 26) as u8);
            }
            vocabulary.letters.push(b' ');
            vocabulary.starts.push(vocabulary.letters.len() as u32);
        }
        vocabulary
    }

    fn line(&self, random: &mut XorShift, line: &mut Vec<u8>) {
        for _ in 0..8 {
            let bits = random.next();
            let octave = (bits >> 48) % Self::OCTAVES;
            let first = 1_u64 << octave;
            let rank = (first | (bits & (first - 1))) as usize;
            // Ranks are below 1 << OCTAVES, and there is a start for each and one more.
            let (from, to) = (self.starts[rank] as usize, self.starts[rank + 1] as usize);
            line.extend_from_slice(&self.letters[from..to]);
        }
        if let Some(last) = line.last_mut() {
            *last = b'\n';
        }
    }
}

fn record(random: &mut XorShift, number: u64, to: &mut Vec<u8>) {
    const PRINTABLE: u64 = 95;
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut record = [b' '; RECORD_BYTES];
    let (head, tail) = record.split_at_mut(46);
    let mut bits = 0;
    for (index, byte) in head[..10].iter_mut().enumerate() {
        // 95^5 is far below 2^64, so that five characters of one draw are even.
        if index % 5 == 0 {
            bits = random.next();
        }
        *byte = b' ' + (bits % PRINTABLE) as u8;
        bits /= PRINTABLE;
    }
    for (index, byte) in head[12..44].iter_mut().rev().enumerate() {
        let digit = number.checked_shr(4 * index as u32).unwrap_or(0) & 15;
        *byte = DIGITS[digit as usize];
    }
    let mut bits = random.next();
    for four in tail[..52].chunks_exact_mut(4) {
        four.fill(b'A' + (bits & 15) as u8);
        bits >>= 4;
    }
    tail[52..].copy_from_slice(b"\r\n");
    to.extend_from_slice(&record);
}

/// Marsaglia, "Xorshift RNGs", 2003: even enough for data that neither compresses away nor
/// resists compression.
#[derive(Debug)]
struct XorShift(u64);

impl XorShift {
    /// Neighbouring seeds begin far apart (the golden ratio in 64 bits); no seed leads to zero,
    /// where the generator would stay.
    fn new(seed: u64) -> XorShift {
        XorShift(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: Kind, bytes: u64, seed: u64) -> Vec<u8> {
        let (mut all, mut pieces) = (Vec::new(), Pieces::new(kind, bytes, seed));
        while let Some(piece) = pieces.make() {
            all.extend_from_slice(piece);
        }
        all
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        for kind in [Kind::Text, Kind::Records, Kind::Random] {
            assert!(made(kind, 400_000, 7) == made(kind, 400_000, 7), "{kind:?}");
            assert!(made(kind, 400_000, 7) != made(kind, 400_000, 8), "{kind:?}");
            assert!(made(kind, 0, 7).is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn text_is_whole_lines_of_words_of_which_few_are_frequent() {
        let text = String::from_utf8(made(Kind::Text, 1 << 20, 0)).unwrap();
        assert!(text.len() >= 1 << 20 && text.len() < (1 << 20) + 256);
        assert!(text.ends_with('\n'));
        let mut counts = std::collections::HashMap::<&str, u32>::new();
        for line in text.lines() {
            assert_eq!(line.split(' ').count(), 8, "{line:?}");
            for word in line.split(' ') {
                assert!(!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()));
                *counts.entry(word).or_default() += 1;
            }
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: u32 = counts.iter().sum();
        let share = f64::from(counts[..127].iter().sum::<u32>()) / f64::from(all);
        assert!((0.45..0.60).contains(&share), "half the text is seven octaves: {share}");
        assert!(counts.len() > 10_000, "{}", counts.len());
    }

    #[test]
    fn records_are_lines_of_a_hundred_bytes_with_even_keys() {
        let bytes = made(Kind::Records, 1_000_001, 3);
        assert_eq!(bytes.len(), 1_000_100, "whole records");
        let mut first = [0_u32; 95];
        for (index, record) in bytes.chunks(RECORD_BYTES).enumerate() {
            assert!(record[..10].iter().all(|byte| (b' '..=b'~').contains(byte)));
            assert_eq!(&record[44..46], b"  ");
            assert_eq!(&record[98..], b"\r\n");
            assert_eq!(record.iter().filter(|byte| **byte == b'\n').count(), 1);
            let number = std::str::from_utf8(&record[12..44]).unwrap();
            assert_eq!(u128::from_str_radix(number, 16).unwrap(), (3 << 32) + index as u128);
            first[usize::from(record[0] - b' ')] += 1;
        }
        assert!(first.iter().all(|count| (50..160).contains(count)), "{first:?}");
    }

    #[test]
    fn random_bytes_are_exact_in_number() {
        for bytes in [1, 8, 13, 1 << 19] {
            assert_eq!(made(Kind::Random, bytes, 0).len() as u64, bytes);
        }
    }
}
