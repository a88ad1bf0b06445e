//! `longhaul worker`: drives (executes) the runs of a store until the worker is stopped. Only one
//! process at a time can do so; the error of a second one names the first.

use std::sync::Arc;

use clap::Args;
use longhaul::inbox::{Inbox, InboxWorker, add_inbox_names, serve_inboxes};
use longhaul::project::{
    ProjectInboxes, ProjectOpenOptions, ProjectRuntime, open_runtime, project_folder_inboxes,
};
use longhaul_core::id::InboxName;
use longhaul_engine::Error;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::WorkerHooks;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_project::assemble::{sqlite_store_path, worker_options};
use longhaul_project::config::secrets;
use longhaul_project::config::settings::Config;
use longhaul_store::OpenMode;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::fail;
use crate::exit::Exit;
use crate::log::{self, LogStyle};
use crate::run_log::RunLifecycleLogger;
use crate::runtime::wait_for_parent_exit;
use crate::store_access::store_open_options;
use crate::trust::confirm;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul worker                  drives .longhaul/longhaul.db of this project
  longhaul worker --quiet &        the same without output
  longhaul worker --inbox mail --inbox default --type letter

SIGTERM or Ctrl-C releases every run at its next event; a second one aborts what still runs.
In any case runs continue from their last event when the next worker starts.";

/// Arguments of `longhaul worker`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WorkerCommand {
    #[command(flatten)]
    inbox: InboxArgs,
    /// Print nothing about the runs
    #[arg(long, short)]
    quiet: bool,
    /// Stop when stdin is closed: for programs that start a worker and may crash
    #[arg(long, hide = true)]
    until_eof: bool,
}

impl WorkerCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let config = environment::load_config(&environment::current_process_env()?)?;
        match self.quiet {
            true => log::init_warning_log(),
            false => log::init_server_log(LogStyle::Human, log::secrets_to_redact(&config)),
        }
        let agents = environment::load_agents(&config)?;
        let untrusted = confirm::ask_for_trust_before_run((&config, &agents), None, self.quiet)?;
        for note in secrets::unredactable_secret_warnings(&config).into_iter().chain(untrusted) {
            if !self.quiet {
                output::eprint_line(&format!("note: {note}"));
            }
        }
        let options = ProjectOpenOptions {
            loaded_agents: Some(agents),
            ..store_open_options(OpenMode::Driver)
        };
        let runtime = open_runtime(config, options)?;
        let worker = self.inbox.project_worker(&runtime)?;
        if !self.quiet {
            for problem in &worker.problems {
                output::eprint_line(&format!("note: {problem}"));
            }
            let WorkerOptions { inboxes, concurrency, .. } = &worker.options;
            let inboxes: Vec<&str> = inboxes.iter().map(|name| name.as_str()).collect();
            for line in [
                format!("  Longhaul {}", env!("CARGO_PKG_VERSION")),
                format!("  Data        {}", sqlite_store_path(&runtime.config)?.display()),
                format!("  Inboxes     {}", inboxes.join(", ")),
                format!("  Concurrency {concurrency} runs"),
                "  Stop        Ctrl-C; runs continue when the next worker starts".to_owned(),
            ] {
                output::eprint_line(&line);
            }
        }
        let (longhaul, style) = (runtime.longhaul.clone(), LogStyle::Human);
        let logger = RunLifecycleLogger { longhaul, style };
        let hooks = (!self.quiet).then(|| Arc::new(logger) as Arc<dyn WorkerHooks>);
        runtime::build_multi_thread_tokio()?.block_on(async {
            let stop = Shutdown::new();
            let mut worker_run = std::pin::pin!(worker.run(hooks, &stop));
            let mut sigterm = signal(SignalKind::terminate())?;
            let mut sigint = signal(SignalKind::interrupt())?;
            let mut parent = std::pin::pin!(wait_for_parent_exit(self.until_eof));
            loop {
                tokio::select! {
                    biased;
                    result = worker_run.as_mut() => {
                        runtime.mcp_tools.close_mcp_clients().await;
                        result?;
                        return Ok(Exit::Done);
                    }
                    _ = sigterm.recv() => {}
                    _ = sigint.recv() => {}
                    () = parent.as_mut(), if !stop.is_draining() => {}
                }
                match stop.is_draining() {
                    false => {
                        tracing::info!("shutting down: runs are released at their next event");
                        stop.request_drain();
                    }
                    true => stop.request_abort(),
                }
            }
        })
    }
}

/// Command-line options that choose which tasks a worker takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct InboxArgs {
    /// Inbox to serve instead of those in `[worker] inboxes` and the folders in `inbox/`; may be
    /// repeated
    #[arg(long = "inbox", value_name = "NAME")]
    pub(crate) inboxes: Vec<InboxName>,
    /// Type of the tasks to take; may be repeated. Tasks of other types wait for other workers
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

impl InboxArgs {
    /// Returns a worker with the project's settings and these command-line options.
    pub(crate) fn project_worker<'a>(
        &self,
        runtime: &'a ProjectRuntime,
    ) -> anyhow::Result<ProjectWorker<'a>> {
        let mut options = project_worker_options(&runtime.config)?;
        if !self.inboxes.is_empty() {
            options.inboxes.clone_from(&self.inboxes);
        }
        options.types.clone_from(&self.types);
        let ProjectInboxes { inboxes, problems } =
            project_folder_inboxes(&runtime.config, &self.inboxes);
        add_inbox_names(&mut options, &inboxes)?;
        Ok(ProjectWorker { runtime, options, inboxes, problems })
    }
}

/// Returns the options for a worker from the project's settings.
pub(crate) fn project_worker_options(config: &Config) -> anyhow::Result<WorkerOptions> {
    worker_options(config).or_else(|error| {
        let message = format!("the setting `[worker] inboxes` is invalid: {error}");
        fail(message, "see where it is set", "longhaul config show --origin")
    })
}

/// A worker that also serves the folders of the project that are inboxes.
#[derive(Debug)]
pub(crate) struct ProjectWorker<'a> {
    runtime: &'a ProjectRuntime,
    pub(crate) options: WorkerOptions,
    inboxes: Vec<Arc<dyn Inbox>>,
    /// Descriptions of folders that can't be served.
    pub(crate) problems: Vec<String>,
}

impl ProjectWorker<'_> {
    /// Drives runs until the worker is asked to stop.
    pub(crate) async fn run(
        self,
        hooks: Option<Arc<dyn WorkerHooks>>,
        stop: &Shutdown,
    ) -> Result<(), Error> {
        let longhaul = &self.runtime.longhaul;
        let types = self.options.types.clone();
        let mut worker = Worker::new(longhaul.services(), self.options).with_schedules(longhaul);
        if let Some(hooks) = hooks {
            worker = worker.with_hooks(hooks);
        }
        let served_worker = InboxWorker::new(types, worker.intake());
        let serve_folders = async {
            serve_inboxes(longhaul, &self.inboxes, &served_worker, stop).await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            result = worker.run(stop.clone()) => result,
            never = serve_folders => never,
        }
    }
}
