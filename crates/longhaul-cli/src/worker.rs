//! `longhaul worker`: drives the store until it is told to stop.
//!
//! Never: a second driver of one file. It says who the first one is.

use clap::Args;
use longhaul::assemble::{store_file, worker_options};
use longhaul::config::secrets;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker as EngineWorker;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::CliError;
use crate::exit::Exit;
use crate::parent_watch::parent_gone;
use crate::trust::confirm;
use crate::{environment, output, runtime, store_access};

const EXAMPLES: &str = "Examples:
  longhaul worker                  drives .longhaul/longhaul.db of this project
  longhaul worker --quiet &        the same, telling nothing

SIGTERM or Ctrl-C lets every run go at its next fact; a second one cuts off what still runs.
Whatever happens, runs go on from their last fact when the next worker starts.";

/// Drives the store.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Worker {
    /// Tell nothing
    #[arg(long, short)]
    quiet: bool,
    /// Stop when stdin is closed: for programs that start a worker and may die
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// Tells what the worker does, one line for each.
#[derive(Debug)]
struct RunLogHooks;

#[async_trait::async_trait]
impl Hooks for RunLogHooks {
    async fn on_start(&self, run: RunId) {
        output::stderr_line(&format!("{run}  claimed"));
    }

    async fn on_complete(&self, run: &RunRow) {
        output::stderr_line(&format!("{}  completed  {} turns", run.id, run.turns));
    }

    async fn on_error(&self, run: &RunRow) {
        let code = run.code.as_deref().unwrap_or(run.status.as_str());
        output::stderr_line(&format!("{}  {code}", run.id));
    }

    async fn on_idle(&self, run: &RunRow) {
        let reason = run.reason.as_deref().unwrap_or(run.status.as_str());
        output::stderr_line(&format!("{}  rests: {reason}", run.id));
    }
}

impl Worker {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let config = environment::load_config_quietly(&environment::process_env()?)?;
        let shut = confirm::ask_before_run(
            (&config, &environment::load_agents(&config)?),
            None,
            self.quiet,
        )?;
        for note in secrets::notes(&config).into_iter().chain(shut) {
            if !self.quiet {
                output::stderr_line(&format!("note: {note}"));
            }
        }
        let house = store_access::open_as_driver()?;
        let options = worker_options(&house.config)
            .map_err(|bad| CliError::usage(format!("[worker] inboxes: {bad}")))?;
        if !self.quiet {
            let file = store_file(&house.config)?;
            output::stderr_line(&format!("  Longhaul {}", env!("CARGO_PKG_VERSION")));
            output::stderr_line(&format!("  Data        {}", file.display()));
            output::stderr_line(&format!("  At once     {} runs", options.concurrency));
            output::stderr_line("  Stop        Ctrl-C; runs go on when the next worker starts");
        }
        let mut worker = EngineWorker::new(house.longhaul.services(), options);
        if !self.quiet {
            worker = worker.with_hooks(Arc::new(RunLogHooks));
        }
        runtime::multi_thread()?.block_on(async {
            let stop = Shutdown::new();
            let mut worked = std::pin::pin!(worker.run(stop.clone()));
            let mut terminated = signal(SignalKind::terminate())?;
            let mut interrupted = signal(SignalKind::interrupt())?;
            let mut parent = std::pin::pin!(parent_gone(self.until_eof));
            loop {
                tokio::select! {
                    biased;
                    done = worked.as_mut() => {
                        house.mcp_tools.close().await;
                        done?;
                        return Ok(Exit::Done);
                    }
                    _ = terminated.recv() => {}
                    _ = interrupted.recv() => {}
                    () = parent.as_mut(), if !stop.is_draining() => {}
                }
                match stop.is_draining() {
                    false => {
                        output::stderr_line("stopping: runs are let go of at their next fact");
                        stop.drain();
                    }
                    true => stop.abort(),
                }
            }
        })
    }
}
