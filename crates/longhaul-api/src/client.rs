//! Client for the API, over HTTP or in the same process.

mod connection;
pub mod events;
mod request;

use std::sync::Arc;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::connection::ApiConnection;
use crate::client::events::EventStream;
use crate::list::List;
use crate::operation::Operation;
use crate::operations::{READ_JOURNAL, READY};
use crate::problem::Problem;
use crate::query::{EventsQuery, PagedQuery};

pub use connection::{InProcess, is_server_alive};
pub use request::Request;
pub use reqwest::{self, Url};

/// Maximum number of journal entries in one page.
const EVENTS_MAX: usize = 1_000;

/// Client for one server, or for the API in the same process. Cheap to clone.
///
/// Every method returns the server's [`Problem`] if the server rejects the request. If there is no
/// response that this build understands, the code of the problem is `unreachable`, `response_lost`
/// or `unexpected_response`.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Arc<ApiConnection>,
}

impl Client {
    /// Creates a client for the server with this base URL. `user` is the name of the person at the
    /// terminal; a server on the same machine records it in the journal.
    ///
    /// # Errors
    /// The key has invalid characters, or this machine has no TLS certificates.
    pub fn new(base_url: Url, api_key: Option<&str>, user: Option<&str>) -> Result<Self, Problem> {
        let connection = Arc::new(ApiConnection::new(base_url, api_key, user)?);
        Ok(Self { connection })
    }

    /// Creates a client for the API in this process.
    ///
    /// # Errors
    /// Never in practice: the URL of requests in this process is not valid.
    pub fn in_process(api: Arc<dyn InProcess>) -> Result<Self, Problem> {
        Ok(Self { connection: Arc::new(ApiConnection::in_process(api)?) })
    }

    /// Sends a request and returns its answer.
    pub async fn send<Q, B, A: DeserializeOwned>(
        &self,
        request: Request<Q, B, A>,
    ) -> Result<A, Problem> {
        self.connection.send_and_parse(request.parts).await
    }

    /// Requests a list page by page, up to `limit` items.
    pub async fn list<Q: PagedQuery + Serialize, A: DeserializeOwned>(
        &self,
        operation: Operation<(), Q, (), List<A>>,
        query: &Q,
        limit: usize,
    ) -> Result<Vec<A>, Problem> {
        let mut items: Vec<A> = Vec::new();
        let (mut query, page_size) = (query.clone(), query.limit_max());
        let mut after = None;
        while items.len() < limit {
            query.set_page(page_size.min(limit - items.len()), after);
            let page = self.send(operation.at(()).query(&query)).await?;
            after = page.next;
            let is_empty = page.data.is_empty();
            items.extend(page.data);
            if is_empty || after.is_none() {
                break;
            }
        }
        items.truncate(limit);
        Ok(items)
    }

    /// Returns one page of the events in a run's journal.
    pub async fn read_run_journal(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Problem> {
        let query = EventsQuery { after, limit: Some(limit.clamp(1, EVENTS_MAX)) };
        let page = self.send(READ_JOURNAL.at(run).query(&query)).await?;
        let entries = page.data.iter().map(JournalEntry::try_from);
        entries
            .collect::<Result<_, _>>()
            .map_err(|error| self.connection.unreadable_event_problem(&error))
    }

    /// Streams the events of a run that follow the sequence number `after`.
    pub async fn follow_events(&self, run: RunId, after: Seq) -> Result<EventStream, Problem> {
        EventStream::open_for_run(Arc::clone(&self.connection), run, after).await
    }

    /// Returns whether a worker drives the runs of the server, or whether any process drives the
    /// runs of the store if there is no server.
    pub async fn has_process_driving_runs(&self) -> Result<bool, Problem> {
        match self.send(READY.at(()).without_retries()).await {
            Ok(readiness) => Ok(readiness.driven),
            // The server answers that it is not ready.
            Err(problem) if problem.code == "unreachable" || problem.source.is_some() => {
                Err(problem)
            }
            Err(_) => Ok(false),
        }
    }
}
