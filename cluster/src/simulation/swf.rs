//! Logs of jobs in the Standard Workload Format 2.2 (Parallel Workloads Archive): a line for each job, 18
//! fields, -1 for what is not known, comments behind `;`.
//!
//! A job of `n` processors becomes `n` tasks without input, each as long as the job ran. It arrives at its
//! submit time, counted from that of the first job; what it computes is its CPU time over its run time, and all of
//! it where that is not known. Processors are those allocated, else those requested. A line that is odd, or does not say how long or on how many
//! processors the job ran, costs that line and is named. Lines of parts of a job (status 2 to 4) are passed over, as the format
//! says: its summary line counts.
//!
//! Limits. The tasks of a job start one by one, not all at once. The wait and the partition of the log, memory,
//! requested time, and which job had to wait for which are not used.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _};

use crate::placement::input::GroupInput;
use crate::simulation::scenario::{Class, MOST_JOBS, Work};

/// Fields of a line.
const FIELDS: usize = 18;

/// Longest line; the format's have about 100 bytes.
const LONGEST: u64 = 4096;

/// Most lines that are named.
const NAMED: usize = 10;

/// Most processors of a job.
const MOST_PROCESSORS: f64 = 1e6;

/// Longest time in seconds: 31 years.
const LONG: f64 = 1e9;

/// What a log has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The jobs by their arrival, each with the user's number; none: not known.
    pub jobs: Vec<(Class, Option<u64>)>,
    /// Lines that were left out, the first ones with their reason.
    pub left_out: Vec<String>,
    /// How many more.
    pub more: u64,
}

impl Log {
    /// The jobs for a suite with these groups: a user's are in one of those that have none below, by the user's
    /// number.
    pub fn in_groups(&self, groups: &[GroupInput]) -> Vec<Class> {
        let is_leaf = |group: &&GroupInput| {
            groups.iter().all(|other| other.parent.as_ref() != Some(&group.name))
        };
        let leaves: Vec<&String> = groups.iter().filter(is_leaf).map(|group| &group.name).collect();
        let of = |user: u64| leaves.get((user % leaves.len().max(1) as u64) as usize);
        let job = |(class, user): &(Class, Option<u64>)| Class {
            group: of(user.unwrap_or(0)).map(|name| (*name).clone()),
            ..class.clone()
        };
        self.jobs.iter().map(job).collect()
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// More jobs than a simulation takes.
    #[error("has more than {MOST_JOBS} jobs; cut the log")]
    TooMany,
    /// No line is a job that ran.
    #[error("has no job that can be simulated{0}")]
    Empty(String),
}

/// Reads a log, in memory of its jobs.
///
/// # Errors
/// Where it cannot be read, or has no job or too many.
pub fn read(mut from: impl BufRead) -> Result<Log, Fault> {
    let (mut log, mut numbers) = (Log::default(), BTreeSet::new());
    let (mut line, mut at) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        if from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        at += 1;
        let is_comment = line.trim_ascii_start().first().is_none_or(|first| *first == b';');
        let is_long = line.len() as u64 == LONGEST && !line.ends_with(b"\n");
        if is_long {
            from.skip_until(b'\n')?;
        }
        if is_comment {
            continue;
        }
        let row = if is_long {
            Err(format!("longer than {LONGEST} bytes"))
        } else {
            job(&String::from_utf8_lossy(&line), &mut numbers)
        };
        match row {
            Ok(job) => log.jobs.extend(job),
            Err(why) if log.left_out.len() < NAMED => {
                log.left_out.push(format!("line {at}: {why}"));
            }
            Err(_) => log.more += 1,
        }
        if log.jobs.len() as u64 > MOST_JOBS {
            return Err(Fault::TooMany);
        }
    }
    if log.jobs.is_empty() {
        let first = log.left_out.first().map(|first| format!("; {first}"));
        return Err(Fault::Empty(first.unwrap_or_default()));
    }
    log.jobs.sort_by(|(one, _), (other, _)| {
        one.at_seconds.unwrap_or(0.0).total_cmp(&other.at_seconds.unwrap_or(0.0))
    });
    // A part of a log begins later than it was begun.
    let first = log.jobs.first().and_then(|(job, _)| job.at_seconds).unwrap_or(0.0);
    for (job, _) in &mut log.jobs {
        job.at_seconds = job.at_seconds.map(|at| at - first);
    }
    Ok(log)
}

/// The job of a line; none: part of a job.
fn job(line: &str, numbers: &mut BTreeSet<u64>) -> Result<Option<(Class, Option<u64>)>, String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let Ok(fields) = <[&str; FIELDS]>::try_from(fields) else {
        let count = line.split_ascii_whitespace().count();
        return Err(format!("{count} fields; {FIELDS} are wanted"));
    };
    let mut values = [0.0; FIELDS];
    for (index, (value, field)) in values.iter_mut().zip(fields).enumerate() {
        let number: Option<f64> = field.parse().ok().filter(|number: &f64| number.is_finite());
        *value = number.ok_or_else(|| format!("field {}, {field:?}, is no number", index + 1))?;
    }
    let [number, submit, _, run, allocated, cpu, _, requested, _, _, status, user, ..] = values;
    if (2.0..=4.0).contains(&status) {
        return Ok(None);
    }
    let within = |what: &str, value: f64, most: f64| match value {
        -1.0 => Err(format!("{what} is not known")),
        value if (0.0..=most).contains(&value) => Ok(value),
        value => Err(format!("{what}, {value}, is not from 0 to {most}")),
    };
    let number = within("the job's number", number, 9e15)? as u64;
    let at = within("the submit time", submit, LONG)?;
    let seconds = within("the run time", run, LONG)?;
    let processors = if allocated > 0.0 { allocated } else { requested };
    let processors = within("the number of processors", processors, MOST_PROCESSORS)?;
    if processors < 1.0 {
        return Err("it ran on no processor".into());
    }
    if !numbers.insert(number) {
        return Err(format!("there is a job {number} already"));
    }
    let computing = if cpu >= 0.0 && seconds > 0.0 { (cpu / seconds).min(1.0) } else { 1.0 };
    let class = Class {
        name: "log".into(),
        jobs: 1,
        maps: processors as u32,
        reduces: 0,
        map: Work { seconds, computing, ..Work::default() },
        reduce: Work::default(),
        group: None,
        priority: 0,
        at_seconds: Some(at),
        number: Some(number),
    };
    Ok(Some((class, (user >= 0.0).then_some(user as u64))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> Log {
        read(text.as_bytes()).unwrap()
    }

    /// A line with these: number, submit, run, allocated, CPU time, requested, status, user.
    fn line([number, submit, run, allocated, cpu, requested, status, user]: [f64; 8]) -> String {
        format!(
            "{number} {submit} 7 {run} {allocated} {cpu} -1 {requested} -1 -1 {status} {user} -1 -1 1 -1 -1 -1\n"
        )
    }

    #[test]
    fn a_job_has_its_arrival_its_tasks_and_its_rate() {
        let text = format!(
            "; Version: 2.2\n  ; Computer: none\n\n{}{}{}",
            line([1.0, 50.0, 10.0, 4.0, 2.5, -1.0, 1.0, 3.0]),
            line([2.0, 0.5, 0.0, -1.0, -1.0, 2.0, 0.0, -1.0]),
            line([3.0, 60.0, 9.0, 2.0, 90.0, 2.0, 5.0, 0.0]),
        );
        let log = log(&text);
        let of = |(class, user): &(Class, Option<u64>)| {
            let Class { number, at_seconds, maps, map, .. } = class;
            (number.unwrap(), at_seconds.unwrap(), *maps, map.seconds, map.computing, *user)
        };
        let jobs: Vec<_> = log.jobs.iter().map(of).collect();
        let expected = [
            (2, 0.0, 2, 0.0, 1.0, None),
            (1, 49.5, 4, 10.0, 0.25, Some(3)),
            (3, 59.5, 2, 9.0, 1.0, Some(0)),
        ];
        assert_eq!(jobs, expected);
        assert_eq!((log.left_out.len(), log.more), (0, 0));
    }

    #[test]
    fn an_odd_line_costs_that_line_and_is_named() {
        let good = |number: f64| line([number, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let odd = [
            "1 2 3\n".to_owned(),
            line([9.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            line([9.0, 1.0, 5.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
            line([9.0, 1.0, 5.0, 4e9, 1.0, 0.0, 1.0, 1.0]),
            line([9.0, -5.0, 5.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
            good(1.0),
            good(2.0).replacen("2", "NaN", 1),
            good(2.0).replacen("2", "two\u{1b}", 1),
            "9".repeat(10_000) + "\n",
        ];
        let text = good(1.0) + &odd.concat() + &line([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0]);
        let log = log(&(text + &good(2.0)));
        let numbers: Vec<_> = log.jobs.iter().map(|(class, _)| class.number).collect();
        assert_eq!(numbers, [Some(1), Some(2)]);
        let expected = [
            "line 2: 3 fields; 18 are wanted",
            "line 3: the run time is not known",
            "line 4: it ran on no processor",
            "line 5: the number of processors, 4000000000, is not from 0 to 1000000",
            "line 6: the submit time, -5, is not from 0 to 1000000000",
            "line 7: there is a job 1 already",
            "line 8: field 1, \"NaN\", is no number",
            "line 9: field 1, \"two\\u{1b}\", is no number",
            "line 10: longer than 4096 bytes",
        ];
        assert_eq!(log.left_out, expected);
        let many = good(1.0) + &"x\n".repeat(1000);
        let log = super::read(many.as_bytes()).unwrap();
        assert_eq!((log.left_out.len(), log.more), (NAMED, 990));
    }

    #[test]
    fn a_log_without_a_job_is_refused() {
        let fault = |text: &[u8]| read(text).unwrap_err().to_string();
        assert_eq!(fault(b"; nothing\n"), "has no job that can be simulated");
        assert_eq!(
            fault(b"\x00\xff\x7fELF"),
            "has no job that can be simulated; line 1: 1 fields; 18 are wanted"
        );
        let endless = io::BufReader::new(io::repeat(b';').take(50_000_000));
        assert_eq!(read(endless).unwrap_err().to_string(), "has no job that can be simulated");
    }
}
