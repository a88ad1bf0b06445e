//! What a terminal shows of a run while it works: the text of the model as it is written, and a live
//! line with the current model call or tool calls, the time, the cost and the tokens.

use std::collections::BTreeMap;

use longhaul_api::client::events::ReplyDeltaView;
use longhaul_api::run::{RunView, micro_usd_to_usd};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::turn::{ToolCallClassification, TurnCompleted};
use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::ToolCall;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::call_text::arguments_text;
use crate::event_printer::format_time_of_day;
use crate::format::{format_duration, format_usd};
use crate::sanitize::sanitize_text;
use crate::{output, terminal};

/// Time between two drawings of the live line.
pub(crate) const DRAW_INTERVAL: Millis = Millis(120);

const SPINNER: &[char] = &['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Columns before the text of an event: its time and label.
const INDENT: usize = 20;

/// The same on a narrow terminal, on which only the first line has a label.
const NARROW_INDENT: usize = 2;

/// State of what is shown of a run and its child runs.
#[derive(Debug, Default)]
pub(crate) struct LiveView {
    /// Whether calls are printed whole.
    verbose: bool,
    model: String,
    tokens: u64,
    cost_usd: f64,
    activities: BTreeMap<RunId, Activity>,
    reply: ReplyText,
    /// Number of the last turn of the followed run that was started, as far as its events were read.
    turn: u32,
    /// Parts of the reply of a later turn. They are printed after the events before them.
    early_deltas: Vec<ReplyDeltaView>,
    /// Text of the last turn, which was printed.
    printed_reply: Option<String>,
    drawn_count: usize,
}

/// What a run does now.
#[derive(Debug)]
enum Activity {
    Model { turn: u32, since: Timestamp },
    Tools(BTreeMap<CallId, ToolActivity>),
    Waiting,
}

#[derive(Debug)]
struct ToolActivity {
    /// Name and arguments.
    text: String,
    /// Progress that the tool has reported last.
    progress: String,
    /// Time at which the call was started. `None` if it was not started yet.
    since: Option<Timestamp>,
}

/// Text of a reply that the model is writing, as far as it was received.
#[derive(Debug, Default)]
struct ReplyText {
    turn: u32,
    attempt: u32,
    /// Time before the first line.
    time: String,
    received: String,
    /// Part of the text that is not printed, because its line is not complete.
    line: String,
    has_printed: bool,
}

impl LiveView {
    /// Creates the view of a run. `earlier` is the run if its earlier events are not read.
    pub(crate) fn new(verbose: bool, earlier: Option<&RunView>) -> Self {
        let usage = earlier.map(|run| &run.usage);
        Self {
            verbose,
            model: earlier.and_then(|run| run.model.clone()).unwrap_or_default(),
            tokens: usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens),
            cost_usd: earlier.and_then(|run| run.cost_usd).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Prints an event of the followed run that has another form here than in redirected output.
    /// Returns false if it has not.
    pub(crate) fn print_event(&mut self, entry: &JournalEntry) -> bool {
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events have one form")]
        match &entry.event {
            Event::TurnStarted(started) => {
                self.turn = started.turn;
                for delta in std::mem::take(&mut self.early_deltas) {
                    self.print_delta(delta);
                }
                return false;
            }
            Event::TurnCompleted(completed) => self.print_rest_of_reply(completed, entry.at),
            Event::RunCompleted(_) => {
                let (time, cost) = (format_time_of_day(entry.at), format_usd(Some(self.cost_usd)));
                let totals = format!("{cost}, {}", format_tokens(self.tokens));
                let line = match terminal::is_narrow() {
                    true => format!("done  {totals}"),
                    false => format!("{time}  {:<9} {totals}", "done"),
                };
                output::eprint_event(&line, false);
            }
            _ => return false,
        }
        true
    }

    /// Updates the view from the next event of a run, which is the followed one or a child run.
    pub(crate) fn update_from_entry(
        &mut self,
        (run, is_followed): (RunId, bool),
        entry: &JournalEntry,
    ) {
        let since = entry.at;
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "other events change nothing that is shown"
        )]
        let activity = match &entry.event {
            Event::TurnStarted(started) => {
                if let Some(model) = started.model.as_ref().filter(|_| is_followed) {
                    self.model.clone_from(model);
                }
                Activity::Model { turn: started.turn, since }
            }
            Event::TurnCompleted(completed) => {
                self.count_turn(completed, is_followed);
                Activity::Tools(tools_of_turn(completed))
            }
            Event::ToolStarted(started) => {
                return self.change_tool(run, started.call, |tool| {
                    tool.since = Some(since);
                });
            }
            Event::ToolProgress(progress) => {
                return self.change_tool(run, progress.call, |tool| {
                    let percent = progress.percent.map(|percent| format!("{percent} % "));
                    tool.progress = format!("{}{}", percent.unwrap_or_default(), progress.message);
                });
            }
            Event::ToolCompleted(ended) | Event::ToolFailed(ended) => {
                return self.remove_tool(run, ended.call);
            }
            Event::TurnFailed(_)
            | Event::RunWaiting(_)
            | Event::RunBlocked(_)
            | Event::RunPaused(_) => Activity::Waiting,
            event if event.is_terminal() => {
                self.activities.remove(&run);
                return;
            }
            _ => return,
        };
        self.activities.insert(run, activity);
    }

    fn count_turn(&mut self, completed: &TurnCompleted, is_followed: bool) {
        self.tokens += completed.usage.input_tokens + completed.usage.output_tokens;
        self.cost_usd += completed.cost.map_or(0.0, micro_usd_to_usd);
        if is_followed {
            self.model.clone_from(&completed.model);
        }
    }

    fn change_tool(&mut self, run: RunId, call: CallId, change: impl FnOnce(&mut ToolActivity)) {
        if let Some(Activity::Tools(tools)) = self.activities.get_mut(&run)
            && let Some(tool) = tools.get_mut(&call)
        {
            change(tool);
        }
    }

    fn remove_tool(&mut self, run: RunId, call: CallId) {
        if let Some(Activity::Tools(tools)) = self.activities.get_mut(&run) {
            tools.remove(&call);
        }
    }

    /// Prints the new text of the model, up to its last complete line.
    pub(crate) fn print_delta(&mut self, delta: ReplyDeltaView) {
        if delta.turn > self.turn {
            self.early_deltas.push(delta);
            return;
        }
        let reply = &mut self.reply;
        if (reply.turn, reply.attempt) != (delta.turn, delta.attempt) {
            if reply.has_printed && reply.turn == delta.turn {
                output::eprint_line("          (the reply begins again)");
            }
            let time = format_time_of_day(SystemClock.now());
            let (turn, attempt) = (delta.turn, delta.attempt);
            *reply = ReplyText { turn, attempt, time, ..ReplyText::default() };
        }
        // A part that was received before has no new text.
        let start = reply.received.len().saturating_sub(delta.offset);
        let Some(text) = delta.text.get(start..) else { return };
        reply.push(text);
    }

    /// Prints the rest of the text of a turn, and its calls.
    fn print_rest_of_reply(&mut self, completed: &TurnCompleted, at: Timestamp) {
        let text = completed.reply.text();
        if self.reply.turn != completed.turn || !text.starts_with(&self.reply.received) {
            let time = format_time_of_day(at);
            self.reply = ReplyText { turn: completed.turn, time, ..ReplyText::default() };
        }
        let rest = text[self.reply.received.len()..].trim_end().to_owned();
        self.reply.push(&rest);
        self.reply.print_line();
        self.printed_reply = Some(text);
        for (classified, call) in completed.calls.iter().zip(completed.reply.tool_calls()) {
            self.reply.print_row(&call_text(classified, call), self.verbose);
        }
    }

    /// Returns whether this text was printed as that of the last turn.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.printed_reply.as_deref().is_some_and(|printed| printed.trim() == text.trim())
    }

    /// Draws the live lines. `is_asked` is whether a person is asked, so that the run waits.
    pub(crate) fn draw(&mut self, is_asked: bool) {
        self.drawn_count += 1;
        let mut lines = Vec::new();
        if !self.reply.line.is_empty() {
            lines.push(format!("{}{}", self.reply.prefix(), self.reply.line));
        }
        lines.push(match is_asked {
            true => "> ".to_owned(),
            false => self.status_line(SystemClock.now()),
        });
        terminal::set_live_lines(&lines);
    }

    /// Returns the live line. What matters most comes first, because the line is cut.
    fn status_line(&self, now: Timestamp) -> String {
        let is_busy = |activity: &&Activity| !matches!(activity, Activity::Waiting);
        let busy: Vec<&Activity> = self.activities.values().filter(is_busy).collect();
        let Some(activity) = busy.last() else {
            return [&["waiting".to_owned()], &self.totals()[..]].concat().join(" · ");
        };
        let (mut parts, detail) = activity_parts(activity, now);
        if busy.len() > 1 {
            parts.push(format!("+{} runs", busy.len() - 1));
        }
        parts.extend(self.totals());
        parts.extend(Some(detail).filter(|detail| !detail.is_empty()));
        let spinner = SPINNER.get(self.drawn_count % SPINNER.len()).copied().unwrap_or(' ');
        format!("{spinner} {}", parts.join(" · "))
    }

    fn totals(&self) -> Vec<String> {
        let model = Some(self.model.clone()).filter(|model| !model.is_empty());
        let totals = [format_usd(Some(self.cost_usd)), format_tokens(self.tokens)];
        totals.into_iter().chain(model).collect()
    }
}

/// Describes what a run does, and how long it has done so. The second text is a detail.
fn activity_parts(activity: &Activity, now: Timestamp) -> (Vec<String>, String) {
    let seconds =
        |since: Timestamp| format_duration(Millis(now.duration_since(since).0.max(1_000)));
    let tools = match activity {
        Activity::Waiting => return (Vec::new(), String::new()),
        Activity::Model { turn, since } => {
            return (vec![format!("turn {turn}"), seconds(*since)], String::new());
        }
        Activity::Tools(tools) => tools,
    };
    let started = tools.values().find_map(|tool| Some((tool, tool.since?)));
    let Some((tool, since)) = started else {
        return (vec!["between two turns".to_owned()], String::new());
    };
    let (name, arguments) = tool.text.split_once("  ").unwrap_or((&tool.text, ""));
    let name = format!("{name} {}", tool.progress).trim_end().to_owned();
    let more = (tools.len() > 1).then(|| format!("+{} calls", tools.len() - 1));
    let parts = [Some(name), Some(seconds(since)), more].into_iter().flatten().collect();
    (parts, arguments.to_owned())
}

impl ReplyText {
    fn push(&mut self, text: &str) {
        self.received.push_str(text);
        let indent = if terminal::is_narrow() { NARROW_INDENT } else { INDENT };
        let width_max = terminal::columns().saturating_sub(indent + 1).max(8);
        for c in sanitize_text(text).chars() {
            if c == '\n' {
                self.print_line();
                continue;
            }
            self.line.push(c);
            if self.line.width() > width_max {
                self.print_full_line(width_max);
            }
        }
    }

    /// Prints the part of the line that fits, up to a space, and keeps the rest.
    fn print_full_line(&mut self, width_max: usize) {
        let end = self.line.rfind(' ').filter(|end| *end > 0);
        // A text without a space in it is broken where it no longer fits.
        let end = end.unwrap_or_else(|| {
            let last = self.line.chars().next_back();
            debug_assert!(last.is_none_or(|c| c.width().unwrap_or(0) <= width_max));
            self.line.len() - last.map_or(0, char::len_utf8)
        });
        let rest = self.line.split_off(end);
        self.print_line();
        rest.trim_start().clone_into(&mut self.line);
    }

    /// Prints the line. Empty lines before the text are left out.
    fn print_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.trim().is_empty() && !self.has_printed {
            return;
        }
        self.print_row(&line, true);
    }

    fn print_row(&mut self, text: &str, is_whole: bool) {
        output::eprint_event(format!("{}{text}", self.prefix()).trim_end(), is_whole);
        self.has_printed = true;
    }

    /// Returns what precedes the next line: the time and the turn, or spaces.
    fn prefix(&self) -> String {
        match (self.has_printed, terminal::is_narrow()) {
            (true, true) => " ".repeat(NARROW_INDENT),
            (true, false) => " ".repeat(INDENT),
            (false, true) => format!("turn {}  ", self.turn),
            (false, false) => {
                let label = format!("turn {}", self.turn);
                format!("{}  {label:<9} ", self.time)
            }
        }
    }
}

/// Returns the calls of a turn that the runtime starts next.
fn tools_of_turn(completed: &TurnCompleted) -> BTreeMap<CallId, ToolActivity> {
    let calls = (1_u16..).zip(completed.calls.iter().zip(completed.reply.tool_calls()));
    let tool = |(index, (classified, call)): (u16, (&ToolCallClassification, &ToolCall))| {
        let text = call_text(classified, call);
        let activity = ToolActivity { text, progress: String::new(), since: None };
        (CallId { turn: completed.turn, index }, activity)
    };
    calls.map(tool).collect()
}

fn call_text(classified: &ToolCallClassification, call: &ToolCall) -> String {
    format!("{}  {}", classified.tool, arguments_text(&call.input.to_value()))
}

/// Formats a number of tokens, such as `950 tokens` or `4.1k tokens`.
fn format_tokens(tokens: u64) -> String {
    match tokens {
        0..1_000 => format!("{tokens} tokens"),
        1_000..1_000_000 => format!("{:.1}k tokens", tokens as f64 / 1e3),
        _ => format!("{:.1}M tokens", tokens as f64 / 1e6),
    }
}
