//! Lists all model requests of a run with their outcomes, reconstructed from the journal without
//! calling a model.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::{Reply, StopReason};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_run::Run;
use longhaul_run::next::{EngineStep, next_engine_step};

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::prompt::blob_texts::BlobTextCache;
use crate::prompt::summary;

/// Maximum number of journal entries that are read at once.
const EVENTS_PER_PAGE: usize = 500;

/// Outcome of a model request, as recorded in the journal.
#[derive(Debug)]
pub enum ModelCallOutcome {
    /// The model replied with this response.
    Reply(ModelResponse),
    /// The request failed for this reason.
    Failure(Failure),
    /// A person's message interrupted the model before the reply was complete.
    Interrupted,
}

impl Longhaul {
    /// Calls the closure with every model request of a run and its outcome, in the order of the
    /// journal.
    pub async fn for_each_model_call(
        &self,
        run: RunId,
        mut on_call: impl FnMut(&ModelRequest, ModelCallOutcome) + Send,
    ) -> Result<()> {
        let mut folded: Option<Run> = None;
        let mut pending: Option<ModelRequest> = None;
        let mut texts = BlobTextCache::default();
        let mut after = Seq::START;
        loop {
            let entries = self.read_run_journal(run, after, EVENTS_PER_PAGE).await?;
            let Some(last) = entries.last() else {
                return match folded {
                    Some(_) => Ok(()),
                    None => Err(Error::RunNotFound(run)),
                };
            };
            after = last.seq;
            for entry in &entries {
                let Some(folded) = &mut folded else {
                    folded = Some(Run::from_first_entry(entry)?);
                    continue;
                };
                folded.apply(entry)?;
                if let Event::TurnStarted(_) = &entry.event {
                    pending = model_request_of_step(folded, next_engine_step(folded, entry.at));
                    if let Some(request) = &mut pending {
                        texts.inline_request_blobs(&*self.services.records, request).await?;
                    }
                } else if let Some(outcome) = model_call_outcome(&entry.event)
                    && let Some(request) = pending.take()
                {
                    on_call(&request, outcome);
                }
            }
        }
    }
}

fn model_request_of_step(run: &Run, step: EngineStep) -> Option<ModelRequest> {
    match step {
        EngineStep::AskModel(request) => Some(request),
        EngineStep::Compact(request) => {
            Some(summary::to_summary_request(request, run.control().compaction_summary_guidance()))
        }
        EngineStep::Prepare
        | EngineStep::RefreshPerception
        | EngineStep::UseTools(_)
        | EngineStep::StartChildren(_)
        | EngineStep::StartGrading
        | EngineStep::Advance
        | EngineStep::Idle => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other event ends a model request")]
fn model_call_outcome(event: &Event) -> Option<ModelCallOutcome> {
    match event {
        Event::TurnCompleted(turn) => Some(ModelCallOutcome::Reply(ModelResponse {
            reply: Arc::clone(&turn.reply),
            stop: turn.stop.clone(),
            usage: turn.usage,
            cost: turn.cost,
            model: turn.model.clone(),
            output: None,
        })),
        Event::TurnFailed(failed) => Some(ModelCallOutcome::Failure(failed.failure.clone())),
        Event::TurnInterrupted(_) => Some(ModelCallOutcome::Interrupted),
        Event::MemoryCompacted(compacted) => {
            Some(ModelCallOutcome::Reply(model_response_of_summary(compacted)))
        }
        _ => None,
    }
}

fn model_response_of_summary(compacted: &MemoryCompacted) -> ModelResponse {
    ModelResponse {
        reply: Arc::new(Reply::from_text(summary::summary_text(&compacted.summary))),
        stop: StopReason::EndTurn,
        usage: compacted.usage,
        cost: compacted.cost,
        model: compacted.model.clone(),
        output: None,
    }
}
