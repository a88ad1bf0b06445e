//! The turn over real HTTP: one run, a long history, a crowd.
//!
//! Never: the mock's CPU counted as ours. It is another process, and it is said
//! what it took.

use std::path::Path;

use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::bench::turn::crowd::{Crowd, Crowded, TURNS};
use crate::bench::turn::history::{History, Row, WINDOW_TURNS};
use crate::bench::turn::life::{Life, Lived, WARM_UP_TURNS};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::StandIn;
use crate::bench::turn::words::{cores, met};

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
pub(crate) struct Figures {
    wire: Wire,
    runs: u32,
    result_bytes: usize,
    one: Lived,
    history: Vec<Row>,
    crowd: Crowded,
    slow: Crowded,
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
        let one = life.live(&self.folder.join("http-one.db")).await?;
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
        };
        let file = |name: &str| self.folder.join(name);
        let fast = crowd.measure(&file("http-crowd.db"), Millis::ZERO).await?;
        let slow = crowd.measure(&file("http-slow.db"), LATENCY).await?;
        Ok(Figures {
            wire,
            runs: self.runs,
            result_bytes,
            one,
            history,
            crowd: fast,
            slow,
        })
    }
}

impl Figures {
    pub(crate) fn as_json(&self) -> Value {
        let first = self.history.first();
        let history = self.history.iter().map(|row| {
            json!({
                "messages": row.messages,
                "body_bytes_per_turn": row.body_bytes,
                "cpu_us_per_turn": row.cpu_us,
                "wall_us_per_turn": row.wall_us,
                "cpu_to_first": first.map(|first| row.growth(first)),
                "cpu_ns_per_additional_byte": first.and_then(|first| row.nanos_per_byte(first)),
            })
        });
        let (crowd, slow) = (&self.crowd, &self.slow);
        json!({
            "wire": self.wire.as_str(),
            "result_bytes": self.result_bytes,
            "mock_on_same_cores": true,
            "one_run": {
                "turns": self.one.turns,
                "commits_per_turn": self.one.commits_per_turn(),
                "cpu_us_per_turn": self.one.cpu_us_per_turn(),
                "wall_us_per_turn": self.one.wall_us_per_turn(),
            },
            "window_turns": WINDOW_TURNS,
            "history": history.collect::<Vec<_>>(),
            "crowd": {
                "runs": self.runs,
                "turns": TURNS,
                "turns_per_second": crowd.turns_per_second(),
                "commits_per_turn": crowd.commits_per_turn(),
                "cpu_us_per_turn": crowd.cpu_us_per_turn(),
                "mock_cpu_us_per_turn": crowd.mock_cpu_us_per_turn(),
                "cpu_to_one_run": self.crowd_ratio(),
                "allowed_per_second": crowd.allowed_per_second(cores()),
                "share_of_allowed": self.share_of_allowed(),
            },
            "crowd_with_latency": {
                "latency_ms": LATENCY.0,
                "turns_per_second": slow.turns_per_second(),
                "ideal_per_second": slow.ideal_per_second(),
                "share_of_ideal": self.share_of_ideal(),
                "cpu_us_per_turn": slow.cpu_us_per_turn(),
                "mock_cpu_us_per_turn": slow.mock_cpu_us_per_turn(),
            },
        })
    }

    fn crowd_ratio(&self) -> f64 {
        self.crowd.cpu_us_per_turn() / self.one.cpu_us_per_turn().max(1.0)
    }

    fn share_of_allowed(&self) -> f64 {
        self.crowd.turns_per_second() / self.crowd.allowed_per_second(cores())
    }

    fn share_of_ideal(&self) -> f64 {
        self.slow.turns_per_second() / self.slow.ideal_per_second()
    }

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
        let first = self.history.first();
        lines.extend(self.history.iter().map(|row| {
            let growth = first.map_or(1.0, |first| row.growth(first));
            let nanos = first.and_then(|first| row.nanos_per_byte(first));
            let nanos = nanos.map_or("-".to_owned(), |nanos| format!("{nanos:.2}"));
            format!(
                "{:>8}  {:>13.0}  {:>13.0}  {:>14.0}  {growth:>16.2}  {nanos:>21}",
                row.messages, row.body_bytes, row.cpu_us, row.wall_us,
            )
        }));
        lines.push(String::new());
        lines.extend(self.verdicts());
        lines
    }

    fn verdicts(&self) -> [String; 3] {
        let (one, crowd, slow) = (&self.one, &self.crowd, &self.slow);
        let (ratio, allowed, ideal) = (
            self.crowd_ratio(),
            self.share_of_allowed(),
            self.share_of_ideal(),
        );
        [
            format!(
                "W1  over HTTP: {:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {CPU_US_TARGET:.0} us: {})",
                one.cpu_us_per_turn(),
                one.turns,
                one.commits_per_turn(),
                met(one.cpu_us_per_turn() <= CPU_US_TARGET),
            ),
            format!(
                "W3  {} runs x {TURNS} turns: {:.0} turns/s with {:.2} commits a turn; {:.0} us CPU a turn, {ratio:.2} of one \
                 run's (target {CROWD_TARGET}: {}); {allowed:.2} of the {:.0}/s that this CPU and the mock's {:.0} us allow \
                 (target {ALLOWED_TARGET}: {})",
                self.runs,
                crowd.turns_per_second(),
                crowd.commits_per_turn(),
                crowd.cpu_us_per_turn(),
                met(ratio <= CROWD_TARGET),
                crowd.allowed_per_second(cores()),
                crowd.mock_cpu_us_per_turn(),
                met(allowed >= ALLOWED_TARGET),
            ),
            format!(
                "W3  with {} ms latency: {:.0} turns/s of the ideal {:.0} (target {:.0}: {})",
                LATENCY.0,
                slow.turns_per_second(),
                slow.ideal_per_second(),
                IDEAL_TARGET * slow.ideal_per_second(),
                met(ideal >= IDEAL_TARGET),
            ),
        ]
    }
}
