//! Child runs of the test run: a driver prepares them, and lines of a script end them. In scripts
//! `CHILD1` stands for the id of the first child.

use longhaul_core::change::Blob;
use longhaul_core::event::environment::ChildEnded;
use longhaul_core::id::{AgentName, CallId, InboxName, RunId, TimerId};
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, RunOutcome, RunOutput};
use longhaul_core::task::TaskSpec;
use longhaul_run::RunInput;
use longhaul_run::commands::RunCommand;
use longhaul_run::input::{NewChildRun, PreparedChildRun};
use longhaul_run::submit::new_run_from_task;

use super::{START, TestRun};
use longhaul_core::change::TimerKind;

/// Ids of children that a script can name.
const NAMED_CHILDREN: usize = 40;

/// Returns the id of the child run with this number, counted from 1.
pub(crate) fn child_id(number: usize) -> RunId {
    RunId::from_bits(0x0190_0000_0000_7000_9000_0000_0000_0000 + number as u128)
}

/// Returns the text with the names of children replaced by their ids, or back.
pub(crate) fn replace_child_names(text: &str, to_ids: bool) -> String {
    if !text.contains("CHILD") && to_ids {
        return text.to_owned();
    }
    (1..=NAMED_CHILDREN).rev().fold(text.to_owned(), |text, number| {
        let (name, id) = (format!("CHILD{number}"), child_id(number).to_string());
        if to_ids { text.replace(&name, &id) } else { text.replace(&id, &name) }
    })
}

impl TestRun {
    /// Returns the input of a driver that has prepared a child for these calls, or has a reason why
    /// it can't.
    pub(crate) fn prepared_children<'a>(
        &self,
        calls: impl Iterator<Item = &'a str>,
        (background, problem): (bool, Option<&str>),
    ) -> RunInput {
        let first = self.rows.children.len() + 1;
        let prepared = calls.zip(first..).map(|(call, number)| PreparedChildRun {
            call: call.parse::<CallId>().unwrap(),
            child: match problem {
                Some(problem) => Err(problem.to_owned()),
                None => Ok(Box::new(self.new_child(number, background))),
            },
        });
        RunInput::ChildrenPrepared(prepared.collect())
    }

    /// Returns the input of a driver that has prepared the run that grades the result, or has a reason
    /// why it can't.
    pub(crate) fn prepared_grading(&self, problem: Option<&str>) -> RunInput {
        let number = self.rows.children.len() + 1;
        RunInput::GradingPrepared(match problem {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(Box::new(self.new_child(number, false))),
        })
    }

    fn new_child(&self, number: usize, background: bool) -> NewChildRun {
        let (agent, inbox) = (AgentName::new("reader"), InboxName::new("default"));
        let input = RawJson::parse(r#""Read.""#).unwrap();
        let task = TaskSpec {
            parent: Some(self.run.id()),
            root: self.run.task().root,
            depth: self.run.task().depth + 1,
            ..TaskSpec::new(child_id(number), agent.unwrap(), input, inbox.unwrap())
        };
        let run = new_run_from_task(child_id(number), task).unwrap();
        NewChildRun { run, definition: Blob::new(b"{}".to_vec()), background }
    }

    /// Parses `child 1 TEXT`, `child 1 JSON`, `child 1 !ERROR` and `child 1 cancelled`: the end of a
    /// child.
    pub(crate) fn child_end(&mut self, rest: &str) -> Option<RunCommand> {
        let (number, text) = rest.split_once(' ').unwrap_or((rest, "Read."));
        let number: usize = number.parse().unwrap();
        let child = *self.rows.children.get(number.checked_sub(1)?)?;
        let outcome = match (text, text.strip_prefix('!')) {
            ("cancelled", _) => RunOutcome::Cancelled("cancelled by cli:anna".to_owned()),
            (_, Some(reason)) => RunOutcome::Failed(RunError::new("auth", reason, "")),
            (text, None) if text.starts_with('{') => {
                let data = Some(RawJson::parse(text).unwrap());
                RunOutcome::Completed(RunOutput { data, ..RunOutput::default() })
            }
            (text, None) => {
                RunOutcome::Completed(RunOutput { text: text.to_owned(), ..RunOutput::default() })
            }
        };
        let timer = TimerId::from_bits(0xc41d_0000 + number as u128);
        self.rows.timers.insert(timer, (START, TimerKind::ChildEnded(child)));
        let ended = Box::new(ChildEnded { child, outcome, full: None, submitters: Vec::new() });
        Some(RunCommand::ChildEnded { ended, full: None, timer })
    }
}
