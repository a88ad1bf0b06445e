//! `longhaul bench turn`: what a durable turn costs, in the engine and over HTTP,
//! how that grows with the run, and what a SIGKILL costs.
//!
//! Never: a figure without its conditions.

mod crash;
mod crowd;
pub(crate) mod disk;
mod engine;
mod history;
mod http;
mod life;
pub(crate) mod setting;
mod source;
mod stand_in;

use std::path::Path;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::bench::conditions::{self, build, cores};
use crate::bench::turn::crash::crash;
use crate::bench::turn::disk::Disk;
use crate::bench::turn::engine::Engine;
use crate::bench::turn::http::OverHttp;
use crate::bench::turn::life::{WARM_UP_TURNS, live_alone};
use crate::bench::turn::source::{Source, Wire};
use crate::{runtime, say};

/// The length of a tool's result where none is said. Over HTTP every one of them
/// is sent again with each turn, and the mock reads them all.
const ENGINE_RESULT: u32 = 2_048;
const HTTP_RESULT: u32 = 200;

/// A part of this bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Commits, CPU and bytes with a scripted model and no wire
    Engine,
    /// One run, a long history and a crowd over real HTTP
    Http,
    /// Workers that are killed
    Crash,
}

/// What a turn costs.
#[derive(Debug, Args)]
pub(crate) struct Turn {
    /// The length of each tool's result, in bytes; unless it is said, 2048 in the engine and 200 over HTTP
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: Option<u32>,
    /// The longest life, in turns
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    turns: u32,
    /// How many times a worker is killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
    /// Over HTTP, the longest history, in messages
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    messages: u32,
    /// Over HTTP, how many runs at once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// The wire over which the mock is asked
    #[arg(long, value_enum, default_value_t = Wire::Chat)]
    wire: Wire,
    /// Measure only these parts
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Live one life of so many turns over HTTP and nothing else, for scripts/instructions
    #[arg(long, hide = true, requires = "life_at")]
    life_of: Option<u32>,
    /// Where the mock of that life is
    #[arg(long, hide = true, requires = "life_of")]
    life_at: Option<String>,
}

/// What was measured: for people, and for machines.
struct Report {
    lines: Vec<String>,
    json: Map<String, Value>,
}

impl Report {
    /// The conditions, which hold for every part.
    fn begin(disk: &Disk) -> anyhow::Result<Self> {
        let (cores, build) = (cores(), build());
        let conditions = format!(
            "bench turn: {cores} cores, {build}, WAL, synchronous=FULL, after {WARM_UP_TURNS} turns of warm-up"
        );
        let mut report = Self {
            lines: vec![conditions],
            json: Map::new(),
        };
        report.lines.extend(disk.lines());
        report.json.extend([
            ("build".to_owned(), build.into()),
            ("cores".to_owned(), cores.into()),
            ("warm_up_turns".to_owned(), WARM_UP_TURNS.into()),
        ]);
        report.spread(disk)?;
        Ok(report)
    }

    fn add(&mut self, lines: Vec<String>) {
        self.lines.push(String::new());
        self.lines.extend(lines);
    }

    /// Puts the fields of some figures beside the others.
    fn spread(&mut self, figures: &impl Serialize) -> anyhow::Result<()> {
        if let Value::Object(fields) = serde_json::to_value(figures)? {
            self.json.extend(fields);
        }
        Ok(())
    }
}

impl Turn {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = conditions::folder(self.dir.as_deref())?;
        if let (Some(turns), Some(url)) = (self.life_of, self.life_at.clone()) {
            let wire = self.wire;
            return live_alone(&Source::Wire { wire, url }, turns, folder.path());
        }
        let report = self.measure(folder.path())?;
        say::data(&match self.json {
            true => Value::Object(report.json).to_string(),
            false => report.lines.join("\n"),
        })
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn measure(&self, folder: &Path) -> anyhow::Result<Report> {
        let talk = |line: &str| {
            if !self.json {
                say::talk(line);
            }
        };
        let result = |usual: u32| self.result.unwrap_or(usual) as usize;
        talk("measuring the disk ...");
        let mut report = Report::begin(&Disk::measure(folder)?)?;
        if self.wants(Part::Engine) {
            let engine = Engine {
                turns: self.turns,
                result_bytes: result(ENGINE_RESULT),
                folder,
            };
            let figures = engine.measure(&talk)?;
            report.add(figures.lines());
            report.spread(&figures)?;
        }
        if self.wants(Part::Crash) {
            talk(&format!("killing a worker {} times ...", self.kills));
            let crashes = runtime::driving()?.block_on(crash(folder, self.kills))?;
            report.add(vec![crashes.line()]);
            report.spread(&crashes)?;
        }
        if self.wants(Part::Http) {
            let over = OverHttp {
                wire: self.wire,
                messages: self.messages,
                runs: self.runs,
                result_bytes: result(HTTP_RESULT),
                folder,
            };
            let figures = runtime::driving()?.block_on(over.measure(&talk))?;
            report.add(figures.lines());
            let figures = serde_json::to_value(&figures)?;
            report.json.insert("http".to_owned(), figures);
        }
        Ok(report)
    }
}
