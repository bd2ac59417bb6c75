//! The calls of this benchmark to a daemon, each of which has to succeed.

use std::path::Path;

use lrs::proto;
use lrs::proto::event_stream_item::Item;
use lrs::proto::shaper_client::ShaperClient;
use tonic::transport::{Channel, Endpoint};

/// A connection, used from one thread.
pub struct Rpc {
    runtime: tokio::runtime::Runtime,
    client: ShaperClient<Channel>,
}

impl Rpc {
    /// `None`: no listener.
    pub fn connect(socket: &Path) -> Option<Rpc> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).ok()?;
        let channel = runtime.block_on(endpoint.connect()).ok()?;
        let client = ShaperClient::new(channel).max_decoding_message_size(64 << 20);
        Some(Rpc { runtime, client })
    }

    /// One call, which has to succeed.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(ShaperClient<Channel>) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> T {
        self.runtime.block_on(call(self.client.clone())).expect("an answer").into_inner()
    }

    /// Events from now on, until `last` says that one was the last. `opened` is called before the
    /// first can come.
    pub fn events(&self, opened: impl FnOnce(), mut last: impl FnMut(&Item) -> bool) -> Vec<Item> {
        self.runtime.block_on(async {
            let request = proto::WatchEventsRequest::default();
            let stream = self.client.clone().watch_events(request).await;
            let mut stream = stream.expect("a stream").into_inner();
            opened();
            let mut items = Vec::new();
            while let Some(item) = stream.message().await.expect("an item") {
                items.extend(item.item);
                if items.last().is_some_and(&mut last) {
                    break;
                }
            }
            items
        })
    }

    pub fn status(&self) -> proto::Status {
        self.call(async |mut client| client.get_status(proto::GetStatusRequest {}).await)
    }

    pub fn tasks(&self) -> Vec<proto::Task> {
        let mut tasks = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListTasksRequest { page_size: 1000, page_token };
            let page = self.call(async |mut client| client.list_tasks(request).await);
            tasks.extend(page.tasks);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return tasks;
            }
        }
    }

    pub fn admit(&self, pid: i32) -> proto::Task {
        let request = proto::AdmitRequest { pid, ..Default::default() };
        self.call(async |mut client| client.admit(request).await).task.expect("a task")
    }

    /// Makes this process a task as soon as there is a slot.
    pub fn wait_for_slot(&self) -> proto::Task {
        let request = proto::AdmitRequest { wait_forever: true, ..Default::default() };
        self.call(async |mut client| client.admit(request).await).task.expect("a task")
    }
}
