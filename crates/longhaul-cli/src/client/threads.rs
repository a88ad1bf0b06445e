//! Client methods for threads (conversations that successive runs share).

use longhaul_api::thread::{NewThreadMessageBody, ThreadMessagesView};
use longhaul_core::id::ThreadKey;

use crate::client::RunClient;

impl RunClient {
    /// Returns the newest messages of a thread.
    pub(crate) async fn thread(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> anyhow::Result<ThreadMessagesView> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.thread(thread, limit).await?),
            Self::Remote(client) => Ok(client.thread(thread, limit).await?),
        }
    }

    /// Adds a message to a thread, and returns how many messages the thread has then.
    pub(crate) async fn add_thread_message(
        &self,
        thread: &ThreadKey,
        message: NewThreadMessageBody,
    ) -> anyhow::Result<u64> {
        match self {
            Self::Local(longhaul) => {
                longhaul.append_to_thread(thread, vec![message.into()]).await?;
                Ok(longhaul.thread_message_count(thread).await?)
            }
            Self::Remote(client) => Ok(client.add_thread_message(thread, &message).await?.count),
        }
    }

    /// Deletes all messages of a thread, and returns how many there were.
    pub(crate) async fn clear_thread(&self, thread: &ThreadKey) -> anyhow::Result<u64> {
        match self {
            Self::Local(longhaul) => {
                let count = longhaul.thread_message_count(thread).await?;
                longhaul.clear_thread(thread).await?;
                Ok(count)
            }
            Self::Remote(client) => Ok(client.clear_thread(thread).await?.deleted),
        }
    }
}
