//! One long run over HTTP, looked at where its history has reached certain lengths.
//!
//! Never: a run of its own for each length. What is kept between the turns of one
//! run is what is measured.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_engine::clock::Stopwatch;
use serde::Serialize;

use crate::bench::turn::life::warm_up;
use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::{StandIn, counted};
use crate::cpu::cpu_us;

/// So many messages has the history where it is looked at.
const LENGTHS: [u32; 4] = [10, 100, 1_000, 5_000];

/// Over so many turns.
pub(crate) const WINDOW_TURNS: u32 = 20;

/// What is to be measured.
pub(crate) struct History<'a> {
    pub(crate) wire: Wire,
    /// The longest history, in messages.
    pub(crate) messages: u32,
    pub(crate) result_bytes: usize,
    /// Where the mock finds its scripts.
    pub(crate) scripts: &'a Path,
}

/// What a turn took at one length of the history.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Row {
    pub(crate) messages: u32,
    pub(crate) body_bytes_per_turn: f64,
    pub(crate) cpu_us_per_turn: f64,
    pub(crate) wall_us_per_turn: f64,
    /// CPU as a multiple of the first row's.
    pub(crate) cpu_to_first: f64,
    /// CPU for each byte that is sent more than in the first row.
    pub(crate) cpu_ns_per_additional_byte: Option<f64>,
}

impl Row {
    fn compared(self, first: &Self) -> Self {
        let cpu_us = self.cpu_us_per_turn - first.cpu_us_per_turn;
        let bytes = self.body_bytes_per_turn - first.body_bytes_per_turn;
        Self {
            cpu_to_first: self.cpu_us_per_turn / first.cpu_us_per_turn.max(1.0),
            cpu_ns_per_additional_byte: (bytes > 0.0).then(|| cpu_us * 1e3 / bytes),
            ..self
        }
    }
}

impl History<'_> {
    /// Lives the run, and says what a turn took at each length.
    pub(crate) async fn measure(&self, mock: &StandIn, file: &Path) -> anyhow::Result<Vec<Row>> {
        let lengths = LENGTHS.into_iter();
        let lengths: Vec<u32> = lengths.filter(|many| *many <= self.messages).collect();
        // A turn leaves two messages.
        let turns = lengths.last().map_or(0, |many| many / 2) + WINDOW_TURNS;
        write_script(self.scripts, turns)?;
        let source = Source::Wire {
            wire: self.wire,
            url: mock.url.clone(),
        };
        let store = Arc::new(store(file)?);
        warm_up(&store, &source, self.result_bytes).await?;
        let watched = Arc::new(Watched {
            model: source.model(turns)?,
            url: mock.url.clone(),
            lengths,
            watch: Stopwatch::start(),
            seen: Mutex::default(),
        });
        let longhaul = longhaul(&store, watched.clone(), self.result_bytes)?;
        let run = longhaul.submit(task()).await?;
        drive(&longhaul, &[run], turns).await?;
        watched.rows()
    }
}

/// A model that looks at the clocks on certain turns.
#[derive(Debug)]
struct Watched {
    model: Arc<dyn Model>,
    url: String,
    lengths: Vec<u32>,
    watch: Stopwatch,
    seen: Mutex<Vec<Seen>>,
}

/// What the clocks and the mock said at one turn.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The length of which this is the begin or the end.
    length: u32,
    body_bytes: u64,
    cpu_us: f64,
    wall_us: f64,
}

/// Which side of a window a turn is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Begin,
    End,
}

impl Watched {
    /// The window that begins or ends before this turn, from 1.
    fn side(&self, turn: u32) -> Option<(u32, Side)> {
        let done = turn.saturating_sub(1);
        self.lengths.iter().find_map(|length| match length / 2 {
            begin if begin == done => Some((*length, Side::Begin)),
            begin if begin + WINDOW_TURNS == done => Some((*length, Side::End)),
            _ => None,
        })
    }

    /// Looks at everything; asking the mock falls outside the window.
    async fn look(&self, length: u32, side: Side) -> anyhow::Result<()> {
        let clocks = || (cpu_us(), self.watch.nanos() as f64 / 1_000.0);
        let early = clocks();
        let body_bytes = counted(&self.url).await?.body_bytes;
        let (cpu_us, wall_us) = match side {
            Side::Begin => clocks(),
            Side::End => early,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Seen {
            length,
            body_bytes,
            cpu_us,
            wall_us,
        });
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = f64::from(WINDOW_TURNS);
        let mut rows: Vec<Row> = Vec::new();
        for pair in seen.chunks(2) {
            let [begin, end] = pair else {
                bail!("a question was asked twice, so the history can't be measured");
            };
            if begin.length != end.length {
                bail!("a question was asked twice, so the history can't be measured");
            }
            let row = Row {
                messages: begin.length,
                body_bytes_per_turn: (end.body_bytes - begin.body_bytes) as f64 / turns,
                cpu_us_per_turn: (end.cpu_us - begin.cpu_us) / turns,
                wall_us_per_turn: (end.wall_us - begin.wall_us) / turns,
                cpu_to_first: 1.0,
                cpu_ns_per_additional_byte: None,
            };
            let first = rows.first().copied();
            rows.push(first.map_or(row, |first| row.compared(&first)));
        }
        Ok(rows)
    }
}

#[async_trait]
impl Model for Watched {
    fn quote(&self, ask: &Ask) -> Quote {
        self.model.quote(ask)
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        if let Some((length, side)) = self.side(ask.turn) {
            let looked = self.look(length, side).await;
            looked.map_err(|why| Failure::new(FailureClass::InvalidRequest, why.to_string()))?;
        }
        self.model.reply(ask, ear).await
    }
}
