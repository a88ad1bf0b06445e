//! Asks the model once and hears it out.
//!
//! Never: asks again. What the heart wants tried again comes as a new step.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt as _;
use longhaul_core::event::turn::{CallClassification, ModelCallPurpose, OutputCheck};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{Model, ModelRequest, ModelResponse};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_run::input::{InterruptedReply, ModelReply};
use longhaul_run::{Input, Run};
use std::sync::Arc;

use crate::classify::classify_call;
use crate::drive::abort::{AbortReason, AbortSignals, Raced};
use crate::drive::context::DriveContext;
use crate::error::Error;
use crate::redaction::Redaction;
use crate::run_env::RunEnv;
use crate::services::{ModelError, ModelResolver, ResolvedModel};

/// What came of a question.
pub(super) enum ModelOutcome {
    /// A reply, and the secret that each of its calls held.
    Reply(ModelResponse, Vec<Option<String>>),
    /// None, why, and what it cost all the same.
    Failed(Failure, Option<MicroUsd>),
    /// A message cut in after these words.
    Interrupted(InterruptedReply),
    /// The run is not ours any more.
    Lost,
}

impl ModelOutcome {
    /// The same without secrets: what a provider says is a stranger's word.
    fn redact(self, cleaner: Redaction<'_>) -> Self {
        match self {
            Self::Reply(answered, _) => {
                let held = cleaner.secrets_in_calls(&answered.reply);
                Self::Reply(cleaner.response(answered), held)
            }
            Self::Failed(failure, cost) => Self::Failed(cleaner.failure(failure), cost),
            Self::Interrupted(cut) => {
                Self::Interrupted(InterruptedReply { text: cleaner.shared_text(&cut.text), ..cut })
            }
            Self::Lost => Self::Lost,
        }
    }

    /// What is told: of a reply what `made` makes of it; none: nothing is.
    pub(super) fn into_input(
        self,
        active: Millis,
        made: impl FnOnce(ModelResponse, Vec<Option<String>>) -> Option<Input>,
    ) -> Option<Input> {
        match self {
            Self::Reply(answered, held) => made(answered, held),
            Self::Lost => None,
            Self::Failed(failure, cost) => Some(Input::ModelFailed { failure, cost, active }),
            Self::Interrupted(cut) => {
                Some(Input::ModelInterrupted(InterruptedReply { active, ..cut }))
            }
        }
    }
}

/// Asks for the next turn. None: the run is not ours any more.
pub(super) async fn run_turn(
    desk: &mut DriveContext,
    ask: ModelRequest,
) -> Result<Option<Input>, Error> {
    let (heard, active) = call_model_timed(desk, ask, ModelCallPurpose::Turn).await?;
    let (calls, fit) = match (&heard, &desk.env) {
        (ModelOutcome::Reply(answered, held), Some(capsule)) => {
            classify_reply(capsule, desk.session.run(), (answered, held)).await
        }
        (ModelOutcome::Reply(..), None) => return Ok(None),
        (ModelOutcome::Failed(..) | ModelOutcome::Interrupted(_) | ModelOutcome::Lost, _) => {
            (Vec::new(), None)
        }
    };
    Ok(heard.into_input(active, |answered, _| {
        Some(Input::ModelReplied(Box::new(ModelReply {
            response: answered,
            calls,
            output_check: fit,
            active,
        })))
    }))
}

/// What the calls of a reply are, and whether it fits what the result must be.
async fn classify_reply(
    capsule: &RunEnv,
    run: &Run,
    (answered, held): (&ModelResponse, &[Option<String>]),
) -> (Vec<CallClassification>, Option<OutputCheck>) {
    let mut calls = Vec::with_capacity(held.len());
    for (call, held) in answered.reply.calls().zip(held) {
        calls.push(classify_call(capsule, run, (call, held.as_deref())).await);
    }
    let fit = match capsule.output_schema() {
        Some(contract) => contract.check(answered, &calls, &*capsule.clock).await,
        None => None,
    };
    (calls, fit)
}

/// Puts a question to the run's model, and says how long it took.
pub(super) async fn call_model_timed(
    desk: &mut DriveContext,
    ask: ModelRequest,
    purpose: ModelCallPurpose,
) -> Result<(ModelOutcome, Millis), Error> {
    let begun = desk.services.clock.monotonic_nanos();
    let heard = call_model(desk, ask, purpose).await?;
    let heard = heard.redact(Redaction(&*desk.services.redact));
    let took = desk.services.clock.monotonic_nanos().saturating_sub(begun) / 1_000_000;
    Ok((heard, Millis(took)))
}

async fn call_model(
    desk: &mut DriveContext,
    ask: ModelRequest,
    purpose: ModelCallPurpose,
) -> Result<ModelOutcome, Error> {
    let Some(capsule) = desk.env.clone() else {
        return Ok(ModelOutcome::Lost);
    };
    // Its start is journaled; a worker that stops lets go of it unasked.
    if desk.shutdown.is_draining() {
        return Ok(ModelOutcome::Failed(stopped_failure(), None));
    }
    let ask = desk.inline_blobs(ask).await?;
    // The last wait before the question: what is read after this may take so
    // long that the run is another's by then.
    if !desk.lease.may_begin().await {
        return Ok(ModelOutcome::Lost);
    }
    let ear = desk.services.deltas.sink(&ask, Arc::clone(&desk.services.redact));
    let found = match resolve_model(&capsule, &*desk.services.models, (&ask.model, purpose)) {
        Ok(found) => found,
        Err(failure) => return Ok(ModelOutcome::Failed(failure, None)),
    };
    let question = AssertUnwindSafe(found.model.generate(&ask, &ear)).catch_unwind();
    let question = pin!(question);
    let mut ears = AbortSignals {
        interruptible: true,
        ..AbortSignals::new(&mut desk.session, &desk.lease, &desk.shutdown)
    };
    Ok(match ears.race(question).await? {
        Raced::Done(Ok(Ok(answered))) => ModelOutcome::Reply(answered, Vec::new()),
        Raced::Done(Ok(Err(failure))) => {
            let cost = failure_cost(&*found.model, &ask, &failure);
            ModelOutcome::Failed(failure, cost)
        }
        Raced::Done(Err(_)) => {
            let words = format!("the adapter of {} panicked", found.name);
            ModelOutcome::Failed(Failure::new(FailureClass::Server, words), None)
        }
        Raced::Aborted(AbortReason::Cancelled | AbortReason::Shutdown) => {
            ModelOutcome::Failed(stopped_failure(), None)
        }
        Raced::Aborted(AbortReason::Interrupted) => {
            interrupted_outcome(&*found.model, &ask, ear.text())
        }
        Raced::Aborted(AbortReason::Lost) => ModelOutcome::Lost,
    })
}

/// The model that is asked: one of the run's own, or who sums up for it. Nobody
/// else is asked in the place of that one: what is held was reckoned for it.
fn resolve_model(
    capsule: &RunEnv,
    models: &dyn ModelResolver,
    (name, purpose): (&str, ModelCallPurpose),
) -> Result<ResolvedModel, Failure> {
    let own = capsule.models().iter().find(|found| found.name == name);
    if let Some(own) = own {
        return Ok(own.clone());
    }
    let missing = |why: ModelError| Failure::new(FailureClass::InvalidRequest, why.to_string());
    match (models.resolve(Some(name)), purpose) {
        (Ok(found), _) => Ok(found),
        (Err(why), ModelCallPurpose::Compact) => Err(missing(why)),
        (Err(why), ModelCallPurpose::Turn) => {
            let stands_in = capsule.model(name).cloned();
            stands_in.ok_or_else(|| missing(why))
        }
    }
}

fn stopped_failure() -> Failure {
    Failure::new(FailureClass::Stopped, "the question was taken back")
}

/// What a failed call cost at the price of the model that was asked: where a run has
/// several, the heart knows only that of the dearest.
fn failure_cost(model: &dyn Model, ask: &ModelRequest, failure: &Failure) -> Option<MicroUsd> {
    let usage = failure.usage.filter(|usage| usage.tokens() > 0)?;
    let price = model.estimate(ask).pricing.price?;
    Some(price.cost(usage))
}

/// What was said and used until a message cut in, as far as one can guess.
fn interrupted_outcome(model: &dyn Model, ask: &ModelRequest, text: Arc<str>) -> ModelOutcome {
    let tariff = model.estimate(ask).pricing;
    let usage = tariff.estimate(ask.bytes(), text.len() as u64);
    ModelOutcome::Interrupted(InterruptedReply {
        text,
        usage,
        cost: tariff.price.map(|price| price.cost(usage)),
        active: Millis::ZERO,
    })
}
