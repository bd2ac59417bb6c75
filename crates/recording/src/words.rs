//! An input and a step of the core, in words.
//!
//! What comes from a recording may have control characters: whoever prints it makes them visible.

use lrs_core::event::Event;
use lrs_core::model::TaskId;
use lrs_core::step::{Answer, Input, Job, Record, Step};

/// What happened: one clause.
pub fn input(input: &Input) -> String {
    let of = |what: &str, task: &TaskId| format!("{what} ({task})");
    match input {
        Input::Request { .. } => "a client asks for a slot".to_owned(),
        Input::Abandon(_) => "a request that waits is no longer wanted".to_owned(),
        Input::Prepared { task, .. } => of("where the processes of a task are is known", task),
        Input::AttachBooked { task, .. } => of("a task of observe mode is to be attached", task),
        Input::Attached { task, .. } => of("the processes of a task are in place", task),
        Input::NotRecorded(task) => of("the record of a task could not be written", task),
        Input::AttachFailed { task, .. } => of("a task could not be put in place", task),
        Input::Ended(tasks) => format!("tasks have ended ({})", list(tasks)),
        Input::Figures(tasks) => {
            format!("the last figures of {} ended tasks are read", tasks.len())
        }
        Input::EndedAway { .. } => "tasks ended while no daemon ran".to_owned(),
        Input::MainExited(task) => of("the main process of a task has ended", task),
        Input::Exited { task, exit, .. } => format!("the main process of {task} {exit}"),
        Input::NotFrozen { task, .. } => of("a task could not be frozen", task),
        Input::Halted(_) => "others froze, stopped or thawed tasks".to_owned(),
        Input::RootFrozen(_) => "others froze or thawed the group of all tasks".to_owned(),
        Input::Release(task) => of("a task is to be given back", task),
        Input::Released(task) => of("a task was given back", task),
        Input::ReleaseFailed(task) => of("a task could not be given back", task),
        Input::Removed(task) => of("nothing of a task is left", task),
        Input::Outside { task, .. } => of("a main process runs outside of its group", task),
        Input::WentElsewhere { task, .. } => of("a main process went into another group", task),
        Input::Reattached { task, .. } => of("a main process was to be moved back", task),
        Input::Entered { task, .. } => of("processes of others are in the group of a task", task),
        Input::Drifted { task, .. } => of("weights of a task are not what was written", task),
        Input::Repaired { task, .. } => of("weights of a task were put right", task),
        Input::OwnerWrote { task, .. } => of("the owner of a group wrote into it", task),
        Input::FoundAgain { task, .. } => of("a finder names a task again", task),
        Input::Reserve { .. } => "a client asks for reservations".to_owned(),
        Input::Cancel(id) => format!("reservation {id} is cancelled"),
        Input::SetPriority { task, .. } => of("a task gets another priority", task),
        Input::SetJobPriority { .. } => "a job gets another priority".to_owned(),
        Input::SetStanding { task, .. } => of("a task gets another kind of place", task),
        Input::Drain => "the node is drained".to_owned(),
        Input::Resume => "the node takes tasks again".to_owned(),
        Input::Configure(_) => "the settings change".to_owned(),
        Input::Tick => "time has passed".to_owned(),
        Input::Cycle { tasks, .. } => format!("a cycle of measuring, {} tasks", tasks.len()),
        Input::Ramp { .. } => "a reading between two cycles".to_owned(),
        Input::Looked(_) => "threads of tasks were looked at".to_owned(),
        Input::CpuLooked(_) => "CPU counters of tasks were read between two cycles".to_owned(),
        Input::Restored(_) => "a daemon goes on with what the one before left".to_owned(),
        Input::Note { .. } | Input::Change(_) => "something for the history alone".to_owned(),
        Input::Stop => "lrsd ends".to_owned(),
    }
}

fn list(tasks: &[TaskId]) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What was decided, a line each in the order in which it is carried out; empty: nothing.
pub fn step(step: &Step) -> Vec<String> {
    let Step { thaw, weights, events, records, forget, jobs, answers } = step;
    let mut lines: Vec<String> = thaw.iter().map(|task| format!("thaw {task}")).collect();
    lines.extend(weights.iter().map(|(task, level)| format!("{task} gets {level} weights")));
    lines.extend(events.iter().map(event));
    lines.extend(records.iter().map(|record| format!("store {}", name(record))));
    lines.extend(forget.iter().map(|record| format!("forget {}", name(record))));
    lines.extend(jobs.iter().map(job));
    lines.extend(answers.iter().map(|(ticket, answer)| {
        let answer = match answer {
            Answer::Waiting => "it waits".to_owned(),
            Answer::Refused(refusal) => refusal.to_string(),
            Answer::TimedOut => "it has waited as long as it would".to_owned(),
            Answer::Reserved(ids) => {
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                format!("it is promised {}", ids.join(", "))
            }
        };
        format!("answer request {}: {answer}", ticket.0)
    }));
    lines
}

fn name(record: &Record) -> String {
    match record {
        Record::Reservation(id) => format!("reservation {id}"),
        Record::Task(id) => format!("task {id}"),
    }
}

fn event(event: &Event) -> String {
    let Event { seq, at: _, kind, task, from, to, reason, inputs } = event;
    let mut line = format!("event {seq}: {}", kind.as_str());
    for text in [task.clone(), from.as_ref().map(|from| format!("from {from}"))] {
        line.extend(text.map(|text| format!(" {text}")));
    }
    line.extend(to.as_ref().map(|to| format!(" to {to}")));
    line.extend(reason.as_ref().map(|reason| format!(", {reason}")));
    for (key, value) in inputs {
        line.push_str(&format!("; {key} {value}"));
    }
    line
}

fn job(job: &Job) -> String {
    match job {
        Job::Prepare { task, .. } => format!("find out where the processes of {task} are"),
        Job::Park { task, .. } => format!("let the request of {task} wait in its group"),
        Job::PrepareBooked(task) => {
            format!("find out where the processes of {task} are, which observe mode had")
        }
        Job::Attach(task) => format!("put {task} in place"),
        Job::Reattach(task) => format!("move the main process of {task} back"),
        Job::Watch(task) => format!("watch {task}"),
        Job::Refuse { task, .. } => format!("refuse {task}"),
        Job::Figures(tasks) => format!("read the last figures of {}", list(tasks)),
        Job::Repair { task, .. } => format!("put the weights of {task} right"),
        Job::Freeze(task) => format!("freeze {task}"),
        Job::Release(task) => format!("give {task} back"),
        Job::Remove { task, .. } => format!("remove what is left of {}", task.id),
    }
}
