//! The turn without a wire: the engine and the store, with a scripted model.
//!
//! Never: a network, or another process.

use std::path::Path;

use serde::Serialize;

use crate::bench::conditions::met;
use crate::bench::turn::life::{Life, Lived};
use crate::bench::turn::source::Source;
use crate::runtime;

/// So many turns has each life.
const TURNS: [u32; 6] = [50, 200, 1_000, 5_000, 20_000, 100_000];

/// CPU of a turn in a run of 50 turns, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// Bytes stored for each byte that was said or given back.
const BYTES_TARGET: f64 = 1.8;

/// What is to be measured.
pub(crate) struct Engine<'a> {
    /// The longest life, in turns.
    pub(crate) turns: u32,
    pub(crate) result_bytes: usize,
    pub(crate) folder: &'a Path,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    result_bytes: usize,
    lives: Vec<Lived>,
}

impl Engine<'_> {
    /// Measures everything, one after another, and says what comes next.
    pub(crate) fn measure(&self, talk: &dyn Fn(&str)) -> anyhow::Result<Figures> {
        let mut lives = Vec::new();
        for turns in TURNS.into_iter().filter(|turns| *turns <= self.turns) {
            talk(&format!("living {turns} turns ..."));
            let life = Life {
                turns,
                result_bytes: self.result_bytes,
                source: Source::Here,
            };
            let file = self.folder.join(format!("turns-{turns}.db"));
            lives.push(runtime::driving()?.block_on(life.live(&file))?);
        }
        Ok(Figures {
            result_bytes: self.result_bytes,
            lives,
        })
    }
}

impl Figures {
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "in the engine: scripted model without delay, one tool call a turn with {} bytes of result",
                self.result_bytes,
            ),
            String::new(),
            "turns  commits a turn  CPU us a turn  wall us a turn  bytes a turn  stored/said  fold after a crash".to_owned(),
        ];
        for lived in &self.lives {
            lines.push(format!(
                "{:>5}  {:>14.2}  {:>13.0}  {:>14.0}  {:>12.0}  {:>11.2}  {:>15.1} ms",
                lived.turns,
                lived.cost.commits_per_turn,
                lived.cost.cpu_us_per_turn,
                lived.cost.wall_us_per_turn,
                lived.stored_bytes_per_turn,
                lived.stored_per_said,
                lived.recovery_fold_ms,
            ));
        }
        lines.push(String::new());
        lines.extend(self.verdicts());
        lines
    }

    fn verdicts(&self) -> Vec<String> {
        let (Some(first), Some(last)) = (self.lives.first(), self.lives.last()) else {
            return Vec::new();
        };
        let growth = last.cost.cpu_us_per_turn / first.cost.cpu_us_per_turn.max(1.0);
        vec![
            format!(
                "W1  {:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {CPU_US_TARGET:.0} us: {})",
                first.cost.cpu_us_per_turn,
                first.turns,
                first.cost.commits_per_turn,
                met(first.cost.cpu_us_per_turn <= CPU_US_TARGET),
            ),
            format!(
                "W2  {:.2} bytes stored for a byte said at {} turns (target {BYTES_TARGET}: {}); \
                 CPU a turn at {} turns is {growth:.2} of that at {}",
                last.stored_per_said,
                last.turns,
                met(last.stored_per_said <= BYTES_TARGET),
                last.turns,
                first.turns,
            ),
        ]
    }
}
