//! Asking lrsd.
//!
//! Four calls that wait for nothing, lists in pages. The lists may be of a later moment than the
//! status: no figure here is a difference between the two. The loops are written out, for what an async
//! closure returns cannot be sent to another thread.

use lrs_api::client::Connection;
use lrs_api::proto;
use lrs_core::units::Moment;
use tonic::Status;

use crate::Reading;

/// Tasks, or requests of the queue, asked for at once.
const PAGE: u32 = 1_000;

/// Asks for everything that [`gather`](crate::gather()) shows; `clock` tells the time.
///
/// # Errors
/// The status of the first call that failed. How long it may take is the caller's to limit.
pub async fn read(mut lrsd: Connection, clock: fn() -> Moment) -> Result<Reading, Status> {
    let began = clock();
    let status = lrsd.get_status(proto::GetStatusRequest {}).await?.into_inner();
    let (mut tasks, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = proto::ListTasksRequest { page_size: PAGE, page_token: page_token.clone() };
        let page = lrsd.list_tasks(request).await?.into_inner();
        let is_last = is_last(&page_token, &page.next_page_token, page.tasks.is_empty());
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if is_last {
            break;
        }
    }
    let (mut queue, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = proto::ListQueueRequest {
            page_size: PAGE,
            page_token: page_token.clone(),
            ..proto::ListQueueRequest::default()
        };
        let page = lrsd.list_queue(request).await?.into_inner();
        let is_last = is_last(&page_token, &page.next_page_token, page.queue.is_empty());
        queue.extend(page.queue);
        page_token = page.next_page_token;
        if is_last {
            break;
        }
    }
    let yarn = lrsd.get_yarn(proto::GetYarnRequest {}).await?.into_inner();
    let ended = clock();
    let took = ended.boot.since(began.boot);
    Ok(Reading { status, tasks, queue, yarn, now: ended.wall, took })
}

/// Whether no page follows. A server that repeats itself must not keep the client forever.
fn is_last(token: &str, next: &str, is_empty: bool) -> bool {
    next.is_empty() || next == token || is_empty
}
