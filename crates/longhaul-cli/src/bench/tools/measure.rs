//! Runs of the same turns with one call a turn and with eight, through the real
//! engine and the real store.
//!
//! Never: a shortcut. They are submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::Tool;
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_engine::toolbox::Equipped;
use longhaul_model::scripted::{Script, ScriptedModel};
use serde_json::json;

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

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    turns: u32,
    commits: u64,
    cpu_us: f64,
    wall_us: f64,
}

impl Took {
    pub(crate) fn commits_per_turn(&self) -> f64 {
        self.commits as f64 / f64::from(self.turns)
    }

    pub(crate) fn cpu_us_per_turn(&self) -> f64 {
        self.cpu_us / f64::from(self.turns)
    }

    pub(crate) fn wall_us_per_turn(&self) -> f64 {
        self.wall_us / f64::from(self.turns)
    }
}

/// The same turns with one call and with several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) one: Took,
    pub(crate) several: Took,
}

impl Pair {
    fn each(few: f64, many: f64) -> f64 {
        (many - few) / f64::from(CALLS - 1)
    }

    /// CPU of each call beyond the first.
    pub(crate) fn cpu_us_per_call(&self) -> f64 {
        Self::each(self.one.cpu_us_per_turn(), self.several.cpu_us_per_turn())
    }

    /// Commits of each call beyond the first.
    pub(crate) fn commits_per_call(&self) -> f64 {
        Self::each(self.one.commits_per_turn(), self.several.commits_per_turn())
    }
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Calls that go side by side.
    pub(crate) side_by_side: Pair,
    /// Calls that go one after another, each with a commit of its own.
    pub(crate) in_a_row: Pair,
    /// CPU of an append of one event with its commit, by the store alone.
    pub(crate) append_cpu_us: f64,
    /// CPU of the check of one input against its schema.
    pub(crate) check_cpu_us: f64,
}

impl Bench<'_> {
    pub(crate) fn measure(&self, talk: &dyn Fn(&str)) -> anyhow::Result<Measured> {
        let check_cpu_us = self.check()?;
        talk("appending without an engine ...");
        let append_cpu_us = self.append()?;
        Ok(Measured {
            side_by_side: self.pair(EffectClass::Keyed, talk)?,
            in_a_row: self.pair(EffectClass::Once, talk)?,
            append_cpu_us,
            check_cpu_us,
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
        let mut best: Option<Pair> = None;
        for round in 1..=self.rounds {
            talk(&format!("{class:?} calls, round {round} ..."));
            let one = self.live(class, 1, round)?;
            let several = self.live(class, CALLS, round)?;
            let cheaper = |a: Took, b: Took| if a.cpu_us < b.cpu_us { a } else { b };
            best = Some(match best {
                None => Pair { one, several },
                Some(best) => Pair {
                    one: cheaper(best.one, one),
                    several: cheaper(best.several, several),
                },
            });
        }
        best.ok_or_else(|| anyhow::anyhow!("no round was made"))
    }

    fn live(&self, class: EffectClass, calls: u32, round: u32) -> anyhow::Result<Took> {
        let name = format!("{class:?}-{calls}-{round}.db").to_lowercase();
        let file = self.folder.join(name);
        runtime::driving()?.block_on(async {
            let store = Arc::new(store(&file)?);
            let mut took = Took {
                turns: self.turns,
                commits: 0,
                cpu_us: 0.0,
                wall_us: 0.0,
            };
            for turns in [WARM_UP_TURNS, self.turns] {
                let script = Script::parse("bench", &script(turns, calls))?;
                let model = ScriptedModel::new("bench", script, Arc::new(SystemClock));
                let echo = Echo::new(self.result_bytes, class)?;
                let longhaul = longhaul_with(&store, Arc::new(model), echo)?;
                let run = longhaul.submit(task()).await?;
                let before = (store.commits(), cpu_us(), Stopwatch::start());
                drive(&longhaul, &[run], turns).await?;
                took.commits = store.commits() - before.0;
                took.cpu_us = cpu_us() - before.1;
                took.wall_us = before.2.nanos() as f64 / 1_000.0;
            }
            Ok(took)
        })
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
