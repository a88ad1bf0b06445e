//! Reads the conversation of a run and the messages that people sent to it.

use longhaul_core::event::Event;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::raw::StoredText;

use crate::error::Result;
use crate::handle::Longhaul;
use crate::replay::replay_run;
use longhaul_api::steer::{SteerMessageTimes, SteerView};
use longhaul_api::transcript::{CompactionView, TranscriptView};

/// Maximum number of journal entries that are read at once.
const PAGE_SIZE: usize = 1_000;

impl Longhaul {
    /// Returns the conversation of a run.
    pub async fn transcript(&self, run: RunId) -> Result<TranscriptView> {
        let (folded, _) = replay_run(&self.services, run).await?;
        let transcript = folded.transcript();
        let system = match transcript.system() {
            StoredText::Inline(text) => Some(text.to_string()),
            StoredText::Blob(at) => {
                let bytes = self.services.records.blob(at.hash).await?;
                bytes.and_then(|bytes| String::from_utf8(bytes).ok())
            }
        };
        let model = Some(transcript.current_model()).filter(|name| !name.is_empty());
        Ok(TranscriptView {
            run,
            model: model.map(str::to_owned),
            system,
            messages: transcript.messages().to_vec(),
            compactions: self.list_compactions(run).await?,
        })
    }

    /// Returns the compactions of a run's conversation (each replaced older messages by a summary),
    /// oldest first.
    async fn list_compactions(&self, run: RunId) -> Result<Vec<CompactionView>> {
        let (mut compactions, mut turn, mut after) = (Vec::new(), 0, Seq::START);
        loop {
            let page = self.read_run_journal(run, after, PAGE_SIZE).await?;
            let Some(last) = page.last() else { return Ok(compactions) };
            after = last.seq;
            for entry in page {
                if let Event::TurnCompleted(completed) = &entry.event {
                    turn = completed.turn;
                }
                if let Event::MemoryCompacted(compacted) = &entry.event {
                    compactions.push(CompactionView {
                        after_turn: turn,
                        at: entry.at,
                        replaced_messages: compacted.replaced,
                        model: compacted.model.clone(),
                    });
                }
            }
        }
    }

    /// Returns the messages that people sent to a run, with their status.
    pub async fn list_steers(&self, run: RunId) -> Result<Vec<SteerView>> {
        let rows = self.services.records.queued_steer_messages(run).await?;
        let mut times = SteerMessageTimes::default();
        let mut after = Seq::START;
        loop {
            let page = self.read_run_journal(run, after, PAGE_SIZE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            page.iter().for_each(|entry| times.record_steer_event_time(entry));
        }
        Ok(rows.iter().map(|row| SteerView::new(row, &times)).collect())
    }
}
