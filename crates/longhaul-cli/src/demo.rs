//! `longhaul demo`: an agent at work, an approval, a real SIGKILL, a recovery.
//!
//! Never: pretends. The worker is a process of its own and really dies; what is
//! said about the recovery is counted in the journal.

mod project;
mod stage;

use clap::Args;
use longhaul::assemble::open;
use longhaul_engine::Task;
use longhaul_store::Role;

use crate::demo::project::Project;
use crate::demo::stage::Stage;
use crate::exit::Exit;
use crate::me::me;
use crate::open::opening;
use crate::{here, runtime, say};

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
        let project = Project::make(&here::surroundings()?)?;
        let config = here::config(&project.surroundings())?;
        let house = open(config, opening(Role::Outsider))?;
        banner(&project)?;
        runtime::driving()?.block_on(async {
            let task = Task {
                submitter: Some(me()),
                model: Some(project::MODEL.to_owned()),
                ..Task::new(project::AGENT, "Tidy my inbox of notes")
            };
            let run = house.longhaul.submit(task).await?;
            say::data(&format!("  {run}  {}\n", project::AGENT))?;
            let mut stage = Stage::set(&house, &project, run)?;
            let shown = tokio::select! {
                biased;
                shown = stage.show() => shown,
                _ = tokio::signal::ctrl_c() => {
                    say::talk(&format!("stopped. The run is saved: cd {} && longhaul watch {run}", project.said()));
                    return Ok(Exit::Interrupted);
                }
            }?;
            farewell(&project, &run.to_string())?;
            Ok(shown)
        })
    }
}

fn banner(project: &Project) -> anyhow::Result<()> {
    let file = format!("{}/.longhaul/longhaul.db", project.said());
    let notes = format!("{}/.longhaul/vault", project.said());
    say::data(&format!(
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

fn farewell(project: &Project, run: &str) -> anyhow::Result<()> {
    let folder = project.said();
    say::data(&format!(
        "
  You have seen: a durable run, an approval, a crash, a recovery.
  Next   cd {folder}
         longhaul show {run}
         longhaul show {run} --events      the journal of what just happened
         agents/demo-tidier.md and scripts/demo-tidier.yaml are yours to change"
    ))
}
