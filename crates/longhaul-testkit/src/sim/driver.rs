//! Drives one claimed run in small steps, so that a crash fits between any two:
//! before the effect, after the effect, before the append, after the append.
//!
//! Never: keeps anything that a crash could miss. All it holds is lost with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::change::LateResult;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::tool::{ToolSurfaced, ToolVerified};
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::message::{Message, Part};
use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, ReadRequest, Refused, Store,
};
use longhaul_core::raw::{Hash, StoredText};
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use longhaul_run::commands::{RunCommand, RunSnapshot, decide_command};
use longhaul_run::input::{
    InterruptedReply, ModelReply, PerceptionRefresh, ToolCallResult, ToolCallStatus,
};
use longhaul_run::next::{CallAction, CallTask};
use longhaul_run::{DecideContext, Input, Run, Step, decide, next};

use crate::sim::SimError;
use crate::sim::external_world::{ExternalWorld, ModelCall, ToolEffect};
use crate::sim::script::{PRICING, Script, classify};

/// What a driver works with.
#[derive(Debug, Clone)]
pub struct SimServices {
    /// The journal and the queue.
    pub store: Arc<dyn Store>,
    /// The rows beside them.
    pub records: Arc<dyn RecordStore>,
    /// Keys and what they gave out.
    pub auth: Arc<dyn AuthStore>,
    /// The world that tools touch.
    pub world: ExternalWorld,
}

/// One claimed run in a worker's hands.
#[derive(Debug)]
pub struct ReferenceDriver {
    services: SimServices,
    run_id: RunId,
    worker: WorkerId,
    epoch: Epoch,
    run: Option<Run>,
    ctx: DecideContext,
    stage: DriverStage,
}

/// What the driver holds in its hands and would lose in a crash.
#[derive(Debug)]
enum DriverStage {
    /// It has just claimed.
    Claimed,
    /// It is about to ask what is next.
    Ready,
    /// The model was asked and has not answered.
    CallingModel(ModelRequest),
    /// Tools are at work: these are not done yet, these are.
    RunningTools(Vec<CallTask>, Vec<ToolCallResult>),
    /// It has something to tell.
    Committing(Input),
}

/// Whether a drive goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveProgress {
    /// There is more to do.
    Continue,
    /// Something was written, and there is more to do.
    Committed,
    /// The run rests, has ended, or is another's.
    Done,
}

impl ReferenceDriver {
    /// Takes up a claimed run.
    pub fn new(
        ports: SimServices,
        worker: WorkerId,
        claimed: &Claim,
        moment: DecideContext,
    ) -> Self {
        Self {
            services: ports,
            run_id: claimed.run,
            worker,
            epoch: claimed.epoch,
            run: None,
            ctx: moment,
            stage: DriverStage::Claimed,
        }
    }

    /// Which run.
    pub const fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Whether the next step tells something: a kill before it loses an answer.
    pub const fn is_committing(&self) -> bool {
        matches!(self.stage, DriverStage::Committing(_))
    }

    /// Does one small step. `choose` draws a number below its argument.
    pub async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError> {
        match std::mem::replace(&mut self.stage, DriverStage::Ready) {
            DriverStage::Claimed => {
                self.catch_up().await?;
                self.stage = DriverStage::Committing(Input::Advance);
                Ok(DriveProgress::Continue)
            }
            DriverStage::Ready => self.next_step(),
            DriverStage::CallingModel(ask) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.receive_reply(&ask);
                Ok(DriveProgress::Continue)
            }
            DriverStage::RunningTools(todo, done) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.run_one_tool(todo, done, choose);
                Ok(DriveProgress::Continue)
            }
            DriverStage::Committing(input) => self.commit(input).await,
        }
    }

    /// Reads what others have written and folds it.
    async fn catch_up(&mut self) -> Result<(), SimError> {
        loop {
            let after = self.run.as_ref().map_or(Seq::START, Run::seq);
            let ask = ReadRequest { run: self.run_id, after, limit: 100 };
            let page = self.services.store.read(ask).await?;
            for entry in &page.entries {
                match &mut self.run {
                    None => self.run = Some(Run::from_first_entry(entry)?),
                    Some(run) => run.apply(entry)?,
                }
            }
            self.ctx = DecideContext::new(page.now);
            if self.run.as_ref().is_none_or(|run| run.seq() >= page.last_seq) {
                return Ok(());
            }
        }
    }

    /// Asks the heart what must be done.
    fn next_step(&mut self) -> Result<DriveProgress, SimError> {
        let Some(run) = &self.run else {
            return Ok(DriveProgress::Done);
        };
        self.stage = match next(run, self.ctx.now) {
            Step::Prepare => {
                DriverStage::Committing(Input::Prepared(Box::new(sim_preparation(run)), Vec::new()))
            }
            Step::RefreshPerception => {
                DriverStage::Committing(Input::PerceptionRefreshed(Box::new(sim_perception(run))))
            }
            Step::AskModel(ask) | Step::Compact(ask) => {
                longhaul_run::next::check_conversation(&ask.messages)?;
                let (turn, attempt) = (ask.turn, ask.attempt);
                self.services.world.record_model_call(ModelCall {
                    run: self.run_id,
                    turn,
                    attempt,
                });
                DriverStage::CallingModel(ask)
            }
            Step::UseTools(todo) => DriverStage::RunningTools(todo, Vec::new()),
            Step::Park(_) | Step::Finish(_) | Step::Advance => {
                DriverStage::Committing(Input::Advance)
            }
            Step::Idle => return Ok(DriveProgress::Done),
        };
        Ok(DriveProgress::Continue)
    }

    /// The model answers, or is cut off.
    fn receive_reply(&mut self, ask: &ModelRequest) {
        let Some(run) = &self.run else { return };
        let input = if run.is_stopping() {
            let failure = Failure::new(FailureClass::Stopped, "stopped");
            Input::ModelFailed { failure, cost: None, active: Millis(3) }
        } else if run.is_interrupted() {
            Input::ModelInterrupted(InterruptedReply {
                text: "I was about to".into(),
                usage: Usage { output_tokens: 4, estimated: true, ..Usage::default() },
                cost: Some(PRICING.price.unwrap_or_default().cost(Usage::default())),
                active: Millis(3),
            })
        } else if matches!(next(run, self.ctx.now), Step::Compact(_)) {
            Input::Compacted(Box::new(sim_compaction(ask)))
        } else {
            match Script::from_input(&run.task().input).reply(ask) {
                Err(failure) => Input::ModelFailed { failure, cost: None, active: Millis(4) },
                Ok(answered) => {
                    let calls = answered.reply.calls().map(classify).collect();
                    Input::ModelReplied(Box::new(ModelReply {
                        response: answered,
                        calls,
                        output_check: None,
                        active: Millis(5),
                    }))
                }
            }
        };
        self.stage = DriverStage::Committing(input);
    }

    /// Lets one tool do its work, or tells what is done so far.
    fn run_one_tool(
        &mut self,
        mut todo: Vec<CallTask>,
        mut done: Vec<ToolCallResult>,
        choose: &mut dyn FnMut(usize) -> usize,
    ) {
        if todo.is_empty() || (!done.is_empty() && choose(4) == 0) {
            self.stage = DriverStage::Committing(Input::ToolsDone(done));
            return;
        }
        let next = todo.remove(choose(todo.len()));
        if next.action == CallAction::Verify {
            let finding = self.services.world.verify(self.run_id, next.call);
            let call = next.call;
            let seen = ToolVerified { call, outcome: finding };
            self.stage = DriverStage::Committing(Input::Verified(seen, Vec::new()));
            return;
        }
        let stopping =
            self.run.as_ref().is_some_and(|run| run.is_stopping() || run.is_interrupted());
        let (end, output) = if stopping {
            (ToolCallStatus::Interrupted, longhaul_core::event::tool::ToolOutput::text("stopped"))
        } else {
            let deed = ToolEffect {
                run: self.run_id,
                call: next.call,
                epoch: self.epoch,
                class: next.class,
            };
            (ToolCallStatus::Completed, self.services.world.perform(deed))
        };
        done.push(ToolCallResult {
            call: next.call,
            status: end,
            output,
            active: Millis(2),
            blobs: Vec::new(),
        });
        self.stage = DriverStage::RunningTools(todo, done);
    }

    /// Decides an input and writes what follows; when the journal has moved on
    /// it is decided again, never produced again.
    async fn commit(&mut self, input: Input) -> Result<DriveProgress, SimError> {
        let Some(run) = &self.run else {
            return Ok(DriveProgress::Done);
        };
        let Ok(batch) = decide(run, input.clone(), self.ctx) else {
            // It no longer fits, such as a result that surfaced meanwhile.
            return Ok(DriveProgress::Continue);
        };
        if batch.is_empty() {
            return Ok(DriveProgress::Continue);
        }
        let author = Author::Driver { worker: self.worker, epoch: self.epoch, after: run.seq() };
        let append = AppendRequest { run: self.run_id, author, batch };
        match self.services.store.append(append).await? {
            Appended::At { .. } => {
                self.catch_up().await?;
                Ok(DriveProgress::Committed)
            }
            Appended::Conflict => {
                self.catch_up().await?;
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            Appended::Refused(Refused::OverBudget(left)) => {
                self.ctx.remaining_budget = Some(left);
                self.stage = DriverStage::Committing(input);
                Ok(DriveProgress::Continue)
            }
            Appended::Fenced | Appended::RunEnded => {
                self.surface_results(input).await?;
                Ok(DriveProgress::Done)
            }
            other @ (Appended::RunNotFound | Appended::Refused(_)) => {
                Err(format!("{}: a driver's append was answered {other:?}", self.run_id).into())
            }
        }
    }

    /// A driver that has lost the run hands its real results in as an outsider.
    async fn surface_results(&self, input: Input) -> Result<(), SimError> {
        let Input::ToolsDone(done) = input else {
            return Ok(());
        };
        for tool in done.into_iter().filter(|tool| tool.status == ToolCallStatus::Completed) {
            let call = tool.call;
            let text = format!("{:?}", tool.output.content);
            let surfaced = ToolSurfaced { call, is_error: false, output: tool.output };
            let status = self.services.store.get_run(self.run_id).await?.map(|row| row.status);
            let Some(status) = status else { continue };
            let view = RunSnapshot { run: self.run_id, status };
            let told = decide_command(&view, RunCommand::SurfaceResult(surfaced), self.ctx);
            let kept = match told {
                Err(_) => Appended::RunEnded,
                Ok(batch) => {
                    let author = Author::Outsider;
                    self.services
                        .store
                        .append(AppendRequest { run: self.run_id, author, batch })
                        .await?
                }
            };
            if kept == Appended::RunEnded {
                let late = LateResult { call, text };
                self.services.records.save_late_result(self.run_id, late).await?;
            }
        }
        Ok(())
    }
}

fn sim_preparation(run: &Run) -> RunPrepared {
    RunPrepared {
        system: StoredText::inline("You are simulated."),
        tools: StoredText::inline("[]"),
        initial_messages: vec![Message::User(vec![Part::Text(run.task().input.as_str().into())])],
        model: "scripted/sim".into(),
        fallbacks: Vec::new(),
        pricing: PRICING,
        compactor: None,
        world: Some(StoredText::inline(r#""dawn""#)),
        context: BTreeMap::new(),
        external_tools: Vec::new(),
        identical_calls: None,
    }
}

/// A world that is another at every other turn.
pub(crate) fn sim_perception(run: &Run) -> PerceptionRefresh {
    let turns = run.control().turns;
    let world = format!("\"turn {}\"", turns / 2);
    let hash = Hash::digest(world.as_bytes());
    let is_new = run.perception().world() != Some(hash);
    PerceptionRefresh {
        message: is_new.then(|| format!("It is now: {world}").into()),
        update: is_new.then(|| PerceptionUpdate { world_hash: hash, context: BTreeMap::new() }),
    }
}

fn sim_compaction(ask: &ModelRequest) -> MemoryCompacted {
    MemoryCompacted {
        replaced: ask.messages.len(),
        summary: vec![Message::user("A summary.")],
        usage: Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() },
        cost: None,
        model: "scripted/sim".into(),
        active: Millis(5),
    }
}
