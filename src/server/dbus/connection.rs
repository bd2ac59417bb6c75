//! One connection to the bus, and what a call finds there.
//!
//! [`Bus`] sends, and reads what an interface of ours shows; [`Server`] is that with the daemon
//! behind it, made anew for each connection. What is done with a message is in
//! [`super::dispatch`]: here is no call yet, so that a call can hold the server it came to.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use zbus::connection::Builder;
use zbus::fdo;
use zbus::object_server::{Interface, SignalEmitter};
use zbus::zvariant::OwnedValue;
use zbus::{Connection, ObjectServer};

use super::error::CallError;
use crate::access::Access;
use crate::server::quota::Quota;
use crate::server::service::Service;

/// The connection that has the name.
pub(super) struct Bus {
    pub(super) connection: Connection,
    /// `#[interface]` passes an ObjectServer on to methods that ask for one, which none of ours
    /// does. There is none without a connection that it serves: this one leads nowhere.
    nowhere: Connection,
}

impl Bus {
    /// # Errors
    /// No socket pair could be made.
    pub(super) async fn new(connection: Connection) -> zbus::Result<Bus> {
        let (server, client) = tokio::net::UnixStream::pair()?;
        let server = Builder::unix_stream(server).server(zbus::Guid::generate())?.p2p().build();
        let client = Builder::unix_stream(client).p2p().build();
        let (nowhere, _) = tokio::try_join!(server, client)?;
        Ok(Bus { connection, nowhere })
    }

    /// For methods that ask for one.
    pub(super) fn object_server(&self) -> &ObjectServer {
        self.nowhere.object_server()
    }

    /// The properties of `interface` that are known.
    pub(super) async fn properties(
        &self,
        interface: &dyn Interface,
    ) -> Result<HashMap<String, OwnedValue>, CallError> {
        let emitter = SignalEmitter::new(&self.connection, "/").map_err(CallError::internal)?;
        let all = interface.get_all(self.object_server(), &self.connection, None, &emitter);
        all.await.map_err(CallError::internal)
    }

    /// One property; `None`: there is none of this name.
    pub(super) async fn property(
        &self,
        interface: &dyn Interface,
        name: &str,
    ) -> Result<Option<fdo::Result<OwnedValue>>, CallError> {
        let emitter = SignalEmitter::new(&self.connection, "/").map_err(CallError::internal)?;
        Ok(interface.get(name, self.object_server(), &self.connection, None, &emitter).await)
    }
}

/// The server on one connection to the bus.
pub(super) struct Server {
    pub(super) bus: Arc<Bus>,
    pub(super) access: Access,
    pub(super) service: Service,
    /// Whether polkit is asked on this bus.
    pub(super) polkit: bool,
    /// Look-ups in the account database.
    pub(super) lookups: Arc<Semaphore>,
    /// Calls that wait have to end.
    pub(super) stopping: CancellationToken,
    pub(super) calls: Arc<Quota>,
    /// Places of a call with a large answer.
    pub(super) large: usize,
}
