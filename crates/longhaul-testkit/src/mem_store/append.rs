//! The only way a journal grows, and the conditions of its authors.
//!
//! Never: a fact without the changes that go with it.

use longhaul_core::change::{Batch, Change, HeadMove};
use longhaul_core::port::store::{Append, Appended, Author, Refused};
use longhaul_core::request::Effect;

use crate::mem_store::rows::{Head, State};
use crate::mem_store::tx::{Broken, Growth, Tx, Undo};

impl Tx<'_> {
    /// Lets a journal grow, if what its author says of it still holds.
    pub(crate) fn append(&mut self, append: Append) -> Result<Appended, Undo<Appended>> {
        let Append { run, author, batch } = append;
        if author == Author::Outsider
            && let Some(event) = batch
                .events
                .iter()
                .find(|event| event.from_outside().is_none())
        {
            return Ok(Appended::Refused(Refused::NotOutside(event.kind())));
        }
        let Some(head) = self.tables.heads.get(&run).cloned() else {
            return Ok(Appended::NoRun);
        };
        let epoch = match author {
            Author::Driver { epoch, .. } => epoch,
            Author::Outsider | Author::Closer { .. } => head.epoch,
        };
        let growth = Growth {
            run,
            epoch,
            events: &batch.events,
        };
        if let Some(instead) = self.objection(author, &head, &growth, &batch) {
            return Ok(instead);
        }
        if author == Author::Outsider {
            self.hear(run, &batch.events);
        }
        let mut request = None;
        for change in &batch.changes {
            if let Change::MarkReply(of) = change {
                request = Some(of.clone());
            }
        }
        for change in batch.changes {
            self.change(run, change).map_err(|undo| match undo {
                Undo::Say(why) => Undo::Say(Appended::Refused(why)),
                Undo::Fault(fault) => Undo::Fault(fault),
            })?;
        }
        let seq = self.grow(&Growth {
            run,
            epoch,
            events: &batch.events,
        })?;
        if let Some(of) = request {
            self.mark_reply(&of, Effect::Events { run, seq });
        }
        Ok(Appended::At { seq, now: self.now })
    }

    /// What the author is told instead, if its condition does not hold.
    fn objection(
        &self,
        author: Author,
        head: &Head,
        growth: &Growth<'_>,
        batch: &Batch,
    ) -> Option<Appended> {
        let (after, holds, any_epoch) = match author {
            Author::Outsider => {
                let is_late = head.state.is_ended() && !batch.events.is_empty();
                return is_late.then_some(Appended::RunEnded);
            }
            Author::Driver {
                worker,
                epoch,
                after,
            } => {
                let holds = match head.state {
                    State::Leased(by) => {
                        let unfenced = matches!(self.broken, Some(Broken::Fence | Broken::Driver));
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
        let blind = match self.broken {
            Some(Broken::Park) => parks(batch),
            Some(Broken::Driver) => drives,
            Some(Broken::Fence | Broken::LanePromotion) | None => false,
        };
        if holds && (head.last == after || blind) {
            return None;
        }
        // The answer of an append may be lost: what stands already, stands.
        if self.stands(after, growth, any_epoch) {
            let seq = after.plus(growth.events.len() as u64);
            return Some(Appended::At { seq, now: self.now });
        }
        Some(if head.state.is_ended() {
            Appended::RunEnded
        } else if drives && !holds {
            Appended::Fenced
        } else {
            Appended::MovedOn
        })
    }
}

fn parks(batch: &Batch) -> bool {
    let mut changes = batch.changes.iter();
    changes.any(|change| matches!(change, Change::SetHead(HeadMove::Park { .. })))
}
