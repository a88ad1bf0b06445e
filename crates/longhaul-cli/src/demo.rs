//! `longhaul demo`: shows an agent, an approval, a SIGKILL and a recovery. The worker is a separate
//! process and is really killed; the printed figures are counted in the journal.

mod project;
mod session;

use clap::Args;
use longhaul::project::open_runtime;
use longhaul_engine::Task;
use longhaul_store::OpenMode;

use crate::demo::project::DemoProject;
use crate::demo::session::DemoSession;
use crate::environment::caller_name;
use crate::exit::Exit;
use crate::store_access::store_open_options;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul demo                    in ./longhaul-demo, or in .longhaul/demo of a project
  longhaul demo < /dev/null        without a terminal: the approval is given after 3 seconds

Nothing leaves that folder, no key is needed and no AI is called: the model is scripted.
Run it as often as you like; delete the folder to remove it.";

/// Arguments of `longhaul demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoCommand {}

impl DemoCommand {
    #[expect(clippy::unused_self, reason = "every command is run the same way")]
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let project = DemoProject::create_or_open(&environment::current_process_env()?)?;
        let config = environment::load_config(&project.isolated_process_env())?;
        let runtime = open_runtime(config, store_open_options(OpenMode::Outsider))?;
        print_banner(&project)?;
        runtime::build_multi_thread_tokio()?.block_on(async {
            let task = Task {
                submitter: Some(caller_name()),
                model: Some(project::MODEL_NAME.to_owned()),
                ..Task::new(project::AGENT_NAME, "Tidy my inbox of notes")
            };
            let run = runtime.longhaul.submit(task).await?;
            output::print_line(&format!("  {run}  {}\n", project::AGENT_NAME))?;
            let mut session = DemoSession::start(&runtime, &project, run)?;
            let exit = tokio::select! {
                biased;
                exit = session.run_to_end() => exit,
                _ = tokio::signal::ctrl_c() => {
                    output::eprint_line(&format!("Stopped. The run is saved. To continue it: cd {} && longhaul watch {run}", project.display_path()));
                    return Ok(Exit::Interrupted);
                }
            }?;
            let folder = project.display_path();
            output::print_line(&format!(
                "
  You have seen: a durable run, an approval, a crash, a recovery.
  Next   cd {folder}
         longhaul show {run}
         longhaul show {run} --events      the journal of what just happened
         agents/demo-tidier.md and scripts/demo-tidier.yaml are yours to change"
            ))?;
            Ok(exit)
        })
    }
}

fn print_banner(project: &DemoProject) -> anyhow::Result<()> {
    let file = format!("{}/.longhaul/longhaul.db", project.display_path());
    let notes = format!("{}/.longhaul/vault", project.display_path());
    let approval = match output::is_interactive() {
        true => String::new(),
        false => format!(
            "  Approval    {:<42} only the demo does this: elsewhere nothing is approved for lack of a terminal\n",
            "no terminal: the demo approves automatically"
        ),
    };
    output::print_line(&format!(
        "
  Longhaul {}

  Data        {file:<42} survives restarts; delete the folder to remove it
  Model       {:<42} no AI is called in this demo
  Notes       {notes:<42} open them in any editor
  Worker      {:<42} will be killed with SIGKILL
{approval}",
        env!("CARGO_PKG_VERSION"),
        "scripted",
        "a separate process"
    ))
}
