//! Appends to journals, with the conditions of each kind of author.
//!
//! Invariant: events and their changes are committed together.

use longhaul_core::change::{JournalBatch, RowChange, RunSchedulingUpdate};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{AppendRefusalReason, AppendRequest, AppendResult, JournalAuthor};
use longhaul_core::request::IdempotentRequestEffect;

use crate::mem_store::rows::{Head, State};
use crate::mem_store::tx::{BrokenRule, JournalAppend, Rollback, Tx};

impl Tx<'_> {
    /// Appends a batch if the author's condition holds.
    pub(crate) fn append(
        &mut self,
        append: AppendRequest,
    ) -> Result<AppendResult, Rollback<AppendResult>> {
        let AppendRequest { run, author, batch } = append;
        if author == JournalAuthor::Outsider
            && let Some(event) =
                batch.events.iter().find(|event| event.runs_woken_by_outside_append().is_none())
        {
            return Ok(AppendResult::Refused(AppendRefusalReason::NotAllowedForOutsider(
                event.kind(),
            )));
        }
        let Some(head) = self.tables.heads.get(&run).cloned() else {
            if author != JournalAuthor::Outsider || !batch.only_marks_timers_as_fired() {
                return Ok(AppendResult::RunNotFound);
            }
            self.apply_changes(run, batch.changes)?;
            return Ok(AppendResult::Committed { seq: Seq::START, now: self.now });
        };
        let epoch = match author {
            JournalAuthor::Driver { epoch, .. } => epoch,
            JournalAuthor::Outsider | JournalAuthor::Closer { .. } => head.epoch,
        };
        let journal_append = JournalAppend { run, epoch, events: &batch.events };
        if let Some(rejection) = self.rejection(author, &head, &journal_append, &batch) {
            return Ok(rejection);
        }
        if author == JournalAuthor::Outsider {
            self.wake_by_events(run, &batch.events);
        }
        let mut request = None;
        for change in &batch.changes {
            if let RowChange::MarkRequestApplied(request_key) = change {
                request = Some(request_key.clone());
            }
        }
        if let Some(progress) = batch.last_progress().cloned() {
            self.tables.heads.update(&run, |head| head.progress = Some(progress));
        }
        self.apply_changes(run, batch.changes)?;
        let seq = self.append_events(&JournalAppend { run, epoch, events: &batch.events })?;
        if matches!(author, JournalAuthor::Closer { .. }) {
            self.restart_message_collect_window(run);
        }
        if let Some(request_key) = request {
            self.mark_request(&request_key, IdempotentRequestEffect::Events { run, seq });
        }
        Ok(AppendResult::Committed { seq, now: self.now })
    }

    fn apply_changes(
        &mut self,
        run: RunId,
        changes: Vec<RowChange>,
    ) -> Result<(), Rollback<AppendResult>> {
        changes.into_iter().try_for_each(|change| {
            self.change(run, change).map_err(|rollback| match rollback {
                Rollback::Answer(reason) => Rollback::Answer(AppendResult::Refused(reason)),
                Rollback::Error(error) => Rollback::Error(error),
            })
        })
    }

    /// Returns the outcome of an append whose author's condition does not hold. `None` means
    /// that it holds.
    fn rejection(
        &self,
        author: JournalAuthor,
        head: &Head,
        append: &JournalAppend<'_>,
        batch: &JournalBatch,
    ) -> Option<AppendResult> {
        let (after, may_append, any_epoch) = match author {
            JournalAuthor::Outsider => {
                let is_late = head.state.is_ended() && !batch.events.is_empty();
                return is_late.then_some(AppendResult::RunEnded);
            }
            JournalAuthor::Driver { worker, epoch, after } => {
                let may_append = match head.state {
                    State::Leased(holder) => {
                        let is_fence_broken = matches!(
                            self.broken_rule,
                            Some(BrokenRule::Fence | BrokenRule::Driver)
                        );
                        is_fence_broken || (holder == worker && head.epoch == epoch)
                    }
                    State::Ready
                    | State::Parked { .. }
                    | State::LaneWait
                    | State::Paused
                    | State::Ended { .. } => false,
                };
                (after, may_append, false)
            }
            JournalAuthor::Closer { after } => {
                let may_append = match head.state {
                    State::Ready | State::Parked { .. } | State::LaneWait | State::Paused => true,
                    State::Leased(_) | State::Ended { .. } => false,
                };
                // A closer has no epoch. The run may have been claimed between two attempts,
                // which does not invalidate what the closer has written.
                (after, may_append, true)
            }
        };
        let is_driver = matches!(author, JournalAuthor::Driver { .. });
        let skips_seq_check = match self.broken_rule {
            Some(BrokenRule::Park) => is_park(batch),
            Some(BrokenRule::Driver) => is_driver,
            Some(
                BrokenRule::Fence
                | BrokenRule::LanePromotion
                | BrokenRule::ChainLane
                | BrokenRule::SandboxSlot,
            )
            | None => false,
        };
        if may_append && (head.last_seq == after || skips_seq_check) {
            return None;
        }
        // The response to an append may have been lost: if the same events are in the journal
        // already, the append has succeeded.
        if self.is_already_written(after, append, any_epoch) {
            let seq = after.plus(append.events.len() as u64);
            return Some(AppendResult::Committed { seq, now: self.now });
        }
        Some(if head.state.is_ended() {
            AppendResult::RunEnded
        } else if is_driver && !may_append {
            AppendResult::Fenced
        } else {
            AppendResult::Conflict
        })
    }
}

fn is_park(batch: &JournalBatch) -> bool {
    let mut changes = batch.changes.iter();
    changes.any(|change| {
        matches!(change, RowChange::UpdateScheduling(RunSchedulingUpdate::Park { .. }))
    })
}
