//! The reader of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group::{Context, GroupReader};
use super::node::NodeReader;
use super::parents::Parents;
use super::tree::{ProcessTable, TreeReader};
use super::{
    NodeSample, ReportedFiles, Sample, SampleError, Settings, TaskSample, TaskSource, ThreadLook,
};
use crate::core::model::TaskId;
use crate::kernfs::files::{Descriptors, read_once};
use crate::units::{BootTime, Bytes};

/// Problems reported per cycle; of more, only the number.
const MOST_PROBLEMS: usize = 16;

/// Reads the node and the tasks it was set to watch. Not shared: one thread owns it.
#[derive(Debug)]
pub struct Sampler {
    settings: Settings,
    files: Files,
    node: NodeReader,
    tasks: BTreeMap<TaskId, TaskReader>,
    parents: Parents,
}

/// What all readers of tasks share.
#[derive(Debug)]
struct Files {
    descriptors: Descriptors,
    buffer: Vec<u8>,
    reported: ReportedFiles,
}

impl Files {
    fn context<'c>(
        &'c mut self,
        settings: &'c Settings,
        problems: &'c mut Vec<String>,
    ) -> Context<'c> {
        Context {
            proc: &settings.proc,
            page_size: settings.page_size,
            descriptors: &self.descriptors,
            buffer: &mut self.buffer,
            problems,
            reported: &mut self.reported,
        }
    }
}

#[derive(Debug)]
enum TaskReader {
    Group(Box<GroupReader>),
    Tree(Box<TreeReader>),
}

impl Sampler {
    /// Checks that there is a procfs.
    pub fn new(settings: Settings) -> Result<Sampler, SampleError> {
        let mut buffer = Vec::new();
        let path = settings.proc.join("stat");
        if let Err(source) = read_once(&path, &mut buffer) {
            return Err(SampleError::NoProc { path, source });
        }
        let files = Files {
            descriptors: Descriptors::new(settings.kept_files),
            buffer,
            reported: ReportedFiles::default(),
        };
        Ok(Sampler {
            files,
            node: NodeReader::new(&settings),
            tasks: BTreeMap::new(),
            parents: Parents::default(),
            settings,
        })
    }

    /// Begins to read a task. Watching one that is watched already starts it anew.
    pub fn watch(&mut self, id: TaskId, source: TaskSource) {
        self.forget(id);
        let reader = match source {
            TaskSource::Group(dirs) => {
                let root = self.settings.quota_dirs.first().map(|root| root.usage.as_path());
                self.parents.enter(id, &dirs, root);
                TaskReader::Group(Box::new(GroupReader::new(dirs, id.number)))
            }
            TaskSource::Processes(main) => TaskReader::Tree(Box::new(TreeReader::new(main))),
        };
        self.tasks.insert(id, reader);
    }

    /// Stops reading a task and closes its files. Unknown ids are fine: the task may have
    /// ended before it was watched.
    pub fn forget(&mut self, id: TaskId) {
        if let Some(TaskReader::Group(group)) = self.tasks.remove(&id) {
            self.parents.leave(id, &group.dirs);
        }
    }

    /// How many tasks are watched.
    pub fn watched(&self) -> usize {
        self.tasks.len()
    }

    /// Files kept open and the most there may be, for status and doctor.
    pub fn kept_files(&self) -> (u64, u64) {
        (self.files.descriptors.kept(), self.files.descriptors.budget())
    }

    /// The whole disks of the node, as of the last reading; none: there are none, or they cannot be
    /// distinguished from partitions.
    pub fn whole_disks(&self) -> Vec<(u32, u32)> {
        self.node.whole_disks().to_vec()
    }

    /// The budget behind them, for the files of the loop.
    pub fn descriptors(&self) -> Descriptors {
        self.files.descriptors.clone()
    }

    /// One reading. `now` is taken by the caller just before; `look_at`, ascending, are the
    /// tasks to look at the threads of. [`Sample::took`] is left to the caller, which
    /// has the clock.
    pub fn sample(&mut self, now: BootTime, look_at: &[TaskId]) -> Sample {
        self.read_all(now, None, look_at)
    }

    /// The same with pressure of the tasks in `due` only, ascending: what is passive and ends no
    /// interval of a computing rate needs none.
    pub fn sample_due(&mut self, now: BootTime, due: &[TaskId], look_at: &[TaskId]) -> Sample {
        self.read_all(now, Some(due), look_at)
    }

    fn read_all(&mut self, now: BootTime, due: Option<&[TaskId]>, look_at: &[TaskId]) -> Sample {
        let mut node = NodeSample::default();
        self.node.read(&mut node, &self.files.descriptors, &mut self.files.buffer);
        let mut problems = std::mem::take(&mut node.problems);
        let trees = self.tasks.values().any(|reader| matches!(reader, TaskReader::Tree(_)));
        let table = trees.then(|| ProcessTable::read(&self.settings.proc, &mut problems));
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (&id, reader) in &mut self.tasks {
            let before = problems.len();
            let mut context = self.files.context(&self.settings, &mut problems);
            let sample = match (&mut *reader, &table) {
                (TaskReader::Group(group), _) => {
                    let due = due.is_none_or(|due| due.binary_search(&id).is_ok());
                    group.read(&mut context, due, |device| self.node.is_whole_disk(device))
                }
                (TaskReader::Tree(tree), Some(table)) => {
                    tree.read(&mut context, table, self.settings.ticks_per_second)
                }
                (TaskReader::Tree(_), None) => None,
            };
            if let Some(mut sample) = sample {
                if look_at.binary_search(&id).is_ok() {
                    look_into(reader, &mut sample, &mut context);
                }
                tasks.push((id, sample));
            }
            for problem in &mut problems[before..] {
                *problem = format!("task {id}: {problem}");
            }
        }
        node.parents = self.parents.read(&mut self.files.context(&self.settings, &mut problems));
        if problems.len() > MOST_PROBLEMS {
            let more = problems.len() - MOST_PROBLEMS;
            problems.truncate(MOST_PROBLEMS);
            problems.push(format!("and {more} more problems in this cycle"));
        }
        node.problems = problems;
        Sample { at: now, node, tasks, took: Duration::ZERO }
    }

    /// The node and the sizes of tasks in groups, between two readings, of which nothing is kept. What
    /// could not be read is left out; the next reading reports why.
    pub fn read_ahead(&mut self) -> (NodeSample, Vec<Bytes>) {
        let mut node = NodeSample::default();
        self.node.read(&mut node, &self.files.descriptors, &mut self.files.buffer);
        let mut context = self.files.context(&self.settings, &mut node.problems);
        let groups = self.tasks.values().filter_map(|reader| match reader {
            TaskReader::Group(group) => Some(group),
            TaskReader::Tree(_) => None,
        });
        let sizes = groups.filter_map(|group| group.size(&mut context)).collect();
        (node, sizes)
    }

    /// Looks at the threads of tasks between two readings, so that one cycle yields several
    /// thread samples. Tasks that are gone or could not be looked at are left out; the next reading
    /// reports why.
    pub fn look(&mut self, tasks: &[TaskId]) -> Vec<(TaskId, ThreadLook)> {
        let mut unreported = Vec::new();
        let mut context = self.files.context(&self.settings, &mut unreported);
        let mut seen = Vec::with_capacity(tasks.len());
        for &id in tasks {
            if let Some(reader) = self.tasks.get_mut(&id)
                && let Some(look) = look(reader, &mut context)
            {
                seen.push((id, look));
            }
        }
        seen
    }
}

fn look(reader: &mut TaskReader, context: &mut Context<'_>) -> Option<ThreadLook> {
    match reader {
        TaskReader::Group(group) => {
            let mut watch = std::mem::take(&mut group.watch);
            let mut listing = Vec::new();
            let seen = watch.look(
                context.proc,
                |buffer| group.pids(buffer, &mut listing),
                context.descriptors,
                context.buffer,
                context.problems,
            );
            context.problems.append(&mut listing);
            group.watch = watch;
            seen
        }
        TaskReader::Tree(tree) => {
            let pids = tree.pids();
            tree.watch.look(
                context.proc,
                |_| pids,
                context.descriptors,
                context.buffer,
                context.problems,
            )
        }
    }
}

fn look_into(reader: &mut TaskReader, sample: &mut TaskSample, context: &mut Context<'_>) {
    let seen = look(reader, context);
    sample.asleep = seen.map(|look| look == ThreadLook::Asleep);
    sample.disk_wait = seen.map(|look| look == ThreadLook::DiskWait);
    let watch = match reader {
        TaskReader::Group(group) => &mut group.watch,
        TaskReader::Tree(tree) => &mut tree.watch,
    };
    sample.thread =
        watch.counters(context.proc, context.descriptors, context.buffer, context.problems);
}

#[cfg(test)]
mod tests;
