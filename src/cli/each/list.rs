//! The job list of `run --each`: where its arguments come from, and the command that one of them makes.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use tokio::sync::mpsc;

use crate::cli::failure::Failure;

/// Arguments read ahead from standard input.
const READ_AHEAD: usize = 10_000;
/// The longest argument that the kernel takes (MAX_ARG_STRLEN, execve(2)); of a longer line no more is kept.
const LONGEST: u64 = 128 << 10;

/// The arguments of the line, or else the lines of standard input.
pub(super) fn arguments(
    given: Vec<OsString>,
) -> Result<mpsc::Receiver<std::io::Result<OsString>>, Failure> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    // Reading may block for as long as it likes. The thread ends with the input or the process.
    let read = move || {
        let mut input = std::io::stdin().lock();
        let mut send = |argument| sender.blocking_send(argument).is_ok();
        if given.is_empty() {
            std::iter::from_fn(|| line(&mut input)).all(&mut send)
        } else {
            given.into_iter().map(Ok).all(&mut send)
        };
    };
    std::thread::Builder::new().spawn(read).map_err(|error| {
        Failure::failed(format!("cannot start a thread: {error}"))
            .hint("a limit of processes is reached: `ulimit -u`, or pids.max of a cgroup above")
    })?;
    Ok(receiver)
}

/// The next line, without its end; of an overlong one more than an argument can have, so that this one
/// fails.
fn line(input: &mut impl BufRead) -> Option<std::io::Result<OsString>> {
    let mut line = Vec::new();
    let count = match input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line) {
        Ok(0) => return None,
        Ok(count) => count as u64,
        Err(error) => return Some(Err(error)),
    };
    let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
    if !is_whole
        && count > LONGEST
        && let Err(error) = input.skip_until(b'\n')
    {
        return Some(Err(error));
    }
    Some(Ok(OsString::from_vec(line)))
}

/// The command with `{}` replaced by the argument and `{#}` by its number, or if it has neither, with the
/// argument at its end.
pub(super) fn command_of(command: &[OsString], argument: &OsStr, index: u64) -> Vec<OsString> {
    let mut replaced = false;
    let index = index.to_string();
    let mut words = Vec::with_capacity(command.len() + 1);
    for word in command {
        let (mut rest, mut text) = (word.as_bytes(), Vec::new());
        while let Some(byte) = rest.first() {
            let (taken, put) = match rest {
                [b'{', b'}', ..] => (2, argument.as_bytes()),
                [b'{', b'#', b'}', ..] => (3, index.as_bytes()),
                _ => (1, std::slice::from_ref(byte)),
            };
            replaced |= taken > 1;
            text.extend_from_slice(put);
            rest = &rest[taken..];
        }
        words.push(OsString::from_vec(text));
    }
    if !replaced {
        words.push(argument.to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_stands_where_the_braces_are_or_last() {
        let command = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let words = command_of(&words, OsStr::new("a b"), 7);
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(command(&["gzip", "-k"]), ["gzip", "-k", "a b"]);
        assert_eq!(command(&["cp", "{}", "out/{}.{}"]), ["cp", "a b", "out/a b.a b"]);
        assert_eq!(command(&["echo", "{", "}{", "{}"]), ["echo", "{", "}{", "a b"]);
        assert_eq!(command(&["touch", "{#}-{}{#"]), ["touch", "7-a b{#"]);
        assert_eq!(command(&["touch", "{#}"]), ["touch", "7"]);
    }

    #[test]
    fn of_an_overlong_line_the_rest_is_passed_over() {
        let longest = LONGEST as usize;
        let text =
            ["a".into(), "b".repeat(3 * longest), String::new(), "c".repeat(longest), "d".into()];
        let text = text.join("\n");
        let mut input = std::io::BufReader::with_capacity(1000, text.as_bytes());
        let lines = std::iter::from_fn(|| line(&mut input)).map(|line| line.unwrap().len());
        assert_eq!(lines.collect::<Vec<_>>(), [1, longest + 1, 0, longest, 1]);
    }
}
