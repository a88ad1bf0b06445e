//! `longhaul chaos`: kills workers in the middle of their work and checks that nothing is lost or
//! repeated.
//!
//! Invariant: the project's own store is never touched, because everything happens in a copy of the
//! project.

mod kills;
mod project;
mod verify;

use std::path::PathBuf;

use clap::Args;
use longhaul::project::ProjectRuntime;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock as _;
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::tools::registry::RegisteredTool;
use serde::Serialize;

use crate::chaos::kills::{ChaosPlan, KillLog, KillLoop, read_journals};
use crate::chaos::project::{BUILT_IN_AGENT, PROBE_PREFIX, ScratchProject};
use crate::chaos::verify::{Findings, Invariant, verify_runs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::format::format_name_counts;
use crate::runtime::InterruptListener;
use crate::{output, runtime};

/// Tools whose effects stay in the temporary folder.
const LOCAL_TOOLS: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

/// Maximum number of violations, and of incomplete runs, that are printed.
const SHOWN_MAX: usize = 10;

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

impl ChaosCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => ScratchProject::copy_of_current(agent)?,
            None => ScratchProject::built_in()?,
        };
        let Some(mut scorecard) = self.kill_and_verify(&scratch)? else {
            return Ok(Exit::Interrupted);
        };
        let has_passed = scorecard.findings.has_test_passed();
        scorecard.folder = (self.keep || !has_passed).then(|| scratch.folder.keep());
        output::show(self.json, &scorecard, |scorecard| output::print_line(&scorecard.as_text()))?;
        Ok(if has_passed { Exit::Done } else { Exit::RunFailed })
    }

    /// Runs the kill loop and verifies the journals. `None` means that the user stopped the loop.
    fn kill_and_verify(&self, scratch: &ScratchProject) -> anyhow::Result<Option<Scorecard>> {
        let runtime = scratch.open_runtime()?;
        let inboxes = runtime.config.worker_settings().inboxes;
        let text = self.input.join(" ");
        // A JSON object or list is passed on as JSON.
        let json = RawJson::parse(text.trim()).ok();
        let json = json.filter(|_| text.trim_start().starts_with(['{', '[']));
        let plan = ChaosPlan {
            task: Task {
                input: json.unwrap_or_else(|| RawJson::from_serialize(&text)),
                inbox: inboxes.first().map(InboxName::new).transpose()?,
                submitter: Some("chaos".to_owned()),
                ..Task::new(self.agent.as_deref().unwrap_or(BUILT_IN_AGENT), "")
            },
            runs: self.runs,
            kills: self.kills,
            seed: self.seed.unwrap_or_else(|| SystemClock.monotonic_nanos() % 1_000_000),
            quiet: self.json,
        };
        self.check_agent(&runtime, &plan)?;
        runtime::block_on(async {
            let start = SystemClock.monotonic_nanos();
            let mut interrupts = InterruptListener::listen()?;
            let log = tokio::select! {
                biased;
                log = KillLoop::run(scratch, &runtime, &plan) => log?,
                // Dropping the kill loop kills and reaps its worker.
                () = interrupts.next_signal() => return Ok(None),
            };
            let duration_ms = (SystemClock.monotonic_nanos() - start) / 1_000_000;
            let journals = read_journals(&runtime, &log).await?;
            let mut findings = verify_runs(&journals, &scratch.read_effects()?);
            findings.runs.submitted = log.runs.len();
            Ok(Some(Scorecard {
                verdict: if findings.has_test_passed() { "passed" } else { "failed" },
                agent: plan.task.agent.unwrap_or_default(),
                seed: plan.seed,
                log,
                findings,
                duration_ms,
                folder: None,
            }))
        })
    }

    /// Fails if there is no such agent, or if it has real effects and the user does not confirm
    /// the test. Neither silence nor a missing terminal counts as a yes.
    fn check_agent(&self, runtime: &ProjectRuntime, plan: &ChaosPlan) -> anyhow::Result<()> {
        let name = plan.task.agent.as_deref().unwrap_or_default();
        let loaded = runtime.loaded.find_loaded_agent(name).map_err(|error| {
            CliError::usage_error(error.to_string()).with_hint("all agents", "longhaul agents")
        })?;
        let warnings = effects_outside_test(runtime, &loaded.agent);
        if !warnings.is_empty() && !self.yes {
            output::eprint_line(&format!("`{name}` would have real effects:"));
            for warning in &warnings {
                output::eprint_line(&format!("  {warning}"));
            }
            if !output::confirms("Start anyway? [y/N]") {
                return Err(CliError::usage_error("the chaos run was not started")
                    .with_exit_code(Exit::NotAllowed)
                    .with_hint("start anyway", format!("longhaul chaos --yes {name} ..."))
                    .with_hint("or use the built-in project", "longhaul chaos")
                    .into());
            }
        }
        if !self.json {
            let ChaosPlan { runs, kills, seed, .. } = plan;
            output::eprint_line(&format!(
                "{name}: {runs} runs, {kills} kills, seed {seed}, in a temporary folder"
            ));
        }
        Ok(())
    }
}

/// Describes each real model and each tool of the agent that may have effects outside the test.
fn effects_outside_test(runtime: &ProjectRuntime, agent: &Agent) -> Vec<String> {
    let models = runtime.config.model_aliases();
    let services = runtime.longhaul.services();
    let model_names: Vec<String> = match agent.models.as_slice() {
        // A key in the environment is enough to choose a real model by default.
        [] => match services.models.resolve_model_name(None) {
            Ok(model) => vec![model.name],
            Err(_) => models.default.iter().cloned().collect(),
        },
        names => names.to_vec(),
    };
    let real_models = model_names
        .iter()
        .map(|name| models.aliases.get(name).unwrap_or(name))
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is a real model; after a kill its calls may be repeated"));
    let is_local = |tool: &str| {
        // A control tool only asks a person, waits or ends the run.
        LOCAL_TOOLS.contains(&tool)
            || tool.starts_with(PROBE_PREFIX)
            || services.tools.find_tool(tool).is_some_and(RegisteredTool::is_control)
    };
    let tools = agent.tools.iter().filter(|tool| !is_local(tool));
    let external_tools =
        tools.map(|tool| format!("{tool} may have effects outside the temporary folder"));
    real_models.chain(external_tools).collect()
}

/// The results of a chaos test. In JSON it has the fields of its parts.
#[derive(Debug, Serialize)]
struct Scorecard {
    verdict: &'static str,
    agent: String,
    seed: u64,
    #[serde(flatten)]
    log: KillLog,
    #[serde(flatten)]
    findings: Findings,
    duration_ms: u64,
    /// Path of the temporary folder, if it was kept.
    folder: Option<PathBuf>,
}

impl Scorecard {
    fn as_text(&self) -> String {
        let Self { log, findings, .. } = self;
        let Findings { runs, model_calls, pure_repeats, keyed_repeats, .. } = findings;
        let other = match runs.other.len() {
            0 => String::new(),
            other => format!(", {other} cancelled or not ended"),
        };
        let (submitted, completed, failed) = (runs.submitted, runs.completed, runs.failed.len());
        let missing_kills = match (log.kills.done, log.kills.planned) {
            (done, planned) if done == planned => String::new(),
            (_, planned) => {
                format!(" of {planned}: all runs ended before the last kill; increase --runs")
            }
        };
        let (median, worst) = (log.recovery_ms.median, log.recovery_ms.worst);
        let settled: Vec<_> = findings.in_doubt.iter().map(|call| call.settled_by.into()).collect();
        let in_doubt_text = match settled.len() {
            0 => "0".to_owned(),
            count => format!("{count}: {}", format_name_counts(&settled)),
        };
        let repeats =
            format!("{pure_repeats} pure calls, {keyed_repeats} keyed calls with the same key");
        let mut lines = vec![
            (
                "runs",
                format!("{submitted} submitted, {completed} completed, {failed} failed{other}"),
            ),
            ("kills with SIGKILL", format!("{}{missing_kills}", log.kills.done)),
            ("worker restarts", log.restarts.to_string()),
            ("runs recovered from a dead worker", findings.recoveries.to_string()),
            ("recovery, start to first event", format!("median {median} ms, worst {worst} ms")),
            (
                "model calls",
                format!("{} made, {} repeated", model_calls.total, model_calls.repeated),
            ),
            ("allowed repeats", repeats),
            ("once calls", findings.once_calls.to_string()),
            ("in doubt, and reported as such", in_doubt_text),
        ];
        lines.extend(Invariant::ALL.map(|(invariant, label)| {
            let violations = findings.violation_counts.get(&invariant).copied().unwrap_or_default();
            (label, format!("{violations}  {}", if violations == 0 { "ok" } else { "BROKEN" }))
        }));
        let lines: String =
            lines.iter().map(|(label, value)| format!("  {label:<44} {value}\n")).collect();
        format!("{lines}\n{}", self.verdict_text())
    }

    fn verdict_text(&self) -> String {
        let (Findings { violations, runs, .. }, seed) = (&self.findings, self.seed);
        let folder = self.folder.as_ref().map(|folder| folder.display().to_string());
        if self.findings.has_test_passed() {
            let folder = folder.map(|folder| format!("\nKept folder:  {folder}"));
            let seconds = self.duration_ms / 1_000;
            let folder = folder.unwrap_or_default();
            return format!("All guarantees held (seed {seed}, {seconds} s).{folder}");
        }
        let mut text = format!("A guarantee was violated (seed {seed}).");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for violation in violations.iter().take(SHOWN_MAX) {
            let call = violation.call.map_or(String::new(), |call| format!(" {call}"));
            text.push_str(&format!("\n  {}{call}: {}", violation.run, violation.message));
        }
        if let omitted @ 1.. = violations.len().saturating_sub(SHOWN_MAX) {
            text.push_str(&format!("\n  and {omitted} more violations"));
        }
        for (runs, outcome) in [(&runs.failed, "failed"), (&runs.other, "did not complete")] {
            let lines = runs.iter().take(SHOWN_MAX).map(|run| format!("\n  {run} {outcome}"));
            text.extend(lines);
        }
        let bad_runs: Vec<RunId> = violations.iter().map(|violation| violation.run).collect();
        let first = bad_runs.iter().chain(&runs.failed).chain(&runs.other).next();
        if let (Some(folder), Some(run)) = (folder, first) {
            let command = format!("cd {folder} && longhaul show {run} --events");
            text.push_str(&format!("\nInspect the run:  {command}"));
        }
        text
    }
}
