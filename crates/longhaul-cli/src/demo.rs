//! `longhaul demo`: an agent at work, an approval, a real SIGKILL, a recovery.
//!
//! Never: pretends. The worker is a process of its own and really dies; what is
//! said about the recovery is counted in the journal.

mod project;
mod session;

use clap::Args;
use longhaul::assemble::open;
use longhaul_engine::Task;
use longhaul_store::OpenMode;

use crate::caller_name::caller_name;
use crate::demo::project::DemoProject;
use crate::demo::session::DemoSession;
use crate::exit::Exit;
use crate::store_access::open_options;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul demo                    in ./longhaul-demo, or in .longhaul/demo of a project
  longhaul demo < /dev/null        without a terminal: the approval is given after 3 seconds

Nothing leaves that folder, no key is needed and no AI is asked: the model is scripted.
Run it as often as you like; delete the folder to forget it.";

/// Shows a run that survives the death of its worker.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {}

impl Demo {
    #[expect(clippy::unused_self, reason = "every command is run the same way")]
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let project = DemoProject::create_or_open(&environment::process_env()?)?;
        let config = environment::load_config(&project.process_env())?;
        let house = open(config, open_options(OpenMode::Outsider))?;
        print_banner(&project)?;
        runtime::multi_thread()?.block_on(async {
            let task = Task {
                submitter: Some(caller_name()),
                model: Some(project::MODEL_NAME.to_owned()),
                ..Task::new(project::AGENT_NAME, "Tidy my inbox of notes")
            };
            let run = house.longhaul.submit(task).await?;
            output::stdout_line(&format!("  {run}  {}\n", project::AGENT_NAME))?;
            let mut stage = DemoSession::start(&house, &project, run)?;
            let shown = tokio::select! {
                biased;
                shown = stage.run_to_end() => shown,
                _ = tokio::signal::ctrl_c() => {
                    output::stderr_line(&format!("stopped. The run is saved: cd {} && longhaul watch {run}", project.display_path()));
                    return Ok(Exit::Interrupted);
                }
            }?;
            print_next_steps(&project, &run.to_string())?;
            Ok(shown)
        })
    }
}

fn print_banner(project: &DemoProject) -> anyhow::Result<()> {
    let file = format!("{}/.longhaul/longhaul.db", project.display_path());
    let notes = format!("{}/.longhaul/vault", project.display_path());
    output::stdout_line(&format!(
        "
  Longhaul {}

  Data        {file:<42} survives restarts; delete the folder to forget
  Model       {:<42} no AI is called in this demo
  Notes       {notes:<42} open them in any editor
  Worker      {:<42} it will be killed with SIGKILL
",
        env!("CARGO_PKG_VERSION"),
        "scripted",
        "a process of its own"
    ))
}

fn print_next_steps(project: &DemoProject, run: &str) -> anyhow::Result<()> {
    let folder = project.display_path();
    output::stdout_line(&format!(
        "
  You have seen: a durable run, an approval, a crash, a recovery.
  Next   cd {folder}
         longhaul show {run}
         longhaul show {run} --events      the journal of what just happened
         agents/demo-tidier.md and scripts/demo-tidier.yaml are yours to change"
    ))
}
