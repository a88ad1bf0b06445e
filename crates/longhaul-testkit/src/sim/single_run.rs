//! A single run without a store: the journal is a list, driven by the state machine alone.
//! Shows that a journal is sufficient to continue a run.

use std::collections::BTreeMap;

use longhaul_core::change::{JournalBatch, TimerKind};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::{RunClaimed, RunPrepared};
use longhaul_core::event::tool::ToolVerified;
use longhaul_core::id::{Epoch, Seq, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateStatus,
};
use longhaul_core::port::records::DueTimer;
use longhaul_core::raw::StoredText;
use longhaul_core::status::RunOutcome;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Usage;
use longhaul_run::commands::RunCommand;
use longhaul_run::input::{ModelReply, PreparedChildRun, ToolCallResult, ToolCallStatus};
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::state::driver::Activity;
use longhaul_run::{DecisionContext, EngineStep, Run, RunInput, decide, next_engine_step};

use crate::sim::SimError;
use crate::sim::driver::sim_perception;
use crate::sim::external_world::{ExternalWorld, ToolEffect};
use crate::sim::sandboxes::{open_sim_sandbox, unchanged_workspace};
use crate::sim::script::{PRICING, Script, classify};

/// Maximum number of steps of a scripted run.
const STEPS_MAX: usize = 10_000;

/// A run with its journal.
#[derive(Debug, Clone)]
pub struct SingleRun {
    run: Run,
    journal: Vec<JournalEntry>,
    world: ExternalWorld,
    now: Timestamp,
}

impl SingleRun {
    /// Replays a journal, as a new driver would.
    pub fn resume(journal: &[JournalEntry]) -> Result<Self, SimError> {
        let run = Run::replay(journal)?;
        let now = journal.last().map_or_else(Timestamp::default, |entry| entry.at);
        Ok(Self { run, journal: journal.to_vec(), world: ExternalWorld::default(), now })
    }

    /// Drives the run to its end: every gate is answered and every timer fires.
    pub fn finish(mut self) -> Result<(RunOutcome, Vec<JournalEntry>), SimError> {
        self.claim()?;
        for _ in 0..STEPS_MAX {
            if let Some(outcome) = self.run.outcome() {
                return Ok((outcome.clone(), self.journal));
            }
            self.now = self.now.plus(Millis(1));
            let step = next_engine_step(&self.run, self.now);
            if step == EngineStep::Idle {
                self.wake()?;
                self.claim()?;
            } else {
                let input = self.perform(step)?;
                self.apply_input(input)?;
            }
        }
        Err("the run did not end".into())
    }

    fn ctx(&self) -> DecisionContext {
        DecisionContext::new(self.now)
    }

    fn claim(&mut self) -> Result<(), SimError> {
        if self.run.outcome().is_some() {
            return Ok(());
        }
        let epoch = Epoch(self.run.control().driver.epoch.0 + 1);
        let worker = WorkerId::from_bits(u128::from(epoch.0));
        self.append(JournalBatch {
            events: vec![Event::RunClaimed(RunClaimed { worker, epoch })],
            changes: Vec::new(),
        })?;
        self.apply_input(RunInput::Advance)
    }

    fn apply_input(&mut self, input: RunInput) -> Result<(), SimError> {
        let batch = decide(&self.run, input, self.ctx())?;
        self.append(batch)
    }

    fn append(&mut self, batch: JournalBatch) -> Result<(), SimError> {
        for event in batch.events {
            // Encode and decode the event, as a store does.
            let event = Event::decode(event.kind(), event.version(), &event.encode()?)?;
            let epoch = if let Event::RunClaimed(claimed) = &event {
                claimed.epoch
            } else {
                self.run.control().driver.epoch
            };
            let seq: Seq = self.run.seq().next();
            let entry = JournalEntry { run: self.run.id(), seq, at: self.now, epoch, event };
            self.run.apply(&entry)?;
            self.journal.push(entry);
        }
        Ok(())
    }

    fn perform(&self, step: EngineStep) -> Result<RunInput, SimError> {
        Ok(match step {
            EngineStep::Prepare => {
                let prepared = RunPrepared {
                    system: StoredText::new_inline("You are simulated."),
                    tools: StoredText::new_inline("[]"),
                    initial_messages: vec![Message::user(self.run.task().input.as_str())],
                    model: "scripted/sim".into(),
                    fallbacks: Vec::new(),
                    pricing: PRICING,
                    compactor: None,
                    world: None,
                    context: BTreeMap::new(),
                    external_tools: Vec::new(),
                    identical_calls: None,
                    no_progress: None,
                    repeated_text: None,
                    compactions: None,
                    compaction: None,
                    perception_active: Millis::ZERO,
                };
                RunInput::Prepared(Box::new(prepared), Vec::new())
            }
            EngineStep::OpenSandbox => open_sim_sandbox(&self.run),
            EngineStep::SaveWorkspace => unchanged_workspace(),
            EngineStep::RefreshPerception => {
                RunInput::PerceptionRefreshed(Box::new(sim_perception(&self.run)))
            }
            EngineStep::AskModel(request) => {
                crate::conversation::check_message_order(&request.messages)?;
                match Script::from_input(&self.run.task().input).reply(&request) {
                    Err(failure) => {
                        RunInput::ModelFailed { failure, cost: None, active: Millis(4) }
                    }
                    Ok(response) => {
                        let calls = response.reply.tool_calls().map(classify).collect();
                        RunInput::ModelReplied(Box::new(ModelReply {
                            response,
                            calls,
                            output_check: None,
                            active: Millis(5),
                        }))
                    }
                }
            }
            EngineStep::Compact(request) => RunInput::Compacted(Box::new(MemoryCompacted {
                replaced: request.messages.len(),
                summary: vec![Message::user("A summary.")],
                usage: Usage::default(),
                cost: None,
                model: "scripted/sim".into(),
                active: Millis(5),
            })),
            EngineStep::StartChildren(requests) => RunInput::ChildrenPrepared(
                requests
                    .into_iter()
                    .map(|request| PreparedChildRun {
                        call: request.call,
                        child: Err("a single run has no children".to_owned()),
                    })
                    .collect(),
            ),
            EngineStep::StartGrading => {
                RunInput::GradingPrepared(Err("a single run has no children".to_owned()))
            }
            EngineStep::UseTools(tasks) => self.use_tools(&tasks),
            EngineStep::Advance | EngineStep::Idle => RunInput::Advance,
        })
    }

    fn use_tools(&self, tasks: &[ToolCallTask]) -> RunInput {
        let run = self.run.id();
        let epoch = self.run.control().driver.epoch;
        if let Some(verify_task) = tasks.iter().find(|task| task.action == ToolCallAction::Verify) {
            let outcome = self.world.verify(run, verify_task.call);
            let call = verify_task.call;
            return RunInput::Verified(ToolVerified { call, outcome }, Vec::new());
        }
        let results = tasks.iter().map(|task| {
            let (call, class) = (task.call, task.class);
            let output = self.world.perform(ToolEffect { run, key_run: run, call, epoch, class });
            ToolCallResult {
                call,
                status: ToolCallStatus::Completed,
                output,
                active: Millis(2),
                blobs: Vec::new(),
            }
        });
        RunInput::ToolsDone(results.collect())
    }

    /// Wakes the run: answers its gate, fires its timer, or raises its budget.
    fn wake(&mut self) -> Result<(), SimError> {
        if let Some(gate) = self.run.control().people.gates.first().cloned() {
            let decision = match gate.kind {
                GateKind::Approval | GateKind::Result => GateDecision::Approve,
                GateKind::InDoubt => GateDecision::Answer("it went well".into()),
                GateKind::Question | GateKind::Blocked => GateDecision::Answer("left".into()),
                GateKind::Signal => GateDecision::Complete,
            };
            let answer = Answer {
                decision,
                by: "anna".into(),
                scope: AnswerScope::Once,
                note: None,
                payload: None,
                digest: gate.digest,
            };
            let gate = Box::new(GateRow {
                run: self.run.id(),
                spec: gate,
                status: GateStatus::Open,
                raised_at: self.now,
                deadline: None,
                submitter: None,
                answers: Vec::new(),
            });
            return self.apply_input(RunInput::Command(RunCommand::Answer {
                gate,
                answer,
                agent: self.run.task().agent.clone(),
                has_rule: false,
            }));
        }
        let idle = self.run.control().driver.activity.clone();
        if let Activity::Parked { wait, timer: Some(timer) } = &idle {
            self.now = wait.end_time().unwrap_or(self.now).max(self.now);
            let due = Box::new(DueTimer {
                timer: *timer,
                run: self.run.id(),
                kind: TimerKind::Wake,
                due: self.now,
                run_ended: false,
                open_gate: None,
            });
            return self.apply_input(RunInput::Command(RunCommand::Timer(due)));
        }
        let raise = longhaul_core::policy::budget::BudgetRaise {
            micro_usd: Some(longhaul_core::usage::MicroUsd(1_000_000_000)),
            ..Default::default()
        };
        self.apply_input(RunInput::Command(RunCommand::Resume {
            by: "anna".into(),
            raise: Some(raise),
            raises_tree: false,
        }))
    }
}
