//! `longhaul chaos`: kills workers in the middle of their work and counts what
//! came of it.
//!
//! Never: touches the project's own store. Everything happens in a copy.

mod auto_approver;
mod built_in;
mod confirm;
mod kill_loop;
mod probe_log;
mod rng;
mod scorecard;
mod scratch;
mod verify;

use clap::Args;
use longhaul::assemble::ProjectRuntime;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::task::Task;
use tokio::signal::unix::{SignalKind, signal};

use crate::chaos::kill_loop::{ChaosPlan, KillLog, KillLoop, read_journals};
use crate::chaos::scorecard::Scorecard;
use crate::chaos::scratch::ScratchProject;
use crate::chaos::verify::counts::ChaosCounts;
use crate::chaos::verify::verify;
use crate::error::CliError;
use crate::exit::Exit;
use crate::{output, runtime};

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
struct ChaosResult {
    log: KillLog,
    counts: ChaosCounts,
    duration_ms: u64,
}

impl Chaos {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => ScratchProject::copy(agent)?,
            None => ScratchProject::built_in()?,
        };
        let plan = self.plan();
        let left = self.run_kill_loop(&scratch, &plan)?;
        let Some(ChaosResult { log, counts: tally, duration_ms: took_ms }) = left else {
            return Ok(Exit::Interrupted);
        };
        let folder = (self.keep || !tally.is_clean()).then(|| scratch.keep());
        let card = Scorecard {
            agent: &plan.task.agent,
            plan: &plan,
            log: &log,
            counts: &tally,
            duration_ms: took_ms,
            folder,
        };
        match self.json {
            true => output::stdout_json(&card.as_json())?,
            false => output::stdout_line(&card.as_text())?,
        }
        Ok(match tally.is_clean() {
            true => Exit::Done,
            false => Exit::RunFailed,
        })
    }

    fn plan(&self) -> ChaosPlan {
        let agent = self.agent.as_deref().unwrap_or(built_in::AGENT_NAME);
        let mut task = Task::new(agent, "");
        task.input = parse_input(&self.input.join(" "));
        ChaosPlan {
            task,
            runs: self.runs,
            kills: self.kills,
            seed: self.seed.unwrap_or_else(|| SystemClock.monotonic_nanos() % 1_000_000),
            quiet: self.json,
        }
    }

    /// The storm itself; none: somebody has stopped it.
    fn run_kill_loop(
        &self,
        scratch: &ScratchProject,
        plan: &ChaosPlan,
    ) -> anyhow::Result<Option<ChaosResult>> {
        let house = scratch.open()?;
        self.check_may_begin(&house, plan)?;
        runtime::current_thread()?.block_on(async {
            let begun = SystemClock.monotonic_nanos();
            let mut terminated = signal(SignalKind::terminate())?;
            let log = tokio::select! {
                biased;
                log = KillLoop::new(scratch, &house, plan).run() => log?,
                // Dropping the storm kills and reaps its worker.
                _ = tokio::signal::ctrl_c() => return Ok(None),
                _ = terminated.recv() => return Ok(None),
            };
            let took_ms = (SystemClock.monotonic_nanos() - begun) / 1_000_000;
            let journals = read_journals(&house, &log).await?;
            let tally = verify(&journals, &probe_records(scratch)?);
            Ok(Some(ChaosResult { log, counts: tally, duration_ms: took_ms }))
        })
    }

    fn check_may_begin(&self, house: &ProjectRuntime, plan: &ChaosPlan) -> anyhow::Result<()> {
        let name = &plan.task.agent;
        let found = house.loaded.find(name).map_err(|error| {
            CliError::usage(error.to_string()).hint("all agents", "longhaul agents")
        })?;
        confirm::confirm(house, &found.agent, self.yes)?;
        if !self.json {
            let (runs, kills, seed) = (plan.runs, plan.kills, plan.seed);
            output::stderr_line(&format!(
                "{name}: {runs} runs, {kills} kills, seed {seed}, in a folder of its own"
            ));
        }
        Ok(())
    }
}

fn probe_records(scratch: &ScratchProject) -> anyhow::Result<Vec<probe_log::ProbeRecord>> {
    match scratch.probe_file() {
        Some(file) => probe_log::load(&file),
        None => Ok(Vec::new()),
    }
}

/// What was typed: a JSON value if it looks like one, else words.
fn parse_input(text: &str) -> RawJson {
    let shaped = text.trim_start().starts_with(['{', '[']);
    match RawJson::parse(text.trim()) {
        Ok(json) if shaped => json,
        Ok(_) | Err(_) => RawJson::from_serialize(&text),
    }
}
