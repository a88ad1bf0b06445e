//! `longhaul-bench sandbox`: sandboxes of the provider `local`, without runs and their commits. Each
//! measured operation ends with a command, and is compared with plain bubblewrap, which runs the
//! same command in the same minute.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::Args;
use longhaul::sandboxes::{
    ExecStatus, Sandbox, SandboxCommand, SandboxSpec, SandboxVolume, Sandboxes,
};
use longhaul_engine::clock::SystemClock;
use longhaul_sandbox::local::{LocalOptions, LocalSandboxes};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::disk::measure_disk;
use crate::measure::{Percentiles, Stopwatch};
use crate::options::Options;
use crate::report::Report;

/// The measured command.
const PROGRAM: &str = "true";

/// Number of sandboxes that execute a command at the same time.
const CONCURRENCY: u32 = 10;

/// Maximum time that a command takes longer than with plain bubblewrap.
const EXEC_ABOVE_PLAIN_MS_TARGET: f64 = 5.0;
/// Maximum time until all stopped sandboxes are started, for 100 sandboxes.
const ALL_STARTED_MS_TARGET: f64 = 2_000.0;

/// Arguments of `longhaul-bench sandbox`.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Number of times that each operation is measured
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Number of stopped sandboxes that are started at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    stopped: u32,
}

impl SandboxArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let conditions = format!("`{PROGRAM}` in sandboxes of the provider `local`, no runs");
        let mut report = options.report("sandbox", &conditions);
        measure_disk(folder.path(), &mut report)?;
        let provider = LocalSandboxes::open(LocalOptions {
            dir: folder.path().join("sandboxes"),
            host: String::new(),
            read_only: Vec::new(),
            launcher: None,
            project: None,
            clock: Arc::new(SystemClock),
        });
        let provider: Arc<dyn Sandboxes> = Arc::new(provider.await?);
        self.measure_one(&*provider, &mut report).await?;
        self.measure_concurrent(&*provider, &mut report).await?;
        self.measure_stopped(&provider, &mut report).await?;
        Ok(report)
    }

    /// Measures one sandbox at a time, which is created, stopped and started.
    async fn measure_one(
        &self,
        provider: &dyn Sandboxes,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        report.progress(&format!("measuring {} sandboxes, one after the other", self.repeats));
        let mut times: [Vec<f64>; 5] = Default::default();
        for number in 0..self.repeats {
            let spec = spec(&format!("single-{number}"));
            let plain = Stopwatch::start();
            execute_plain().await?;
            times[0].push(plain.elapsed_ms());
            let create = Stopwatch::start();
            let sandbox = provider.create(&spec).await?;
            execute(&*sandbox).await?;
            times[1].push(create.elapsed_ms());
            let exec = Stopwatch::start();
            execute(&*sandbox).await?;
            times[2].push(exec.elapsed_ms());
            let stop = Stopwatch::start();
            provider.stop(&spec.name).await?;
            times[3].push(stop.elapsed_ms());
            let start = Stopwatch::start();
            execute(&*provider.start(&spec.name, &spec).await?).await?;
            times[4].push(start.elapsed_ms());
            provider.delete(&spec.name).await?;
        }
        let [plain, create, exec, stop, start] = times.map(Percentiles::new);
        report_times(report.section("plain_bubblewrap"), &plain);
        let above_plain = compare(report, "exec", (&exec, &plain));
        report.at_most("p50_above_plain_ms", above_plain, EXEC_ABOVE_PLAIN_MS_TARGET);
        for (section, measured) in
            [("create_to_first_command", &create), ("start_to_first_command", &start)]
        {
            let above_plain = compare(report, section, (measured, &plain));
            report.figure("p50_above_plain_ms", above_plain);
        }
        report_times(report.section("stop"), &stop);
        Ok(())
    }

    /// Measures one command in each of several sandboxes at the same time.
    async fn measure_concurrent(
        &self,
        provider: &dyn Sandboxes,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        report.progress(&format!("measuring {CONCURRENCY} sandboxes at once"));
        let mut sandboxes = Vec::new();
        for number in 0..CONCURRENCY {
            sandboxes.push(provider.create(&spec(&format!("concurrent-{number}"))).await?);
        }
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..self.repeats.div_ceil(CONCURRENCY) {
            plain.push(time_all(sandboxes.iter().map(|_| execute_plain())).await?);
            let commands = sandboxes.iter().map(Arc::clone);
            ours.push(time_all(commands.map(async |sandbox| execute(&*sandbox).await)).await?);
        }
        let [ours, plain] = [ours, plain].map(Percentiles::new);
        let above_plain = compare(report, &format!("exec_{CONCURRENCY}_at_once"), (&ours, &plain));
        report.figure("p50_above_plain_ms", above_plain);
        Ok(())
    }

    /// Measures the start of many stopped sandboxes with a volume each.
    async fn measure_stopped(
        &self,
        provider: &Arc<dyn Sandboxes>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        report.progress(&format!("starting {} stopped sandboxes", self.stopped));
        let mut specs = Vec::new();
        for number in 0..self.stopped {
            let volume =
                SandboxVolume { name: format!("volume-{number}"), path: "/volume".to_owned() };
            let spec = SandboxSpec { volumes: vec![volume], ..spec(&format!("stopped-{number}")) };
            execute(&*provider.create(&spec).await?).await?;
            provider.stop(&spec.name).await?;
            specs.push(spec);
        }
        let start = |spec: SandboxSpec, executes: bool| {
            let provider = Arc::clone(provider);
            async move {
                let sandbox = provider.start(&spec.name, &spec).await?;
                if executes { execute(&*sandbox).await } else { Ok(()) }
            }
        };
        let started_ms = time_all(specs.iter().map(|spec| start(spec.clone(), false))).await?;
        let executed_ms = time_all(specs.iter().map(|spec| start(spec.clone(), true))).await?;
        report
            .section("stopped_with_volumes")
            .figure("sandboxes", f64::from(self.stopped))
            .at_most("all_started_ms", started_ms, ALL_STARTED_MS_TARGET)
            .figure("first_commands_executed_ms", executed_ms);
        Ok(())
    }
}

fn spec(name: &str) -> SandboxSpec {
    SandboxSpec { name: name.to_owned(), ..SandboxSpec::default() }
}

/// Executes the program in a sandbox.
async fn execute(sandbox: &dyn Sandbox) -> anyhow::Result<()> {
    let command = SandboxCommand { argv: vec![PROGRAM.to_owned()], ..SandboxCommand::default() };
    let exit = sandbox.exec(command, &mut |_, _| {}).await?;
    ensure!(exit.status == ExecStatus::Exited(0), "`{PROGRAM}` failed: {exit:?}");
    Ok(())
}

/// Executes the program with bubblewrap alone.
async fn execute_plain() -> anyhow::Result<()> {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"]);
    command.args(["--proc", "/proc", "--dev", "/dev", PROGRAM]).stdin(Stdio::null());
    let output = command.output().await.context("bubblewrap does not start; install it")?;
    ensure!(output.status.success(), "bubblewrap failed: {output:?}");
    Ok(())
}

/// Executes all operations at the same time, and returns the time until the last one has ended.
async fn time_all(
    operations: impl Iterator<Item = impl Future<Output = anyhow::Result<()>> + Send + 'static>,
) -> anyhow::Result<f64> {
    let time = Stopwatch::start();
    let operations: JoinSet<_> = operations.collect();
    operations.join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(time.elapsed_ms())
}

fn report_times(report: &mut Report, times: &Percentiles) {
    for percent in [50, 95] {
        report.figure(&format!("p{percent}_ms"), times.percentile(percent));
    }
}

/// Begins a section with the times and their ratio to those of plain bubblewrap. Returns the
/// difference of the medians.
fn compare(
    report: &mut Report,
    section: &str,
    (times, plain): (&Percentiles, &Percentiles),
) -> f64 {
    report_times(report.section(section), times);
    let (ours, plain) = (times.percentile(50), plain.percentile(50));
    report.figure("p50_to_plain", ours / plain);
    ours - plain
}
