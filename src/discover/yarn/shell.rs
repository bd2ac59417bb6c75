//! The words of a shell command, as far as classifying needs them.
//!
//! Quotes, backslashes, comments, separators and redirections are those of POSIX (2.2 to 2.7).
//! Nothing is expanded: `$JAVA_HOME/bin/java` stays as it is. Compound commands are not
//! understood: their keywords come out as words, which no main class is confused with.

use std::iter::Peekable;
use std::str::Chars;

/// Blanks between words. The others that ASCII knows, form feed and vertical tab, are part of a
/// word to a shell.
const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// What ends a command.
const SEPARATORS: [char; 6] = ['\n', ';', '&', '|', '(', ')'];

const REDIRECTIONS: [char; 2] = ['<', '>'];

/// The simple commands of `text` in order, each its words; redirections and empty commands are
/// left out.
pub(super) fn commands(text: &str) -> Vec<Vec<String>> {
    let mut lexer = Lexer { rest: text.chars().peekable(), done: Vec::new(), words: Vec::new() };
    lexer.run();
    lexer.done
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    done: Vec<Vec<String>>,
    words: Vec<String>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(&next) = self.rest.peek() {
            match next {
                blank if BLANKS.contains(&blank) => {
                    self.rest.next();
                }
                separator if SEPARATORS.contains(&separator) => {
                    self.rest.next();
                    self.end_command();
                }
                '#' => while self.rest.next_if(|&c| c != '\n').is_some() {},
                redirection if REDIRECTIONS.contains(&redirection) => self.redirection(),
                _ => {
                    let (word, plain) = self.word();
                    let to_file = matches!(self.rest.peek(), Some('<' | '>'));
                    // `2>` is a file descriptor, `a2>` and `"2">` are words. A continued line
                    // alone is nothing.
                    let is_descriptor = to_file && word.bytes().all(|b| b.is_ascii_digit());
                    if !plain || !(is_descriptor || word.is_empty()) {
                        self.words.push(word);
                    }
                }
            }
        }
        self.end_command();
    }

    fn end_command(&mut self) {
        if !self.words.is_empty() {
            self.done.push(std::mem::take(&mut self.words));
        }
    }

    /// `>`, `>>`, `>&`, `<`, `<<<`, `>|`, `<>` and the word after it.
    fn redirection(&mut self) {
        while self.rest.next_if(|&c| matches!(c, '<' | '>' | '&' | '|')).is_some() {}
        while self.rest.next_if(|c| BLANKS.contains(c)).is_some() {}
        self.word();
    }

    /// One word without its quotes, and whether it had none. Whatever [`Self::run`] does not
    /// consume itself begins a word: both go by the same three sets, or there would be no end.
    fn word(&mut self) -> (String, bool) {
        let mut word = String::new();
        let mut plain = true;
        while let Some(next) = self.rest.next_if(|&c| !ends_word(c)) {
            match next {
                '\'' => {
                    plain = false;
                    word.extend(std::iter::from_fn(|| self.rest.next().filter(|&c| c != '\'')));
                }
                '"' => {
                    plain = false;
                    self.double_quoted(&mut word);
                }
                '\\' => match self.rest.next() {
                    // A continued line.
                    Some('\n') | None => {}
                    Some(escaped) => {
                        plain = false;
                        word.push(escaped);
                    }
                },
                other => word.push(other),
            }
        }
        (word, plain)
    }

    fn double_quoted(&mut self, word: &mut String) {
        while let Some(next) = self.rest.next() {
            match next {
                '"' => return,
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => word.push(escaped),
                    Some(other) => word.extend(['\\', other]),
                },
                other => word.push(other),
            }
        }
    }
}

fn ends_word(next: char) -> bool {
    BLANKS.contains(&next) || SEPARATORS.contains(&next) || REDIRECTIONS.contains(&next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_separators() {
        for (text, wanted) in [
            ("", vec![]),
            ("a b  c", vec![vec!["a", "b", "c"]]),
            ("a 'b c' \"d \\\" $e\" f\\ g", vec![vec!["a", "b c", "d \" $e", "f g"]]),
            ("a;b&&c|d\ne &", vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"], vec!["e"]]),
            ("a 1>/x/out 2>>err 2>&1 < /dev/null b", vec![vec!["a", "b"]]),
            ("a x2>o \"2\">o", vec![vec!["a", "x2", "2"]]),
            ("a # b\nc#d", vec![vec!["a"], vec!["c#d"]]),
            ("a \x0c\x0b b>\x0cc", vec![vec!["a", "\x0c\x0b", "b"]]),
            ("a \\\n b", vec![vec!["a", "b"]]),
            ("a \"b\nc\" '' d", vec![vec!["a", "b\nc", "", "d"]]),
            ("a 'open", vec![vec!["a", "open"]]),
            ("export J=${J:-\"/usr/j k\"}", vec![vec!["export", "J=${J:-/usr/j k}"]]),
        ] {
            assert_eq!(commands(text), wanted, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_an_end(
            text in "([a-c '\"\\\\\n;&|<>()#$2]|[\\x00-\\x20\\x7f]|\\PC){0,60}"
        ) {
            let found: usize = commands(&text).iter().flatten().map(String::len).sum();
            proptest::prop_assert!(found <= text.len());
        }
    }
}
