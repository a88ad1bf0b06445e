//! `longhaul cancel`, `pause` and `resume`: commands to several runs at once. No run is told
//! anything before it is known that all of them exist.

use clap::Args;
use longhaul_api::run::RunView;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::status::Status;

use crate::client::RunClient;
use crate::client::connect::connect;
use crate::exit::Exit;
use crate::task_args::parse_caps;
use crate::{error, output, resolve, runtime};

const CANCEL_EXAMPLES: &str = "Examples:
  longhaul cancel @last
  longhaul cancel run_01k3qv9 run_01k41xm --reason \"wrong repository\"

A run that nobody drives ends at once, one that is driven as soon as its driver hears.";

const PAUSE_EXAMPLES: &str = "Examples:
  longhaul pause @last
  longhaul pause run_01k3qv9 run_01k41xm     let them go on: longhaul resume RUN";

const RESUME_EXAMPLES: &str = "Examples:
  longhaul resume @last
  longhaul resume run_01k3qv9 --budget 10              up to ten dollars in all
  longhaul resume run_01k3qv9 --budget turns=50,tokens=1000000";

/// The runs that a command is for.
#[derive(Debug, Args)]
struct RunsArgs {
    /// The runs: ids, the last six letters of them, or @last
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Ends runs.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(crate) struct Cancel {
    #[command(flatten)]
    args: RunsArgs,
    /// Why, for the journal
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
}

/// Stills runs.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub(crate) struct Pause {
    #[command(flatten)]
    args: RunsArgs,
}

/// Lets runs go on.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct Resume {
    #[command(flatten)]
    args: RunsArgs,
    /// New caps: dollars, or a list such as usd=2,turns=20,tokens=100000,active_time=10m
    #[arg(long, value_parser = parse_caps)]
    budget: Option<BudgetRaise>,
}

impl Cancel {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        RunAction::Cancel(&self.reason).send(&self.args)
    }
}

impl Pause {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        RunAction::Pause.send(&self.args)
    }
}

impl Resume {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        RunAction::Resume(self.budget).send(&self.args)
    }
}

/// What a run is told.
enum RunAction<'a> {
    /// To end, and why.
    Cancel(&'a str),
    Pause,
    /// To go on, maybe with a larger budget.
    Resume(Option<BudgetRaise>),
}

impl RunAction<'_> {
    fn send(&self, args: &RunsArgs) -> anyhow::Result<Exit> {
        let client = connect()?;
        runtime::current_thread()?.block_on(self.send_all(&client, args))
    }

    async fn send_all(&self, client: &RunClient, args: &RunsArgs) -> anyhow::Result<Exit> {
        let mut runs = Vec::new();
        for name in &args.runs {
            let run = resolve::resolve_run(client, name).await?;
            client.why(run).await?;
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        let driven = client.has_driver().await?;
        let mut exit = Exit::Done;
        let mut data = Vec::new();
        for run in runs {
            let was = client.show(run).await?.status;
            match self.send_one(client, run).await {
                Ok(view) => {
                    if !args.json {
                        output::stdout_text(&self.outcome_text(&view, was, driven))?;
                    }
                    data.push(view);
                }
                Err(error) => {
                    exit = error::exit_for_error(&error);
                    output::print_error(&error.context(run));
                }
            }
        }
        if args.json {
            output::json_list(&data)?;
        }
        Ok(exit)
    }

    async fn send_one(&self, client: &RunClient, run: RunId) -> anyhow::Result<RunView> {
        match self {
            Self::Cancel(reason) => client.cancel(run, reason).await,
            Self::Pause => client.pause(run).await,
            Self::Resume(raise) => client.resume(run, *raise).await,
        }
    }

    /// What came of it, and what comes next.
    fn outcome_text(&self, run: &RunView, was: Status, driven: bool) -> String {
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
