//! The only way a journal grows, and the conditions of its authors.
//!
//! Never: a fact without the changes that go with it.

use longhaul_core::change::{Batch, Change, HeadUpdate};
use longhaul_core::port::store::{AppendRequest, Appended, Author, Refused};
use longhaul_core::request::RequestEffect;

use crate::mem_store::rows::{Head, State};
use crate::mem_store::tx::{BrokenRule, JournalAppend, Rollback, Tx};

impl Tx<'_> {
    /// Lets a journal grow, if what its author says of it still holds.
    pub(crate) fn append(&mut self, append: AppendRequest) -> Result<Appended, Rollback<Appended>> {
        let AppendRequest { run, author, batch } = append;
        if author == Author::Outsider
            && let Some(event) = batch.events.iter().find(|event| event.from_outside().is_none())
        {
            return Ok(Appended::Refused(Refused::NotAllowedForOutsider(event.kind())));
        }
        let Some(head) = self.tables.heads.get(&run).cloned() else {
            return Ok(Appended::RunNotFound);
        };
        let epoch = match author {
            Author::Driver { epoch, .. } => epoch,
            Author::Outsider | Author::Closer { .. } => head.epoch,
        };
        let growth = JournalAppend { run, epoch, events: &batch.events };
        if let Some(instead) = self.rejection(author, &head, &growth, &batch) {
            return Ok(instead);
        }
        if author == Author::Outsider {
            self.wake_by_events(run, &batch.events);
        }
        let mut request = None;
        for change in &batch.changes {
            if let Change::MarkRequestApplied(of) = change {
                request = Some(of.clone());
            }
        }
        for change in batch.changes {
            self.change(run, change).map_err(|undo| match undo {
                Rollback::Answer(why) => Rollback::Answer(Appended::Refused(why)),
                Rollback::Error(fault) => Rollback::Error(fault),
            })?;
        }
        let seq = self.append_events(&JournalAppend { run, epoch, events: &batch.events })?;
        if let Some(of) = request {
            self.mark_request(&of, RequestEffect::Events { run, seq });
        }
        Ok(Appended::At { seq, now: self.now })
    }

    /// What the author is told instead, if its condition does not hold.
    fn rejection(
        &self,
        author: Author,
        head: &Head,
        growth: &JournalAppend<'_>,
        batch: &Batch,
    ) -> Option<Appended> {
        let (after, holds, any_epoch) = match author {
            Author::Outsider => {
                let is_late = head.state.is_ended() && !batch.events.is_empty();
                return is_late.then_some(Appended::RunEnded);
            }
            Author::Driver { worker, epoch, after } => {
                let holds = match head.state {
                    State::Leased(by) => {
                        let unfenced = matches!(
                            self.broken_rule,
                            Some(BrokenRule::Fence | BrokenRule::Driver)
                        );
                        unfenced || (by == worker && head.epoch == epoch)
                    }
                    State::Ready
                    | State::Parked { .. }
                    | State::LaneWait
                    | State::Paused
                    | State::Ended { .. } => false,
                };
                (after, holds, false)
            }
            Author::Closer { after } => {
                let holds = match head.state {
                    State::Ready | State::Parked { .. } | State::LaneWait | State::Paused => true,
                    State::Leased(_) | State::Ended { .. } => false,
                };
                // A closer holds no fence; between its two tries the run may
                // have been claimed, which takes nothing from what it wrote.
                (after, holds, true)
            }
        };
        let drives = matches!(author, Author::Driver { .. });
        let blind = match self.broken_rule {
            Some(BrokenRule::Park) => is_park(batch),
            Some(BrokenRule::Driver) => drives,
            Some(BrokenRule::Fence | BrokenRule::LanePromotion) | None => false,
        };
        if holds && (head.last_seq == after || blind) {
            return None;
        }
        // The answer of an append may be lost: what stands already, stands.
        if self.is_already_written(after, growth, any_epoch) {
            let seq = after.plus(growth.events.len() as u64);
            return Some(Appended::At { seq, now: self.now });
        }
        Some(if head.state.is_ended() {
            Appended::RunEnded
        } else if drives && !holds {
            Appended::Fenced
        } else {
            Appended::Conflict
        })
    }
}

fn is_park(batch: &Batch) -> bool {
    let mut changes = batch.changes.iter();
    changes.any(|change| matches!(change, Change::SetHead(HeadUpdate::Park { .. })))
}
