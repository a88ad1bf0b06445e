//! Runs of the same turns with one call a turn and with eight, through the real
//! engine and the real store.
//!
//! Never: a shortcut. They are submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::Tool;
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_engine::toolbox::Equipped;
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_store::SqliteStore;
use serde::Serialize;
use serde_json::json;

use crate::bench::cost::{Meter, TurnCost};
use crate::bench::load::Load;
use crate::bench::turn::setting::{Echo, drive, longhaul_with, store, task};
use crate::cpu::cpu_us;
use crate::runtime;

/// So many calls has a turn that has several: as many as go side by side.
pub(crate) const CALLS: u32 = 8;

/// So long is the run before the one that counts.
const WARM_UP_TURNS: u32 = 3;

/// So many appends and so many checks tell what one takes.
const APPENDS: u64 = 2_000;
const CHECKS: u32 = 20_000;

/// What is to be measured.
pub(crate) struct Bench<'a> {
    pub(crate) turns: u32,
    pub(crate) rounds: u32,
    pub(crate) result_bytes: usize,
    pub(crate) folder: &'a Path,
}

/// The same turns with one call and with several, and what each call beyond the first costs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Pair {
    pub(crate) one: TurnCost,
    pub(crate) several: TurnCost,
    pub(crate) commits_per_call: f64,
    pub(crate) cpu_us_per_call: f64,
}

impl Pair {
    fn new(one: TurnCost, several: TurnCost) -> Self {
        let each = |few: f64, many: f64| (many - few) / f64::from(CALLS - 1);
        Self {
            one,
            several,
            commits_per_call: each(one.commits_per_turn, several.commits_per_turn),
            cpu_us_per_call: each(one.cpu_us_per_turn, several.cpu_us_per_turn),
        }
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// Calls that go side by side.
    pub(crate) side_by_side: Pair,
    /// Calls that go one after another, each with a commit of its own.
    pub(crate) in_a_row: Pair,
    /// CPU of an append of one event with its commit, by the store alone.
    pub(crate) append_cpu_us: f64,
    /// CPU of the check of one input against its schema.
    pub(crate) schema_check_cpu_ns: f64,
}

impl Bench<'_> {
    pub(crate) fn measure(&self, talk: &dyn Fn(&str)) -> anyhow::Result<Measured> {
        let schema_check_cpu_ns = self.check()? * 1e3;
        talk("appending without an engine ...");
        let append_cpu_us = self.append()?;
        Ok(Measured {
            side_by_side: self.pair(EffectClass::Keyed, talk)?,
            in_a_row: self.pair(EffectClass::Once, talk)?,
            append_cpu_us,
            schema_check_cpu_ns,
        })
    }

    fn check(&self) -> anyhow::Result<f64> {
        let echo = Arc::new(Echo::new(self.result_bytes, EffectClass::Keyed)?) as Arc<dyn Tool>;
        let equipped = Equipped::new(echo)?;
        let input = json!({ "n": 1 });
        let before = cpu_us();
        for _ in 0..CHECKS {
            let fault = equipped.fault(std::hint::black_box(&input), &SystemClock);
            std::hint::black_box(fault.now_or_never());
        }
        Ok((cpu_us() - before) / f64::from(CHECKS))
    }

    fn append(&self) -> anyhow::Result<f64> {
        let load = Load {
            runs: 1,
            events: APPENDS,
            body_bytes: self.result_bytes,
        };
        let before = cpu_us();
        load.measure(&self.folder.join("appends.db"), Stopwatch::start())?;
        Ok((cpu_us() - before) / APPENDS as f64)
    }

    /// The cheapest of some rounds, which take turns: what disturbs one of them
    /// disturbs the other too.
    fn pair(&self, class: EffectClass, talk: &dyn Fn(&str)) -> anyhow::Result<Pair> {
        let mut costs = Vec::new();
        for round in 1..=self.rounds {
            talk(&format!("{class:?} calls, round {round} ..."));
            let one = self.live(class, 1, round)?;
            costs.push((one, self.live(class, CALLS, round)?));
        }
        let cheapest = |cost: fn(&(TurnCost, TurnCost)) -> TurnCost| {
            let by_cpu =
                |a: &TurnCost, b: &TurnCost| a.cpu_us_per_turn.total_cmp(&b.cpu_us_per_turn);
            costs.iter().map(cost).min_by(by_cpu)
        };
        let pair = cheapest(|cost| cost.0).zip(cheapest(|cost| cost.1));
        pair.map(|(one, several)| Pair::new(one, several))
            .context("no round was made")
    }

    fn live(&self, class: EffectClass, calls: u32, round: u32) -> anyhow::Result<TurnCost> {
        let name = format!("{class:?}-{calls}-{round}.db").to_lowercase();
        let file = self.folder.join(name);
        runtime::driving()?.block_on(async {
            let store = Arc::new(store(&file)?);
            self.drive(&store, WARM_UP_TURNS, (class, calls)).await?;
            self.drive(&store, self.turns, (class, calls)).await
        })
    }

    async fn drive(
        &self,
        store: &Arc<SqliteStore>,
        turns: u32,
        (class, calls): (EffectClass, u32),
    ) -> anyhow::Result<TurnCost> {
        let script = Script::parse("bench", &script(turns, calls))?;
        let model = ScriptedModel::new("bench", script, Arc::new(SystemClock));
        let echo = Echo::new(self.result_bytes, class)?;
        let longhaul = longhaul_with(store, Arc::new(model), echo)?;
        let run = longhaul.submit(task()).await?;
        let meter = Meter::start(store);
        drive(&longhaul, &[run], turns).await?;
        Ok(meter.cost(turns))
    }
}

fn script(turns: u32, calls: u32) -> String {
    // Each about something else: calls about the same thing go one after another.
    let calls = (1..=calls).map(|n| format!("{{ name: echo, input: {{ n: {n} }} }}"));
    let calls = calls.collect::<Vec<_>>().join(", ");
    format!(
        "replies:\n  - text: \"Looking at the next ones.\"\n    tools: [{calls}]\n    \
         usage: {{ input_tokens: 1000, output_tokens: 20 }}\n  - text: \"Done.\"\n\
         loop: {{ from: 0, to: 1, times: {turns} }}\n"
    )
}
