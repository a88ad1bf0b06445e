//! `longhaul watch`: follows a run to its end; drives (executes) the run if no worker is running.
//! The command never drives a run that has ended or that a server drives.

use clap::Args;
use longhaul_core::id::Seq;

use crate::client::Client;
use crate::client::connect::{connect_or_open_store, find_configured_or_local_server};
use crate::exit::Exit;
use crate::followed_run::FollowedRun;
use crate::run::RunFollowArgs;
use crate::runtime::InterruptListener;
use crate::store_access::open_store_as_driver_or_observer;
use crate::trust::confirm;
use crate::{environment, output, resolve, runtime};

const EXAMPLES: &str = "Examples:
  longhaul watch @last
  longhaul watch run_01k3qv9 --json --no-input     one line of JSON per event
  longhaul watch run_01k3qv9 --after 31            from event 32 on

If no worker is running, the command drives this run, with the runs that it starts, and no others.
The exit codes are those of `longhaul run`.";

/// Arguments of `longhaul watch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchRunCommand {
    /// Run to follow: its id, four or more of its first or last characters, or @last
    #[arg(default_value = "@last", hide_default_value = true)]
    run: String,
    /// Print only events after this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    follow: RunFollowArgs,
}

impl WatchRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let runtime = runtime::build_multi_thread_tokio()?;
        // The run is looked up before driving, because it may have ended.
        let server = find_configured_or_local_server()?;
        let has_server = server.is_some();
        let lookup_client = connect_or_open_store(server)?;
        let (view, newest) = runtime.block_on(async {
            let run = resolve::resolve_run_id(&lookup_client, &self.run).await?;
            let view = lookup_client.get_run(run).await?;
            let newest = lookup_client.newest_run_in_chain(view.clone()).await?;
            anyhow::Ok((view, newest))
        })?;
        let has_ended = newest.status.is_terminal();
        // The runs of a retried chain are another tree, which is followed from the retry on.
        let (run, after) = match newest.root == view.root {
            true => (view.id, self.after),
            false => (newest.root, 0),
        };
        let options = self.follow.follow_options_with_json_events();
        if run != view.id && !options.silent {
            output::eprint_line(&format!("{}: its chain was retried as {run}", view.id));
        }
        let mut opened_store = None;
        if !has_ended && !has_server {
            // Reads `.env` as `run` does: the run needs the same variables to continue.
            let process_env = environment::current_process_env()?;
            let process_env = environment::add_dotenv_variables(process_env)?;
            let unattended = options.silent || options.stop_at_person;
            let config = environment::load_config_quietly(&process_env)?;
            let agents = environment::load_agents(&config)?;
            let agent = Some(newest.agent.as_str());
            _ = confirm::ask_for_trust_before_run((&config, &agents), agent, unattended)?;
            opened_store = Some(open_store_as_driver_or_observer(config, agents, options.silent)?);
        }
        let local_runtime = opened_store.as_ref();
        let client: Client = match local_runtime {
            None => lookup_client,
            Some(project_runtime) => Client::for_store(project_runtime)?,
        };
        let followed_run = FollowedRun {
            client: &client,
            run,
            after: Seq(after),
            runtime: local_runtime,
            keeps_lock: false,
            timeout: self.follow.timeout,
        };
        runtime.block_on(async {
            followed_run.follow_to_end(options, InterruptListener::listen()?).await
        })
    }
}
