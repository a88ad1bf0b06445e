//! Follows a run to its end for `run` and `watch`, and drives (executes) the run if no other
//! process does.

use longhaul::project::ProjectRuntime;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_core::wait::WaitKind;
use longhaul_engine::clock::SystemClock;
use longhaul_run::explain::StateExplanation;

use crate::client::Client;
use crate::client::connect::wait_until_server_is_gone;
use crate::error::CliError;
use crate::event_printer::format_time_of_day;
use crate::exit::Exit;
use crate::follow::{FollowEnd, FollowOutput, RunFollowOptions, RunFollower};
use crate::local_driver::LocalDriver;
use crate::output;
use crate::runtime::InterruptListener;
use crate::store_access::open_existing_store_as_observer;
use crate::terminal;

/// Interval between checks whether a worker will start a queued run.
const QUEUE_CHECK_INTERVAL: Millis = Millis::from_secs(1);

/// A run that this command follows, and whether and how this process drives (executes) it.
pub(crate) struct FollowedRun<'a> {
    pub(crate) client: &'a Client,
    pub(crate) run: RunId,
    pub(crate) after: Seq,
    /// The project, if this process drives the run whenever no other process does. `None` means
    /// that a server drives the run, or that the run has ended.
    pub(crate) runtime: Option<&'a ProjectRuntime>,
    /// True if this process keeps the driver lock (the exclusive right to execute the runs of the
    /// store) even while the run is parked (waits without a worker).
    pub(crate) keeps_lock: bool,
    pub(crate) timeout: Option<Millis>,
}

impl FollowedRun<'_> {
    /// Follows the run, drives it if necessary, and returns the exit code.
    pub(crate) async fn follow_to_end(
        &self,
        options: RunFollowOptions,
        mut interrupts: InterruptListener,
    ) -> anyhow::Result<Exit> {
        let mut driver = match self.runtime {
            Some(runtime) => {
                if !options.silent {
                    runtime.mcp_tools.set_slow_mcp_server_callback(|server| {
                        let now = format_time_of_day(SystemClock.now());
                        output::eprint_line(&format!(
                            "{now}  waiting   for the MCP server `{server}` to answer"
                        ));
                    });
                }
                Some(LocalDriver::start(runtime, self.run, options.silent).await?)
            }
            None => None,
        };
        let mut follower = RunFollower::new(self.client, self.run, self.after, options).await?;
        let end = self.follow_and_drive(&mut follower, driver.as_mut(), &mut interrupts).await;
        terminal::close();
        // The result is printed before the worker stops, because stopping may wait for other runs.
        let has_ended = matches!(end, Ok(FollowEnd::Ended));
        if has_ended {
            self.print_final_output(&follower).await?;
        }
        match driver {
            Some(driver) if options.is_only_client => driver.abort().await?,
            Some(driver) => driver.stop(&mut interrupts).await?,
            None => {}
        }
        let end = end?;
        if matches!(end, FollowEnd::ServerGone) {
            return self.end_without_server(&follower).await;
        }
        if !has_ended {
            // When detaching, an unreachable server is only reported.
            match (self.print_final_output(&follower).await, &end) {
                (Err(error), FollowEnd::Detached(exit)) => {
                    output::print_error(&error);
                    return Ok(*exit);
                }
                (printed, _) => printed?,
            }
        }
        self.report_follow_end(end, follower.run, options).await
    }

    /// Follows the run until there is a reason to stop following it, and drives (executes) the run
    /// whenever no other process does.
    async fn follow_and_drive(
        &self,
        follower: &mut RunFollower<'_>,
        mut driver: Option<&mut LocalDriver<'_>>,
        interrupts: &mut InterruptListener,
    ) -> anyhow::Result<FollowEnd> {
        let options = follower.options;
        let mut is_reason_printed = false;
        loop {
            let not_started = self.wait_until_run_cannot_start(is_reason_printed);
            let end = tokio::select! {
                biased;
                end = self.wait_for_follow_end(follower, driver.as_deref_mut()) => end?,
                () = interrupts.next_signal() => FollowEnd::Detached(Exit::Interrupted),
                explanation = not_started => FollowEnd::NotStarted(explanation?),
            };
            let FollowEnd::NotStarted(explanation) = &end else { return Ok(end) };
            if self.executes_runs_of_store()
                || options.stop_at_person && self.waits_for_effect_key().await?
            {
                return Ok(end);
            }
            // Another process drives now; this one can take over when that process ends.
            is_reason_printed = true;
            if !options.silent {
                output::eprint_line(&format!("{}: {}", self.run, explanation.message));
            }
        }
    }

    /// Prints the result from the store if the run has ended there: a server that is stopped still
    /// executes the calls in progress. Fails if the run has not ended.
    async fn end_without_server(&self, follower: &RunFollower<'_>) -> anyhow::Result<Exit> {
        if let Some(runtime) = open_existing_store_as_observer()? {
            let client = Client::for_store(&runtime)?;
            let view = client.newest_run_in_chain(client.get_run(follower.run).await?).await?;
            if view.status.is_terminal() {
                let local = FollowedRun { client: &client, ..*self };
                local.print_final_output(follower).await?;
                return Ok(Exit::from_run(&view));
            }
        }
        let message = "the server that drove the run is gone; the run is saved";
        let error = CliError::usage_error(message).with_exit_code(Exit::Busy);
        Err(error.with_hint("continue it", format!("longhaul watch {}", self.run)).into())
    }

    /// Returns whether this process is the one that executes the runs of the store.
    fn executes_runs_of_store(&self) -> bool {
        self.runtime.is_some_and(|runtime| runtime.store.is_driver_process())
    }

    /// Prints the run's final output to stdout, unless the prompt for the next message has shown it.
    async fn print_final_output(&self, follower: &RunFollower<'_>) -> anyhow::Result<()> {
        let view = self.client.get_run(follower.run).await?;
        let view = self.client.newest_run_in_chain(view).await?;
        match (follower.options.output, &view.output) {
            (FollowOutput::Json, _) => output::print_json(&view),
            (FollowOutput::Text, Some(output)) if !follower.has_printed_result(&output.text) => {
                output::print_untrusted_text(&output.text)
            }
            (FollowOutput::Text | FollowOutput::Events, _) => Ok(()),
        }
    }

    /// Prints why following the run ended, and returns the exit code.
    async fn report_follow_end(
        &self,
        end: FollowEnd,
        run: RunId,
        options: RunFollowOptions,
    ) -> anyhow::Result<Exit> {
        let view = self.client.newest_run_in_chain(self.client.get_run(run).await?).await?;
        let notify = |message: String| {
            if !options.silent {
                output::eprint_line(&message);
            }
        };
        Ok(match end {
            FollowEnd::Ended => Exit::from_run(&view),
            FollowEnd::NotStarted(StateExplanation { message, command }) => {
                let line = format!("{run}: {message}   {command}   then: longhaul watch {run}");
                output::eprint_line(&line);
                Exit::NeedsPerson
            }
            FollowEnd::OpenForMessages => {
                notify(format!("{run}: {}   longhaul steer {run} TEXT", view.now));
                Exit::Done
            }
            FollowEnd::NeedsPerson => {
                let explanation = self.client.explain_run(run).await?;
                // Printed even if silent: otherwise nothing would tell why the command stops.
                output::eprint_line(&match options.is_only_client {
                    true => format!(
                        "{} An ephemeral run can't wait, because nothing is stored: run it on a \
                         terminal, or without --ephemeral",
                        explanation.message
                    ),
                    false => format!("{run}: {}   {}", explanation.message, explanation.command),
                });
                Exit::from_run(&view)
            }
            // The run ended while the worker stopped.
            FollowEnd::Detached(_) if view.status.is_terminal() => Exit::from_run(&view),
            FollowEnd::Detached(exit) => {
                notify(match options.is_only_client {
                    true => {
                        "stopped: an ephemeral run ends with its command, and nothing is stored"
                            .into()
                    }
                    false => self.message_after_detaching(view.status.as_str()).await?,
                });
                exit
            }
            FollowEnd::ServerGone => Exit::Busy,
        })
    }

    async fn wait_for_follow_end(
        &self,
        follower: &mut RunFollower<'_>,
        driver: Option<&mut LocalDriver<'_>>,
    ) -> anyhow::Result<FollowEnd> {
        let timeout_elapsed = async {
            match self.timeout {
                Some(timeout) => SystemClock.sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let driver_error = async {
            match driver {
                Some(driver) => driver.drive_until_error(self.keeps_lock).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // On the heap, because following a tree of runs makes a large future.
            followed = Box::pin(follower.follow()) => followed,
            error = driver_error => Err(error),
            () = timeout_elapsed => Ok(FollowEnd::Detached(Exit::TimedOut)),
            () = wait_until_server_is_gone(self.client.served_store.as_deref()) => {
                Ok(FollowEnd::ServerGone)
            }
        }
    }

    /// Returns whether the run waits for a tool call of another run that has the same effect key (a
    /// key of an effect that happens at most once).
    async fn waits_for_effect_key(&self) -> anyhow::Result<bool> {
        let Some(runtime) = self.runtime else { return Ok(false) };
        let run = self.client.get_run(self.run).await?.newest_run_in_chain();
        Ok(runtime.longhaul.run_row(run).await?.reason.as_deref() == Some(WaitKind::Key.code()))
    }

    /// Waits until it is certain that no worker will start or continue the run, and returns why:
    /// the run waits for a run that no process drives or that needs a person, or the process that
    /// drives the store drives only other runs. If `is_shown` is true, the reason was printed
    /// before and is returned again only once this process drives the store.
    async fn wait_until_run_cannot_start(
        &self,
        is_shown: bool,
    ) -> anyhow::Result<StateExplanation> {
        let Some(runtime) = self.runtime else {
            return std::future::pending().await;
        };
        let mut last_key_wait = None;
        loop {
            let run = self.client.get_run(self.run).await?.newest_run_in_chain();
            let row = runtime.longhaul.run_row(run).await?;
            let is_driver_process = self.executes_runs_of_store();
            // A run in the queue is claimed by the worker of this process.
            let is_own_run =
                is_driver_process && row.reason.as_deref() == Some(WaitKind::Worker.code());
            if !is_own_run
                && (is_driver_process || !is_shown)
                && let Some(explanation) = runtime.longhaul.explain_unstarted_run(&row).await?
            {
                // A process that drives the holder of a key stops for a moment before it continues.
                if row.reason.as_deref() != Some(WaitKind::Key.code())
                    || last_key_wait.as_ref() == Some(&explanation)
                {
                    return Ok(explanation);
                }
                last_key_wait = Some(explanation);
            }
            SystemClock.sleep(QUEUE_CHECK_INTERVAL).await;
        }
    }

    /// Describes what happens to a run after this command has stopped following it.
    async fn message_after_detaching(&self, status: &str) -> anyhow::Result<String> {
        let run = self.run;
        if let Some(runtime) = self.runtime {
            let row = runtime.longhaul.run_row(run).await?;
            if !runtime.longhaul.has_process_driving_runs().await? {
                let last_seq = row.last_seq;
                return Ok(format!(
                    "The run is saved at event {last_seq}. Continue it: longhaul watch {run}"
                ));
            }
            if let Some(explanation) = runtime.longhaul.explain_unstarted_run(&row).await? {
                let StateExplanation { message, command } = explanation;
                return Ok(format!("Detached. The run is {status}. {message}   {command}"));
            }
        }
        Ok(format!(
            "Detached. The run continues ({status}).   Follow again: longhaul watch {run}   Stop it: longhaul cancel {run}"
        ))
    }
}
