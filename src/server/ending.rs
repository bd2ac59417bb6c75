//! Waiting for the end of a task: `WaitTask`.
//!
//! Pulled, like the streams: a waiter looks when there is a new snapshot, and the loop knows of none. As
//! many may wait as calls may be under way ([`super::quota`]).
//!
//! Limits. How the main process ended comes beside the end, or not at all where lrsd cannot learn it,
//! so it is waited for no longer than [`EXIT_FOLLOWS`]. A task that is not kept any more (the last
//! 4,096 are) is as unknown as one that never was.

use std::time::Duration;

use super::query::Reader;
use super::{history, request};
use crate::access::Access;
use crate::command::{CommandError, ErrorKind};
use crate::core::event::EventKind;
use crate::proto;

/// The event `exit` as a rule comes with the end; no caller waits longer for one that does not
/// come.
const EXIT_FOLLOWS: Duration = Duration::from_millis(200);

/// The task, once it has ended, and how.
///
/// # Errors
/// NotFound: no such task runs or is kept. FailedPrecondition: it was released. WaitTimedOut: it still
/// runs. Unavailable: the daemon ends.
pub async fn of_task(
    access: &Access,
    reader: Reader,
    asked: proto::WaitTaskRequest,
) -> Result<proto::EndedTask, CommandError> {
    let id = request::task_id(&asked.id)?;
    let mut snapshots = access.snapshot.clone();
    let ends = snapshots.wait_for(|snapshot| !snapshot.tasks.contains_key(&id));
    let limit = asked.wait_ms.map_or(Duration::MAX, Duration::from_millis);
    match tokio::time::timeout(limit, ends).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => {
            let message = "lrsd is stopping; ask again once it is back";
            return Err(CommandError::new(ErrorKind::Unavailable, message));
        }
        Err(_) => {
            let message = format!("task {id} still runs; wait longer (wait_ms)");
            return Err(CommandError::new(ErrorKind::WaitTimedOut, message));
        }
    }
    // The history is written before the snapshot without the task.
    let ended = || access.events.ended_task(&asked.id);
    let Some(mut task) = ended() else {
        let (events, _) = access.events.about(&asked.id);
        let released = events.last().is_some_and(|event| event.kind == EventKind::Released);
        return Err(if released {
            let message =
                format!("task {id} was released; it goes on, and lrsd does not see its end");
            CommandError::new(ErrorKind::FailedPrecondition, message)
        } else {
            let message = format!("no task {id} runs here, and the end of none is kept");
            CommandError::new(ErrorKind::NotFound, message)
        });
    };
    if task.exit.is_none() {
        let mut news = access.events.newest();
        let exit = async {
            while ended().is_some_and(|task| task.exit.is_none()) && news.changed().await.is_ok() {}
        };
        // Whether it came or not, what is known is the answer.
        drop(tokio::time::timeout(EXIT_FOLLOWS, exit).await);
        task = ended().unwrap_or(task);
    }
    Ok(history::message(access, reader, &task))
}
