//! Plays a recording: each input goes into the core again, and what that decides is compared.
//!
//! By the rules of the version that wrote it a replay decides the same, bit for bit. Where it does not,
//! a rule has changed, and the first step that differs says which. The same with other settings says
//! what they would have changed ([`replay`] with a [`Policy`]): up to there the inputs are true, and
//! behind it they are those of a node that went another way. The core takes them all the same: what an input says
//! of a task that is not there changes nothing.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lrs_core::recording::{Decided, Entry};
use lrs_core::shaper::Shaper;
use lrs_core::state::Policy;
use lrs_core::step::{Input, Step};
use lrs_core::units::Moment;

use crate::figures::Figures;
use crate::{Bad, Reader, words};

/// The core of a recording as it goes on.
#[derive(Default)]
pub struct Player {
    core: Option<Box<Shaper>>,
    /// Settings in the place of those that were in force.
    policy: Option<Policy>,
    /// What came of its decisions.
    pub figures: Figures,
}

/// What an entry came to.
#[derive(Debug)]
pub enum Played {
    /// A daemon begins. What follows from other settings than its own.
    Began(Box<Step>),
    /// A step.
    Step(Box<Step>),
    /// Nothing.
    Nothing,
}

impl Player {
    /// One by these settings.
    pub fn under(policy: Policy) -> Player {
        Player { policy: Some(policy), ..Player::default() }
    }

    /// The core; `None`: there was none yet.
    pub fn core(&self) -> Option<&Shaper> {
        self.core.as_deref()
    }

    /// Takes the next entry.
    ///
    /// # Errors
    /// It does not follow from the one before, or has figures that no node has; in words.
    pub fn play(&mut self, entry: &Entry) -> Result<Played, String> {
        match entry {
            Entry::Core(core, at) => {
                agrees(core.disagreement())?;
                self.core = Some(core.clone());
                let policy = self.policy.clone();
                let step = policy.map(|policy| self.handle(Input::Configure(policy), *at));
                Ok(Played::Began(Box::new(step.transpose()?.unwrap_or_default())))
            }
            // Other settings stay.
            Entry::Decided(it) if self.policy.is_some() && is_settings(&it.input) => {
                Ok(Played::Step(Box::default()))
            }
            Entry::Decided(it) => Ok(Played::Step(Box::new(self.handle(it.input.clone(), it.at)?))),
            Entry::Header(_) | Entry::Settings(_) | Entry::End(_) => Ok(Played::Nothing),
        }
    }

    fn handle(&mut self, input: Input, at: Moment) -> Result<Step, String> {
        let core = self.core.as_deref_mut().ok_or("an input comes before the core")?;
        if let Input::Request { ticket, .. } | Input::Reserve { ticket, .. } = &input
            && core.has_request(*ticket)
        {
            return Err(format!("request {} is made twice", ticket.0));
        }
        let before = core.totals();
        self.figures.time(core, at.boot);
        // Sums of counters that no node has may be too large: in lrsd the kernel is their source.
        let step = catch_unwind(AssertUnwindSafe(|| core.handle(input, at)));
        let step = step.map_err(|_| "an input has figures that no node has".to_owned())?;
        agrees(core.excess())?;
        self.figures.step(&before, core, &step);
        Ok(step)
    }
}

/// The rules take a state for granted that agrees with itself.
fn agrees(wrong: Option<&str>) -> Result<(), String> {
    wrong.map_or(Ok(()), |what| Err(format!("it is no state of LRS: {what}")))
}

fn is_settings(input: &Input) -> bool {
    matches!(input, Input::Configure(_))
}

/// Whether two steps are the same bit for bit.
pub fn same(one: &Step, other: &Step) -> bool {
    // A NaN is not equal to itself, and 0 is to -0; as bytes they are what they are.
    match (rmp_serde::to_vec_named(one), rmp_serde::to_vec_named(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The first step that differs.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The number of its input, from 1.
    pub number: u64,
    /// When.
    pub at: Moment,
    /// What happened.
    pub input: String,
    /// What was decided and is not any more, a line each.
    pub then: Vec<String>,
    /// What is decided in its place.
    pub now: Vec<String>,
}

/// What a replay found.
#[derive(Debug, Default)]
pub struct Report {
    /// Which version wrote it.
    pub version: String,
    /// From when to when; `None`: it has no input.
    pub time: Option<(Moment, Moment)>,
    /// Inputs played.
    pub inputs: u64,
    /// Daemons that it goes through.
    pub daemons: u64,
    /// Changes of settings in it.
    pub reloads: u64,
    /// Where today's rules part from the recording.
    pub rules: Option<Difference>,
    /// Where other settings part from it.
    pub settings: Option<Difference>,
    /// What came of the settings that were in force, and of others.
    pub figures: (Figures, Figures),
    /// Why it ends where it does; `None`: that is not in it.
    pub end: Option<String>,
}

/// Plays a recording; with `policy` beside itself under those settings. Without, it ends at the first
/// difference.
///
/// # Errors
/// It is no recording, or one of a later version. One that is damaged or cut is played as far as it can be,
/// and [`Report::end`] says so.
pub fn replay<R: Read>(from: R, policy: Option<Policy>) -> Result<Report, Bad> {
    let mut reader = Reader::new(from);
    let mut report = Report { version: reader.header()?.version, ..Report::default() };
    let (mut player, mut other) = (Player::default(), policy.map(Player::under));
    loop {
        let entry = match reader.entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => {
                report.end = Some(format!("it {error}"));
                break;
            }
        };
        if let Err(error) = take(&entry, &mut player, other.as_mut(), &mut report) {
            report.end = Some(format!("it is damaged: {error}"));
            break;
        }
        if other.is_none() && report.rules.is_some() {
            break;
        }
    }
    report.figures = (player.figures, other.map(|other| other.figures).unwrap_or_default());
    Ok(report)
}

fn take(
    entry: &Entry,
    player: &mut Player,
    other: Option<&mut Player>,
    report: &mut Report,
) -> Result<(), String> {
    let played = player.play(entry)?;
    let others = other.map(|other| other.play(entry)).transpose()?;
    match entry {
        Entry::Header(_) | Entry::Settings(_) => {}
        Entry::End(why) => report.end = Some(why.clone()),
        Entry::Core(_, at) => {
            report.daemons += 1;
            report.end = None;
            if let Some(Played::Began(step)) = others
                && report.settings.is_none()
            {
                let input = "the other settings are in force from here on".to_owned();
                report.settings = difference(report.inputs, *at, input, &Step::default(), &step);
            }
        }
        Entry::Decided(decided) => {
            let Decided { at, input, step: then } = &**decided;
            report.inputs += 1;
            report.reloads += u64::from(is_settings(input));
            report.time = Some((report.time.map_or(*at, |(first, _)| first), *at));
            let Played::Step(now) = played else { return Ok(()) };
            let differs = |one: &Step, other: &Step| {
                difference(report.inputs, *at, words::input(input), one, other)
            };
            let rules = report.rules.is_none().then(|| differs(then, &now)).flatten();
            let settings = match others {
                Some(Played::Step(other)) if report.settings.is_none() => differs(&now, &other),
                _ => None,
            };
            report.rules = report.rules.take().or(rules);
            report.settings = report.settings.take().or(settings);
        }
    }
    Ok(())
}

/// `None`: both are the same.
fn difference(
    number: u64,
    at: Moment,
    input: String,
    then: &Step,
    now: &Step,
) -> Option<Difference> {
    if same(then, now) {
        return None;
    }
    let (mut then, mut now) = (words::step(then), words::step(now));
    let both: Vec<String> = then.iter().filter(|line| now.contains(line)).cloned().collect();
    for lines in [&mut then, &mut now] {
        lines.retain(|line| !both.contains(line));
    }
    Some(Difference { number, at, input, then, now })
}

/// The same recording with the steps of today's rules: what a change of a rule accepts.
///
/// # Errors
/// It is not a whole recording; in words.
pub fn accept<R: Read>(from: R) -> Result<Vec<u8>, String> {
    let (mut reader, mut player) = (Reader::new(from), Player::default());
    let mut file = Vec::new();
    let mut writer = crate::Writer::new(&mut file);
    while let Some(mut entry) = reader.entry().map_err(|error| format!("it {error}"))? {
        if let (Played::Step(now), Entry::Decided(decided)) = (player.play(&entry)?, &mut entry) {
            decided.step = *now;
        }
        writer.add(&crate::encode(&entry)?).map_err(|error| error.to_string())?;
    }
    writer.flush().map_err(|error| error.to_string())?;
    drop(writer);
    Ok(file)
}
