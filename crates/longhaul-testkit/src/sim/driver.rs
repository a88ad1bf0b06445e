//! A small driver that advances one claimed run in single steps, so that a crash can happen
//! between any two: before and after each effect, and before and after each append. All its
//! state is lost in a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::change::LateToolResult;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::tool::{LateToolResultEvent, ToolOutput, ToolVerified};
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{CallId, Epoch, RunId, Seq, WorkerId};
use longhaul_core::message::{Message, Part};
use longhaul_core::policy::rule::RememberedApprovalScope;
use longhaul_core::policy::spend_cap::SpendCap;
use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::schedules::ScheduleStore;
use longhaul_core::port::store::{
    AppendRefusalReason, AppendRequest, AppendResult, Claim, JournalAuthor, JournalReadRequest,
    Store,
};
use longhaul_core::raw::{Hash, StoredText};
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use longhaul_run::commands::{RunCommand, decide_command};
use longhaul_run::input::{
    InterruptedReply, ModelReply, PerceptionRefresh, ToolCallResult, ToolCallStatus,
};
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::{
    DecisionContext, EffectKeyOfOtherCall, EngineStep, Run, RunInput, decide, next_engine_step,
    shared_patterns,
};

use crate::sim::SimError;
use crate::sim::caps::current_caps;
use crate::sim::children::{prepare_children, prepare_grading};
use crate::sim::external_world::{ExternalWorld, ModelCall, ToolEffect};
use crate::sim::sandboxes::{open_at_provider, unchanged_workspace};
use crate::sim::script::{PRICING, Script, classify};
use crate::sim::suspended_calls;

/// Services of a driver.
#[derive(Debug, Clone)]
pub struct SimServices {
    /// Journals and the ready queue.
    pub store: Arc<dyn Store>,
    /// Other records.
    pub records: Arc<dyn RecordStore>,
    /// API keys and sessions.
    pub auth: Arc<dyn AuthStore>,
    pub schedules: Arc<dyn ScheduleStore>,
    /// External world that tools act on.
    pub world: ExternalWorld,
    /// Spend caps of the configuration.
    pub caps: Vec<SpendCap>,
}

/// A driver of one claimed run.
#[derive(Debug)]
pub struct ReferenceDriver {
    services: SimServices,
    run_id: RunId,
    worker: WorkerId,
    epoch: Epoch,
    run: Option<Run>,
    ctx: DecisionContext,
    stage: DriverStage,
}

/// State of the driver, lost in a crash.
#[derive(Debug)]
enum DriverStage {
    /// The run was just claimed.
    Claimed,
    /// The driver is about to ask the state machine for the next step.
    Ready,
    /// A model request is in flight.
    CallingModel(ModelRequest),
    /// Tool calls are running: the pending calls and the results so far.
    RunningTools(Vec<ToolCallTask>, Vec<ToolCallResult>),
    /// The sandbox of the run is about to be opened.
    OpeningSandbox,
    /// An input waits to be committed.
    Committing(RunInput),
}

/// Result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveProgress {
    /// There is more to do.
    Continue,
    /// A batch was appended, and there is more to do.
    Committed,
    /// The run is idle, has ended, or was lost to another driver.
    Done,
}

impl ReferenceDriver {
    /// Starts driving a claimed run.
    pub fn new(
        services: SimServices,
        worker: WorkerId,
        claimed: &Claim,
        ctx: DecisionContext,
    ) -> Self {
        Self {
            services,
            run_id: claimed.run,
            worker,
            epoch: claimed.epoch,
            run: None,
            ctx,
            stage: DriverStage::Claimed,
        }
    }

    pub const fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Returns whether the next step commits an input. A crash before it loses that input.
    pub const fn is_committing(&self) -> bool {
        matches!(self.stage, DriverStage::Committing(_))
    }

    /// Executes one step. `choose` returns a number below its argument.
    pub async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError> {
        match std::mem::replace(&mut self.stage, DriverStage::Ready) {
            DriverStage::Claimed => {
                self.catch_up().await?;
                self.stage = DriverStage::Committing(RunInput::Advance);
                Ok(DriveProgress::Continue)
            }
            DriverStage::Ready => self.next_step(),
            DriverStage::CallingModel(request) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.receive_reply(&request);
                self.add_remembered_approvals().await?;
                Ok(DriveProgress::Continue)
            }
            DriverStage::RunningTools(pending, results) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.run_one_tool(pending, results, choose);
                Ok(DriveProgress::Continue)
            }
            DriverStage::OpeningSandbox => {
                let Some(run) = &self.run else { return Ok(DriveProgress::Done) };
                let provider = &self.services.world.sandboxes;
                let input = open_at_provider(run, provider, choose).await;
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            DriverStage::Committing(input) => self.commit(input).await,
        }
    }

    /// Reads and folds the events of other writers.
    async fn catch_up(&mut self) -> Result<(), SimError> {
        loop {
            let after = self.run.as_ref().map_or(Seq::START, Run::seq);
            let request = JournalReadRequest { run: self.run_id, after, limit: 100 };
            let page = self.services.store.read_journal(request).await?;
            for entry in &page.entries {
                match &mut self.run {
                    None => self.run = Some(Run::from_first_entry(entry)?),
                    Some(run) => run.apply(entry)?,
                }
            }
            let caps = current_caps(&self.services.caps, page.now);
            self.ctx = DecisionContext { caps, ..DecisionContext::new(page.now) };
            if self.run.as_ref().is_none_or(|run| run.seq() >= page.last_seq) {
                return Ok(());
            }
        }
    }

    /// Asks the state machine for the next step.
    fn next_step(&mut self) -> Result<DriveProgress, SimError> {
        let Some(run) = &self.run else {
            return Ok(DriveProgress::Done);
        };
        self.stage = match next_engine_step(run, self.ctx.now) {
            EngineStep::Prepare => DriverStage::Committing(RunInput::Prepared(
                Box::new(sim_preparation(run)),
                Vec::new(),
            )),
            EngineStep::RefreshPerception => DriverStage::Committing(
                RunInput::PerceptionRefreshed(Box::new(sim_perception(run))),
            ),
            EngineStep::AskModel(request) | EngineStep::Compact(request) => {
                crate::conversation::check_message_order(&request.messages)?;
                let (turn, attempt) = (request.turn, request.attempt);
                self.services.world.record_model_call(ModelCall {
                    run: self.run_id,
                    turn,
                    attempt,
                });
                DriverStage::CallingModel(request)
            }
            EngineStep::StartChildren(requests) => {
                let prepared = prepare_children(run, &requests, &self.services.world)?;
                DriverStage::Committing(prepared)
            }
            EngineStep::StartGrading => {
                DriverStage::Committing(prepare_grading(run, &self.services.world)?)
            }
            EngineStep::OpenSandbox => DriverStage::OpeningSandbox,
            EngineStep::SaveWorkspace => DriverStage::Committing(unchanged_workspace()),
            EngineStep::UseTools(tasks) => DriverStage::RunningTools(tasks, Vec::new()),
            EngineStep::Advance => DriverStage::Committing(RunInput::Advance),
            EngineStep::Idle => return Ok(DriveProgress::Done),
        };
        Ok(DriveProgress::Continue)
    }

    /// Lets the model reply, or truncates its reply.
    fn receive_reply(&mut self, request: &ModelRequest) {
        let Some(run) = &self.run else { return };
        let input = if run.is_cancelling() {
            let failure = Failure::new(FailureClass::Stopped, "stopped");
            RunInput::ModelFailed { failure, cost: None, active: Millis(3) }
        } else if run.has_interrupting_steer() {
            RunInput::ModelInterrupted(InterruptedReply {
                text: "I was about to".into(),
                usage: Usage { output_tokens: 4, estimated: true, ..Usage::default() },
                cost: Some(PRICING.price.unwrap_or_default().cost(Usage::default())),
                active: Millis(3),
            })
        } else if matches!(next_engine_step(run, self.ctx.now), EngineStep::Compact(_)) {
            RunInput::Compacted(Box::new(sim_compaction(request)))
        } else {
            match Script::from_input(&run.task().input).reply(request) {
                Err(failure) => RunInput::ModelFailed { failure, cost: None, active: Millis(4) },
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
        };
        self.stage = DriverStage::Committing(input);
    }

    /// Adds the approvals of the agent and the project to the calls of a reply.
    async fn add_remembered_approvals(&mut self) -> Result<(), SimError> {
        let (Some(run), DriverStage::Committing(RunInput::ModelReplied(reply))) =
            (&self.run, &mut self.stage)
        else {
            return Ok(());
        };
        let task = run.task();
        for call in &mut reply.calls {
            let scopes = vec![
                RememberedApprovalScope::Agent(task.agent.clone()),
                RememberedApprovalScope::Project,
            ];
            let patterns = shared_patterns(&task.policy, call);
            let active =
                self.services.records.active_remembered_approvals(scopes, patterns).await?;
            call.approvals = active.into_iter().map(Into::into).collect();
        }
        Ok(())
    }

    /// Executes one tool call, or commits the results so far.
    fn run_one_tool(
        &mut self,
        mut pending: Vec<ToolCallTask>,
        mut results: Vec<ToolCallResult>,
        choose: &mut dyn FnMut(usize) -> usize,
    ) {
        if pending.is_empty() || (!results.is_empty() && choose(4) == 0) {
            self.stage = DriverStage::Committing(RunInput::ToolsDone(results));
            return;
        }
        let next = pending.remove(choose(pending.len()));
        if next.action == ToolCallAction::Verify {
            let outcome = self.services.world.verify(self.key_run(next.call), next.call);
            let call = next.call;
            let verified = ToolVerified { call, outcome };
            self.stage = DriverStage::Committing(RunInput::Verified(verified, Vec::new()));
            return;
        }
        let is_stopping = self
            .run
            .as_ref()
            .is_some_and(|run| run.is_cancelling() || run.has_interrupting_steer());
        let effect = ToolEffect {
            run: self.run_id,
            key_run: self.key_run(next.call),
            call: next.call,
            epoch: self.epoch,
            class: next.class,
        };
        let (end, output) = match is_stopping || next.action == ToolCallAction::Cancel {
            true => (ToolCallStatus::Interrupted, ToolOutput::text("stopped")),
            false => suspended_calls::perform(&self.services.world, effect, &next, choose),
        };
        results.push(ToolCallResult {
            call: next.call,
            status: end,
            output,
            active: Millis(2),
            blobs: Vec::new(),
        });
        self.stage = DriverStage::RunningTools(pending, results);
    }

    /// Returns the run in the idempotency key of a call.
    fn key_run(&self, call: CallId) -> RunId {
        let origin = self.run.as_ref().and_then(|run| run.call_origin(call));
        origin.map_or(self.run_id, |origin| origin.run)
    }

    /// Decides on an input and appends the resulting batch. On a conflict the input is decided
    /// again; the effect is not repeated.
    async fn commit(&mut self, input: RunInput) -> Result<DriveProgress, SimError> {
        let Some(run) = &self.run else {
            return Ok(DriveProgress::Done);
        };
        let Ok(batch) = decide(run, input.clone(), self.ctx.clone()) else {
            // The input is no longer valid, for example a result that was surfaced meanwhile.
            return Ok(DriveProgress::Continue);
        };
        if batch.is_empty() {
            return Ok(DriveProgress::Continue);
        }
        let author =
            JournalAuthor::Driver { worker: self.worker, epoch: self.epoch, after: run.seq() };
        let append = AppendRequest { run: self.run_id, author, batch };
        match self.services.store.append_to_journal(append).await? {
            AppendResult::Committed { .. } => {
                self.catch_up().await?;
                Ok(DriveProgress::Committed)
            }
            AppendResult::Conflict => {
                self.catch_up().await?;
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::OverBudget(account)) => {
                self.ctx.budget_account = Some(account);
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::OverCap(refusal)) => {
                self.ctx.add_cap_refusal(*refusal);
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::KeyTaken(key)) => {
                self.ctx.add_taken_key(EffectKeyOfOtherCall { key, result: None });
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::KeyNotHeld) => {
                self.ctx.forget_taken_keys();
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::NoSlot) => {
                self.ctx.no_sandbox_slot = true;
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Refused(AppendRefusalReason::CapWindowPassed) => {
                self.catch_up().await?;
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            AppendResult::Fenced | AppendResult::RunEnded => {
                self.surface_results(input).await?;
                Ok(DriveProgress::Done)
            }
            other @ (AppendResult::RunNotFound | AppendResult::Refused(_)) => {
                Err(format!("{}: a driver's append returned {other:?}", self.run_id).into())
            }
        }
    }

    /// Saves the real results of a driver that has lost its run, as an outsider.
    async fn surface_results(&self, input: RunInput) -> Result<(), SimError> {
        let RunInput::ToolsDone(results) = input else {
            return Ok(());
        };
        for tool in results.into_iter().filter(|tool| tool.status == ToolCallStatus::Completed) {
            let call = tool.call;
            let text = format!("{:?}", tool.output.content);
            let event = LateToolResultEvent { call, is_error: false, output: tool.output };
            let status = self.services.store.get_run(self.run_id).await?.map(|row| row.status);
            let Some(status) = status else { continue };
            let command = RunCommand::SurfaceResult(event);
            let decision = decide_command(self.run_id, status, command, self.ctx.clone());
            let appended = match decision {
                Err(_) => AppendResult::RunEnded,
                Ok(batch) => {
                    let author = JournalAuthor::Outsider;
                    self.services
                        .store
                        .append_to_journal(AppendRequest { run: self.run_id, author, batch })
                        .await?
                }
            };
            if appended == AppendResult::RunEnded {
                let late_result = LateToolResult { call, text };
                self.services.records.save_late_tool_result(self.run_id, late_result).await?;
            }
        }
        Ok(())
    }
}

fn sim_preparation(run: &Run) -> RunPrepared {
    RunPrepared {
        system: StoredText::new_inline("You are simulated."),
        tools: StoredText::new_inline("[]"),
        initial_messages: vec![Message::User(vec![Part::Text(run.task().input.as_str().into())])],
        model: "scripted/sim".into(),
        fallbacks: Vec::new(),
        pricing: PRICING,
        compactor: None,
        world: Some(StoredText::new_inline(r#""dawn""#)),
        context: BTreeMap::new(),
        external_tools: Vec::new(),
        identical_calls: None,
        no_progress: None,
        repeated_text: None,
        compactions: None,
        compaction: None,
        perception_active: Millis::ZERO,
    }
}

/// Returns a perception that changes every second turn.
pub(crate) fn sim_perception(run: &Run) -> PerceptionRefresh {
    let turns = run.control().turns;
    let ctx = format!("\"turn {}\"", turns / 2);
    let hash = Hash::digest(ctx.as_bytes());
    let is_new = run.perception().world != Some(hash);
    PerceptionRefresh {
        message: is_new.then(|| format!("It is now: {ctx}").into()),
        update: is_new.then(|| PerceptionUpdate { world_hash: hash, context: BTreeMap::new() }),
        active: Millis(1),
    }
}

fn sim_compaction(request: &ModelRequest) -> MemoryCompacted {
    MemoryCompacted {
        replaced: request.messages.len(),
        summary: vec![Message::user("A summary.")],
        usage: Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() },
        cost: None,
        model: "scripted/sim".into(),
        active: Millis(5),
    }
}
