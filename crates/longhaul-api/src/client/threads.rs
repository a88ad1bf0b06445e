//! Client methods for threads (conversations that successive runs share).

use longhaul_core::id::ThreadKey;

use crate::client::Client;
use crate::client::request::ApiRequest;
use crate::problem::Problem;
use crate::thread::{ClearedThreadView, NewThreadMessageBody, ThreadCountView, ThreadMessagesView};

/// Maximum number of messages in one response.
const MESSAGES_MAX: usize = 1_000;

impl Client {
    /// Returns the newest messages of a thread, at most 1,000 of them.
    pub async fn thread(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<ThreadMessagesView, Problem> {
        let request = ApiRequest::get(&["v1", "threads", thread.as_str(), "messages"])
            .with_query_param("limit", limit.min(MESSAGES_MAX));
        self.connection.send_and_parse(&request).await
    }

    /// Adds a message to a thread.
    pub async fn add_thread_message(
        &self,
        thread: &ThreadKey,
        message: &NewThreadMessageBody,
    ) -> Result<ThreadCountView, Problem> {
        let request = ApiRequest::post(&["v1", "threads", thread.as_str(), "messages"], message);
        // A retry after a lost response must not add the message twice.
        let request = request.with_idempotency_key(uuid::Uuid::now_v7().to_string());
        self.connection.send_and_parse(&request).await
    }

    /// Deletes all messages of a thread.
    pub async fn clear_thread(&self, thread: &ThreadKey) -> Result<ClearedThreadView, Problem> {
        let request = ApiRequest::delete(&["v1", "threads", thread.as_str(), "messages"]);
        self.connection.send_and_parse(&request).await
    }
}
