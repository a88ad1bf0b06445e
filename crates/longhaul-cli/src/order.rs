//! Orders to runs: end, stand still, go on. Several runs may be told at once.
//!
//! Never: tells some before it is sure that all of them exist.

use longhaul_api::run::RunView;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::Raise;
use longhaul_core::status::Status;
use serde_json::json;

use crate::desk::Desk;
use crate::exit::Exit;
use crate::fail::{self, Failure};
use crate::no::No;
use crate::{name, say};

/// What a run is told.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// To end, and why.
    Cancel(String),
    /// To stand still.
    Pause,
    /// To go on, maybe with more to spend.
    Resume(Option<Raise>),
}

impl Order {
    /// Tells these runs, and prints what came of it.
    pub(crate) async fn give(
        &self,
        desk: &dyn Desk,
        said: &[String],
        as_json: bool,
    ) -> anyhow::Result<Exit> {
        let mut runs = Vec::with_capacity(said.len());
        for said in said {
            let run = name::run(desk, said).await?;
            // Whoever mistypes one of several has told none.
            desk.why(run).await.map_err(fail::about_run(run))?;
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        let driven = desk.is_driven().await.map_err(fail::engine)?;
        let mut exit = Exit::Done;
        let mut data = Vec::with_capacity(runs.len());
        for run in runs {
            let before = desk.show(run).await.map_err(fail::about_run(run))?;
            let was = before.status;
            match self.tell(desk, run).await {
                Ok(view) => {
                    if !as_json {
                        say::words(&self.came(&view, was, driven))?;
                    }
                    data.push(view);
                }
                Err(error) => {
                    let error = fail::about_run(run)(error).context(run);
                    say::error(&error);
                    let failure = error.downcast_ref::<Failure>();
                    exit = failure.map_or(Exit::Usage, |failure| failure.exit);
                }
            }
        }
        if as_json {
            say::json(&json!({ "data": data, "next": null }).to_string())?;
        }
        Ok(exit)
    }

    async fn tell(&self, desk: &dyn Desk, run: RunId) -> Result<RunView, No> {
        match self {
            Self::Cancel(reason) => desk.cancel(run, reason).await,
            Self::Pause => desk.pause(run).await,
            Self::Resume(raise) => desk.resume(run, *raise).await,
        }
    }

    /// What came of it, and what comes next.
    fn came(&self, run: &RunView, was: Status, driven: bool) -> String {
        let id = run.id;
        let nobody = format!("Nobody drives it now: longhaul watch {id}");
        match (self, run.status) {
            (Self::Cancel(_), Status::Cancelled) => format!("{id} is cancelled."),
            (Self::Cancel(_), _) if driven => {
                format!("{id} is told to end; it ends when its driver hears, within 10 s.")
            }
            (Self::Cancel(_), _) => {
                format!("{id} is told to end; it ends as soon as somebody drives. {nobody}")
            }
            (Self::Pause, Status::Paused) => {
                format!("{id} is paused.   Let it go on: longhaul resume {id}")
            }
            (Self::Pause, _) if driven => {
                format!("{id} is told to pause; it stands still when what runs now is done.")
            }
            (Self::Pause, _) => format!("{id} is told to pause. {nobody}"),
            (Self::Resume(_), _) if was == Status::Blocked => {
                format!("{id} is blocked; what it needs: longhaul why {id}")
            }
            (Self::Resume(_), _) if driven => format!("{id} goes on."),
            (Self::Resume(_), _) => format!("{id} may go on. {nobody}"),
        }
    }
}
