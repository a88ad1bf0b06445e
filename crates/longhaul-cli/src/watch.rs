//! `longhaul watch`: follows a run to its end, driving if nobody does.
//!
//! Never: drives for a run that has ended, or that a server drives.

use clap::Args;
use longhaul_core::id::Seq;

use crate::client::RunClient;
use crate::client::connect::{look_at, server};
use crate::exit::Exit;
use crate::heir::Heir;
use crate::interrupts::Interrupts;
use crate::open::drive_if_free;
use crate::run::{FollowArgs, Followed};
use crate::trust::asking;
use crate::{here, name, runtime};

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
        let runtime = runtime::driving()?;
        // Who is meant is found before anybody drives; there may be nothing to do.
        let server = server()?;
        let is_served = server.is_some();
        let beside = look_at(server)?;
        let (run, view) = runtime.block_on(async {
            let run = name::run(&beside, &self.run).await?;
            let view = beside.show(run).await?;
            anyhow::Ok((run, view))
        })?;
        let over = view.status.is_terminal();
        let manner = self.follow.stream_manner();
        // As `run` began it: whoever goes on with it needs the same variables.
        let here = match over || is_served {
            true => here::surroundings()?,
            false => here::with_env_file(here::surroundings()?)?,
        };
        let opened = match over || is_served {
            true => None,
            false => {
                let nobody = manner.silent || manner.leave_at_person;
                let config = here::quiet_config(&here)?;
                let agents = here::agents(&config)?;
                _ = asking::before((&config, &agents), Some(view.agent.as_str()), nobody)?;
                Some(drive_if_free(&here)?)
            }
        };
        let looked = opened.as_ref().map(|opened| opened.look(manner.silent));
        let client: RunClient = match looked {
            None => beside,
            Some((house, _)) => RunClient::local(&house.longhaul),
        };
        let followed = Followed {
            client: &client,
            run,
            after: Seq(self.after),
            drives: looked.and_then(|(house, drives)| drives.then_some(house)),
            heir: Heir::of(looked, &here),
            timeout,
        };
        runtime.block_on(async { followed.to_its_end(manner, Interrupts::listen()?).await })
    }
}
