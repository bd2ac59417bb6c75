//! What top keeps of an answer of lrsd: little enough that an hour of it fits.
//!
//! Names become printable here, once for each task, so nothing behind this module sees what a user may have
//! put into one. What is not known is `None`.

use std::collections::HashMap;
use std::sync::Arc;

use lrs_api::{proto, wire, words};
use lrs_core::units::WallTime;
use lrs_term::printable;

/// What lrsd answered to one round of questions.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// When, by the clock of this process.
    pub at: WallTime,
    /// GetStatus.
    pub status: proto::Status,
    /// All pages of ListTasks.
    pub tasks: Vec<proto::Task>,
    /// The first page of ListQueue.
    pub queue: Vec<proto::Queued>,
}

/// Figures of the node at one moment; shares are 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Node {
    /// When.
    pub at: WallTime,
    /// CPU of tasks, of others and waiting for disks.
    pub cpu: [Option<f64>; 3],
    /// CPU that is left.
    pub spare: Option<f64>,
    /// Active slots.
    pub active: Slots,
    /// Passive slots.
    pub passive: Slots,
    /// Time in which something waited for CPU, disk and memory.
    pub stalls: [Option<f64>; 3],
    /// Bytes a second from and to disks.
    pub disk: [Option<f64>; 2],
    /// Memory of tasks: used and in all, in bytes.
    pub memory: Option<(u64, u64)>,
    /// Requests that wait.
    pub waiting: u32,
}

/// Slots of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slots {
    /// With a task.
    pub used: u32,
    /// Kept for one.
    pub reserved: u32,
    /// In all.
    pub capacity: u32,
}

impl Node {
    /// Of a status.
    pub fn of(status: &proto::Status, at: WallTime) -> Node {
        let node = status.node.clone().unwrap_or_default();
        let cpu = node.cpu.unwrap_or_default();
        let others = cpu.effective.zip(cpu.tasks).map(|(all, tasks)| (all - tasks).max(0.0));
        let slots = status.slots.unwrap_or_default();
        let (active, passive) =
            (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
        let stalls = node.pressure.unwrap_or_default();
        let disk = node.disk.unwrap_or_default();
        let memory = node.memory.unwrap_or_default();
        let total = memory.total_bytes;
        Node {
            at,
            cpu: [cpu.tasks, others, cpu.iowait],
            spare: cpu.idle,
            active: Slots {
                used: active.used,
                reserved: active.reserved,
                capacity: active.capacity,
            },
            passive: Slots {
                used: passive.used,
                reserved: passive.reserved,
                capacity: passive.capacity,
            },
            stalls: [stalls.cpu_some, stalls.io_some, stalls.memory_some],
            disk: [disk.read_bytes_per_sec, disk.write_bytes_per_sec],
            memory: total
                .zip(memory.available_bytes)
                .map(|(all, free)| (all.saturating_sub(free), all)),
            waiting: status.waiting,
        }
    }
}

/// What does not change about a task, or a request.
#[derive(Debug, Default, PartialEq)]
pub struct Who {
    /// Ascending in the order in which top first saw them.
    pub serial: u64,
    /// As lrsd takes it.
    pub id: String,
    /// Job, kind and name.
    pub title: String,
    /// Job alone.
    pub job: String,
    /// The owner's name, or number.
    pub user: String,
    /// The owner.
    pub uid: Option<u32>,
    /// All of these in lower case, for filters.
    pub search: String,
}

impl Who {
    /// The end of the id, by which `lrsctl` takes it too.
    pub fn number(&self) -> &str {
        self.id.rsplit('-').next().unwrap_or(&self.id)
    }
}

/// A task at one moment.
#[derive(Clone, Debug)]
pub struct Row {
    /// Who it is.
    pub who: Arc<Who>,
    /// What is odd about it, with commas between.
    pub flags: Box<str>,
    /// Whether it is active; `None`: in no tier that this release knows.
    pub active: Option<bool>,
    /// Higher is sooner.
    pub priority: Option<i32>,
    /// `proto::Class`.
    pub class: i32,
    /// The class is expected, not measured.
    pub hinted: bool,
    /// Computing rate.
    pub rate: Option<f32>,
    /// Share of the node.
    pub cpu: Option<f32>,
    /// Bytes a second.
    pub write: Option<f32>,
    /// Bytes a second.
    pub read: Option<f32>,
    /// Bytes.
    pub resident: Option<u64>,
    /// Seconds since admission.
    pub elapsed: Option<f32>,
}

/// A request that waits, or a reservation, at one moment.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Who it is.
    pub who: Arc<Who>,
    /// 1 is next; `None`: a reservation.
    pub place: Option<u32>,
    /// Higher is sooner.
    pub priority: i32,
    /// Since when.
    pub since: Option<WallTime>,
    /// Seconds until a slot is expected.
    pub expected: Option<f64>,
    /// Why it waits.
    pub reason: String,
}

/// Knows tasks and requests again from answer to answer.
pub struct Reader {
    known: HashMap<String, Arc<Who>>,
    users: HashMap<u32, String>,
    name_of: fn(u32) -> Option<String>,
    next: u64,
}

impl Reader {
    /// `name_of`: the name of a user, if the node has one for it.
    pub fn new(name_of: fn(u32) -> Option<String>) -> Reader {
        Reader { known: HashMap::new(), users: HashMap::new(), name_of, next: 1 }
    }

    /// Tasks by their serials, and what waits in the order of service.
    pub fn read(&mut self, answer: &Answer) -> (Vec<Row>, Vec<Waiting>) {
        let before = std::mem::take(&mut self.known);
        let cpus = words::cpus(&answer.status);
        let mut rows: Vec<Row> = answer
            .tasks
            .iter()
            .map(|task| {
                let of_task = || (words::title(task), task.job.clone(), task.uid);
                row(task, cpus, self.who(&before, &task.id, of_task))
            })
            .collect();
        rows.sort_by_key(|row| row.who.serial);
        let queue = answer.queue.iter().map(|one| {
            let of_request = || (words::queued_title(one), one.job.clone(), Some(one.uid));
            waiting(one, self.who(&before, &one.id, of_request))
        });
        let queue = queue.collect();
        (rows, queue)
    }

    fn who(
        &mut self,
        before: &HashMap<String, Arc<Who>>,
        id: &str,
        words: impl FnOnce() -> (String, Option<String>, Option<u32>),
    ) -> Arc<Who> {
        let who = before.get(id).cloned().unwrap_or_else(|| {
            let (title, job, uid) = words();
            let user = uid.map_or_else(|| "-".to_owned(), |uid| self.user(uid));
            let title = printable(&title).into_owned();
            let job = printable(&job.unwrap_or_default()).into_owned();
            let id = printable(id).into_owned();
            let search = format!("{id} {user} {title}").to_lowercase();
            self.next += 1;
            Arc::new(Who { serial: self.next, id, title, job, user, uid, search })
        });
        self.known.insert(id.to_owned(), Arc::clone(&who));
        who
    }

    fn user(&mut self, uid: u32) -> String {
        let name = || (self.name_of)(uid).unwrap_or_else(|| uid.to_string());
        self.users.entry(uid).or_insert_with(|| printable(&name()).into_owned()).clone()
    }
}

// Figures for people: a rate of f32 is exact enough.
fn row(task: &proto::Task, cpus: Option<f64>, who: Arc<Who>) -> Row {
    let short = |value: Option<f64>| value.map(|value| value as f32);
    Row {
        who,
        flags: words::oddities(task, cpus).join(",").into(),
        active: wire::tier_word(task.tier).map(|_| task.tier == proto::Tier::Active as i32),
        priority: task.priority,
        class: task.class,
        hinted: task.hinted,
        rate: short(task.computing_rate),
        cpu: short(task.cpu_share),
        write: short(task.write_bytes_per_sec),
        read: short(task.read_bytes_per_sec),
        resident: task.resident_bytes,
        elapsed: short(task.elapsed_seconds),
    }
}

fn waiting(one: &proto::Queued, who: Arc<Who>) -> Waiting {
    let tier = wire::tier_word(one.tier).unwrap_or("-");
    let reason = match one.reason.as_str() {
        "reserved" => format!("reserved, {tier}"),
        reason if one.parked => format!("{reason}, parked"),
        reason => reason.to_owned(),
    };
    Waiting {
        who,
        place: one.place,
        priority: one.priority,
        since: one.since.as_ref().map(wire::wall_time),
        expected: one.expected_wait_seconds,
        reason: printable(&reason).into_owned(),
    }
}
