//! Views of gates with what only other rows know: the task of the run, and whether the effect of the
//! call has happened already.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use longhaul_api::gate::{GateView, TakenKeyView};
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{GateKind, GateRow, GateStatus};
use longhaul_core::port::store::RunRow;
use longhaul_core::raw::Hash;

use crate::error::Result;
use crate::handle::Longhaul;
use crate::view::gate_view;

impl Longhaul {
    /// Returns the full view of a gate, as the API shows it.
    pub async fn describe_gate(&self, gate: &GateRow) -> Result<GateView> {
        let run = self.services.store.get_run(gate.run).await?;
        self.add_run_and_key(gate, run.as_ref()).await
    }

    /// Returns the full views of gates, in the same order.
    pub async fn describe_gates(&self, gates: &[GateRow]) -> Result<Vec<GateView>> {
        let mut runs: BTreeMap<RunId, Option<RunRow>> = BTreeMap::new();
        let mut views = Vec::with_capacity(gates.len());
        for gate in gates {
            let run = match runs.entry(gate.run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.services.store.get_run(gate.run).await?),
            };
            views.push(self.add_run_and_key(gate, run.as_ref()).await?);
        }
        Ok(views)
    }

    async fn add_run_and_key(&self, gate: &GateRow, run: Option<&RunRow>) -> Result<GateView> {
        let mut view = gate_view(gate);
        if let Some(row) = run {
            view.agent = Some(row.agent.to_string());
            view.task = Some(row.title.clone());
            view.run_tags = row.tags.clone();
        }
        view.key_taken = self.taken_key(gate).await?;
        Ok(view)
    }

    /// Returns the call of another run, or an earlier call, that holds the effect key of the call
    /// that an open gate asks about. A key with a secret is not found, because the gate has it
    /// redacted.
    async fn taken_key(&self, gate: &GateRow) -> Result<Option<TakenKeyView>> {
        let is_asked = gate.status == GateStatus::Open && gate.spec.kind == GateKind::Approval;
        let Some(key) = gate.spec.key.as_deref().filter(|_| is_asked) else {
            return Ok(None);
        };
        let taken = self.services.records.effect_key(Hash::digest(key.as_bytes())).await?;
        let is_own = |run, call| run == gate.run && Some(call) == gate.spec.call;
        let taken = taken.filter(|taken| !is_own(taken.holder.run, taken.holder.call));
        Ok(taken.map(|taken| TakenKeyView {
            run: taken.holder.run,
            call: taken.holder.call,
            state: taken.state,
        }))
    }
}
