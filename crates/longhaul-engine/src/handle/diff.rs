//! Compares two runs turn by turn.

use std::collections::BTreeMap;

use longhaul_api::fork::{
    DiffSideView, DiffTurnView, FirstDifferenceView, RunDiffView, TurnDiffView,
};
use longhaul_api::run::micro_usd_to_usd;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::{SavedFiles, WorkspaceSaved};
use longhaul_core::event::run::ForkEdit;
use longhaul_core::event::tool::ToolEnded;
use longhaul_core::event::turn::TurnCompleted;
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::policy::effect_facts::FileEffect;
use longhaul_core::raw::Hash;
use longhaul_run::Run;

use crate::error::Result;
use crate::handle::Longhaul;
use crate::replay::{read_journal_page, replay_journal};

/// Maximum size of an excerpt in bytes.
const EXCERPT_BYTES_MAX: usize = 160;

/// The turns of one run, by number.
#[derive(Debug, Default)]
struct Turns {
    by_number: BTreeMap<u32, Turn>,
    /// Number of the last completed turn.
    last: u32,
}

/// What happened in one turn.
#[derive(Debug, Default)]
struct Turn {
    /// What the model read before the turn, and what it replied, in order.
    steps: Vec<TurnStep>,
    /// Results of the calls of the reply.
    results: BTreeMap<CallId, TurnStep>,
    /// Changes of files after the calls.
    changes: Vec<TurnStep>,
    /// The reply. `None` if the turn was not completed.
    reply: Option<DiffTurnView>,
}

/// Part of a turn. The hash stands for the whole text, of which only the start is kept.
#[derive(Debug, PartialEq, Eq)]
struct TurnStep {
    hash: Hash,
    excerpt: String,
}

impl Longhaul {
    /// Compares two runs.
    ///
    /// # Errors
    /// One of the runs does not exist, or the store failed.
    pub async fn diff_runs(&self, a: RunId, b: RunId) -> Result<RunDiffView> {
        let same_through = self.last_common_event(a, b).await?;
        let (a, turns_a) = self.replay_turns(a).await?;
        let (b, turns_b) = self.replay_turns(b).await?;
        let turns = turn_rows(&turns_a, &turns_b);
        let first = turns.iter().find(|row| !row.same);
        let first_difference = first.map(|row| first_difference(row.turn, &turns_a, &turns_b));
        Ok(RunDiffView {
            a: diff_side(&a),
            b: diff_side(&b),
            same_through,
            first_difference,
            turns,
        })
    }

    async fn replay_turns(&self, run: RunId) -> Result<(Run, Turns)> {
        let mut turns = Turns::default();
        let (run, _) = replay_journal(&self.services, run, None, |run, entry| {
            turns.update_from_entry(run, entry);
            run.apply_without_transcript(entry)
        })
        .await?;
        Ok((run, turns))
    }

    /// Returns the last event up to which both journals are the same. The first event is not
    /// compared, because it is never copied.
    async fn last_common_event(&self, a: RunId, b: RunId) -> Result<Option<Seq>> {
        let mut last = Seq(1);
        loop {
            let page_a = read_journal_page(&self.services, a, last).await?.entries;
            let page_b = read_journal_page(&self.services, b, last).await?.entries;
            let is_same = |(a, b): &(&JournalEntry, &JournalEntry)| {
                (a.seq, a.at, a.epoch, &a.event) == (b.seq, b.at, b.epoch, &b.event)
            };
            let same_count = page_a.iter().zip(&page_b).take_while(is_same).count();
            last = last.plus(same_count as u64);
            if same_count == 0 || same_count < page_a.len() || same_count < page_b.len() {
                return Ok(Some(last).filter(|last| last.0 > 1));
            }
        }
    }
}

impl Turns {
    /// Adds the next entry of the journal. `run` is the state of the run before the entry.
    fn update_from_entry(&mut self, run: &Run, entry: &JournalEntry) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these are shown")]
        match &entry.event {
            Event::RunPrepared(prepared) => {
                let message = prepared.initial_messages.last().map(Message::text);
                message.into_iter().for_each(|text| self.read("reads", &text));
            }
            Event::SteerDelivered(delivered) => {
                let mut steers = run.control().people.steers.iter();
                if let Some(steer) = steers.find(|steer| steer.id == delivered.steer) {
                    self.read("reads", &steer.text);
                }
            }
            Event::RunForked(forked) => match forked.edit.as_deref() {
                Some(ForkEdit::Message { text, .. }) => self.read("reads the edited message", text),
                Some(ForkEdit::Result { call, text }) => {
                    self.read(&format!("reads the edited result of {call}"), text);
                }
                None => {}
            },
            Event::WorkspaceSaved(saved) => self.add_changes(saved),
            Event::TurnCompleted(done) => self.add_reply(done),
            Event::ToolCompleted(ended)
            | Event::ToolFailed(ended)
            | Event::ToolInterrupted(ended) => self.add_result(ended),
            _ => {}
        }
    }

    /// Adds a text that the model reads before its next turn.
    fn read(&mut self, verb: &str, text: &str) {
        let turn = self.by_number.entry(self.last + 1).or_default();
        turn.steps.push(TurnStep::new(verb, text));
    }

    fn add_reply(&mut self, done: &TurnCompleted) {
        self.last = done.turn;
        let turn = self.by_number.entry(done.turn).or_default();
        let text = done.reply.text();
        let mut summaries = Vec::new();
        if !text.is_empty() {
            turn.steps.push(TurnStep::new("says", &text));
        }
        for call in done.reply.tool_calls() {
            turn.steps.push(TurnStep::new(&format!("calls {}", call.name), call.input.as_str()));
            summaries.push(format!("{} {}", call.name, call.input.as_str()));
        }
        let summary = if summaries.is_empty() { text } else { summaries.join(" + ") };
        turn.reply = Some(DiffTurnView {
            summary: excerpt(&summary),
            tokens: done.usage.total_tokens(),
            cost_usd: done.cost.map(micro_usd_to_usd),
        });
    }

    fn add_changes(&mut self, saved: &WorkspaceSaved) {
        if let SavedFiles::Snapshot(snapshot) = &saved.files {
            let texts = snapshot.changes.iter().map(FileEffect::change_text);
            let text = texts.collect::<Vec<_>>().join(", ");
            let diff = snapshot.diff.map(|diff| diff.hash);
            self.by_number.entry(saved.turn).or_default().changes.push(TurnStep {
                hash: Hash::digest(format!("{text} {diff:?}").as_bytes()),
                excerpt: excerpt(&format!("changes files: {text}")),
            });
        }
    }

    fn add_result(&mut self, ended: &ToolEnded) {
        let verb = format!("gets for {}", ended.call);
        let step = TurnStep::new(&verb, &ended.output.joined_text());
        self.by_number.entry(ended.call.turn).or_default().results.insert(ended.call, step);
    }
}

impl Turn {
    fn all_steps(&self) -> impl Iterator<Item = &TurnStep> {
        self.steps.iter().chain(self.results.values()).chain(&self.changes)
    }
}

impl TurnStep {
    fn new(verb: &str, text: &str) -> Self {
        let text = format!("{verb}: {text}");
        Self { hash: Hash::digest(text.as_bytes()), excerpt: excerpt(&text) }
    }
}

/// Returns the start of a text as one line.
fn excerpt(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(EXCERPT_BYTES_MAX)];
    let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
    match start.len() < text.len() {
        true => format!("{line}..."),
        false => line,
    }
}

fn turn_rows(a: &Turns, b: &Turns) -> Vec<TurnDiffView> {
    let numbers = a.by_number.keys().chain(b.by_number.keys());
    let numbers: std::collections::BTreeSet<u32> = numbers.copied().collect();
    let rows = numbers.into_iter().map(|turn| {
        let (in_a, in_b) = (a.by_number.get(&turn), b.by_number.get(&turn));
        let reply = |turn: Option<&Turn>| turn.and_then(|turn| turn.reply.clone());
        let steps = |turn: Option<&Turn>| -> Vec<Hash> {
            turn.into_iter().flat_map(Turn::all_steps).map(|step| step.hash).collect()
        };
        TurnDiffView { turn, same: steps(in_a) == steps(in_b), a: reply(in_a), b: reply(in_b) }
    });
    rows.collect()
}

/// Returns the first steps of a turn that differ.
fn first_difference(turn: u32, a: &Turns, b: &Turns) -> FirstDifferenceView {
    let mut steps_a = a.by_number.get(&turn).into_iter().flat_map(Turn::all_steps);
    let mut steps_b = b.by_number.get(&turn).into_iter().flat_map(Turn::all_steps);
    loop {
        let (a, b) = (steps_a.next(), steps_b.next());
        if a != b || a.is_none() {
            let text = |step: Option<&TurnStep>| step.map(|step| step.excerpt.clone());
            return FirstDifferenceView { turn, a: text(a), b: text(b) };
        }
    }
}

fn diff_side(run: &Run) -> DiffSideView {
    let totals = run.control().totals;
    let model = Some(run.transcript().current_model()).filter(|name| !name.is_empty());
    DiffSideView {
        run: run.id(),
        agent: run.task().agent.to_string(),
        status: run.status(),
        model: model.map(str::to_owned),
        turns: run.control().turns,
        tool_calls: run.tools_called().len(),
        tokens: totals.usage.total_tokens(),
        cost_usd: (!totals.unpriced).then(|| micro_usd_to_usd(totals.cost)),
        active_ms: totals.active.0,
    }
}
