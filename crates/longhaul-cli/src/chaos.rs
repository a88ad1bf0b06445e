//! `longhaul chaos`: kills workers in the middle of their work and counts what
//! came of it.
//!
//! Never: touches the project's own store. Everything happens in a copy.

mod built_in;
mod consent;
mod dice;
mod judge;
mod keeper;
mod scorecard;
mod scratch;
mod storm;
mod witness;

use clap::Args;
use longhaul::assemble::House;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::task::Task;
use tokio::signal::unix::{SignalKind, signal};

use crate::chaos::judge::judge;
use crate::chaos::judge::tally::Tally;
use crate::chaos::scorecard::Scorecard;
use crate::chaos::scratch::Scratch;
use crate::chaos::storm::{Log, Plan, Storm, journals};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{runtime, say};

const EXAMPLES: &str = "Examples:
  longhaul chaos                                20 runs of 12 turns, 50 kills
  longhaul chaos writer \"Summarise the notes\"    the same storm over your own agent
  longhaul chaos --kills 200 --seed 7 --keep    longer, repeatable, to be looked at afterwards

Agents, skills, scripts and longhaul.toml are copied to a temporary folder with a store of its own;
your own runs are never touched. In-doubt calls are settled by a look at the witness file,
approvals are given. What the agent needs trust for must be trusted in your project (`longhaul trust`)
or by LONGHAUL_TRUST=1. Exit codes: 0 every promise held, 1 one did not, 2 usage,
6 your agent needs what is not trusted, or asks a real model or has tools that act outside, and nobody said yes.";

/// Kills workers and counts what came of it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Chaos {
    /// The agent; without one a built-in project is stormed
    agent: Option<String>,
    /// What every run is to do: words, or one JSON value
    input: Vec<String>,
    /// How many runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// How many times a worker is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
    /// The seed of the moments at which it is killed; none: a new one
    #[arg(long)]
    seed: Option<u64>,
    /// Leave the folder where it is
    #[arg(long)]
    keep: bool,
    /// Begin though a real model is asked or tools act outside
    #[arg(long)]
    yes: bool,
    /// Print the scorecard as one JSON object
    #[arg(long)]
    json: bool,
}

/// What a storm left to be judged.
struct Left {
    log: Log,
    tally: Tally,
    took_ms: u64,
}

impl Chaos {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => Scratch::copy(agent)?,
            None => Scratch::built_in()?,
        };
        let plan = self.plan();
        let left = self.storm(&scratch, &plan)?;
        let Some(Left {
            log,
            tally,
            took_ms,
        }) = left
        else {
            return Ok(Exit::Interrupted);
        };
        let folder = (self.keep || !tally.holds()).then(|| scratch.keep());
        let card = Scorecard {
            agent: &plan.task.agent,
            plan: &plan,
            log: &log,
            tally: &tally,
            took_ms,
            folder,
        };
        match self.json {
            true => say::json(&card.as_json())?,
            false => say::data(&card.as_text())?,
        }
        Ok(match tally.holds() {
            true => Exit::Done,
            false => Exit::RunFailed,
        })
    }

    fn plan(&self) -> Plan {
        let agent = self.agent.as_deref().unwrap_or(built_in::AGENT);
        let mut task = Task::new(agent, "");
        task.input = input(&self.input.join(" "));
        Plan {
            task,
            runs: self.runs,
            kills: self.kills,
            seed: self.seed.unwrap_or_else(|| SystemClock.nanos() % 1_000_000),
            quiet: self.json,
        }
    }

    /// The storm itself; none: somebody has stopped it.
    fn storm(&self, scratch: &Scratch, plan: &Plan) -> anyhow::Result<Option<Left>> {
        let house = scratch.open()?;
        self.may_begin(&house, plan)?;
        runtime::small()?.block_on(async {
            let begun = SystemClock.nanos();
            let mut terminated = signal(SignalKind::terminate())?;
            let log = tokio::select! {
                biased;
                log = Storm::new(scratch, &house, plan).rage() => log?,
                // Dropping the storm kills and reaps its worker.
                _ = tokio::signal::ctrl_c() => return Ok(None),
                _ = terminated.recv() => return Ok(None),
            };
            let took_ms = (SystemClock.nanos() - begun) / 1_000_000;
            let journals = journals(&house, &log).await?;
            let tally = judge(&journals, &lines(scratch)?);
            Ok(Some(Left {
                log,
                tally,
                took_ms,
            }))
        })
    }

    fn may_begin(&self, house: &House, plan: &Plan) -> anyhow::Result<()> {
        let name = &plan.task.agent;
        let found = house.loaded.find(name).map_err(|error| {
            CliError::usage(error.to_string()).hint("all agents", "longhaul agents")
        })?;
        consent::ask(house, &found.agent, self.yes)?;
        if !self.json {
            let (runs, kills, seed) = (plan.runs, plan.kills, plan.seed);
            say::talk(&format!(
                "{name}: {runs} runs, {kills} kills, seed {seed}, in a folder of its own"
            ));
        }
        Ok(())
    }
}

fn lines(scratch: &Scratch) -> anyhow::Result<Vec<witness::Line>> {
    match scratch.witness() {
        Some(file) => witness::read(&file),
        None => Ok(Vec::new()),
    }
}

/// What was typed: a JSON value if it looks like one, else words.
fn input(text: &str) -> RawJson {
    let shaped = text.trim_start().starts_with(['{', '[']);
    match RawJson::parse(text.trim()) {
        Ok(json) if shaped => json,
        Ok(_) | Err(_) => RawJson::of(&text),
    }
}
