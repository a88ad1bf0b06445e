//! Replays (folds) the journals of runs from their checkpoints. A checkpoint is only a cache: without it,
//! the whole journal is replayed.
//!
//! A [`ModelRequest`] of a replayed run may refer to blobs with the system prompt and the tool table
//! (list of tool definitions), but model adapters need the text. Each blob is loaded only once.

use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{JournalPage, JournalReadRequest, StoreError};
use longhaul_core::raw::{BlobRef, StoredText};
use longhaul_core::time::Timestamp;
use longhaul_run::Run;
use longhaul_run::checkpoint::{
    CheckpointWriter, restore_conversation_start, restore_latest_state,
};
use longhaul_run::state::{FOLD_HASH, ReplayError};

use crate::error::{Error, Result};
use crate::services::Services;

/// Maximum number of journal entries that are read at once.
const PAGE_SIZE: usize = 500;

/// Cache of texts that were loaded from blobs.
#[derive(Debug, Default)]
pub(crate) struct BlobTextCache(Vec<(BlobRef, StoredText)>);

/// Loads the checkpoint of a run. `None` means that there is none that this build can use.
async fn load_checkpoint(services: &Services, run: RunId) -> Option<RunCheckpoint> {
    match services.records.newest_checkpoint(run, FOLD_HASH).await {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            tracing::debug!(%run, %error, "the checkpoint can't be read");
            None
        }
    }
}

/// Replays (folds) the journal of a run for its driver. Returns the run's state, the writer of its
/// checkpoints and the current time of the store.
pub(crate) async fn replay_driven_run(
    services: &Services,
    run: RunId,
) -> Result<(Run, CheckpointWriter, Timestamp)> {
    let checkpoint = load_checkpoint(services, run).await;
    let start = checkpoint.as_ref().and_then(|saved| restore_conversation_start(run, saved));
    let saved_seq = checkpoint.map_or(Seq::START, |saved| saved.seq);
    let mut checkpoints = CheckpointWriter::new(start.as_ref(), saved_seq);
    let (folded, now) = replay_journal(services, run, start, |run, entry| {
        run.apply(entry)?;
        checkpoints.keep_state_if_due(run);
        Ok(())
    })
    .await?;
    Ok((folded, checkpoints, now))
}

/// Reads the next entries of a journal.
pub(crate) async fn read_journal_page(
    services: &Services,
    run: RunId,
    after: Seq,
) -> Result<JournalPage, StoreError> {
    let request = JournalReadRequest { run, after, limit: PAGE_SIZE };
    services.store.read_journal(request).await
}

/// Replays (folds) the journal of a run from its checkpoint. Returns the run's state and the
/// current time of the store.
pub(crate) async fn replay_run(services: &Services, run: RunId) -> Result<(Run, Timestamp)> {
    let checkpoint = load_checkpoint(services, run).await;
    let start = checkpoint.and_then(|saved| restore_conversation_start(run, &saved));
    replay_journal(services, run, start, Run::apply).await
}

/// Replays (folds) a journal without its conversation, which is enough for views of the run.
pub(crate) async fn replay_run_state(services: &Services, run: RunId) -> Result<(Run, Timestamp)> {
    let start =
        load_checkpoint(services, run).await.and_then(|saved| restore_latest_state(run, &saved));
    replay_journal(services, run, start, Run::apply_without_transcript).await
}

/// Replays (folds) the entries of a journal that follow the state `start`, or the whole journal if
/// `start` is `None`. `apply` is called with each entry but the first of the journal.
pub(crate) async fn replay_journal(
    services: &Services,
    run: RunId,
    start: Option<Run>,
    mut apply: impl FnMut(&mut Run, &JournalEntry) -> Result<(), ReplayError>,
) -> Result<(Run, Timestamp)> {
    let mut folded = start;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page = read_journal_page(services, run, after).await?;
        for entry in &page.entries {
            match &mut folded {
                None => folded = Some(Run::from_first_entry(entry)?),
                Some(run) => apply(run, entry)?,
            }
        }
        match folded {
            Some(run) if run.seq() >= page.last_seq => return Ok((run, page.now)),
            None if page.entries.is_empty() => return Err(Error::RunNotFound(run)),
            Some(_) | None => {}
        }
    }
}

impl BlobTextCache {
    /// Replaces references to blobs in the system prompt and the tool table (list of tool
    /// definitions) of a request with the texts of the blobs.
    pub(crate) async fn inline_request_blobs(
        &mut self,
        records: &dyn RecordStore,
        request: &mut ModelRequest,
    ) -> Result<()> {
        for at in [&mut request.system, &mut request.tools] {
            if let StoredText::Blob(blob_ref) = *at {
                let text = self.load_blob_text(records, blob_ref).await?;
                let missing_blob = || Error::Internal {
                    run: request.run,
                    reason: format!(
                        "the blob {} of its prompt or tool table is missing in the store, or is not UTF-8",
                        blob_ref.hash
                    ),
                };
                *at = text.ok_or_else(missing_blob)?;
            }
        }
        Ok(())
    }

    async fn load_blob_text(
        &mut self,
        records: &dyn RecordStore,
        reference: BlobRef,
    ) -> Result<Option<StoredText>> {
        if let Some((_, text)) = self.0.iter().find(|(blob_ref, _)| *blob_ref == reference) {
            return Ok(Some(text.clone()));
        }
        let bytes = records.blob(reference.hash).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.map(StoredText::new_inline);
        self.0.extend(text.iter().map(|text| (reference, text.clone())));
        Ok(text)
    }
}
