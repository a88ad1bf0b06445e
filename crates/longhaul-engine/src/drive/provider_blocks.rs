//! Providers that accept no requests for now. All runs share what one run has learned, so that a
//! hundred runs don't each send requests to a provider that has already asked one of them to wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use longhaul_core::event::Event;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::FailureClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_run::state::stage::{RunStage, RunningModelCall};
use longhaul_run::{Run, RunInput};

use crate::panics::with_lock;

/// Cache of the blocked providers (which accept no requests for now), by name. The blocks are also
/// in the store, so that they outlast a restart and other processes see them; the cache saves most
/// reads of the store.
#[derive(Debug, Clone, Default)]
pub struct BlockedProviderCache(Arc<Mutex<BTreeMap<String, CachedBlock>>>);

/// Cached block of a provider (a time until which no requests are sent to it), as read from the
/// store or set by this process.
#[derive(Debug, Clone, Copy)]
struct CachedBlock {
    /// Time until which the provider is blocked. `None` means that it is not blocked.
    until: Option<Timestamp>,
    /// Time at which this process learned that the provider is blocked.
    since: Timestamp,
    /// Time at which the store was last asked whether the provider is blocked.
    read_at: Timestamp,
}

/// Time after which the store is read again, because another process may have stored a block.
const REFRESH_INTERVAL: Millis = Millis::from_secs(5);

/// Maximum time for which a provider is blocked. Afterwards one of the waiting runs asks the
/// provider again.
const BLOCK_MAX: Millis = Millis::from_secs(10 * 60);

/// Availability of a provider, as the events of a model call show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderAvailability {
    /// The provider limits requests or is overloaded, and is blocked for this duration.
    Limited(Millis),
    /// The provider has replied to a request that took this long.
    Available(Millis),
}

impl ProviderAvailability {
    /// Returns whether the provider of the run's model is available, as these events of the run
    /// show. `None` if the events show nothing about the provider.
    pub(crate) fn from_events(events: &[Event], now: Timestamp) -> Option<Self> {
        let mut limited = None;
        for event in events {
            #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not about it")]
            match event {
                Event::TurnCompleted(turn) => return Some(Self::Available(turn.active)),
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

impl BlockedProviderCache {
    /// Returns the time until which the provider of this model is blocked, which may have passed.
    /// `None` means that it is not blocked. If the store can't be read, returns the last known
    /// time.
    pub(crate) async fn blocked_until(
        &self,
        records: &dyn RecordStore,
        model: &str,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let provider = provider_of_model(model);
        let known = with_lock(&self.0, |blocks| blocks.get(provider).copied());
        if let Some(known) = known
            && known.read_at <= now
            && now < known.read_at.plus(REFRESH_INTERVAL)
        {
            return known.until;
        }
        match read_block(records, provider, now).await {
            Ok(until) => with_lock(&self.0, |blocks| {
                let unchanged = blocks.get(provider).filter(|known| known.until == until);
                let since = unchanged.map_or(now, |known| known.since);
                blocks.insert(provider.to_owned(), CachedBlock { until, since, read_at: now });
                until
            }),
            Err(error) => {
                tracing::warn!(%error, provider, "could not read whether the provider is blocked");
                known.and_then(|known| known.until)
            }
        }
    }

    /// Records the availability of the provider of this model, as a run has observed it.
    pub(crate) async fn record_availability(
        &self,
        records: &dyn RecordStore,
        model: &str,
        (availability, now): (ProviderAvailability, Timestamp),
    ) {
        let provider = provider_of_model(model);
        let result = match availability {
            ProviderAvailability::Available(duration) => {
                match self.try_end_block_after_reply(provider, duration, now) {
                    true => records.unblock_provider(provider).await,
                    false => Ok(()),
                }
            }
            ProviderAvailability::Limited(duration) => {
                with_lock(&self.0, |blocks| {
                    let until = Some(now.plus(duration));
                    let new = CachedBlock { until, since: now, read_at: now };
                    let block = blocks.entry(provider.to_owned()).or_insert(new);
                    block.until = until.max(block.until);
                    block.since = now;
                });
                records.block_provider(provider, duration).await
            }
        };
        if let Err(error) = result {
            tracing::warn!(%error, provider, "could not store whether the provider is blocked");
        }
    }

    /// Ends the block of a provider that has replied to a request. Does nothing if the request was
    /// sent before the block was known, because such a reply does not show that the block is over.
    /// `duration` is how long the request took. Returns whether a block has ended.
    fn try_end_block_after_reply(&self, provider: &str, duration: Millis, now: Timestamp) -> bool {
        with_lock(&self.0, |blocks| {
            let block = blocks.get_mut(provider).filter(|known| known.until.is_some());
            let Some(known) = block.filter(|known| known.since.plus(duration) <= now) else {
                return false;
            };
            known.until = None;
            true
        })
    }
}

/// Reads from the store until when a provider is blocked. A block that ends later than a block can
/// last was stored before the clock was set back, and is removed.
async fn read_block(
    records: &dyn RecordStore,
    provider: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let until = records.provider_blocked_until(provider).await?;
    if until.is_some_and(|until| until > now.plus(BLOCK_MAX)) {
        tracing::warn!(provider, "the clock was set back: the provider is no longer blocked");
        records.unblock_provider(provider).await?;
        return Ok(None);
    }
    Ok(until)
}

/// Returns the name of the model that the run calls: the model in `input` if that input prepares
/// the run, otherwise the current model. A switch to a fallback model is not taken into account.
pub(crate) fn model_to_call<'a>(run: &'a Run, input: &'a RunInput) -> &'a str {
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
