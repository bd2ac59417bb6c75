//! Words that stand for a task: its id, the end of its id (`-293`, `293`), its name.
//!
//! lrsd knows ids alone, and they are tried first: a name can take no task's id away. Limits: a
//! name or the end of an id serves for a running task only.

use lrs_api::client::{Connection, all_tasks};
use tonic::{Code, Status};

use super::output::printable;
use crate::proto::Task;

/// Asks with `word` as an id, and where lrsd knows none such, with the id of the one running task
/// that it stands for.
///
/// # Errors
/// Those of `request`; INVALID_ARGUMENT if `word` stands for several tasks.
pub(super) async fn with_id<T, Fut>(
    lrsd: Connection,
    word: String,
    request: impl Fn(Connection, String) -> Fut,
) -> Result<T, Status>
where
    Fut: Future<Output = Result<T, Status>>,
{
    let refused = match request(lrsd.clone(), word.clone()).await {
        Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => status,
        answer => return answer,
    };
    match &*meant(&word, &all_tasks(lrsd.clone()).await?) {
        [] => Err(refused),
        [task] => request(lrsd, task.id.clone()).await,
        several => {
            let ids: Vec<&str> = several.iter().map(|task| task.id.as_str()).take(10).collect();
            Err(Status::invalid_argument(format!(
                "{} tasks are called {:?}; say which: {}{}",
                several.len(),
                printable(&word),
                ids.join(", "),
                if several.len() > ids.len() { " ..." } else { "" }
            )))
        }
    }
}

/// The tasks that `word` stands for; none where it is the id of one, which lrsd has refused.
fn meant<'t>(word: &str, tasks: &'t [Task]) -> Vec<&'t Task> {
    if tasks.iter().any(|task| task.id == word) {
        return Vec::new();
    }
    let named: Vec<&Task> =
        tasks.iter().filter(|task| task.name.as_deref() == Some(word)).collect();
    if !named.is_empty() {
        return named;
    }
    let number = word.strip_prefix('-').unwrap_or(word);
    tasks.iter().filter(|task| task.id.rsplit('-').next() == Some(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Vec<Task> {
        [("t0abc-7", "sort"), ("t0abc-17", "7"), ("t0abc-18", "sort"), ("t0abd-18", "x")]
            .map(|(id, name)| Task { id: id.into(), name: Some(name.into()), ..Task::default() })
            .into()
    }

    #[test]
    fn a_name_comes_before_the_end_of_an_id_and_an_id_before_both() {
        let tasks = tasks();
        let ids = |word| meant(word, &tasks).iter().map(|task| &*task.id).collect::<Vec<_>>();
        assert_eq!(ids("7"), ["t0abc-17"]);
        assert_eq!(ids("-7"), ["t0abc-7"]);
        assert_eq!(ids("17"), ["t0abc-17"]);
        assert_eq!(ids("sort"), ["t0abc-7", "t0abc-18"]);
        assert_eq!(ids("18"), ["t0abc-18", "t0abd-18"]);
        assert_eq!(ids("t0abc-7"), [""; 0]);
        assert_eq!(ids("8"), [""; 0], "only a whole number");
        assert_eq!(ids(""), [""; 0]);
    }
}
