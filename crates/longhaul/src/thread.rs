//! Threads: conversations that successive runs share.

use longhaul_core::id::{IdError, ThreadKey};
use longhaul_engine::Longhaul;
use longhaul_engine::handle::ThreadMessage;

use crate::error::Error;

/// A thread of a runtime: runs that name it with [`Task::thread`](crate::Task::thread) begin with its
/// newest messages, and add their task and final answer to it.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::ThreadMessage;
///
/// let thread = runtime.thread("support");
/// thread.add([ThreadMessage::User("I am Ada.".into())]).await?;
/// for message in thread.messages(50).await? {
///     println!("{message:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Thread<'a> {
    longhaul: &'a Longhaul,
    /// Key of the thread. An invalid key is reported by the first method that uses it.
    key: Result<ThreadKey, IdError>,
}

impl<'a> Thread<'a> {
    pub(crate) fn new(longhaul: &'a Longhaul, thread_key: &str) -> Self {
        Self { longhaul, key: ThreadKey::new(thread_key) }
    }

    /// Adds messages to the end of the thread. Runs that start later see them; runs that are in
    /// progress do not.
    ///
    /// # Errors
    /// The name of the thread is invalid, a message is empty, the messages are longer than 1 MiB
    /// together, or the store failed.
    pub async fn add(
        &self,
        messages: impl IntoIterator<Item = ThreadMessage>,
    ) -> Result<(), Error> {
        let messages = messages.into_iter().collect();
        Ok(self.longhaul.append_to_thread(self.valid_key()?, messages).await?)
    }

    /// Returns the newest messages of the thread, at most `limit`, oldest first.
    ///
    /// # Errors
    /// The name of the thread is invalid, or the store failed.
    pub async fn messages(&self, limit: usize) -> Result<Vec<ThreadMessage>, Error> {
        let messages = self.longhaul.thread_messages(self.valid_key()?, limit).await?;
        Ok(messages.iter().filter_map(ThreadMessage::from_message).collect())
    }

    /// Returns the number of messages of the thread.
    ///
    /// # Errors
    /// The name of the thread is invalid, or the store failed.
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.longhaul.thread_message_count(self.valid_key()?).await?)
    }

    /// Returns whether the thread has no messages.
    ///
    /// # Errors
    /// The name of the thread is invalid, or the store failed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Deletes all messages of the thread. The journals of its runs are kept.
    ///
    /// # Errors
    /// The name of the thread is invalid, or the store failed.
    pub async fn clear(&self) -> Result<(), Error> {
        Ok(self.longhaul.clear_thread(self.valid_key()?).await?)
    }

    fn valid_key(&self) -> Result<&ThreadKey, Error> {
        self.key.as_ref().map_err(|error| error.clone().into())
    }
}
