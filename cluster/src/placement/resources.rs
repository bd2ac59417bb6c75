//! What a node has and a task takes: CPUs, memory, disk.

use std::iter::Sum;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Amounts of the three resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// CPUs.
    pub cpus: f64,
    /// Memory.
    pub memory_bytes: f64,
    /// Room on disks.
    pub disk_bytes: f64,
}

impl Resources {
    /// One after the other, with the name of the field.
    pub fn fields(&self) -> [(&'static str, f64); 3] {
        let Resources { cpus, memory_bytes, disk_bytes } = *self;
        [("cpus", cpus), ("memory_bytes", memory_bytes), ("disk_bytes", disk_bytes)]
    }

    /// Whether there is enough of each in `room`.
    pub fn fits(&self, room: &Resources) -> bool {
        self.pairs(room).all(|(wanted, room)| is_there(wanted, room))
    }

    /// The largest share that this is of any resource of `total` (dominant resource fairness).
    pub fn dominant(&self, total: &Resources) -> f64 {
        self.shares(total).fold(0.0, f64::max)
    }

    /// The mean of the shares that this is of `total`, 0 to 1.
    pub fn mean_share(&self, total: &Resources) -> f64 {
        (self.shares(total).sum::<f64>() / 3.0).clamp(0.0, 1.0)
    }

    /// 0 of a resource that there is none of.
    fn shares(&self, total: &Resources) -> impl Iterator<Item = f64> {
        self.pairs(total)
            .map(|(part, whole)| if whole > 0.0 { (part / whole).max(0.0) } else { 0.0 })
    }

    fn pairs(&self, other: &Resources) -> impl Iterator<Item = (f64, f64)> + use<> {
        let [a, b] = [self, other].map(|of| of.fields().map(|(_, amount)| amount));
        a.into_iter().zip(b)
    }
}

/// Whether there is enough of one resource. What was added and taken away again may be short of a last bit.
pub(crate) fn is_there(wanted: f64, room: f64) -> bool {
    wanted <= room + wanted * 1e-9
}

/// The first resource of which more is wanted than there is: how much, how much there is, and its name.
pub(crate) fn lacking(
    wanted: &[(&'static str, f64); 3],
    room: &[(&'static str, f64); 3],
) -> Option<(f64, f64, &'static str)> {
    let units = ["CPUs", "bytes of memory", "bytes of disk"];
    let mut all = wanted.iter().zip(room).zip(units);
    all.find(|(((_, wanted), (_, room)), _)| !is_there(*wanted, *room))
        .map(|(((_, wanted), (_, room)), unit)| (*wanted, *room, unit))
}

impl Add for Resources {
    type Output = Resources;

    fn add(self, other: Resources) -> Resources {
        Resources {
            cpus: self.cpus + other.cpus,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            disk_bytes: self.disk_bytes + other.disk_bytes,
        }
    }
}

impl Sub for Resources {
    type Output = Resources;

    fn sub(self, other: Resources) -> Resources {
        Resources {
            cpus: self.cpus - other.cpus,
            memory_bytes: self.memory_bytes - other.memory_bytes,
            disk_bytes: self.disk_bytes - other.disk_bytes,
        }
    }
}

impl Sum for Resources {
    fn sum<I: Iterator<Item = Resources>>(amounts: I) -> Resources {
        amounts.fold(Resources::default(), Add::add)
    }
}
