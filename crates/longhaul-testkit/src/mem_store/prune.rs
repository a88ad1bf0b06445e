//! Forgets what is past its keep.
//!
//! Never: a run whose tree still goes on, a content that somebody names, or the run
//! that was written to last: its place would be given away again.

use std::collections::BTreeSet;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{PruneAsk, Pruned};
use longhaul_core::raw::Hash;

use crate::mem_store::rows::Text;
use crate::mem_store::tx::Tx;

impl Tx<'_> {
    /// Forgets old runs, contents without a name, and keys that are over.
    pub(crate) fn prune(&mut self, ask: PruneAsk) -> Pruned {
        let runs = self.aged(ask);
        for run in &runs {
            self.forget(*run);
        }
        let now = self.now;
        let keys = self.tables.keys.take_where(|_, key| key.until <= now);
        let replies = &mut self.tables.replies;
        let replies = replies.take_where(|_, request| request.until <= now);
        self.tables.lanes.take_where(|_, lane| lane.depth == 0);
        let named = self.named();
        let blobs = self.tables.blobs.take_where(|hash, content| {
            content.touched_at.plus(ask.blobs_older) < now && !named.contains(hash)
        });
        Pruned {
            runs: runs.len(),
            blobs,
            keys: keys + replies,
        }
    }

    fn aged(&self, ask: PruneAsk) -> Vec<RunId> {
        let heads = || self.tables.heads.iter();
        let open = heads().filter(|(_, head)| !head.state.is_ended());
        let open: BTreeSet<RunId> = open.map(|(_, head)| head.task.root).collect();
        let newest = self.tables.newest();
        heads()
            .filter(|(run, _)| Some(**run) != newest)
            .filter(|(_, head)| !open.contains(&head.task.root))
            .filter(|(_, head)| {
                let finished = head.finished_at.unwrap_or(self.now);
                finished.plus(ask.runs_older) < self.now
            })
            .map(|(run, _)| *run)
            .take(ask.limit)
            .collect()
    }

    fn forget(&mut self, run: RunId) {
        self.leave_lane(run);
        let tables = &mut *self.tables;
        tables.heads.take(&run);
        tables.accounts.take(&run);
        tables.checkpoints.take(&run);
        let lines = tables
            .journal
            .range((run, Seq::START)..=(run, Seq(u64::MAX)));
        let lines: Vec<_> = lines.map(|(key, line)| (*key, line.place)).collect();
        for (line, place) in lines {
            tables.journal.take(&line);
            tables.places.take(&place);
        }
        tables.blob_refs.take_where(|(of, _), ()| *of == run);
        tables.steers.take_where(|(of, _), _| *of == run);
        tables.rules.take_where(|(of, _), _| *of == run);
        tables.late.take_where(|(of, _), _| *of == run);
        tables.gates.take_where(|_, gate| gate.run == run);
        let gates = &tables.gates;
        tables.links.take_where(|_, link| !gates.has(&link.gate));
        tables.timers.take_where(|_, timer| timer.run == run);
        let timers = &tables.timers;
        tables.due.take_where(|(_, timer), ()| !timers.has(timer));
        tables.usage.take_where(|_, used| used.run == run);
        tables.outbox.take_where(|_, letter| letter.run == run);
        tables.sandboxes.take_where(|_, row| row.owner == run);
        tables.seat_waits.take_where(|(_, of), _| *of == run);
    }

    fn named(&self) -> BTreeSet<Hash> {
        let refs = self.tables.blob_refs.iter().map(|((_, hash), ())| *hash);
        let lines = self.tables.journal.iter().map(|(_, line)| &line.body);
        let spilled = lines.filter_map(|body| match body {
            Text::Spilled(hash) => Some(*hash),
            Text::Here(_) => None,
        });
        refs.chain(spilled).collect()
    }
}
