//! `longhaul watch`: follows a run to its end, driving if nobody does.
//!
//! Never: drives for a run that has ended, or that a server drives.

use clap::Args;
use longhaul_core::id::Seq;

use crate::client::RunClient;
use crate::client::connect::{connect_to, find_server};
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::run::{FollowArgs, FollowedRun};
use crate::store_access::drive_or_observe;
use crate::takeover::Takeover;
use crate::trust::confirm;
use crate::{environment, resolve, runtime};

const EXAMPLES: &str = "Examples:
  longhaul watch @last
  longhaul watch run_01k3qv9 --json --no-input     a line of JSON for each fact
  longhaul watch run_01k3qv9 --after 31            from event 32 on

Ends with the run's own exit code, as `longhaul run` does.";

/// Follows a run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// The run: its id, the last six letters of it, or @last
    run: String,
    /// Only what comes after this event
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    follow: FollowArgs,
}

impl Watch {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let timeout = self.follow.timeout;
        let runtime = runtime::multi_thread()?;
        // Who is meant is found before anybody drives; there may be nothing to do.
        let server = find_server()?;
        let is_served = server.is_some();
        let beside = connect_to(server)?;
        let (run, view) = runtime.block_on(async {
            let run = resolve::resolve_run(&beside, &self.run).await?;
            let view = beside.show(run).await?;
            anyhow::Ok((run, view))
        })?;
        let over = view.status.is_terminal();
        let manner = self.follow.stream_options();
        // As `run` began it: whoever goes on with it needs the same variables.
        let here = match over || is_served {
            true => environment::process_env()?,
            false => environment::with_dotenv(environment::process_env()?)?,
        };
        let opened = match over || is_served {
            true => None,
            false => {
                let nobody = manner.silent || manner.stop_at_person;
                let config = environment::load_config_quietly(&here)?;
                let agents = environment::load_agents(&config)?;
                _ = confirm::ask_before_run((&config, &agents), Some(view.agent.as_str()), nobody)?;
                Some(drive_or_observe(&here)?)
            }
        };
        let looked = opened.as_ref().map(|opened| opened.runtime(manner.silent));
        let client: RunClient = match looked {
            None => beside,
            Some((house, _)) => RunClient::local(&house.longhaul),
        };
        let followed = FollowedRun {
            client: &client,
            run,
            after: Seq(self.after),
            driven_runtime: looked.and_then(|(house, drives)| drives.then_some(house)),
            takeover: Takeover::new(looked, &here),
            timeout,
        };
        runtime.block_on(async { followed.run_to_end(manner, Interrupts::listen()?).await })
    }
}
