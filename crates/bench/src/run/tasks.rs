//! The tasks of one run, ready to be started: every word filled in, every arrival known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::suite::template::{Fill, Template};
use crate::suite::{Arrival, Group, Load, Suite};

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// `map-3`
    pub(super) name: String,
    /// Index of its group in the load.
    pub(super) group: usize,
    /// Since its group may begin.
    pub(super) arrives: Duration,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Beside our own environment.
    pub(super) environment: Vec<(String, String)>,
    /// Where it works.
    pub(super) directory: PathBuf,
}

/// Directories of a bench on the disk that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// `{data}`
    pub(crate) data: PathBuf,
    /// `{run}`
    pub(crate) run: PathBuf,
}

/// Tasks of a group that run alone in a round: one reading of a short task is noise.
const ALONE: u32 = 3;

/// How much of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// Of each group that follows no other the first [`ALONE`] tasks, all at once: the setting has
    /// one slot.
    Alone,
}

/// The tasks of `load` in the order of the suite.
pub(super) fn plan(
    suite: &Suite,
    load: &Load,
    places: &Places,
    cpus: u32,
    extent: Extent,
) -> Vec<Planned> {
    let mut tasks = Vec::new();
    for (group_index, group) in load.groups.iter().enumerate() {
        let (count, arrivals) = match extent {
            Extent::Whole => (group.count, offsets(group, seed(suite.seed, load, group))),
            Extent::Alone if group.after.is_empty() => {
                let count = group.count.min(ALONE);
                (count, vec![Duration::ZERO; count as usize])
            }
            Extent::Alone => continue,
        };
        for (index, arrives) in (0..count).zip(arrivals) {
            let name = format!("{}-{}", group.name, index + 1);
            let out = places.run.join(&name);
            let fill = fill(suite, places, (index, &out), cpus);
            tasks.push(Planned {
                group: group_index,
                arrives,
                command: Template::fill_all(&group.command, &fill),
                environment: group
                    .environment
                    .iter()
                    .map(|(name, value)| (name.clone(), value.fill(&fill)))
                    .collect(),
                directory: group
                    .directory
                    .as_ref()
                    .map_or_else(|| places.run.clone(), |path| places.run.join(path.fill(&fill))),
                name,
            });
        }
    }
    tasks
}

/// What commands are filled with: tasks, checks and derived data.
pub(super) fn fill<'a>(
    suite: &'a Suite,
    places: &'a Places,
    (index, out): (u32, &'a Path),
    cpus: u32,
) -> Fill<'a> {
    let Places { data, run } = places;
    Fill { data, run, out, index, sets: &suite.data, scale: suite.scale, cpus }
}

/// When each task of a group arrives, since the group may begin.
fn offsets(group: &Group, seed: u64) -> Vec<Duration> {
    let mut random = SplitMix(seed);
    let mut at = group.start;
    let mut offsets = Vec::new();
    for _ in 0..group.count {
        offsets.push(at);
        let pause = match group.arrival {
            Arrival::AtOnce => Duration::ZERO,
            Arrival::Every(pause) => pause,
            // inverse transform; 1 - u is never 0
            Arrival::Exponential(mean) => mean.mul_f64(-(1.0 - random.unit()).ln()),
        };
        at = at.saturating_add(pause);
    }
    offsets
}

/// The same in every setting and round: FNV-1a of the names, so that a new load or group does
/// not change the arrivals of the others.
fn seed(seed: u64, load: &Load, group: &Group) -> u64 {
    let bytes = load.name.bytes().chain([0]).chain(group.name.bytes());
    bytes.fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
struct SplitMix(u64);

impl SplitMix {
    /// 0 to below 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // the 53 bits an f64 holds exactly
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(arrival: Arrival) -> Group {
        Group {
            name: "map".into(),
            kind: None,
            job: None,
            count: 1_000,
            command: Vec::new(),
            priority: 0,
            arrival,
            start: Duration::from_secs(1),
            after: Vec::new(),
            environment: Vec::new(),
            directory: None,
        }
    }

    #[test]
    fn arrivals_follow_their_pattern() {
        let ms = Duration::from_millis;
        assert!(offsets(&group(Arrival::AtOnce), 1).iter().all(|&at| at == ms(1_000)));
        assert_eq!(offsets(&group(Arrival::Every(ms(500))), 1)[..3], [1_000, 1_500, 2_000].map(ms));
        let random = offsets(&group(Arrival::Exponential(ms(2_000))), 1);
        assert_eq!(random, offsets(&group(Arrival::Exponential(ms(2_000))), 1));
        assert!(
            random.is_sorted() && random != offsets(&group(Arrival::Exponential(ms(2_000))), 2)
        );
        let mean = (random[999] - random[0]).as_secs_f64() / 999.0;
        assert!((1.8..2.2).contains(&mean), "{mean}");
    }
}
