//! Formats the events of a journal for people, one line per relevant event. `longhaul show
//! --events` prints all events.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::tz::TimeZone;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::{ChildStarted, GradingVerdict, SavedFiles};
use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::run::{ForkEdit, ForkKind};
use longhaul_core::event::tool::{ToolEnded, ToolKeyTaken};
use longhaul_core::event::turn::{TurnCompleted, TurnFailed};
use longhaul_core::failure::FailureClass;
use longhaul_core::id::CallId;
use longhaul_core::message::Part;
use longhaul_core::policy::effect_facts::FileEffect;
use longhaul_core::policy::effect_key::{EffectKeyHolder, EffectKeyState};
use longhaul_core::policy::gate::{AnswerScope, GateDecision};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitReason;
use longhaul_run::explain::cap_raise_command;

use crate::format::{format_duration, format_name_counts, scope_phrase};
use crate::{call_text, sanitize, terminal};

/// Maximum number of characters that are printed of each line of an event's text, unless the width of
/// the terminal decides.
const LINE_CHARS_MAX: usize = 100;

/// Maximum number of lines of an event's text that are printed after its first line.
const LINES_MAX: usize = 12;

/// What precedes the lines after the first one of an event's text.
const INDENT: &str = "\n                    ";

/// Formats the events of one journal as lines. The events must be passed in order.
#[derive(Debug, Default)]
pub(crate) struct EventPrinter {
    /// Whether the results of calls are printed whole.
    pub(crate) verbose: bool,
    /// Names of the tools called in the current turn, by call id.
    tool_names: BTreeMap<CallId, String>,
}

impl EventPrinter {
    /// Returns a description of an event. `None` means that the event is not relevant for people.
    pub(crate) fn describe_event(&mut self, entry: &JournalEntry) -> Option<String> {
        self.event_label_and_text(entry).map(|(_, text)| text.trim().to_owned())
    }

    /// Returns the line for an event: time, label and text. `None` means that the event is not
    /// relevant for people.
    pub(crate) fn format_event_line(&mut self, entry: &JournalEntry) -> Option<String> {
        let (label, text) = self.event_label_and_text(entry)?;
        Some(match terminal::is_narrow() {
            true => format!("{label}  {}", text.trim_start()),
            false => format!("{}  {label:<9} {text}", format_time_of_day(entry.at)),
        })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other events are described elsewhere")]
    fn event_label_and_text(&mut self, entry: &JournalEntry) -> Option<(String, String)> {
        let tool = |call| self.tool_name(call);
        let (label, text) = match &entry.event {
            Event::TurnCompleted(completed) => return Some(self.turn_label_and_text(completed)),
            Event::TurnFailed(failed) => {
                return Some((format!("turn {}", failed.turn), turn_failure_text(failed)?));
            }
            Event::TurnInterrupted(interrupted) => {
                let label = format!("turn {}", interrupted.turn);
                return Some((label, "interrupted by a message".to_owned()));
            }
            Event::RunOverdue(overdue) => {
                let timeout = format_duration(overdue.soft_timeout);
                ("overdue", format!("longer than its soft timeout of {timeout}"))
            }
            Event::RunTimedOut(timed_out) => {
                let timeout = format_duration(timed_out.hard_timeout);
                ("timed out", format!("stopped at its hard timeout of {timeout}"))
            }
            Event::ToolCompleted(ended) => {
                ("", format!("  {}: {}", tool(ended.call), self.result_text(ended)))
            }
            Event::ToolFailed(ended) => {
                ("", format!("  {} failed: {}", tool(ended.call), self.result_text(ended)))
            }
            Event::ToolPending(pending) => {
                let message = first_line(pending.message.as_deref()?);
                ("", format!("  {}: {message}", tool(pending.call)))
            }
            Event::ToolInterrupted(ended) => ("", format!("  {} was stopped", tool(ended.call))),
            Event::ToolInDoubt(doubt) => {
                let reason = doubt.reason.as_deref().map(first_line);
                let reason = reason.map(|reason| format!(" ({})", reason.trim_end_matches('.')));
                let (tool, reason) = (tool(doubt.call), reason.unwrap_or_default());
                let text = "was started and its outcome is unknown";
                ("in doubt", format!("{tool} {text}{reason}; it is not repeated"))
            }
            Event::ToolKeyTaken(taken) => ("", self.duplicate_effect_key_text(taken)),
            Event::ToolSurfaced(surfaced) => {
                ("", format!("  the result of {} arrived late", tool(surfaced.call)))
            }
            _ => run_event_label_and_text(entry)?,
        };
        Some((label.to_owned(), text))
    }

    fn turn_label_and_text(&mut self, completed: &TurnCompleted) -> (String, String) {
        self.tool_names = (1_u16..)
            .zip(&completed.calls)
            .map(|(index, call)| {
                let turn = completed.turn;
                (CallId { turn, index }, call.tool.to_string())
            })
            .collect();
        let text = first_line(&completed.reply.text());
        let names: Vec<String> = self.tool_names.values().cloned().collect();
        let calls = match names.is_empty() {
            true => String::new(),
            false => format!("  [{}]", format_name_counts(&names)),
        };
        (format!("turn {}", completed.turn), format!("{text}{calls}"))
    }

    fn duplicate_effect_key_text(&self, taken: &ToolKeyTaken) -> String {
        let EffectKeyHolder { run, call } = taken.holder;
        let tool = self.tool_name(taken.call);
        let command = match taken.state {
            EffectKeyState::Unknown => format!(
                " and an unknown outcome   if it had no effect: longhaul free-key {run} {call}"
            ),
            EffectKeyState::Held | EffectKeyState::Done => String::new(),
        };
        format!(
            "  {tool} was not started: the call {call} of {run} has the same effect key{command}"
        )
    }

    fn result_text(&self, ended: &ToolEnded) -> String {
        let text = ended.output.content.iter().find_map(Part::text).unwrap_or("(image)");
        match self.verbose {
            true => {
                text.trim().lines().map(sanitize::sanitize_line).collect::<Vec<_>>().join(INDENT)
            }
            false => sanitize::truncate(&call_text::summary_line(text), line_chars_max()),
        }
    }

    fn tool_name(&self, call: CallId) -> String {
        self.tool_names.get(&call).cloned().unwrap_or_else(|| call.to_string())
    }
}

/// Returns the label and the text for an event about neither a turn nor a tool call. `None` means
/// that the event is not relevant for people.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events are not relevant for people")]
fn run_event_label_and_text(entry: &JournalEntry) -> Option<(&'static str, String)> {
    Some(match &entry.event {
        Event::GateRaised(raised) => ("asks", first_line(&raised.gate.ask)),
        Event::GateVoted(answer) => ("voted", gate_answer_text(answer)),
        Event::GateAnswered(answer) => ("answered", gate_answer_text(answer)),
        Event::GateExpired(_) => ("expired", "nobody answered in time".into()),
        Event::RuleUsed(used) => (
            "rule",
            format!(
                "{} allowed by the remembered approval {} ({}, {})",
                used.call,
                used.rule,
                used.by,
                scope_phrase(used.scope)
            ),
        ),
        Event::RuleRevoked(revoked) => {
            ("rule", format!("{} revoked by {}", revoked.rule, revoked.by))
        }
        Event::RunWaiting(waiting) => ("waiting", wait_reason_text(&waiting.wait, entry.at)?),
        Event::RunBlocked(blocked) => ("blocked", first_line(&blocked.reason)),
        Event::RunRecovered(_) => {
            ("resumed", "recovered from its last event after its worker died".into())
        }
        Event::RunPaused(action) => ("paused", format!("by {}", action.by)),
        Event::RunResumed(action) => ("resumed", format!("by {}", action.by)),
        Event::RunCancelRequested(action) => ("cancel", format!("by {}", action.by)),
        Event::RunRetryScheduled(retry) => {
            ("retry", format!("attempt {} starts in {}", retry.attempt, format_delay(retry.delay)))
        }
        Event::RunForked(forked) => {
            let edited = match forked.edit.as_deref() {
                None => String::new(),
                Some(ForkEdit::Message { text, .. }) => {
                    format!(", with the message: {}", first_line(text))
                }
                Some(ForkEdit::Result { call, text }) => {
                    format!(", with the result of {call}: {}", first_line(text))
                }
            };
            let label = match forked.kind {
                ForkKind::Retry => "retry",
                ForkKind::Fork => "fork",
            };
            (label, format!("of {} after its event {}{edited}", forked.from, forked.through))
        }
        Event::SteerQueued(steer) => {
            ("message", format!("{}: {}", steer.by, first_line(&steer.text)))
        }
        Event::SteerDelivered(_) => ("message", "read by the model".into()),
        Event::SteerDropped(dropped) => ("message", format!("not read: {}", dropped.reason)),
        Event::BudgetWarned(_) => ("budget", "almost used up; the agent is told to finish".into()),
        Event::BudgetReached(_) => ("budget", "used up".into()),
        Event::ChildStarted(_) | Event::ChildEnded(_) | Event::OutcomeGraded(_) => {
            return child_event_label_and_text(&entry.event);
        }
        Event::MemoryCompacted(_) => {
            ("memory", "the older part of the conversation was summarised".into())
        }
        Event::ProgressReported(progress) => {
            ("progress", format!("{} %  {}", progress.percent, first_line(&progress.message)))
        }
        Event::WorkspaceSaved(saved) => ("files", changed_files_text(&saved.files)?),
        Event::RunCompleted(completed) => ("done", first_line(&completed.output.text)),
        Event::RunFailed(failed) => ("failed", indent_following_lines(&failed.error.message)),
        Event::RunCancelled(cancelled) => ("cancelled", first_line(&cancelled.reason)),
        _ => return None,
    })
}

/// Describes what was saved of the files of a sandbox. `None` if nothing had changed.
fn changed_files_text(files: &SavedFiles) -> Option<String> {
    match files {
        SavedFiles::Unchanged => None,
        SavedFiles::Skipped { reason } => Some(format!("not saved: {}", first_line(reason))),
        SavedFiles::Snapshot(snapshot) => {
            let texts: Vec<String> = snapshot.changes.iter().map(FileEffect::change_text).collect();
            (!texts.is_empty()).then(|| first_line(&texts.join(", ")))
        }
    }
}

/// Describes why a turn failed. `None` means that the turn was stopped on request.
#[expect(clippy::wildcard_enum_match_arm, reason = "most failures are described by their message")]
fn turn_failure_text(failed: &TurnFailed) -> Option<String> {
    let class = failed.failure.class;
    match class {
        FailureClass::Lost => Some("the worker died during the model call; retrying".to_owned()),
        FailureClass::Stopped => None,
        _ => {
            let reason = format!("{}: {}", class.as_str(), first_line(&failed.failure.message));
            Some(match &failed.fallback_model {
                Some(fallback) => format!("{reason}; falling back to {fallback}"),
                None => reason,
            })
        }
    }
}

/// Returns the label and the text for an event about a child run or about the grading of the run's
/// result. `None` for every other event.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events are described elsewhere")]
fn child_event_label_and_text(event: &Event) -> Option<(&'static str, String)> {
    Some(match event {
        Event::ChildStarted(ChildStarted { child, agent, call: Some(_), .. }) => {
            ("child", format!("{child} of agent {agent} started"))
        }
        Event::ChildStarted(started) => ("outcome", format!("{} grades the result", started.child)),
        Event::OutcomeGraded(graded) => {
            let (verdict, note) = (verdict_text(graded.verdict), first_line(&graded.note));
            ("outcome", format!("round {}: {verdict}: {note}", graded.round))
        }
        Event::ChildEnded(ended) => {
            ("child", format!("{} {}", ended.child, ended.outcome.status().as_str()))
        }
        _ => return None,
    })
}

/// Returns the text that is printed for the verdict of a grading run about the result of a run.
pub(crate) const fn verdict_text(verdict: GradingVerdict) -> &'static str {
    match verdict {
        GradingVerdict::Satisfied => "satisfied",
        GradingVerdict::NotSatisfied => "not satisfied",
        GradingVerdict::GraderFailed => "the grader failed",
    }
}

/// Describes what a run waits for. The wait began at `now`. `None` means that the wait is not
/// printed: the question was printed in the line before, or the run only waits for a worker.
fn wait_reason_text(wait: &WaitReason, now: Timestamp) -> Option<String> {
    let text = Some(wait.row().event).filter(|text| !text.is_empty())?;
    Some(wait.fill_in(text, |fact| match (fact, wait) {
        ("until", _) => wait.end_time().map(|until| format_time_with_date_unless_today(until, now)),
        ("raise_cap", WaitReason::Cap(wait)) => Some(cap_raise_command(wait)),
        _ => None,
    }))
}

fn gate_answer_text(gate_answer: &GateAnswer) -> String {
    let answer = &gate_answer.answer;
    let decision = match &answer.decision {
        GateDecision::Approve if answer.scope != AnswerScope::Once => {
            format!("approved {}", scope_phrase(answer.scope))
        }
        GateDecision::Approve => "approved".to_owned(),
        GateDecision::Edit(_) => "approved with a change".to_owned(),
        GateDecision::Reject => "rejected".to_owned(),
        GateDecision::Answer(text) => format!("\"{}\"", first_line(text)),
        GateDecision::Complete => "it happened".to_owned(),
    };
    let note = answer.note.as_deref().map(|note| format!(": {}", first_line(note)));
    format!("{decision}, by {}{}", answer.by, note.unwrap_or_default())
}

/// Returns the maximum number of characters of a line of text.
fn line_chars_max() -> usize {
    match terminal::is_open() {
        true => terminal::columns(),
        false => LINE_CHARS_MAX,
    }
}

/// Formats the delay before a retry. A short one has a digit after the point, which matters there.
fn format_delay(delay: Millis) -> String {
    match delay.0 {
        1_000..10_000 => format!("{:.1} s", delay.0 as f64 / 1_000.0),
        _ => format_duration(delay),
    }
}

/// Returns the first line of a text, truncated and safe for a terminal.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    sanitize::truncate(&sanitize::sanitize_line(line), line_chars_max())
}

/// Formats a text of several lines, such as a diff, with the lines after the first indented.
fn indent_following_lines(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first = first_line(lines.next().unwrap_or_default());
    let rest = lines.take(LINES_MAX).map(|line| {
        let line = sanitize::truncate(&sanitize::sanitize_line(line), line_chars_max());
        format!("{INDENT}{line}")
    });
    std::iter::once(first).chain(rest).collect()
}

/// Formats the time of day in the local time zone.
pub(crate) fn format_time_of_day(time: Timestamp) -> String {
    format_local_time(time, "%H:%M:%S")
}

/// Formats a time in the local time zone, with its date if it is on another day than `now`.
fn format_time_with_date_unless_today(time: Timestamp, now: Timestamp) -> String {
    let day = |time| format_local_time(time, "%Y-%m-%d");
    match day(time) == day(now) {
        true => format_time_of_day(time),
        false => format_local_time(time, "%Y-%m-%d %H:%M:%S"),
    }
}

/// Formats the date and time in the local time zone.
pub(crate) fn format_date_time(time: Timestamp) -> String {
    format_local_time(time, "%Y-%m-%d %H:%M")
}

/// Formats the date, the time with seconds and the local time zone.
pub(crate) fn format_time_with_zone(time: Timestamp) -> String {
    format_local_time(time, "%Y-%m-%d %H:%M:%S %Z")
}

fn format_local_time(timestamp: Timestamp, format: &str) -> String {
    let Ok(time) = jiff::Timestamp::from_microsecond(timestamp.as_micros()) else {
        return timestamp.to_string();
    };
    static ZONE: LazyLock<TimeZone> = LazyLock::new(local_time_zone);
    time.to_zoned(ZONE.clone()).strftime(format).to_string()
}

/// Returns the time zone of the machine or of the variable `TZ`. Without any, this is UTC.
fn local_time_zone() -> TimeZone {
    // Without `TZ` the zone's file is read directly. `TimeZone::system` first lists all zones of the
    // machine, which takes milliseconds.
    if std::env::var_os("TZ").is_none()
        && let Ok(zone_file) = std::fs::read("/etc/localtime")
        && let Ok(zone) = TimeZone::tzif("Local", &zone_file)
    {
        return zone;
    }
    match TimeZone::system() {
        zone if zone.is_unknown() => TimeZone::UTC,
        zone => zone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_delay_is_not_rounded_up() {
        for (delay, expected) in [
            (120, "120 ms"),
            (1_132, "1.1 s"),
            (2_442, "2.4 s"),
            (4_047, "4.0 s"),
            (65_900, "1m 05s"),
        ] {
            assert_eq!(format_delay(Millis(delay)), expected);
        }
    }

    #[test]
    fn a_time_on_another_day_has_its_date() {
        let now = Timestamp::from_micros(1_000_000_000_000_000);
        let wait = |hours: u64| {
            let until = now.plus(Millis::from_secs(hours * 60 * 60));
            wait_reason_text(&WaitReason::Timer(until), now).unwrap()
        };
        assert_eq!(wait(0).len(), "until 01:46:40".len(), "{}", wait(0));
        assert!(wait(48).contains("-09-11 "), "{}", wait(48));
    }
}
