//! Workers: taking runs, signs of life, and freeing the runs of the dead.
//!
//! Never: a run for a worker that is not live.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, WorkerId};
use longhaul_core::port::store::{Beat, ClaimAsk, Claimed, Renewed, Standing, StoreError};
use longhaul_core::time::Timestamp;

use crate::mem_store::rows::{State, Worker};
use crate::mem_store::tx::{Growth, Tx};

impl Tx<'_> {
    /// Takes ready runs for a worker, in order.
    pub(crate) fn claim(&mut self, ask: &ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        let is_live =
            self.tables.workers.get(&ask.worker).is_some_and(|worker| {
                worker.standing == Standing::Live && !worker.is_silent(self.now)
            });
        if !is_live {
            return Ok(Vec::new());
        }
        let mut picked: Vec<RunId> = Vec::new();
        for inbox in &ask.inboxes {
            let fits = self.queue(inbox).filter(|run| self.suits(*run, ask));
            let more: Vec<RunId> = fits
                .filter(|run| !picked.contains(run))
                .take(ask.limit - picked.len())
                .collect();
            picked.extend(more);
        }
        picked
            .into_iter()
            .map(|run| self.take(run, ask.worker))
            .collect()
    }

    fn queue(&self, inbox: &InboxName) -> impl Iterator<Item = RunId> {
        let first = (inbox.clone(), i64::MIN, 0, RunId::from_bits(0));
        let last = (
            inbox.clone(),
            i64::MAX,
            u64::MAX,
            RunId::from_bits(u128::MAX),
        );
        self.tables
            .ready
            .range(first..=last)
            .map(|((_, _, _, run), ())| *run)
    }

    fn suits(&self, run: RunId, ask: &ClaimAsk) -> bool {
        self.tables.heads.get(&run).is_some_and(|head| {
            let is_type = |kind: &String| ask.types.contains(kind);
            let right_type = ask.types.is_empty() || head.task.kind.as_ref().is_some_and(is_type);
            right_type && head.format <= ask.format
        })
    }

    fn take(&mut self, run: RunId, worker: WorkerId) -> Result<Claimed, StoreError> {
        self.move_to(run, State::Leased(worker));
        let now = self.now;
        let mut epoch = Epoch(0);
        self.tables.heads.change(&run, |head| {
            head.epoch = Epoch(head.epoch.0 + 1);
            head.started_at = head.started_at.or(Some(now));
            epoch = head.epoch;
        });
        let events = [Event::RunClaimed(RunClaimed { worker, epoch })];
        let last = self.grow(&Growth {
            run,
            epoch,
            events: &events,
        })?;
        Ok(Claimed { run, epoch, last })
    }

    /// Notes a sign of life and, after one ttl in touch, frees the runs of the dead.
    pub(crate) fn renew(&mut self, beat: Beat) -> Renewed {
        let now = self.now;
        let before = self.tables.workers.get(&beat.worker);
        if before.is_some_and(|worker| worker.standing == Standing::Dead) {
            return Renewed {
                standing: Standing::Dead,
                reaped: 0,
                now,
            };
        }
        // Whoever was silent itself can't tell the silent from the dead yet.
        let in_touch_since = before
            .filter(|worker| !worker.is_silent(now))
            .map_or(now, |worker| worker.in_touch_since);
        let standing = if beat.draining {
            Standing::Draining
        } else {
            Standing::Live
        };
        let worker = Worker {
            host: beat.host,
            build: beat.build,
            standing,
            beat_at: now,
            in_touch_since,
            ttl: beat.ttl,
        };
        self.tables.workers.put(beat.worker, worker);
        let may_reap = in_touch_since.plus(beat.ttl) <= now;
        let reaped = if may_reap { self.reap(now) } else { 0 };
        Renewed {
            standing,
            reaped,
            now,
        }
    }

    fn reap(&mut self, now: Timestamp) -> usize {
        let workers = self.tables.workers.iter();
        let silent: Vec<WorkerId> = workers
            .filter(|(_, worker)| worker.standing != Standing::Dead && worker.is_silent(now))
            .map(|(id, _)| *id)
            .collect();
        for worker in silent {
            let workers = &mut self.tables.workers;
            workers.change(&worker, |row| row.standing = Standing::Dead);
        }
        let is_dead = |worker: &WorkerId| {
            let row = self.tables.workers.get(worker);
            row.is_none_or(|row| row.standing == Standing::Dead)
        };
        let heads = self.tables.heads.iter();
        let left: Vec<RunId> = heads
            .filter(|(_, head)| matches!(&head.state, State::Leased(worker) if is_dead(worker)))
            .map(|(run, _)| *run)
            .collect();
        for run in &left {
            self.move_to(*run, State::Ready);
        }
        left.len()
    }
}
