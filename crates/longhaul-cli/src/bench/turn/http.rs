//! The turn over real HTTP: one run, a long history, a crowd.
//!
//! Never: the mock's CPU counted as ours. It is another process, and it is said
//! what it took.

use std::path::Path;

use longhaul_core::time::Millis;
use serde::Serialize;

use crate::bench::conditions::{cores, met};
use crate::bench::turn::crowd::{Crowd, Crowded, TURNS};
use crate::bench::turn::history::{History, Row, WINDOW_TURNS};
use crate::bench::turn::life::{Life, Lived, WARM_UP_TURNS};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::StandIn;

/// So many turns has the one run.
const ONE_RUN_TURNS: u32 = 50;

/// What a model that takes its time takes.
const LATENCY: Millis = Millis(100);

/// CPU of a turn, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// CPU of a turn in a crowd, as a multiple of that of one run.
const CROWD_TARGET: f64 = 1.2;

/// Turns a second, as a share of what the CPU they take allows.
const ALLOWED_TARGET: f64 = 0.8;

/// Turns a second with a model that takes its time, as a share of the ideal.
const IDEAL_TARGET: f64 = 1_750.0 / 1_818.0;

/// What is to be measured.
pub(crate) struct OverHttp<'a> {
    pub(crate) wire: Wire,
    /// The longest history, in messages.
    pub(crate) messages: u32,
    pub(crate) runs: u32,
    pub(crate) result_bytes: usize,
    pub(crate) folder: &'a Path,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    wire: Wire,
    result_bytes: usize,
    mock_on_same_cores: bool,
    one_run: Lived,
    window_turns: u32,
    history: Vec<Row>,
    crowd: Crowded,
    crowd_with_latency: Crowded,
}

impl OverHttp<'_> {
    /// Measures everything, one after another, and says what comes next.
    pub(crate) async fn measure(&self, talk: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Figures> {
        let (wire, result_bytes) = (self.wire, self.result_bytes);
        let scripts = &self.folder.join("scripts");
        std::fs::create_dir_all(scripts)?;
        for turns in [WARM_UP_TURNS, ONE_RUN_TURNS] {
            write_script(scripts, turns)?;
        }
        let mock = StandIn::start(scripts, Millis::ZERO)?;
        talk("living 50 turns over HTTP ...");
        let source = Source::Wire {
            wire,
            url: mock.url.clone(),
        };
        let life = Life {
            turns: ONE_RUN_TURNS,
            result_bytes,
            source,
        };
        let one_run = life.live(&self.folder.join("http-one.db")).await?;
        talk(&format!(
            "living to {} messages over HTTP ...",
            self.messages
        ));
        let history = History {
            wire,
            messages: self.messages,
            result_bytes,
            scripts,
        };
        let file = self.folder.join("http-history.db");
        let history = history.measure(&mock, &file).await?;
        drop(mock);
        talk(&format!("living {} runs at once over HTTP ...", self.runs));
        let crowd = Crowd {
            wire,
            runs: self.runs,
            result_bytes,
            scripts,
            one_run: one_run.cost,
        };
        let file = |name: &str| self.folder.join(name);
        let fast = crowd.measure(&file("http-crowd.db"), Millis::ZERO).await?;
        let slow = crowd.measure(&file("http-slow.db"), LATENCY).await?;
        Ok(Figures {
            wire,
            result_bytes,
            mock_on_same_cores: true,
            one_run,
            window_turns: WINDOW_TURNS,
            history,
            crowd: fast,
            crowd_with_latency: slow,
        })
    }
}

impl Figures {
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "over HTTP: the {} wire without TLS to `longhaul mock-model` in a process of its own, which takes its \
                 share of the same {} cores; one tool call a turn with {} bytes of result",
                self.wire,
                cores(),
                self.result_bytes,
            ),
            String::new(),
            format!(
                "messages  request bytes  CPU us a turn  wall us a turn  CPU to the first  CPU ns a further byte   \
                 (each over {WINDOW_TURNS} turns of one run)"
            ),
        ];
        lines.extend(self.history.iter().map(|row| {
            let nanos = row.cpu_ns_per_additional_byte;
            let nanos = nanos.map_or("-".to_owned(), |nanos| format!("{nanos:.2}"));
            format!(
                "{:>8}  {:>13.0}  {:>13.0}  {:>14.0}  {:>16.2}  {nanos:>21}",
                row.messages,
                row.body_bytes_per_turn,
                row.cpu_us_per_turn,
                row.wall_us_per_turn,
                row.cpu_to_first,
            )
        }));
        lines.push(String::new());
        lines.extend(self.verdicts());
        lines
    }

    fn verdicts(&self) -> [String; 3] {
        let (one, crowd, slow) = (&self.one_run, &self.crowd, &self.crowd_with_latency);
        let (ratio, allowed) = (crowd.cpu_to_one_run, crowd.share_of_allowed);
        let ideal_per_second = slow.ideal_per_second.unwrap_or_default();
        [
            format!(
                "W1  over HTTP: {:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {CPU_US_TARGET:.0} us: {})",
                one.cost.cpu_us_per_turn,
                one.turns,
                one.cost.commits_per_turn,
                met(one.cost.cpu_us_per_turn <= CPU_US_TARGET),
            ),
            format!(
                "W3  {} runs x {TURNS} turns: {:.0} turns/s with {:.2} commits a turn; {:.0} us CPU a turn, {ratio:.2} of one \
                 run's (target {CROWD_TARGET}: {}); {allowed:.2} of the {:.0}/s that this CPU and the mock's {:.0} us allow \
                 (target {ALLOWED_TARGET}: {})",
                crowd.runs,
                crowd.turns_per_second,
                crowd.cost.commits_per_turn,
                crowd.cost.cpu_us_per_turn,
                met(ratio <= CROWD_TARGET),
                crowd.allowed_per_second,
                crowd.mock_cpu_us_per_turn,
                met(allowed >= ALLOWED_TARGET),
            ),
            format!(
                "W3  with {} ms latency: {:.0} turns/s of the ideal {ideal_per_second:.0} (target {:.0}: {})",
                LATENCY.0,
                slow.turns_per_second,
                IDEAL_TARGET * ideal_per_second,
                met(slow.share_of_ideal >= Some(IDEAL_TARGET)),
            ),
        ]
    }
}
