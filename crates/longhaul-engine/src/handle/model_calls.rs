//! Everything that a run has asked its models, and what came of each question.
//!
//! Never: asks again. The questions are folded from the journal as the driver did.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::{Reply, StopReason};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_run::Run;
use longhaul_run::next::{Step, next};

use crate::blob_texts::BlobTextCache;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::summary;

/// So many facts are read at once.
const EVENTS_PER_PAGE: usize = 500;

/// What came of a question.
#[derive(Debug)]
pub enum ModelCallOutcome {
    /// A reply.
    Reply(ModelResponse),
    /// None.
    Failure(Failure),
    /// A person cut the model off.
    Interrupted,
}

impl Longhaul {
    /// Tells every question of a run and what came of it, in order.
    pub async fn for_each_model_call(
        &self,
        run: RunId,
        mut tell: impl FnMut(&ModelRequest, ModelCallOutcome) + Send,
    ) -> Result<(), Error> {
        let mut folded: Option<Run> = None;
        let mut asked: Option<ModelRequest> = None;
        let mut texts = BlobTextCache::default();
        let mut after = Seq::START;
        loop {
            let entries = self.events(run, after, EVENTS_PER_PAGE).await?;
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
                    asked = match model_request(next(folded, entry.at)) {
                        Some(ask) => Some(texts.inline_blobs(&*self.services.records, ask).await?),
                        None => None,
                    };
                } else if let Some(came) = call_outcome(&entry.event)
                    && let Some(ask) = asked.take()
                {
                    tell(&ask, came);
                }
            }
        }
    }
}

fn model_request(step: Step) -> Option<ModelRequest> {
    match step {
        Step::AskModel(ask) => Some(ask),
        Step::Compact(ask) => Some(summary::summary_request(ask)),
        Step::Prepare
        | Step::RefreshPerception
        | Step::UseTools(_)
        | Step::Park(_)
        | Step::Finish(_)
        | Step::Advance
        | Step::Idle => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all other facts are no end of a question")]
fn call_outcome(event: &Event) -> Option<ModelCallOutcome> {
    match event {
        Event::TurnCompleted(done) => Some(ModelCallOutcome::Reply(ModelResponse {
            reply: Arc::clone(&done.reply),
            stop: done.stop.clone(),
            usage: done.usage,
            cost: done.cost,
            model: done.model.clone(),
        })),
        Event::TurnFailed(failed) => Some(ModelCallOutcome::Failure(failed.failure.clone())),
        Event::TurnInterrupted(_) => Some(ModelCallOutcome::Interrupted),
        Event::MemoryCompacted(compacted) => {
            Some(ModelCallOutcome::Reply(summary_response(compacted)))
        }
        _ => None,
    }
}

fn summary_response(compacted: &MemoryCompacted) -> ModelResponse {
    ModelResponse {
        reply: Arc::new(Reply::own(summary::summary_text(&compacted.summary))),
        stop: StopReason::EndTurn,
        usage: compacted.usage,
        cost: compacted.cost,
        model: compacted.model.clone(),
    }
}
