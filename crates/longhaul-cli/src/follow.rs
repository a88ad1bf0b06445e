//! Follows a run: prints its events, prompts the person at the terminal, and stops when the run
//! ends or the person detaches.
//!
//! Invariant: without a terminal nobody is prompted and no gate is answered.

use std::io::IsTerminal as _;

use longhaul_api::client::events::{EventStream, EventStreamItem};
use longhaul_api::query::RunsQuery;
use longhaul_api::run::RunView;
use longhaul_api::run_list::RunBriefView;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{GateStatus, has_submit_again_tag};
use longhaul_core::status::Status;
use longhaul_core::time::Clock as _;
use longhaul_core::wait::{WaitEnd, WaitKind};
use longhaul_engine::clock::SystemClock;
use longhaul_run::explain::StateExplanation;

use crate::client::Client;
use crate::event_printer::EventPrinter;
use crate::exit::Exit;
use crate::gate_card::will_chain_auto_approve;
use crate::live::{self, LiveView};
use crate::prompt::{PromptInput, TerminalPrompt};
use crate::run_status::StatusLabel;
use crate::style::TextTone;
use crate::{output, terminal};

/// Number of characters of a child run's id that are printed before its events.
const SHORT_ID_CHARS: usize = 6;

/// Maximum number of open runs of the run's tree (its root and all descendants) that are searched
/// for one that continues without a person, another client or another run.
const OPEN_RUNS_MAX: usize = 1_000;

/// Options for following a run: what to print, and when to stop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunFollowOptions {
    /// True if nothing but the final output is printed.
    pub(crate) silent: bool,
    /// True if following stops when the run waits for a person.
    pub(crate) stop_at_person: bool,
    /// True if no other command can reach the run, so that nobody at another terminal can answer
    /// it.
    pub(crate) is_only_client: bool,
    /// True if calls and results are printed whole.
    pub(crate) verbose: bool,
    /// What to print on stdout. `silent` is set too unless this is `Text`.
    pub(crate) output: FollowOutput,
}

/// What a command that follows a run prints on stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FollowOutput {
    /// The output text of the run when following ends, if the run completed.
    #[default]
    Text,
    /// The run with all its details when following ends, as one JSON object.
    Json,
    /// Each event as a line of JSON, and nothing more when following ends.
    Events,
}

/// Why a command stopped following a run.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    Ended,
    /// The run waits for a person, but nobody at this terminal can be asked, or no answer can help.
    NeedsPerson,
    /// The run has a result and stays open for messages, but nobody at this terminal sends one.
    OpenForMessages,
    /// No worker will start the run, for this reason.
    NotStarted(StateExplanation),
    /// The run continues: the user detached, or the timeout has passed. The command ends with this
    /// exit code.
    Detached(Exit),
    /// The server that drives this folder's store, and so the run, is gone.
    ServerGone,
}

/// Follows the events of one run and of its child runs, and prompts the person at the terminal.
pub(crate) struct RunFollower<'a> {
    client: &'a Client,
    /// The run that is followed now: the run that the user named, or a later run of its chain.
    pub(crate) run: RunId,
    /// Event streams of the run, if it has not ended, and then of its open descendants.
    streams: Vec<FollowedEventStream>,
    /// Pairs of parent and child run: the child has ended, and the parent's journal does not say so
    /// yet.
    unreported_ends: Vec<(RunId, RunId)>,
    pub(crate) options: RunFollowOptions,
    prompt: TerminalPrompt,
    /// `None` if the terminal shows no live lines.
    live: Option<LiveView>,
    /// Run of the chain's next step. `None` means that the followed run has not started that step.
    next_step: Option<RunId>,
    /// Run that the person at the terminal was asked about last.
    asked_run: RunId,
    /// The explanation of the run's status that was printed last. `None` if none was printed.
    last_reason: Option<RunExplanation>,
    /// Result of a run that is open for messages, as last printed, with the sequence number of the
    /// last event before it. `None` if none was printed.
    printed_result: Option<(Seq, String)>,
}

/// Events of one of the followed runs.
struct FollowedEventStream {
    run: RunId,
    /// Parent run that has not recorded the end of this run yet. `None` if there is no such parent,
    /// or if it has ended.
    parent: Option<RunId>,
    entries: EventStream,
    printer: EventPrinter,
    /// Sequence number of the last event that was read.
    last_seq: Seq,
    /// True if the last events say that the run waits for a person.
    needs_person: bool,
}

impl FollowedEventStream {
    async fn open_events_after(client: &Client, run: RunId, after: Seq) -> anyhow::Result<Self> {
        let entries = client.follow_events(run, after).await?;
        let printer = EventPrinter::default();
        Ok(Self { run, parent: None, entries, printer, last_seq: after, needs_person: false })
    }
}

impl<'a> RunFollower<'a> {
    pub(crate) async fn new(
        client: &'a Client,
        run: RunId,
        after: Seq,
        options: RunFollowOptions,
    ) -> anyhow::Result<Self> {
        if !options.silent {
            terminal::open();
        }
        let prompt = TerminalPrompt::new(options.silent || options.stop_at_person);
        let mut stream = FollowedEventStream::open_events_after(client, run, after).await?;
        // Events up to `after` are not read, so the run's status tells whether it waits for a
        // person.
        let view = client.get_run(run).await?;
        let label = StatusLabel::new(view.status, view.reason.as_deref());
        stream.needs_person = after > Seq::START
            && (label.tone == TextTone::NeedsPerson
                || is_open_for_messages(&view)
                || (!prompt.is_interactive() && is_long_wait(&view)))
            && is_last_event(client, run, after).await?;
        stream.printer.verbose = options.verbose;
        let earlier = (after > Seq::START).then_some(&view);
        let live = terminal::is_open().then(|| LiveView::new(options.verbose, earlier));
        Ok(Self {
            client,
            run,
            streams: vec![stream],
            unreported_ends: Vec::new(),
            options,
            prompt,
            live,
            next_step: None,
            asked_run: run,
            last_reason: None,
            printed_result: None,
        })
    }

    /// Follows the run until it ends, needs a person or the user detaches.
    pub(crate) async fn follow(&mut self) -> anyhow::Result<FollowEnd> {
        loop {
            // A wait in the middle of the journal is over. Only a wait at its end counts, however
            // many pages the journal has.
            if let Some(view) = self.load_run_waiting_for_person().await?
                && let Some(outcome) = self.ask_person_or_stop_following(&view).await?
            {
                return Ok(outcome);
            }
            let is_person_needed = self.streams.iter().any(|stream| stream.needs_person);
            let is_asked = is_person_needed && self.prompt.is_interactive();
            self.live.iter_mut().for_each(|live| live.draw(is_asked));
            // While a person is asked, nothing changes by itself.
            let is_drawn_again = self.live.is_some() && !is_person_needed;
            tokio::select! {
                biased;
                (index, item) = next_item(&mut self.streams) => match item? {
                    None if self.streams[index].run == self.run => match self.next_step.take() {
                        Some(step) => self.follow_next_chain_step(index, step).await?,
                        None => return Ok(FollowEnd::Ended),
                    },
                    None => self.remove_ended_stream(index),
                    Some(EventStreamItem::Entry(entry)) => {
                        self.print_and_track_entry(index, &entry).await?;
                    }
                    Some(EventStreamItem::Delta(delta)) => {
                        if let Some(live) = &mut self.live && self.streams[index].run == self.run {
                            live.print_delta(delta);
                        }
                    }
                },
                input = self.prompt.next_input_if_asked(is_person_needed) => {
                    if input == PromptInput::Detach {
                        return Ok(FollowEnd::Detached(Exit::Interrupted));
                    }
                    // What is typed while nothing is asked is for the run that the user named.
                    let run = if is_person_needed { self.asked_run } else { self.run };
                    let sent = self.prompt.send_input_to_run(self.client, run, input);
                    if let Err(error) = sent.await {
                        // A mistake at the prompt is reported, and the gate is shown again.
                        output::print_error(&error);
                        self.prompt.reset_shown_gate();
                    }
                }
                () = SystemClock.sleep(live::DRAW_INTERVAL), if is_drawn_again => {}
            }
        }
    }

    /// Replaces the stream at this index with that of `step`, the run of the next step of the chain
    /// (a sequence of runs).
    async fn follow_next_chain_step(&mut self, index: usize, step: RunId) -> anyhow::Result<()> {
        self.streams[index] =
            FollowedEventStream::open_events_after(self.client, step, Seq::START).await?;
        (self.run, self.asked_run) = (step, step);
        if !self.options.silent {
            let view = self.client.get_run(step).await?;
            let note = view.chain.map(|chain| format!("  step {} of {}", chain.step, chain.of));
            output::eprint_line(&format!("{step}  {}{}", view.agent, note.unwrap_or_default()));
        }
        Ok(())
    }

    /// Removes the stream of a run that has ended. The ends of its child runs count as reported,
    /// because the run records no more events.
    fn remove_ended_stream(&mut self, index: usize) {
        let FollowedEventStream { run: ended_run, parent, .. } = self.streams.remove(index);
        self.unreported_ends.retain(|(parent, _)| *parent != ended_run);
        self.unreported_ends.extend(parent.map(|parent| (parent, ended_run)));
        for stream in self.streams.iter_mut().filter(|stream| stream.parent == Some(ended_run)) {
            stream.parent = None;
        }
    }

    /// Prints what the run needs from a person. Returns why following stops, or `None` if it
    /// continues.
    async fn ask_person_or_stop_following(
        &mut self,
        view: &RunView,
    ) -> anyhow::Result<Option<FollowEnd>> {
        self.asked_run = view.id;
        let gates = self.client.list_open_gates(view.id).await?;
        // A gate whose deadline has passed is closed without a person, and the run continues.
        if gates.iter().any(|gate| gate.status == GateStatus::Expired) {
            return Ok(None);
        }
        let is_session = is_open_for_messages(view);
        // Nobody at this terminal can be asked, and no other client can reach the run or no answer
        // can help.
        let all_unanswerable =
            !gates.is_empty() && gates.iter().all(|gate| has_submit_again_tag(&gate.tags));
        let is_unanswerable =
            !self.prompt.is_interactive() && (self.options.is_only_client || all_unanswerable);
        let should_stop = self.options.stop_at_person || is_unanswerable;
        // A result that its chain approves needs no person.
        let should_stop = should_stop
            && !(view.status == Status::Waiting && gates.iter().any(will_chain_auto_approve));
        // A run that no other command can reach would be lost, and an outage may end soon.
        let is_outage = view.reason.as_deref() == Some(WaitKind::Outage.code());
        let should_stop = should_stop && !(self.options.is_only_client && is_outage);
        if should_stop && !self.can_other_runs_continue(view.id).await? {
            // A gate that was closed since the run was loaded is not in the list.
            let waiting_run = self.load_run_waiting_for_person().await?;
            if waiting_run.is_none_or(|run| run.id != view.id) {
                return Ok(None);
            }
            return Ok(Some(match is_session {
                true => FollowEnd::OpenForMessages,
                false => FollowEnd::NeedsPerson,
            }));
        }
        if self.prompt.is_interactive() && is_session {
            let last_seq = self.streams.first().map_or(Seq::START, |stream| stream.last_seq);
            if self.printed_result.as_ref().is_none_or(|(seq, _)| *seq != last_seq) {
                let text = view.output.as_ref().map_or("", |result| &result.text);
                if !self.has_printed_result(text) {
                    output::print_untrusted_text(text)?;
                }
                self.printed_result = Some((last_seq, text.to_owned()));
                self.prompt.show_message_prompt();
            }
        } else if !self.options.silent && !is_long_wait(view) {
            self.prompt.show_oldest_gate(self.client, view.id).await?;
        }
        if !self.prompt.is_interactive() {
            self.print_wait_reason(view.id).await?;
        }
        Ok(None)
    }

    /// Returns whether other runs of the tree (the root run and its descendants) continue while
    /// this child run waits for a person. Always false for the followed run itself.
    async fn can_other_runs_continue(&self, waiting_run: RunId) -> anyhow::Result<bool> {
        if waiting_run == self.run {
            return Ok(false);
        }
        let root = self.client.get_run(self.run).await?.root;
        let status = vec![Status::Pending, Status::Running, Status::Waiting];
        let query = RunsQuery { root: Some(root), status, ..RunsQuery::default() };
        let open_runs = self.client.list_runs(query, OPEN_RUNS_MAX).await?;
        // Other waits end only through a person, another client or another run, or long after now.
        let continues = |run: &RunBriefView| {
            let wait = run.reason.as_deref().and_then(WaitKind::from_code);
            wait.is_none_or(|wait| wait.row().ended_by == WaitEnd::Runtime)
        };
        if open_runs.iter().any(continues) {
            return Ok(true);
        }
        // A parent continues when it learns of the end of another child. That child may have ended
        // before the open runs were listed, so this is checked after the list.
        if !self.unreported_ends.is_empty() {
            return Ok(true);
        }
        for stream in self.streams.iter().filter(|stream| stream.run != waiting_run) {
            let has_ended = self.client.get_run(stream.run).await?.status.is_terminal();
            if has_ended || !is_last_event(self.client, stream.run, stream.last_seq).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the last result that was printed at the prompt has this text.
    pub(crate) fn has_printed_result(&self, text: &str) -> bool {
        let is_streamed = self.live.as_ref().is_some_and(|live| live.has_printed(text));
        (is_streamed && std::io::stdout().is_terminal())
            || self.printed_result.as_ref().is_some_and(|(_, printed_text)| printed_text == text)
    }

    /// Prints an event of a run, and starts to follow the child run that it has started.
    async fn print_and_track_entry(
        &mut self,
        index: usize,
        entry: &JournalEntry,
    ) -> anyhow::Result<()> {
        let stream = &mut self.streams[index];
        let run = stream.run;
        stream.last_seq = entry.seq;
        stream.needs_person =
            needs_person_if_changed(&entry.event, self.options, !self.prompt.is_interactive())
                .unwrap_or(stream.needs_person);
        self.print_entry(index, entry)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events concern no other run")]
        match &entry.event {
            Event::ChildStarted(started) => {
                // The journal of a child that ended long ago may be deleted.
                let child = started.child;
                let child = FollowedEventStream::open_events_after(self.client, child, Seq::START);
                if let Ok(mut child) = child.await {
                    child.parent = Some(run);
                    child.printer.verbose = self.options.verbose;
                    self.streams.push(child);
                }
            }
            Event::ChainStepStarted(started) if run == self.run => {
                self.next_step = Some(started.run);
            }
            Event::ChildEnded(ended) => {
                self.unreported_ends.retain(|(_, child)| *child != ended.child);
                for stream in self.streams.iter_mut().filter(|stream| stream.run == ended.child) {
                    stream.parent = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn print_entry(&mut self, index: usize, entry: &JournalEntry) -> anyhow::Result<()> {
        let FollowedEventStream { run, printer, .. } = &mut self.streams[index];
        let is_followed = *run == self.run;
        if self.options.output == FollowOutput::Events {
            return output::print_json(&entry.to_envelope()?);
        }
        if self.options.silent {
            return Ok(());
        }
        let mut line = printer.format_event_line(entry);
        if let Some(live) = &mut self.live {
            live.update_from_entry((*run, is_followed), entry);
            if is_followed && live.print_event(entry) {
                line = None;
            }
        }
        let Some(line) = line else { return Ok(()) };
        let line = match is_followed {
            true => line,
            // The last characters of the id, which commands accept in its place.
            false => {
                let id = run.to_string();
                format!("{}  {line}", &id[id.len().saturating_sub(SHORT_ID_CHARS)..])
            }
        };
        output::eprint_event(&line, self.options.verbose);
        Ok(())
    }

    /// Prints why the run waits and which command helps, once per explanation. The explanation is
    /// printed even if `silent` is set, because nobody at this terminal can be asked.
    async fn print_wait_reason(&mut self, run: RunId) -> anyhow::Result<()> {
        let explanation = self.client.explain_run(run).await?;
        if self.last_reason.as_ref() != Some(&explanation) {
            let (message, command) = (&explanation.message, &explanation.command);
            let note = match (self.options.stop_at_person, run == self.run) {
                (true, true) => "the run continues by itself",
                (true, false) => "other runs of the tree continue",
                (false, _) => "--no-input would exit here",
            };
            output::eprint_line(&format!("{run}: {message}   {command}   ({note})"));
            self.last_reason = Some(explanation);
        }
        Ok(())
    }

    /// Returns the first followed run that waits for a person and whose last event was already
    /// read. `None` if there is no such run.
    async fn load_run_waiting_for_person(&self) -> anyhow::Result<Option<RunView>> {
        for stream in self.streams.iter().filter(|stream| stream.needs_person) {
            let view = self.client.get_run(stream.run).await?;
            let is_parked =
                matches!(view.status, Status::Waiting | Status::Blocked | Status::Paused);
            if is_parked && is_last_event(self.client, stream.run, stream.last_seq).await? {
                return Ok(Some(view));
            }
        }
        Ok(None)
    }
}

/// Returns what one of the streams yields next, with the index of that stream. Cancel safe.
async fn next_item(
    streams: &mut [FollowedEventStream],
) -> (usize, anyhow::Result<Option<EventStreamItem>>) {
    let futures = streams.iter_mut().map(|stream| Box::pin(stream.entries.next()));
    let (item, index, _) = futures_util::future::select_all(futures).await;
    (index, item.map_err(Into::into))
}

/// Returns whether the run has a result and stays open for messages.
fn is_open_for_messages(view: &RunView) -> bool {
    view.status == Status::Waiting && view.reason.as_deref() == Some(WaitKind::Message.code())
}

/// Returns whether the run waits for a later time, and a person can end the wait sooner: at a spend
/// cap or in an outage of its provider.
fn is_long_wait(view: &RunView) -> bool {
    let wait = view.reason.as_deref().and_then(WaitKind::from_code);
    let end = wait.map(|wait| wait.row().ended_by);
    view.status == Status::Waiting && matches!(end, Some(WaitEnd::Period | WaitEnd::Provider))
}

/// Returns whether no event follows this sequence number in the journal. Then a run status that was
/// read before this call is still current.
async fn is_last_event(client: &Client, run: RunId, seq: Seq) -> anyhow::Result<bool> {
    let later_events = client.read_events(run, seq, 1).await?;
    Ok(later_events.is_empty())
}

/// Returns whether the run needs a person after this event. `is_unattended` is whether nobody at this
/// terminal can be asked. `None` means that the event leaves this unchanged.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most events do not change whether a person is needed"
)]
fn needs_person_if_changed(
    event: &Event,
    options: RunFollowOptions,
    is_unattended: bool,
) -> Option<bool> {
    match event {
        Event::RunWaiting(waiting) => Some(match waiting.wait.row().ended_by {
            WaitEnd::Person => true,
            // Another client has to send it. Without other clients the run would wait forever.
            WaitEnd::Program => options.is_only_client,
            // These waits can take hours. A person at the terminal reads so in the line before.
            WaitEnd::Period | WaitEnd::Provider => is_unattended,
            WaitEnd::Child | WaitEnd::OtherRun | WaitEnd::Runtime => false,
        }),
        Event::RunBlocked(_) | Event::RunPaused(_) => Some(true),
        Event::RunClaimed(_) => Some(false),
        _ => None,
    }
}
