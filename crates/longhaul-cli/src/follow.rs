//! Follows a run: tells what happens, asks the person at the terminal, and
//! ends when the run does, or when whoever follows has enough.
//!
//! Never: asks without a terminal, and never decides because there is none.

use longhaul_api::why::WhyView;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::is_unanswerable;
use longhaul_core::status::{Status, Wait};

use crate::client::{EventStream, RunClient};
use crate::event_printer::EventPrinter;
use crate::output;
use crate::prompt::{PromptInput, TerminalPrompt};
use crate::status_label::status_label;
use crate::style::Tone;

/// How somebody follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FollowOptions {
    /// Nothing is told, only the end counts.
    pub(crate) silent: bool,
    /// Each fact as a line of JSON on stdout.
    pub(crate) as_json: bool,
    /// A run that waits for a person is not followed further.
    pub(crate) stop_at_person: bool,
    /// Nobody but this command can speak to the run, so it waits for nobody else.
    pub(crate) is_only_client: bool,
    /// What is printed when it is over.
    pub(crate) final_output: FinalOutput,
}

/// What is printed on stdout when following is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FinalOutput {
    /// The final words of the run, if it completed.
    #[default]
    Text,
    /// The run as one JSON object.
    Json,
    /// Nothing: it was all said on the way.
    Nothing,
}

/// Why a run is no longer followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowEnd {
    /// It has ended.
    Ended,
    /// It waits for a person, and nobody here may be asked, or nobody can help.
    NeedsPerson,
    /// Whoever follows has enough; the run goes on.
    Detached,
}

/// Follows a run from after a place on.
pub(crate) struct Follower<'a> {
    client: &'a RunClient,
    run: RunId,
    entries: EventStream,
    options: FollowOptions,
    printer: EventPrinter,
    prompt: TerminalPrompt,
    /// The last fact that was seen.
    pub(crate) last_seq: Seq,
    /// Somebody is asked, as the journal says it.
    needs_person: bool,
    /// What was said last about who is needed.
    last_reason: Option<WhyView>,
}

impl<'a> Follower<'a> {
    pub(crate) async fn new(
        client: &'a RunClient,
        run: RunId,
        after: Seq,
        manner: FollowOptions,
    ) -> anyhow::Result<Self> {
        let following = client.follow(run, after).await?;
        // Where the journal was read before, only the run itself says who is asked.
        let view = client.show(run).await?;
        let asked = after > Seq::START
            && status_label(view.status, view.reason.as_deref()).tone == Tone::NeedsPerson
            && is_journal_end(client, run, after).await?;
        Ok(Self {
            client,
            run,
            entries: following,
            options: manner,
            printer: EventPrinter::default(),
            prompt: TerminalPrompt::at_terminal(
                manner.silent || manner.as_json || manner.stop_at_person,
            ),
            last_seq: after,
            needs_person: asked,
            last_reason: None,
        })
    }

    /// Follows until it is over.
    pub(crate) async fn follow(&mut self) -> anyhow::Result<FollowEnd> {
        loop {
            // An old wait in the middle of a journal asks nobody any more, in
            // however many parts the journal comes.
            if self.needs_person && self.is_still_waiting().await? {
                if self.options.stop_at_person || self.is_unanswerable().await? {
                    return Ok(FollowEnd::NeedsPerson);
                }
                if !self.options.silent && !self.options.as_json {
                    self.prompt.show_gate(self.client, self.run).await?;
                }
                if !self.prompt.is_interactive() {
                    self.print_blocker().await?;
                }
            }
            tokio::select! {
                biased;
                seen = self.entries.next() => match seen? {
                    None => return Ok(FollowEnd::Ended),
                    Some(entries) => self.handle_entries(&entries)?,
                },
                said = self.prompt.next_input(), if self.needs_person => match said {
                    PromptInput::Detach => return Ok(FollowEnd::Detached),
                    PromptInput::Empty => {}
                    said @ (PromptInput::Approve | PromptInput::Reject(_) | PromptInput::Text(_) | PromptInput::Why) => {
                        self.submit_input(said).await?;
                    }
                },
            }
        }
    }

    fn handle_entries(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        for entry in entries {
            self.last_seq = entry.seq;
            self.needs_person = needs_person(&entry.event, self.options.is_only_client)
                .unwrap_or(self.needs_person);
            if self.options.as_json {
                output::stdout_json(&entry.to_envelope()?)?;
            } else if !self.options.silent
                && let Some(line) = self.printer.line(entry)
            {
                output::stderr_line(&line);
            }
        }
        Ok(())
    }

    async fn submit_input(&mut self, said: PromptInput) -> anyhow::Result<()> {
        if let Err(error) = self.prompt.submit(self.client, self.run, said).await {
            // A mistake at the prompt is told, and the prompt stays.
            output::print_error(&error);
            self.prompt.reset_shown();
        }
        Ok(())
    }

    /// Nobody here can be asked: whoever reads the log learns what helps, also
    /// where nothing else is told.
    async fn print_blocker(&mut self) -> anyhow::Result<()> {
        let why = self.client.why(self.run).await?;
        if self.last_reason.as_ref() != Some(&why) {
            let (run, sentence, command) = (self.run, &why.message, &why.command);
            output::stderr_line(&format!(
                "{run}: {sentence}   {command}   (--no-input would end here)"
            ));
            self.last_reason = Some(why);
        }
        Ok(())
    }

    /// Whether nobody here can be asked, and nobody elsewhere can help.
    async fn is_unanswerable(&self) -> anyhow::Result<bool> {
        if self.prompt.is_interactive() {
            return Ok(false);
        }
        let gates = self.client.open_gates(self.run);
        let gates = gates.await?;
        let in_vain = !gates.is_empty() && gates.iter().all(|gate| is_unanswerable(&gate.tags));
        Ok(self.options.is_only_client || in_vain)
    }

    async fn is_still_waiting(&self) -> anyhow::Result<bool> {
        let view = self.client.show(self.run).await?;
        let rests = matches!(view.status, Status::Waiting | Status::Blocked | Status::Paused);
        Ok(rests && is_journal_end(self.client, self.run, self.last_seq).await?)
    }
}

/// Whether a journal ends here. Asked after a look at the run, it says that what
/// was seen still holds.
async fn is_journal_end(client: &RunClient, run: RunId, last: Seq) -> anyhow::Result<bool> {
    let more = client.events(run, last, 1).await?;
    Ok(more.is_empty())
}

/// Whether a person is needed after this fact; none: it says nothing of it.
#[expect(clippy::wildcard_enum_match_arm, reason = "most facts say nothing about who is asked")]
fn needs_person(event: &Event, is_alone: bool) -> Option<bool> {
    match event {
        Event::RunWaiting(waiting) => Some(match waiting.wait {
            Wait::Approval(_) | Wait::Question(_) | Wait::Blocked(_) | Wait::Budget(_) => true,
            // It comes from elsewhere, if there is an elsewhere.
            Wait::Signal(_) | Wait::Message(_) => is_alone,
            Wait::Timer(_)
            | Wait::Child(_)
            | Wait::RateLimit(_)
            | Wait::Retry(_)
            | Wait::SandboxSlot
            | Wait::Worker => false,
        }),
        Event::RunBlocked(_) | Event::RunPaused(_) => Some(true),
        Event::RunClaimed(_) => Some(false),
        _ => None,
    }
}
