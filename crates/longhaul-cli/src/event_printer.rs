//! Tells a journal to a person, one line for each fact that matters.
//!
//! Never: a fact that only machines need. `longhaul show --events` has all.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::tool::ToolEnded;
use longhaul_core::event::turn::TurnCompleted;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::CallId;
use longhaul_core::message::Part;
use longhaul_core::policy::gate::{Decision, Scope};
use longhaul_core::status::Wait;
use longhaul_core::time::Timestamp;

use crate::sanitize;

/// So many letters of a text stand in a line.
const LINE_CHARS_MAX: usize = 100;

/// So many lines of a text that has more than one, after the first.
const LINES_MAX: usize = 12;

/// Tells one journal, in order.
#[derive(Debug, Default)]
pub(crate) struct EventPrinter {
    /// Which tool a call of the turn under way is of.
    tool_names: BTreeMap<CallId, String>,
}

impl EventPrinter {
    /// A few words on a fact, if a person wants them.
    pub(crate) fn describe(&mut self, entry: &Entry) -> Option<String> {
        self.label_and_text(&entry.event).map(|(_, words)| words.trim().to_owned())
    }

    /// The line of a fact, if a person wants it.
    pub(crate) fn line(&mut self, entry: &Entry) -> Option<String> {
        let (what, words) = self.label_and_text(&entry.event)?;
        Some(format!("{}  {what:<9} {words}", time_of_day(entry.at)))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is about no turn and no call is told elsewhere"
    )]
    fn label_and_text(&mut self, event: &Event) -> Option<(String, String)> {
        let said = |what: &str, words: String| Some((what.to_owned(), words));
        match event {
            Event::TurnCompleted(done) => Some(self.turn_text(done)),
            Event::TurnFailed(failed) => {
                let class = failed.failure.class;
                let words = match class {
                    FailureClass::Lost => {
                        "its worker died while the model was asked; it is asked again".to_owned()
                    }
                    FailureClass::Stopped => return None,
                    _ => {
                        let why =
                            format!("{}: {}", class.as_str(), first_line(&failed.failure.message));
                        match &failed.fallback_model {
                            Some(other) => format!("{why}; {other} is asked instead"),
                            None => why,
                        }
                    }
                };
                Some((format!("turn {}", failed.turn), words))
            }
            Event::TurnInterrupted(cut) => {
                Some((format!("turn {}", cut.turn), "cut off by a message".into()))
            }
            Event::ToolCompleted(ended) => {
                said("", format!("  {}: {}", self.tool_name(ended.call), result_text(ended)))
            }
            Event::ToolFailed(ended) => {
                said("", format!("  {} failed: {}", self.tool_name(ended.call), result_text(ended)))
            }
            Event::ToolInterrupted(ended) => {
                said("", format!("  {} was stopped", self.tool_name(ended.call)))
            }
            Event::ToolInDoubt(doubt) => said(
                "in doubt",
                format!(
                    "{} had begun and nobody knows whether it happened{}; it is not repeated",
                    self.tool_name(doubt.call),
                    reason_suffix(doubt.reason.as_deref())
                ),
            ),
            Event::ToolSurfaced(surfaced) => {
                said("", format!("  {}: its result came after all", self.tool_name(surfaced.call)))
            }
            _ => run_event_text(event),
        }
    }

    fn turn_text(&mut self, done: &TurnCompleted) -> (String, String) {
        self.tool_names = (1_u16..)
            .zip(&done.calls)
            .map(|(index, call)| {
                let turn = done.turn;
                (CallId { turn, index }, call.tool.to_string())
            })
            .collect();
        let text = first_line(&done.reply.text());
        let names: Vec<&str> = done.calls.iter().map(|call| call.tool.as_str()).collect();
        let calls = match names.as_slice() {
            [] => String::new(),
            [one] => format!("  [{one}]"),
            [first, rest @ ..] if rest.iter().all(|name| name == first) => {
                format!("  [{first} x{}]", names.len())
            }
            several => format!("  [{}]", several.join(", ")),
        };
        (format!("turn {}", done.turn), format!("{text}{calls}"))
    }

    fn tool_name(&self, call: CallId) -> String {
        self.tool_names.get(&call).cloned().unwrap_or_else(|| call.to_string())
    }
}

/// What happens to a run beside its turns and calls.
#[expect(clippy::wildcard_enum_match_arm, reason = "what has no line here is for machines")]
fn run_event_text(event: &Event) -> Option<(String, String)> {
    let said = |what: &str, words: String| Some((what.to_owned(), words));
    match event {
        Event::GateRaised(raised) => said("asks", first_line(&raised.gate.ask)),
        Event::GateVoted(given) => said("voted", answer_text(given)),
        Event::GateAnswered(given) => said("answered", answer_text(given)),
        Event::GateExpired(_) => said("expired", "nobody answered in time".into()),
        Event::RunWaiting(waiting) => {
            wait_text(&waiting.wait).map(|words| ("waiting".to_owned(), words))
        }
        Event::RunBlocked(blocked) => said("blocked", first_line(&blocked.reason)),
        Event::RunRecovered(_) => {
            said("resumed", "its worker had died; it goes on from its last fact".into())
        }
        Event::RunPaused(by) => said("paused", format!("by {}", by.by)),
        Event::RunResumed(by) => said("resumed", format!("by {}", by.by)),
        Event::RunCancelRequested(by) => said("cancel", format!("by {}", by.by)),
        Event::RunRetryScheduled(retry) => said(
            "retry",
            format!("attempt {} in {} s", retry.attempt, retry.delay.0.div_ceil(1_000)),
        ),
        Event::SteerQueued(steer) => {
            said("message", format!("{}: {}", steer.by, first_line(&steer.text)))
        }
        Event::SteerDelivered(_) => said("message", "read by the model".into()),
        Event::SteerDropped(dropped) => said("message", format!("not read: {}", dropped.reason)),
        Event::BudgetWarned(_) => {
            said("budget", "little is left; the agent is told to wrap up".into())
        }
        Event::BudgetReached(_) => said("budget", "used up".into()),
        Event::MemoryCompacted(_) => said("memory", "the older part was summed up".into()),
        Event::ProgressReported(progress) => {
            said("progress", format!("{} %  {}", progress.percent, first_line(&progress.message)))
        }
        Event::RunCompleted(done) => said("done", first_line(&done.output.text)),
        Event::RunFailed(failed) => said("failed", multi_line(&failed.error.message)),
        Event::RunCancelled(cancelled) => said("cancelled", first_line(&cancelled.reason)),
        _ => None,
    }
}

fn wait_text(wait: &Wait) -> Option<String> {
    Some(match wait {
        Wait::Timer(until) => format!("until {}", time_of_day(*until)),
        Wait::RateLimit(until) => {
            format!("the provider wants fewer requests, until {}", time_of_day(*until))
        }
        Wait::Retry(until) => format!("tries again at {}", time_of_day(*until)),
        Wait::Budget(_) => "for more budget".to_owned(),
        Wait::Message(_) => "open for a message".to_owned(),
        Wait::Signal(_) => "for a signal".to_owned(),
        Wait::Child(child) => format!("for {child}"),
        Wait::SandboxSlot => "for a free sandbox".to_owned(),
        // What is asked stands in the line before; a worker comes by itself.
        Wait::Approval(_) | Wait::Question(_) | Wait::Blocked(_) | Wait::Worker => return None,
    })
}

fn answer_text(given: &GateAnswer) -> String {
    let answer = &given.answer;
    let what = match &answer.decision {
        Decision::Approve if answer.scope == Scope::Run => "approved for this run".to_owned(),
        Decision::Approve => "approved".to_owned(),
        Decision::Edit(_) => "approved with a change".to_owned(),
        Decision::Reject => "rejected".to_owned(),
        Decision::Answer(words) => format!("\"{}\"", first_line(words)),
        Decision::Complete => "it has happened".to_owned(),
    };
    let note = answer.note.as_deref().map(|note| format!(": {}", first_line(note)));
    format!("{what}, by {}{}", answer.by, note.unwrap_or_default())
}

fn result_text(ended: &ToolEnded) -> String {
    let text = ended.output.content.iter().find_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    first_line(text.unwrap_or("(a picture)"))
}

/// The first line of a text, cut, and safe for a terminal.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    sanitize::truncate(&sanitize::line(line), LINE_CHARS_MAX)
}

/// Why nobody knows what came of a call, where the journal says it.
fn reason_suffix(why: Option<&str>) -> String {
    let why = why.map(|why| format!(" ({})", first_line(why).trim_end_matches('.')));
    why.unwrap_or_default()
}

/// A text of a few lines, such as a difference, below each other.
fn multi_line(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first = first_line(lines.next().unwrap_or_default());
    let rest = lines.take(LINES_MAX).map(|line| {
        let line = sanitize::truncate(&sanitize::line(line), LINE_CHARS_MAX);
        format!("\n{:20}{line}", "")
    });
    std::iter::once(first).chain(rest).collect()
}

/// The time of day where the reader is.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    format_local(at, "%H:%M:%S")
}

/// The day and the time of day where the reader is.
pub(crate) fn date_time(at: Timestamp) -> String {
    format_local(at, "%Y-%m-%d %H:%M")
}

fn format_local(at: Timestamp, form: &str) -> String {
    let Ok(time) = jiff::Timestamp::from_microsecond(at.as_micros()) else {
        return at.to_string();
    };
    let there = time.to_zoned(jiff::tz::TimeZone::system());
    there.strftime(form).to_string()
}
