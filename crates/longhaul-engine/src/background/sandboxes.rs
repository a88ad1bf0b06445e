//! Stops sandboxes that nobody uses, deletes those of ended runs, and removes sandboxes that a
//! provider has and the store does not know.
//!
//! Invariant: only an idle sandbox is stopped. The record that the sandbox is being stopped is
//! refused if its owner was woken meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::change::{SandboxFilter, SandboxRow, SandboxState};
use longhaul_core::duration::format_duration;
use longhaul_core::port::sandbox::{SandboxError, Sandboxes};
use longhaul_core::port::store::{AppendRequest, AppendResult, JournalAuthor};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_run::change_idle_sandbox;

use crate::error::Result;
use crate::panics::guard;
use crate::sandboxes::{ID_LABEL, SandboxRegistry};
use crate::services::Services;

/// Maximum time between two checks of all sandboxes.
const CHECK_INTERVAL: Millis = Millis::from_secs(5);

/// Minimum time between two checks.
const CHECK_PAUSE: Millis = Millis(50);

/// Interval at which the sandboxes of the providers are compared with those of the store.
const RECONCILE_INTERVAL: Millis = Millis::from_secs(60);

/// Time after which a sandbox that the store does not know is deleted.
const UNKNOWN_SANDBOX_GRACE: Millis = Millis::from_secs(10 * 60);

/// Timeout for stopping or deleting a sandbox.
const STOP_TIMEOUT: Millis = Millis::from_secs(2 * 60);

/// Time that a process has to stop sandboxes when it shuts down.
const SHUTDOWN_TIMEOUT: Millis = Millis::from_secs(10);

const PAGE_SIZE: usize = 500;

/// Checks the sandboxes of a store, in a loop.
#[derive(Debug, Default)]
pub(crate) struct SandboxSweeper {
    /// Sandboxes that a provider has and the store does not know, by provider and handle, with the
    /// time of the monotonic clock at which each was seen first.
    unknown: BTreeMap<(String, String), Millis>,
    /// Time of the last comparison with each provider, by its name.
    reconciled_at: BTreeMap<String, Millis>,
}

impl SandboxSweeper {
    /// Checks all sandboxes now, from time to time, and soon after a signal, until the store fails.
    pub(crate) async fn run(&mut self, services: &Services) -> Result<()> {
        let (sandboxes, clock) = (&services.sandboxes, &services.clock);
        loop {
            // At the start too: a dead process may have left stops that other runs wait for.
            self.check_once(services).await?;
            clock.sleep(CHECK_PAUSE).await;
            tokio::select! {
                biased;
                () = sandboxes.changed.notified() => {}
                () = clock.sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    pub(crate) async fn check_once(&mut self, services: &Services) -> Result<()> {
        let rows = list_existing(services).await?;
        let now = services.records.now().await?;
        let registry = &services.sandboxes;
        for provider in registry.providers() {
            let own: Vec<&SandboxRow> =
                rows.iter().filter(|row| row.event.provider == provider.name()).collect();
            self.check_provider(services, provider, (&own, now)).await?;
        }
        Ok(())
    }

    async fn check_provider(
        &mut self,
        services: &Services,
        provider: &Arc<dyn Sandboxes>,
        (rows, now): (&[&SandboxRow], Timestamp),
    ) -> Result<()> {
        let capacity = services.sandboxes.settings().max_running;
        let records = &services.records;
        let queue = records.wake_runs_for_free_slots(provider.name(), capacity).await?;
        if queue.woken > 0 {
            services.notifier.notify_runs_ready();
        }
        let due: Vec<(&SandboxRow, Action)> =
            rows.iter().filter_map(|row| Some((*row, due_action(row, now)?))).collect();
        let is_stop = |(_, action): &&(_, Action)| !matches!(action, Action::Delete);
        let stops = due.iter().filter(is_stop).count();
        let needed = (queue.waiting as usize).saturating_sub(stops);
        let evicted = evict_idle(services, (rows, now), needed).await?;
        let evicted = evicted.iter().map(|row| (row, Action::FinishStop));
        let actions = due.into_iter().chain(evicted).map(|(row, action)| async move {
            perform(services, &**provider, (row, action)).await
        });
        for result in futures_util::future::join_all(actions).await {
            result?;
        }
        // A provider that is not used is not opened for this.
        if !rows.is_empty() {
            self.reconcile(services, &**provider, rows).await;
        }
        Ok(())
    }

    /// Deletes sandboxes of the provider that the store has not known for some time. They are left
    /// over, for example, from a store that was restored from a backup.
    async fn reconcile(
        &mut self,
        services: &Services,
        provider: &dyn Sandboxes,
        rows: &[&SandboxRow],
    ) {
        let clock = &*services.clock;
        let now = clock.monotonic_time();
        let last = self.reconciled_at.get(provider.name());
        if last.is_some_and(|last| now.minus(*last) < RECONCILE_INTERVAL) {
            return;
        }
        self.reconciled_at.insert(provider.name().to_owned(), now);
        let listed = match provider.list(&services.sandboxes.store_labels()).await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(provider = provider.name(), %error, "could not list the sandboxes of a provider");
                return;
            }
        };
        let is_known = |id: Option<&String>| {
            rows.iter().any(|row| id.is_some_and(|id| *id == row.event.sandbox.to_string()))
        };
        let unknown = listed.into_iter().filter(|info| !is_known(info.labels.get(ID_LABEL)));
        let key = |handle| (provider.name().to_owned(), handle);
        let unknown: BTreeMap<_, _> = unknown.map(|info| (key(info.handle), now)).collect();
        self.unknown.retain(|known, _| known.0 != provider.name() || unknown.contains_key(known));
        for (found, seen) in unknown {
            self.unknown.entry(found).or_insert(seen);
        }
        let is_due = |seen: &Millis| now.minus(*seen) >= UNKNOWN_SANDBOX_GRACE;
        let due =
            self.unknown.iter().filter(|((name, _), seen)| name == provider.name() && is_due(seen));
        for ((_, handle), _) in due {
            tracing::warn!(
                provider = provider.name(),
                handle,
                "deleting a sandbox that belongs to no run"
            );
            if let Err(error) = with_timeout(clock, provider.delete(handle)).await {
                tracing::warn!(provider = provider.name(), handle, %error, "could not delete a sandbox");
            }
        }
    }
}

/// What must be done with a sandbox now.
#[derive(Debug, Clone)]
enum Action {
    /// Stop the sandbox for this reason.
    Stop(String),
    /// Continue to stop the sandbox.
    FinishStop,
    Delete,
}

/// Returns what must be done with a sandbox, apart from making room for another one.
fn due_action(row: &SandboxRow, now: Timestamp) -> Option<Action> {
    if row.state == SandboxState::Stopping {
        return Some(Action::FinishStop);
    }
    let idle = now.duration_since(row.idle_since?);
    if row.owner_ended {
        let is_kept = row.event.keep.is_none_or(|keep| idle < keep);
        return match row.state.holds_slot() {
            true => Some(Action::Stop("its run has ended".to_owned())),
            false => (!is_kept).then_some(Action::Delete),
        };
    }
    let idle_stop = row.event.idle_stop.filter(|after| row.state.holds_slot() && idle >= *after)?;
    Some(Action::Stop(format!("its run has not used it for {}", format_duration(idle_stop))))
}

/// Iterates over the sandboxes that can be stopped to make room for others, the longest idle first.
fn longest_idle<'a>(
    rows: &[&'a SandboxRow],
    now: Timestamp,
) -> impl Iterator<Item = &'a SandboxRow> + use<'a> {
    let is_candidate = |row: &&&SandboxRow| {
        row.idle_since.is_some() && row.state.holds_slot() && due_action(row, now).is_none()
    };
    let mut idle: Vec<&SandboxRow> = rows.iter().filter(is_candidate).copied().collect();
    idle.sort_by_key(|row| row.idle_since);
    idle.into_iter()
}

/// Records that this many sandboxes are stopped to make room for others, the longest idle first. A
/// sandbox whose owner was claimed meanwhile is left out. Returns the new rows.
async fn evict_idle(
    services: &Services,
    (rows, now): (&[&SandboxRow], Timestamp),
    needed: usize,
) -> Result<Vec<SandboxRow>> {
    let mut evicted = Vec::new();
    for row in longest_idle(rows, now) {
        if evicted.len() >= needed {
            break;
        }
        let reason = Some("another run needs its slot".to_owned());
        evicted
            .extend(record_sandbox_state(services, row, (SandboxState::Stopping, reason)).await?);
    }
    Ok(evicted)
}

async fn list_existing(services: &Services) -> Result<Vec<SandboxRow>> {
    let mut rows: Vec<SandboxRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.event.sandbox);
        let filter = SandboxFilter { after, limit: PAGE_SIZE, ..SandboxFilter::default() };
        let page = services.records.list_sandboxes(filter).await?;
        let is_last = page.len() < PAGE_SIZE;
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}

async fn perform(
    services: &Services,
    provider: &dyn Sandboxes,
    (row, action): (&SandboxRow, Action),
) -> Result<()> {
    match action {
        Action::Stop(reason) => stop_sandbox(services, provider, (row, reason)).await,
        Action::FinishStop => finish_stop(services, provider, row).await,
        Action::Delete => {
            delete_sandbox(services, provider, (row, "its run ended long ago".to_owned())).await
        }
    }
}

/// Stops an idle sandbox for this reason. Does nothing if the sandbox is no longer idle.
pub(crate) async fn stop_sandbox(
    services: &Services,
    provider: &dyn Sandboxes,
    (row, reason): (&SandboxRow, String),
) -> Result<()> {
    let state = (SandboxState::Stopping, Some(reason));
    match record_sandbox_state(services, row, state).await? {
        Some(stopping) => finish_stop(services, provider, &stopping).await,
        None => Ok(()),
    }
}

/// Deletes a stopped sandbox for this reason. If the provider fails, the sandbox is kept.
pub(crate) async fn delete_sandbox(
    services: &Services,
    provider: &dyn Sandboxes,
    (row, reason): (&SandboxRow, String),
) -> Result<()> {
    match call_provider(services, provider, row, Call::Delete).await {
        Ok(()) | Err(SandboxError::NotFound) => {
            record_sandbox_state(services, row, (SandboxState::Deleted, Some(reason))).await?;
        }
        Err(error) => {
            tracing::warn!(sandbox = %row.event.sandbox, %error, "could not delete a sandbox");
        }
    }
    Ok(())
}

/// Stops a sandbox that is recorded as being stopped. If the provider fails, a later check tries
/// again.
async fn finish_stop(
    services: &Services,
    provider: &dyn Sandboxes,
    row: &SandboxRow,
) -> Result<()> {
    let state = match call_provider(services, provider, row, Call::Stop).await {
        Ok(()) => SandboxState::Stopped,
        Err(SandboxError::NotFound) => SandboxState::Lost,
        Err(error) => {
            tracing::warn!(sandbox = %row.event.sandbox, %error, "could not stop a sandbox");
            return Ok(());
        }
    };
    let recorded = record_sandbox_state(services, row, (state, row.event.reason.clone())).await?;
    if recorded.is_some() {
        services.sandboxes.changed.notify_one();
        services.notifier.notify_runs_ready();
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Stop,
    Delete,
}

/// Stops or deletes the sandbox at its provider.
async fn call_provider(
    services: &Services,
    provider: &dyn Sandboxes,
    row: &SandboxRow,
    call: Call,
) -> std::result::Result<(), SandboxError> {
    let clock = &*services.clock;
    with_timeout(clock, async {
        let handle = services.sandboxes.find_handle(provider, &row.event).await?;
        match call {
            Call::Stop => provider.stop(&handle).await,
            Call::Delete => provider.delete(&handle).await,
        }
    })
    .await
}

async fn with_timeout<T>(
    clock: &dyn Clock,
    work: impl Future<Output = std::result::Result<T, SandboxError>>,
) -> std::result::Result<T, SandboxError> {
    let unavailable =
        |error: crate::panics::GuardError| SandboxError::Unavailable(error.to_string());
    guard(clock, STOP_TIMEOUT, work).await.map_err(unavailable)?
}

/// Records a new state of a sandbox, and returns its new row. `None` means that the sandbox or its
/// owner has changed since the row was read.
pub(crate) async fn record_sandbox_state(
    services: &Services,
    row: &SandboxRow,
    (state, reason): (SandboxState, Option<String>),
) -> Result<Option<SandboxRow>> {
    let now = services.records.now().await?;
    let (new_row, batch) = change_idle_sandbox(row, state, (now, reason));
    if row.owner_ended {
        let is_updated = services.records.update_sandbox_of_ended_run(new_row.clone(), row.state);
        return Ok(is_updated.await?.then_some(new_row));
    }
    let Some(owner) = services.store.get_run(row.owner).await? else { return Ok(None) };
    let filter = SandboxFilter { owner: Some(row.owner), limit: PAGE_SIZE, ..Default::default() };
    if !services.records.list_sandboxes(filter).await?.contains(row) {
        return Ok(None);
    }
    let author = JournalAuthor::Closer { after: owner.last_seq };
    let append = AppendRequest { run: row.owner, author, batch };
    let appended = services.append_and_notify(append).await?;
    Ok(matches!(appended, AppendResult::Committed { .. }).then_some(new_row))
}

/// Checks the sandboxes of a store forever. A failure is logged, and the check is tried again.
pub(crate) async fn sweep_sandboxes(services: Services) {
    if is_unused(&services.sandboxes) {
        return;
    }
    let mut sweeper = SandboxSweeper::default();
    loop {
        if let Err(error) = sweeper.run(&services).await {
            tracing::warn!(%error, "could not check the sandboxes");
        }
        services.clock.sleep(CHECK_INTERVAL).await;
    }
}

/// Stops the sandboxes of ended runs before the process ends, if it has opened any. After a while
/// the rest is left to the next process.
pub(crate) async fn sweep_sandboxes_at_shutdown(services: &Services) {
    if !services.sandboxes.is_used.load(Ordering::Relaxed) {
        return;
    }
    let mut sweeper = SandboxSweeper::default();
    let check = sweeper.check_once(services);
    match guard(&*services.clock, SHUTDOWN_TIMEOUT, check).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "could not check the sandboxes"),
        Err(error) => tracing::warn!(%error, "could not stop all sandboxes"),
    }
}

fn is_unused(registry: &SandboxRegistry) -> bool {
    registry.providers().next().is_none()
}
