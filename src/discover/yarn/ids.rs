//! Hadoop's identifiers. They name directories, cgroups and jobs, so one is taken only in the
//! very spelling Hadoop writes: what prints differently from how it was read is none.

use std::fmt;
use std::str::FromStr;

use crate::core::model::Label;

/// The text is not an id in Hadoop's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id as Hadoop writes them")]
pub struct IdError;

/// `application_<cluster timestamp>_<number, 4 digits or more>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId {
    /// When the ResourceManager that gave it started, milliseconds since 1970.
    pub cluster: u64,
    /// Counted from 1.
    pub number: u32,
}

/// `container_[e<epoch>_]<cluster timestamp>_<application>_<attempt>_<sequence>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    /// Restarts of the ResourceManager that kept its work; not written while 0.
    pub epoch: u32,
    /// The application it belongs to.
    pub application: ApplicationId,
    /// Which attempt of the application.
    pub attempt: u32,
    /// Which container of the attempt; the first one is its application master's.
    pub sequence: u64,
}

/// What a task of MapReduce does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Phase {
    Map,
    Reduce,
}

/// `attempt_<cluster>_<job>_<m or r>_<task>_<attempt>`: one try of one task of MapReduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// A timestamp in milliseconds (YARN), or a date `yyyyMMddHHmm` (JobTracker).
    pub cluster: u64,
    /// The job's number.
    pub job: u32,
    /// `m` or `r`.
    pub phase: Phase,
    /// Which task of the job.
    pub task: u32,
    /// Which try.
    pub attempt: u32,
}

impl AttemptId {
    /// `job_<cluster>_<job>`.
    pub fn job_name(&self) -> String {
        format!("job_{}_{:04}", self.cluster, self.job)
    }
}

/// A label of an id; none of them is empty, long, or holds control characters.
pub(super) fn label(id: impl fmt::Display) -> Option<Label> {
    Label::new(&id.to_string()).ok()
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "application_{}_{:04}", self.cluster, self.number)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerId { epoch, application, attempt, sequence } = self;
        f.write_str("container_")?;
        if *epoch > 0 {
            write!(f, "e{epoch:02}_")?;
        }
        let ApplicationId { cluster, number } = application;
        write!(f, "{cluster}_{number:04}_{attempt:02}_{sequence:06}")
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttemptId { cluster, job, phase, task, attempt } = self;
        let phase = match phase {
            Phase::Map => 'm',
            Phase::Reduce => 'r',
        };
        write!(f, "attempt_{cluster}_{job:04}_{phase}_{task:06}_{attempt}")
    }
}

impl FromStr for ApplicationId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<ApplicationId, IdError> {
        let mut parts = text.strip_prefix("application_").ok_or(IdError)?.split('_');
        let id = ApplicationId { cluster: number(&mut parts)?, number: number(&mut parts)? };
        spelled(id, text)
    }
}

impl FromStr for ContainerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<ContainerId, IdError> {
        let rest = text.strip_prefix("container_").ok_or(IdError)?;
        let (epoch, rest) = match rest.strip_prefix('e') {
            Some(rest) => rest.split_once('_').ok_or(IdError)?,
            None => ("0", rest),
        };
        let mut parts = rest.split('_');
        let id = ContainerId {
            epoch: epoch.parse().map_err(|_| IdError)?,
            application: ApplicationId {
                cluster: number(&mut parts)?,
                number: number(&mut parts)?,
            },
            attempt: number(&mut parts)?,
            sequence: number(&mut parts)?,
        };
        spelled(id, text)
    }
}

impl FromStr for AttemptId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<AttemptId, IdError> {
        let mut parts = text.strip_prefix("attempt_").ok_or(IdError)?.split('_');
        let (cluster, job) = (number(&mut parts)?, number(&mut parts)?);
        let phase = match parts.next() {
            Some("m") => Phase::Map,
            Some("r") => Phase::Reduce,
            _ => return Err(IdError),
        };
        let (task, attempt) = (number(&mut parts)?, number(&mut parts)?);
        spelled(AttemptId { cluster, job, phase, task, attempt }, text)
    }
}

fn number<'a, T: FromStr>(parts: &mut impl Iterator<Item = &'a str>) -> Result<T, IdError> {
    parts.next().ok_or(IdError)?.parse().map_err(|_| IdError)
}

/// `id` if it is written as `text` was; signs, missing zeros and further parts are not.
fn spelled<T: fmt::Display>(id: T, text: &str) -> Result<T, IdError> {
    if id.to_string() == text { Ok(id) } else { Err(IdError) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_hadoops_spelling_is_an_id() {
        for text in ["container_1_0001_01_000002", "container_e17_1410901177871_10001_01_1000005"] {
            assert_eq!(text.parse::<ContainerId>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "container_",
            "container_1_0001_01",
            "container_1_0001_01_2",
            "container_1_0001_01_000002_3",
            "container_1_0001_01_000002.pid",
            "container_e0_1_0001_01_000002",
            "container_e7_1_0001_01_000002",
            "container_+1_0001_01_000002",
            "container_1_0001_01_-00002",
            "container_99999999999999999999_0001_01_000002",
            " container_1_0001_01_000002",
            "Container_1_0001_01_000002",
            "container_1_0001_01_000002\n",
            "../container_1_0001_01_000002",
        ] {
            assert_eq!(text.parse::<ContainerId>(), Err(IdError), "{text:?}");
        }
        for text in ["application_1_1", "application_1_0001_1", "job_1_0001", "application_"] {
            assert_eq!(text.parse::<ApplicationId>(), Err(IdError), "{text:?}");
        }
        let attempt: AttemptId = "attempt_201207121733_0003_r_000005_0".parse().unwrap();
        assert_eq!((attempt.phase, attempt.task), (Phase::Reduce, 5));
        assert_eq!(attempt.job_name(), "job_201207121733_0003");
        for text in
            ["attempt_1_0001_s_000005_0", "attempt_1_0001_m_5_0", "attempt_local1_0001_m_000005_0"]
        {
            assert_eq!(text.parse::<AttemptId>(), Err(IdError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn ids_round_trip(
            epoch in any::<u32>(), cluster in any::<u64>(), job in any::<u32>(),
            attempt in any::<u32>(), sequence in any::<u64>(), reduce in any::<bool>(),
        ) {
            let application = ApplicationId { cluster, number: job };
            prop_assert_eq!(application.to_string().parse(), Ok(application));
            let container = ContainerId { epoch, application, attempt, sequence };
            prop_assert_eq!(container.to_string().parse(), Ok(container));
            let phase = if reduce { Phase::Reduce } else { Phase::Map };
            let attempt = AttemptId { cluster, job, phase, task: epoch, attempt };
            prop_assert_eq!(attempt.to_string().parse(), Ok(attempt));
            prop_assert!(label(container).is_some() && label(attempt).is_some());
        }

        #[test]
        fn any_text_is_an_id_or_an_error(text in "(container_|application_|attempt_)?[e0-9_mr+-]{0,40}") {
            let container = text.parse::<ContainerId>();
            prop_assert!(container.is_err() || container.unwrap().to_string() == text);
            let attempt = text.parse::<AttemptId>();
            prop_assert!(attempt.is_err() || attempt.unwrap().to_string() == text);
        }
    }
}
