//! Everything that a run has asked its models, and what came of each question.
//!
//! Never: asks again. The questions are folded from the journal as the driver did.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::{Reply, StopReason};
use longhaul_core::port::model::{Answered, Ask};
use longhaul_run::Run;
use longhaul_run::next::{Step, next};

use crate::error::Error;
use crate::handle::Longhaul;
use crate::summary;
use crate::texts::Texts;

/// So many facts are read at once.
const FACTS: usize = 500;

/// What came of a question.
#[derive(Debug)]
pub enum Came {
    /// A reply.
    Reply(Answered),
    /// None.
    Failure(Failure),
    /// A person cut the model off.
    CutOff,
}

impl Longhaul {
    /// Tells every question of a run and what came of it, in order.
    pub async fn exchanges(
        &self,
        run: RunId,
        mut tell: impl FnMut(&Ask, Came) + Send,
    ) -> Result<(), Error> {
        let mut folded: Option<Run> = None;
        let mut asked: Option<Ask> = None;
        let mut texts = Texts::default();
        let mut after = Seq::START;
        loop {
            let entries = self.events(run, after, FACTS).await?;
            let Some(last) = entries.last() else {
                return match folded {
                    Some(_) => Ok(()),
                    None => Err(Error::NoRun(run)),
                };
            };
            after = last.seq;
            for entry in &entries {
                let Some(folded) = &mut folded else {
                    folded = Some(Run::begin(entry)?);
                    continue;
                };
                folded.apply(entry)?;
                if let Event::TurnStarted(_) = &entry.event {
                    asked = match question(next(folded, entry.at)) {
                        Some(ask) => Some(texts.spell_out(&*self.ports.shelves, ask).await?),
                        None => None,
                    };
                } else if let Some(came) = came(&entry.event)
                    && let Some(ask) = asked.take()
                {
                    tell(&ask, came);
                }
            }
        }
    }
}

fn question(step: Step) -> Option<Ask> {
    match step {
        Step::AskModel(ask) => Some(ask),
        Step::Compact(ask) => Some(summary::question(ask)),
        Step::Perceive
        | Step::Look
        | Step::UseTools(_)
        | Step::Park(_)
        | Step::Finish(_)
        | Step::GoOn
        | Step::Rest => None,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other facts are no end of a question"
)]
fn came(event: &Event) -> Option<Came> {
    match event {
        Event::TurnCompleted(done) => Some(Came::Reply(Answered {
            reply: Arc::clone(&done.reply),
            stop: done.stop.clone(),
            usage: done.usage,
            cost: done.cost,
            model: done.model.clone(),
        })),
        Event::TurnFailed(failed) => Some(Came::Failure(failed.failure.clone())),
        Event::TurnInterrupted(_) => Some(Came::CutOff),
        Event::MemoryCompacted(compacted) => Some(Came::Reply(summed_up(compacted))),
        _ => None,
    }
}

fn summed_up(compacted: &MemoryCompacted) -> Answered {
    Answered {
        reply: Arc::new(Reply::own(summary::told(&compacted.summary))),
        stop: StopReason::EndTurn,
        usage: compacted.usage,
        cost: compacted.cost,
        model: compacted.model.clone(),
    }
}
