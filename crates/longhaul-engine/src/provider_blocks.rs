//! Providers that accept no requests for now. All runs share what one run has learned, so that a
//! hundred runs don't each send requests to a provider that has already asked one of them to wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::event::Event;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::FailureClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_run::state::stage::{RunStage, RunningModelCall};
use longhaul_run::{Run, RunInput};

/// Blocked providers by name. Blocks are stored, so that they outlast a restart; this copy answers
/// without a query.
#[derive(Debug, Clone, Default)]
pub struct ProviderBlocks(Arc<Mutex<BTreeMap<String, Option<Timestamp>>>>);

/// Maximum duration of a block. Afterwards one of the waiting runs asks the provider again.
const BLOCK_MAX: Millis = Millis::from_secs(10 * 60);

/// What the events of a model call say about the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderNews {
    /// The provider limits requests or is overloaded. The run waits this long.
    Limited(Millis),
    /// The provider has replied.
    Available,
}

impl ProviderNews {
    /// Returns what these events of a run say about the provider of its model, if anything.
    pub(crate) fn from_events(events: &[Event], now: Timestamp) -> Option<Self> {
        let mut limited = None;
        for event in events {
            #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not about it")]
            match event {
                Event::TurnCompleted(_) => return Some(Self::Available),
                Event::TurnFailed(TurnFailed { failure, .. }) => {
                    let limits = [FailureClass::RateLimit, FailureClass::Overloaded];
                    limited = limits.contains(&failure.class).then_some(failure.retry_after);
                }
                Event::RunWaiting(waiting) => {
                    let retry_after = limited?.unwrap_or_default();
                    let delay = waiting.wait.end_time()?.duration_since(now);
                    // Without the jitter of this run, which must not find the provider blocked.
                    let block = retry_after.max(Millis(delay.0 / 5 * 4)).min(BLOCK_MAX);
                    return Some(Self::Limited(block));
                }
                _ => {}
            }
        }
        None
    }
}

impl ProviderBlocks {
    fn with_locked_blocks<T>(
        &self,
        f: impl FnOnce(&mut BTreeMap<String, Option<Timestamp>>) -> T,
    ) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the time until which the provider of this model is blocked. The time may have passed. A
    /// store that can't be read does not stop the run: the request then shows what the provider says.
    pub(crate) async fn blocked_until(
        &self,
        records: &dyn RecordStore,
        model: &str,
    ) -> Option<Timestamp> {
        let provider = provider_of_model(model);
        if let Some(known) = self.with_locked_blocks(|blocks| blocks.get(provider).copied()) {
            return known;
        }
        match records.provider_blocked_until(provider).await {
            Ok(stored) => {
                self.with_locked_blocks(|blocks| blocks.insert(provider.to_owned(), stored));
                stored
            }
            Err(error) => {
                tracing::warn!(%error, provider, "the limit of a provider was not read");
                None
            }
        }
    }

    /// Records what a run has learned about the provider of this model.
    pub(crate) async fn record_news(
        &self,
        records: &dyn RecordStore,
        model: &str,
        (news, now): (ProviderNews, Timestamp),
    ) {
        let provider = provider_of_model(model);
        match news {
            ProviderNews::Available => {
                self.with_locked_blocks(|blocks| blocks.insert(provider.to_owned(), None));
            }
            ProviderNews::Limited(duration) => {
                let until = Some(now.plus(duration));
                self.with_locked_blocks(|blocks| {
                    let block = blocks.entry(provider.to_owned()).or_default();
                    *block = until.max(*block);
                });
                if let Err(error) = records.block_provider(provider, duration).await {
                    tracing::warn!(%error, provider, "the limit of a provider was not stored");
                }
            }
        }
    }
}

/// Returns the model that a run calls after this input, unless it switches to a fallback model.
pub(crate) fn called_model<'a>(run: &'a Run, input: &'a RunInput) -> &'a str {
    if let RunInput::Prepared(preparation, _) = input {
        return &preparation.model;
    }
    run.transcript().current_model()
}

/// Returns whether the run calls a model that is not its own, such as that for summaries.
pub(crate) fn calls_other_model(run: &Run) -> bool {
    let stage = &run.control().stage;
    matches!(stage, RunStage::ModelRunning(RunningModelCall { model: Some(_), .. }))
}

/// Returns the provider of a model, which is the part of its name before the slash.
fn provider_of_model(model: &str) -> &str {
    model.split_once('/').map_or(model, |(provider, _)| provider)
}
