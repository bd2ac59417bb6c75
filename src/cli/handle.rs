//! Words for a task: its id, the number at the end of its id, or its name.
//!
//! lrsd knows ids alone. A word in the form of an id is never a name, so that no user can intercept
//! a command for another user's task. A word that is the name of one task and the number of another
//! is refused. If no running task has the name, it means the one that ended last. Limit: a number
//! means a running task only.

use lrs_api::client::{Connection, all_tasks};
use tonic::{Code, Status};

use super::client::ended_tasks;
use super::output::printable;
use crate::core::model::{ReservationId, TaskId, WaiterId};
use crate::proto::{ListHistoryRequest, Task};

/// Asks with `word` as an id, and where lrsd knows none such, with the id of the task that it stands
/// for.
///
/// # Errors
/// Those of `request`; INVALID_ARGUMENT if `word` refers to several tasks.
pub(super) async fn with_id<T, Fut>(
    lrsd: Connection,
    word: String,
    request: impl Fn(Connection, String) -> Fut,
) -> Result<T, Status>
where
    Fut: Future<Output = Result<T, Status>>,
{
    let refused = match request(lrsd.clone(), word.clone()).await {
        Err(status)
            if matches!(status.code(), Code::NotFound | Code::InvalidArgument) && !is_id(&word) =>
        {
            status
        }
        answer => return answer,
    };
    if let Some(task) = one(&word, &all_tasks(lrsd.clone()).await?)? {
        return request(lrsd, task.id.clone()).await;
    }
    // Whatever is wrong with the history, the first answer is the one to show.
    let ended = ended_tasks(lrsd.clone(), ListHistoryRequest::default()).await.unwrap_or_default();
    let called = ended.into_iter().filter(|task| task.name.as_deref() == Some(&*word));
    let last = called.max_by_key(|task| task.ended_at.map(|at| (at.seconds, at.nanos)));
    match last {
        None => Err(refused),
        Some(task) => request(lrsd, task.id).await,
    }
}

/// The running task that `word` refers to, if there is one.
///
/// # Errors
/// INVALID_ARGUMENT if there are several.
pub(super) fn one<'t>(word: &str, tasks: &'t [Task]) -> Result<Option<&'t Task>, Status> {
    let meant: Vec<&Task> =
        tasks.iter().filter(|task| refers_to(word, &task.id, task.name.as_deref())).collect();
    if let [] | [_] = meant[..] {
        return Ok(meant.first().copied());
    }
    let ids: Vec<&str> = meant.iter().map(|task| task.id.as_str()).take(10).collect();
    Err(Status::invalid_argument(format!(
        "{} tasks are called {:?}; say which: {}{}",
        meant.len(),
        printable(word),
        ids.join(", "),
        if meant.len() > ids.len() { " ..." } else { "" }
    )))
}

/// Whether `word` refers to the task of this id and name.
pub(super) fn refers_to(word: &str, id: &str, name: Option<&str>) -> bool {
    let by_number = || id.rsplit_once('-').is_some_and(|(_, number)| number == word);
    id == word || !is_id(word) && (name == Some(word) || by_number())
}

/// Whether `word` has the form of an id, of a task or of something in the queue.
pub(super) fn is_id(word: &str) -> bool {
    word.parse::<TaskId>().is_ok() || is_queued(word)
}

/// Whether `word` has the form of an id of something in the queue.
pub(super) fn is_queued(word: &str) -> bool {
    word.parse::<WaiterId>().is_ok() || word.parse::<ReservationId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Vec<Task> {
        [("t0000abc-7", "sort"), ("t0000abc-17", "7"), ("t0000abc-18", "t0000abc-9")]
            .map(|(id, name)| Task { id: id.into(), name: Some(name.into()), ..Task::default() })
            .into()
    }

    #[test]
    fn a_word_is_an_id_or_else_a_name_or_number_of_one_task() {
        let tasks = tasks();
        let id = |word| one(word, &tasks).map(|task| task.map(|task| &*task.id)).ok();
        assert_eq!(id("7"), None, "the name of one, the number of another");
        assert_eq!(id("17"), Some(Some("t0000abc-17")));
        assert_eq!(id("sort"), Some(Some("t0000abc-7")));
        assert_eq!(id("t0000abc-7"), Some(Some("t0000abc-7")));
        assert_eq!(id("t0000abc-9"), Some(None), "no name has the form of an id");
        for word in ["8", "", "-7"] {
            assert_eq!(id(word), Some(None), "{word:?}");
        }
    }
}
