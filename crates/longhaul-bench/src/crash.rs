//! `longhaul-bench crash`: recovery after kill -9, as `longhaul chaos` counts and verifies it.

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::options::Options;
use crate::report::Report;

/// Target time from the start of a worker process to its first event.
const RECOVERY_MS_TARGET: f64 = 200.0;

/// Arguments of `longhaul-bench crash`.
#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// Number of times that a worker is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
}

impl CrashArgs {
    pub(crate) fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let mut report = options.report("crash", &format!("{} kills", self.kills));
        report.progress(&format!("killing a worker {} times", self.kills));
        let (kills, runs) = (self.kills.to_string(), (self.kills * 2 / 5).max(1).to_string());
        let args = ["chaos", "--json", "--seed", "7", "--kills", &kills, "--runs", &runs];
        let output = options.binary()?.command(folder.path(), &args).output()?;
        let scorecard: Value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
        let figure = |path: &str| {
            let value = scorecard.pointer(path).and_then(Value::as_f64);
            value.with_context(|| format!("the scorecard has no {path}"))
        };
        let incomplete = figure("/runs/submitted")? - figure("/runs/completed")?;
        let violations = scorecard["violations"].as_array().map_or(0, Vec::len);
        report
            .section("w7")
            .figure("kills", figure("/kills")?)
            .at_most("runs_lost", incomplete, 0.0)
            .at_most("guarantees_violated", violations as f64, 0.0)
            .figure("model_calls_repeated", figure("/model_calls/repeated")?)
            .at_most("recovery_median_ms", figure("/recovery_ms/median")?, RECOVERY_MS_TARGET)
            .figure("recovery_worst_ms", figure("/recovery_ms/worst")?);
        Ok(report)
    }
}
