//! The turn without a wire: the engine and the store, with a scripted model.
//!
//! Never: a figure without the machine's own limit from the same run beside it.

use std::path::Path;

use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::{BareAsk, Rate, Spans, bare, sync_spans};
use serde_json::{Value, json};

use crate::cli::bench::turn::life::{Life, Lived, WARM_UP_TURNS};
use crate::cli::bench::turn::source::Source;
use crate::cli::bench::turn::words::{build, cores, met};
use crate::cli::runtime;

/// So many turns has each life.
const TURNS: [u32; 4] = [50, 200, 1_000, 5_000];

/// So many bare commits tell what one takes.
const BARE_COMMITS: u64 = 500;

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
pub(crate) struct Figures {
    result_bytes: usize,
    syncs: Spans,
    bare: Rate,
    lives: Vec<Lived>,
}

impl Engine<'_> {
    /// Measures everything, one after another, and says what comes next.
    pub(crate) fn measure(&self, talk: &dyn Fn(&str)) -> anyhow::Result<Figures> {
        let watch = Stopwatch::start();
        talk("measuring the disk ...");
        let syncs = sync_spans(self.folder, 500, &|| watch.nanos())?;
        let bare = bare(
            &BareAsk {
                file: self.folder.join("bare.db"),
                runs: 1,
                events: BARE_COMMITS,
                body_bytes: 900,
                per_commit: 1,
            },
            &|| watch.nanos(),
        )?;
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
            syncs,
            bare,
            lives,
        })
    }
}

impl Figures {
    pub(crate) fn as_json(&self) -> Value {
        let lives = self.lives.iter().map(|lived| {
            json!({
                "turns": lived.turns,
                "commits_per_turn": lived.commits_per_turn(),
                "cpu_us_per_turn": lived.cpu_us_per_turn(),
                "wall_us_per_turn": lived.wall_us_per_turn(),
                "stored_bytes_per_turn": lived.stored_per_turn(),
                "said_bytes_per_turn": lived.said_per_turn(),
                "stored_per_said": lived.stored_per_said(),
                "recovery_fold_ms": lived.fold_ms,
            })
        });
        json!({
            "result_bytes": self.result_bytes,
            "fdatasync_us": { "p50": us(self.syncs.percentile(50)), "p99": us(self.syncs.percentile(99)) },
            "bare_commit_us": commit_us(self.bare),
            "warm_up_turns": WARM_UP_TURNS,
            "lives": lives.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "bench turn: scripted model without delay, one tool call a turn with {} bytes of result, \
                 after {WARM_UP_TURNS} turns of warm-up, WAL, synchronous=FULL, {} cores, {}",
                self.result_bytes,
                cores(),
                build()
            ),
            format!(
                "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
                us(self.syncs.percentile(50)),
                us(self.syncs.percentile(99))
            ),
            format!("a commit of bare SQLite       mean {:.0} us", commit_us(self.bare)),
            String::new(),
            "turns  commits a turn  CPU us a turn  wall us a turn  bytes a turn  stored/said  fold after a crash".to_owned(),
        ];
        for lived in &self.lives {
            lines.push(format!(
                "{:>5}  {:>14.2}  {:>13.0}  {:>14.0}  {:>12.0}  {:>11.2}  {:>15.1} ms",
                lived.turns,
                lived.commits_per_turn(),
                lived.cpu_us_per_turn(),
                lived.wall_us_per_turn(),
                lived.stored_per_turn(),
                lived.stored_per_said(),
                lived.fold_ms,
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
        let growth = last.cpu_us_per_turn() / first.cpu_us_per_turn().max(1.0);
        vec![
            format!(
                "W1  {:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {CPU_US_TARGET:.0} us: {})",
                first.cpu_us_per_turn(),
                first.turns,
                first.commits_per_turn(),
                met(first.cpu_us_per_turn() <= CPU_US_TARGET),
            ),
            format!(
                "W2  {:.2} bytes stored for a byte said at {} turns (target {BYTES_TARGET}: {}); \
                 CPU a turn at {} turns is {growth:.2} of that at {}",
                last.stored_per_said(),
                last.turns,
                met(last.stored_per_said() <= BYTES_TARGET),
                last.turns,
                first.turns,
            ),
        ]
    }
}

fn commit_us(bare: Rate) -> f64 {
    1e6 / bare.per_second().max(1.0)
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}
