//! Short texts for events and states, for tests that are written as scripts.

use longhaul_core::event::Event;
use longhaul_core::message::{Message, Part};
use longhaul_core::policy::gate::AnswerScope;
use longhaul_core::status::RunOutcome;
use longhaul_run::{EngineStep, next_engine_step};

use super::TestRun;
use super::children::replace_child_names;

/// Returns the kind of an event with its most important detail.
pub(crate) fn summarize(event: &Event) -> String {
    let kind = event.kind();
    let detail = match event {
        Event::RunWaiting(data) => data.wait.reason().to_owned(),
        Event::RunFailed(data) => data.error.code.clone(),
        Event::RunCompleted(data) => data.output.text.clone(),
        Event::RunRetried(data) => data.attempt.to_string(),
        Event::TurnStarted(data) => {
            let topics = data.runtime_messages.iter().map(|message| format!("{:?}", message.topic));
            topics.collect::<Vec<_>>().join(" ").to_lowercase()
        }
        Event::TurnFailed(data) => data.failure.class.as_str().to_owned(),
        Event::ToolStarted(data) => match data.attempt {
            1 => data.call.to_string(),
            attempt => format!("{} again {attempt}", data.call),
        },
        Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
            data.call.to_string()
        }
        Event::ToolKeyTaken(data) => format!("{} {:?}", data.call, data.state).to_lowercase(),
        Event::ChildStarted(data) => {
            data.call.map_or_else(|| "grading".to_owned(), |call| call.to_string())
        }
        Event::OutcomeGraded(data) => format!("{} {}", data.round, data.verdict.as_str()),
        Event::ToolInputRequired(data) => data.call.to_string(),
        Event::ToolPending(data) => data.call.to_string(),
        Event::ToolResumed(data) => match data.attempt {
            1 => data.call.to_string(),
            attempt => format!("{} again {attempt}", data.call),
        },
        Event::ToolInDoubt(data) => data.call.to_string(),
        Event::ToolVerified(data) => data.call.to_string(),
        Event::ToolSurfaced(data) => data.call.to_string(),
        Event::RuleAdded(data) if data.scope != AnswerScope::Run => data.scope.as_str().to_owned(),
        Event::RuleUsed(data) => format!("{} {}", data.scope.as_str(), data.call),
        Event::GateRaised(data) => format!("{:?}", data.gate.kind).to_lowercase(),
        Event::GateReminded(data) => data.to.clone().unwrap_or_default(),
        Event::GateExpired(data) => format!("{:?}", data.on_timeout).to_lowercase(),
        Event::SteerDelivered(data) if data.as_answer => "as answer".to_owned(),
        Event::SteerDelivered(data) => format!("after turn {}", data.after_turn),
        Event::BudgetWarned(data) => format!("{:?}", data.cap).to_lowercase(),
        Event::BudgetReached(data) => format!("{:?}", data.cap).to_lowercase(),
        _ => String::new(),
    };
    match detail.as_str() {
        "" => kind.to_owned(),
        detail => format!("{kind}({detail})"),
    }
}

impl TestRun {
    /// Returns the status of the run as shown in lists.
    pub(crate) fn status_line(&self) -> String {
        let status = self.run.status().as_str();
        match self.run.control().driver.wait() {
            Some(wait) => format!("{status} {}", wait.reason()),
            None => status.to_owned(),
        }
    }

    /// Returns the part of the state that a script asks for.
    pub(crate) fn show(&self, query: &str) -> String {
        replace_child_names(&self.show_with_ids(query), false)
    }

    fn show_with_ids(&self, query: &str) -> String {
        match query {
            "said" => self.last_message(),
            "timers" => self.timers(),
            "step" => self.step(),
            "gates" => {
                let gates = self.run.control().people.gates.iter();
                let questions: Vec<_> = gates.map(|gate| gate.ask.clone()).collect();
                questions.join(" | ")
            }
            "world" => match self.run.perception().world {
                Some(_) => "told".into(),
                None => "untold".into(),
            },
            "box" => self.show_sandbox(),
            "model" => self.run.transcript().current_model().to_owned(),
            "cost" => {
                let totals = self.run.control().totals;
                let rest = if totals.unpriced { " and more" } else { "" };
                format!("{}{rest}", totals.cost.0)
            }
            "why" => longhaul_run::explain::explain_run_state(&self.run).message,
            "command" => {
                self.without_ids(&longhaul_run::explain::explain_run_state(&self.run).command)
            }
            "hint" => match self.run.outcome() {
                Some(RunOutcome::Failed(error)) => self.without_ids(&error.hint),
                Some(RunOutcome::Completed(_) | RunOutcome::Cancelled(_)) | None => "none".into(),
            },
            "output" => self.run.output().map_or("none".into(), |output| output.text.clone()),
            "crashes" => self.run.control().driver.crashes.to_string(),
            "outcome" => match self.run.outcome() {
                Some(RunOutcome::Failed(error)) => format!("{}: {}", error.code, error.message),
                Some(RunOutcome::Completed(output)) => serde_json::to_string(output).unwrap(),
                Some(RunOutcome::Cancelled(reason)) => reason.clone(),
                None => "none".into(),
            },
            other => panic!("unknown query `{other}`"),
        }
    }

    /// Returns the last message of the conversation.
    fn last_message(&self) -> String {
        let texts = |parts: &[Part]| {
            let texts = parts.iter().map(|part| match part {
                Part::Text(text) => text.replace("\n\n", " ¶ "),
                Part::Image(_) => "[image]".into(),
            });
            texts.collect::<Vec<_>>().join(" / ")
        };
        match self.run.transcript().messages().last().map(|last| &**last) {
            Some(Message::User(parts)) => texts(parts),
            Some(Message::Assistant(reply)) => format!("model: {}", reply.text()),
            Some(Message::Results(results)) => {
                let results = results.iter().map(|result| {
                    let mark = if result.is_error { "! " } else { "" };
                    format!("{}: {mark}{}", result.call, texts(&result.content))
                });
                results.collect::<Vec<_>>().join(" | ")
            }
            None => "nothing".into(),
        }
    }

    /// Returns the text with the ids of the run and its gates replaced by `RUN` and `GATE`.
    fn without_ids(&self, text: &str) -> String {
        let text = text.replace(&self.run.id().to_string(), "RUN");
        let gates = self.run.control().people.gates.iter();
        gates.fold(text, |text, gate| text.replace(&gate.id.to_string(), "GATE"))
    }

    /// Returns the milliseconds until each timer is due.
    fn timers(&self) -> String {
        let mut due: Vec<u64> =
            self.rows.timers.values().map(|(due, _)| due.duration_since(self.now).0).collect();
        due.sort_unstable();
        format!("{due:?}")
    }

    fn step(&self) -> String {
        match next_engine_step(&self.run, self.now) {
            EngineStep::AskModel(request) => format!(
                "ask turn {} try {} max {}",
                request.turn, request.attempt, request.max_tokens
            ),
            EngineStep::Compact(request) => {
                let by = match request.model == self.run.transcript().current_model() {
                    true => String::new(),
                    false => format!(" by {}", request.model),
                };
                format!("compact turn {} try {}{by}", request.turn, request.attempt)
            }
            EngineStep::UseTools(tasks) => {
                let tasks = tasks.iter().map(|task| {
                    format!("{:?} {} {} {}", task.action, task.call, task.tool, task.input.as_str())
                });
                tasks.collect::<Vec<_>>().join(", ").to_lowercase()
            }
            EngineStep::StartChildren(requests) => {
                let calls: Vec<_> = requests.iter().map(|start| start.call.to_string()).collect();
                format!("start {}", calls.join(" "))
            }
            step @ (EngineStep::Prepare
            | EngineStep::RefreshPerception
            | EngineStep::StartGrading
            | EngineStep::OpenSandbox
            | EngineStep::SaveWorkspace
            | EngineStep::Advance
            | EngineStep::Idle) => format!("{step:?}").to_lowercase(),
        }
    }
}
