//! `longhaul chaos`: kills workers in the middle of their work and checks that nothing is lost or
//! repeated.
//!
//! Invariant: the project's own store is never touched, because everything happens in a copy of the
//! project.

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

use crate::chaos::kill_loop::{ChaosPlan, KillLoop, KillLoopResult, read_run_journals};
use crate::chaos::scorecard::Scorecard;
use crate::chaos::scratch::ScratchProject;
use crate::chaos::verify::counts::ChaosCounts;
use crate::chaos::verify::verify_runs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::{output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul chaos                                20 runs of 12 turns, 50 kills
  longhaul chaos writer \"Summarise the notes\"    the same test with your own agent
  longhaul chaos --kills 200 --seed 7 --keep    longer, repeatable, keeps the folder

Agents, skills, scripts and longhaul.toml are copied to a temporary folder with a store of its own;
your own runs are never touched. In-doubt calls are settled with the records in the probe file,
approvals are given. Everything that needs trust must be trusted in your project (`longhaul trust`)
or by LONGHAUL_TRUST=1. Exit codes: 0 all guarantees held, 1 one was violated, 2 usage,
6 your agent needs something untrusted, or it uses a real model or tools with outside effects and was not confirmed.";

/// Arguments of `longhaul chaos`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChaosCommand {
    /// Agent to run; by default a built-in agent in a built-in project
    agent: Option<String>,
    /// Task of every run: text, or one JSON value
    input: Vec<String>,
    /// Number of runs to submit
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// Number of times that a worker is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
    /// Seed of the random kill times; by default a new seed
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the temporary folder with the runs
    #[arg(long)]
    keep: bool,
    /// Do not ask for confirmation, even if a real model is called or tools have effects outside
    /// the temporary folder
    #[arg(long)]
    yes: bool,
    /// Print the scorecard as one JSON object
    #[arg(long)]
    json: bool,
}

/// Result of a chaos test: the log of the kill loop and the verified counts.
struct ChaosResult {
    log: KillLoopResult,
    counts: ChaosCounts,
    duration_ms: u64,
}

impl ChaosCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => ScratchProject::copy_current_project(agent)?,
            None => ScratchProject::create_built_in_project()?,
        };
        let plan = self.build_chaos_plan();
        let result = self.run_kill_loop(&scratch, &plan)?;
        let Some(ChaosResult { log, counts, duration_ms }) = result else {
            return Ok(Exit::Interrupted);
        };
        let folder = (self.keep || !counts.has_test_passed()).then(|| scratch.keep_folder());
        let scorecard = Scorecard {
            agent: &plan.task.agent,
            plan: &plan,
            log: &log,
            counts: &counts,
            duration_ms,
            folder,
        };
        match self.json {
            true => output::print_json(&scorecard.as_json())?,
            false => output::print_line(&scorecard.as_text())?,
        }
        Ok(match counts.has_test_passed() {
            true => Exit::Done,
            false => Exit::RunFailed,
        })
    }

    fn build_chaos_plan(&self) -> ChaosPlan {
        let agent = self.agent.as_deref().unwrap_or(built_in::AGENT_NAME);
        let mut task = Task::new(agent, "");
        task.input = parse_task_input(&self.input.join(" "));
        ChaosPlan {
            task,
            runs: self.runs,
            kills: self.kills,
            seed: self.seed.unwrap_or_else(|| SystemClock.monotonic_nanos() % 1_000_000),
            quiet: self.json,
        }
    }

    /// Runs the kill loop and verifies the journals. `None` means that the user stopped the loop.
    fn run_kill_loop(
        &self,
        scratch: &ScratchProject,
        plan: &ChaosPlan,
    ) -> anyhow::Result<Option<ChaosResult>> {
        let runtime = scratch.open_runtime()?;
        self.check_agent_and_confirm_chaos(&runtime, plan)?;
        runtime::build_single_thread_tokio()?.block_on(async {
            let start = SystemClock.monotonic_nanos();
            let mut sigterm = signal(SignalKind::terminate())?;
            let log = tokio::select! {
                biased;
                log = KillLoop::new(scratch, &runtime, plan).run() => log?,
                // Dropping the kill loop kills and reaps its worker.
                _ = tokio::signal::ctrl_c() => return Ok(None),
                _ = sigterm.recv() => return Ok(None),
            };
            let duration_ms = (SystemClock.monotonic_nanos() - start) / 1_000_000;
            let journals = read_run_journals(&runtime, &log).await?;
            let counts = verify_runs(&journals, &load_effect_records(scratch)?);
            Ok(Some(ChaosResult { log, counts, duration_ms }))
        })
    }

    fn check_agent_and_confirm_chaos(
        &self,
        runtime: &ProjectRuntime,
        plan: &ChaosPlan,
    ) -> anyhow::Result<()> {
        let name = &plan.task.agent;
        let loaded_agent = runtime.loaded.find_loaded_agent(name).map_err(|error| {
            CliError::usage_error(error.to_string()).with_hint("all agents", "longhaul agents")
        })?;
        confirm::confirm_chaos_run(runtime, &loaded_agent.agent, self.yes)?;
        if !self.json {
            let (runs, kills, seed) = (plan.runs, plan.kills, plan.seed);
            output::eprint_line(&format!(
                "{name}: {runs} runs, {kills} kills, seed {seed}, in a temporary folder"
            ));
        }
        Ok(())
    }
}

fn load_effect_records(scratch: &ScratchProject) -> anyhow::Result<Vec<probe_log::EffectRecord>> {
    match scratch.effect_log_path() {
        Some(file) => probe_log::read_effect_log(&file),
        None => Ok(Vec::new()),
    }
}

/// Parses the task from the command line: a JSON object or list, or else plain text.
fn parse_task_input(text: &str) -> RawJson {
    let is_object_or_list = text.trim_start().starts_with(['{', '[']);
    match RawJson::parse(text.trim()) {
        Ok(json) if is_object_or_list => json,
        Ok(_) | Err(_) => RawJson::from_serialize(&text),
    }
}
