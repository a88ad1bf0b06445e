//! The desk over a store that this process has opened.
//!
//! Never: drives.

use async_trait::async_trait;
use longhaul_api::gate::GateView;
use longhaul_api::key::KeyView;
use longhaul_api::run::{BriefView, RunView};
use longhaul_api::steer::SteerView;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::Answer;
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::time::Timestamp;
use longhaul_engine::handle::{KeyAsk, MadeKey, Verdict, Watching};
use longhaul_engine::view::gate_view;
use longhaul_engine::{Longhaul, Task};

use crate::desk::{Desk, Following};
use crate::me::me;
use crate::no::No;

/// The store here.
#[derive(Debug)]
pub(crate) struct Here {
    longhaul: Longhaul,
}

impl Here {
    /// The desk over this store.
    pub(crate) fn new(longhaul: &Longhaul) -> Self {
        Self {
            longhaul: longhaul.clone(),
        }
    }
}

#[async_trait]
impl Desk for Here {
    async fn submit(&self, task: Task) -> Result<RunId, No> {
        Ok(self.longhaul.submit(task).await?)
    }

    async fn show(&self, run: RunId) -> Result<RunView, No> {
        Ok(self.longhaul.show(run).await?)
    }

    async fn why(&self, run: RunId) -> Result<WhyView, No> {
        Ok(self.longhaul.why_view(run).await?)
    }

    async fn transcript(&self, run: RunId) -> Result<TranscriptView, No> {
        Ok(self.longhaul.transcript(run).await?)
    }

    async fn events(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Entry>, No> {
        Ok(self.longhaul.events(run, after, limit).await?)
    }

    async fn follow(&self, run: RunId, after: Seq) -> Result<Box<dyn Following>, No> {
        Ok(Box::new(self.longhaul.watch(run, after).await?))
    }

    async fn brief(&self, ask: RowsAsk) -> Result<Vec<BriefView>, No> {
        Ok(self.longhaul.brief(ask).await?)
    }

    async fn whole(&self, ask: RowsAsk) -> Result<Vec<RunView>, No> {
        let brief = self.longhaul.brief(ask).await?;
        let mut whole = Vec::with_capacity(brief.len());
        for run in brief {
            whole.push(self.longhaul.show(run.id).await?);
        }
        Ok(whole)
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateView>, No> {
        let gates = self.longhaul.gates(ask).await?;
        Ok(gates.iter().map(gate_view).collect())
    }

    async fn gate(&self, gate: GateId) -> Result<GateView, No> {
        Ok(gate_view(&self.longhaul.gate(gate).await?))
    }

    async fn answer(&self, gate: GateId, answer: Answer) -> Result<(Verdict, GateView), No> {
        let verdict = self.longhaul.answer(gate, answer).await?;
        Ok((verdict, self.gate(gate).await?))
    }

    async fn steer(&self, run: RunId, text: String, delivery: Delivery) -> Result<SteerId, No> {
        Ok(self.longhaul.steer(run, text, delivery, &me()).await?)
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerView>, No> {
        Ok(self.longhaul.steers(run).await?)
    }

    async fn cancel(&self, run: RunId, reason: &str) -> Result<RunView, No> {
        self.longhaul.cancel(run, &me(), reason).await?;
        self.show(run).await
    }

    async fn pause(&self, run: RunId) -> Result<RunView, No> {
        self.longhaul.pause(run, &me()).await?;
        self.show(run).await
    }

    async fn resume(&self, run: RunId, raise: Option<Raise>) -> Result<RunView, No> {
        self.longhaul.resume(run, raise, &me()).await?;
        self.show(run).await
    }

    async fn make_key(&self, ask: KeyAsk) -> Result<MadeKey, No> {
        Ok(self.longhaul.make_key(ask).await?)
    }

    async fn keys(&self) -> Result<Vec<KeyView>, No> {
        Ok(self.longhaul.keys().await?)
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, No> {
        Ok(self.longhaul.revoke_key(name).await?)
    }

    async fn now(&self) -> Result<Timestamp, No> {
        Ok(self.longhaul.now().await?)
    }

    async fn is_driven(&self) -> Result<bool, No> {
        Ok(self.longhaul.is_driven().await?)
    }
}

#[async_trait]
impl Following for Watching {
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, No> {
        Ok(Self::next(self).await?)
    }
}
