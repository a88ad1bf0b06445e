//! Drives one claimed run in small steps, so that a crash fits between any two:
//! before the effect, after the effect, before the append, after the append.
//!
//! Never: keeps anything that a crash could miss. All it holds is lost with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::change::LateResult;
use longhaul_core::event::run::RunPerceived;
use longhaul_core::event::tool::{ToolSurfaced, ToolVerified};
use longhaul_core::event::turn::Seen;
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::message::{Message, Part};
use longhaul_core::port::keyring::Keyring;
use longhaul_core::port::model::Ask;
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::store::{Append, Appended, Author, Claimed, ReadAsk, Refused, Store};
use longhaul_core::raw::{Body, Hash};
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use longhaul_run::input::{CutOff, Looked, Replied, ToolDone, ToolEnd};
use longhaul_run::next::{Todo, Work};
use longhaul_run::outside::{View, Word, tell};
use longhaul_run::{Input, Moment, Run, Step, decide, next};

use crate::sim::Fault;
use crate::sim::outside::{Asked, Deed, Outside};
use crate::sim::script::{Script, TARIFF, appraise};

/// What a driver works with.
#[derive(Debug, Clone)]
pub struct Ports {
    /// The journal and the queue.
    pub store: Arc<dyn Store>,
    /// The rows beside them.
    pub shelves: Arc<dyn Shelves>,
    /// Keys and what they gave out.
    pub keyring: Arc<dyn Keyring>,
    /// The world that tools touch.
    pub outside: Outside,
}

/// One claimed run in a worker's hands.
#[derive(Debug)]
pub struct Drive {
    ports: Ports,
    run_id: RunId,
    worker: WorkerId,
    epoch: Epoch,
    run: Option<Run>,
    moment: Moment,
    stage: Doing,
}

/// What the driver holds in its hands and would lose in a crash.
#[derive(Debug)]
enum Doing {
    /// It has just claimed.
    Arriving,
    /// It is about to ask what is next.
    Free,
    /// The model was asked and has not answered.
    Asking(Ask),
    /// Tools are at work: these are not done yet, these are.
    Using(Vec<Todo>, Vec<ToolDone>),
    /// It has something to tell.
    Telling(Input),
}

/// Whether a drive goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// There is more to do.
    On,
    /// Something was written, and there is more to do.
    Wrote,
    /// The run rests, has ended, or is another's.
    Over,
}

impl Drive {
    /// Takes up a claimed run.
    pub fn new(ports: Ports, worker: WorkerId, claimed: &Claimed, moment: Moment) -> Self {
        Self {
            ports,
            run_id: claimed.run,
            worker,
            epoch: claimed.epoch,
            run: None,
            moment,
            stage: Doing::Arriving,
        }
    }

    /// Which run.
    pub const fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Whether the next step tells something: a kill before it loses an answer.
    pub const fn is_telling(&self) -> bool {
        matches!(self.stage, Doing::Telling(_))
    }

    /// Does one small step. `choose` draws a number below its argument.
    pub async fn step(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> Result<Going, Fault> {
        match std::mem::replace(&mut self.stage, Doing::Free) {
            Doing::Arriving => {
                self.catch_up().await?;
                self.stage = Doing::Telling(Input::GoOn);
                Ok(Going::On)
            }
            Doing::Free => self.look(),
            Doing::Asking(ask) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.hear(&ask);
                Ok(Going::On)
            }
            Doing::Using(todo, done) => {
                if choose(3) == 0 {
                    self.catch_up().await?;
                }
                self.use_one(todo, done, choose);
                Ok(Going::On)
            }
            Doing::Telling(input) => self.tell(input).await,
        }
    }

    /// Reads what others have written and folds it.
    async fn catch_up(&mut self) -> Result<(), Fault> {
        loop {
            let after = self.run.as_ref().map_or(Seq::START, Run::seq);
            let ask = ReadAsk {
                run: self.run_id,
                after,
                limit: 100,
            };
            let page = self.ports.store.read(ask).await?;
            for entry in &page.entries {
                match &mut self.run {
                    None => self.run = Some(Run::begin(entry)?),
                    Some(run) => run.apply(entry)?,
                }
            }
            self.moment = Moment::at(page.now);
            if self.run.as_ref().is_none_or(|run| run.seq() >= page.last) {
                return Ok(());
            }
        }
    }

    /// Asks the heart what must be done.
    fn look(&mut self) -> Result<Going, Fault> {
        let Some(run) = &self.run else {
            return Ok(Going::Over);
        };
        self.stage = match next(run, self.moment.now) {
            Step::Perceive => Doing::Telling(Input::Perceived(Box::new(perceive(run)), Vec::new())),
            Step::Look => Doing::Telling(Input::Looked(Box::new(look(run)))),
            Step::AskModel(ask) | Step::Compact(ask) => {
                longhaul_run::next::check_conversation(&ask.messages)?;
                let (turn, attempt) = (ask.turn, ask.attempt);
                self.ports.outside.ask(Asked {
                    run: self.run_id,
                    turn,
                    attempt,
                });
                Doing::Asking(ask)
            }
            Step::UseTools(todo) => Doing::Using(todo, Vec::new()),
            Step::Park(_) | Step::Finish(_) | Step::GoOn => Doing::Telling(Input::GoOn),
            Step::Rest => return Ok(Going::Over),
        };
        Ok(Going::On)
    }

    /// The model answers, or is cut off.
    fn hear(&mut self, ask: &Ask) {
        let Some(run) = &self.run else { return };
        let input = if run.is_stopping() {
            let failure = Failure::new(FailureClass::Stopped, "stopped");
            Input::ModelFailed {
                failure,
                cost: None,
                active: Millis(3),
            }
        } else if run.is_interrupted() {
            Input::Interrupted(CutOff {
                text: "I was about to".into(),
                usage: Usage {
                    output_tokens: 4,
                    estimated: true,
                    ..Usage::default()
                },
                cost: Some(TARIFF.price.unwrap_or_default().of(Usage::default())),
                active: Millis(3),
            })
        } else if matches!(next(run, self.moment.now), Step::Compact(_)) {
            Input::Compacted(Box::new(compact(ask)))
        } else {
            match Script::of(&run.task().input).reply(ask) {
                Err(failure) => Input::ModelFailed {
                    failure,
                    cost: None,
                    active: Millis(4),
                },
                Ok(answered) => {
                    let calls = answered.reply.calls().map(appraise).collect();
                    Input::Replied(Box::new(Replied {
                        answered,
                        calls,
                        fit: None,
                        active: Millis(5),
                    }))
                }
            }
        };
        self.stage = Doing::Telling(input);
    }

    /// Lets one tool do its work, or tells what is done so far.
    fn use_one(
        &mut self,
        mut todo: Vec<Todo>,
        mut done: Vec<ToolDone>,
        choose: &mut dyn FnMut(usize) -> usize,
    ) {
        if todo.is_empty() || (!done.is_empty() && choose(4) == 0) {
            self.stage = Doing::Telling(Input::ToolsDone(done));
            return;
        }
        let next = todo.remove(choose(todo.len()));
        if next.work == Work::Verify {
            let finding = self.ports.outside.verify(self.run_id, next.call);
            let call = next.call;
            let seen = ToolVerified { call, finding };
            self.stage = Doing::Telling(Input::Verified(seen, Vec::new()));
            return;
        }
        let stopping = self
            .run
            .as_ref()
            .is_some_and(|run| run.is_stopping() || run.is_interrupted());
        let (end, output) = if stopping {
            (
                ToolEnd::Interrupted,
                longhaul_core::event::tool::ToolOutput::text("stopped"),
            )
        } else {
            let deed = Deed {
                run: self.run_id,
                call: next.call,
                epoch: self.epoch,
                class: next.class,
            };
            (ToolEnd::Completed, self.ports.outside.act(deed))
        };
        done.push(ToolDone {
            call: next.call,
            end,
            output,
            active: Millis(2),
            blobs: Vec::new(),
        });
        self.stage = Doing::Using(todo, done);
    }

    /// Decides an input and writes what follows; when the journal has moved on
    /// it is decided again, never produced again.
    async fn tell(&mut self, input: Input) -> Result<Going, Fault> {
        let Some(run) = &self.run else {
            return Ok(Going::Over);
        };
        let Ok(batch) = decide(run, input.clone(), self.moment) else {
            // It no longer fits, such as a result that surfaced meanwhile.
            return Ok(Going::On);
        };
        if batch.is_empty() {
            return Ok(Going::On);
        }
        let author = Author::Driver {
            worker: self.worker,
            epoch: self.epoch,
            after: run.seq(),
        };
        let append = Append {
            run: self.run_id,
            author,
            batch,
        };
        match self.ports.store.append(append).await? {
            Appended::At { .. } => {
                self.catch_up().await?;
                Ok(Going::Wrote)
            }
            Appended::MovedOn => {
                self.catch_up().await?;
                self.stage = Doing::Telling(input);
                Ok(Going::On)
            }
            Appended::Refused(Refused::OverBudget(left)) => {
                self.moment.left = Some(left);
                self.stage = Doing::Telling(input);
                Ok(Going::On)
            }
            Appended::Fenced | Appended::RunEnded => {
                self.hand_in(input).await?;
                Ok(Going::Over)
            }
            other @ (Appended::NoRun | Appended::Refused(_)) => {
                Err(format!("{}: a driver's append was answered {other:?}", self.run_id).into())
            }
        }
    }

    /// A driver that has lost the run hands its real results in as an outsider.
    async fn hand_in(&self, input: Input) -> Result<(), Fault> {
        let Input::ToolsDone(done) = input else {
            return Ok(());
        };
        for tool in done
            .into_iter()
            .filter(|tool| tool.end == ToolEnd::Completed)
        {
            let call = tool.call;
            let text = format!("{:?}", tool.output.content);
            let surfaced = ToolSurfaced {
                call,
                is_error: false,
                output: tool.output,
            };
            let status = self
                .ports
                .store
                .row(self.run_id)
                .await?
                .map(|row| row.status);
            let Some(status) = status else { continue };
            let view = View {
                run: self.run_id,
                status,
            };
            let told = tell(&view, Word::Surface(surfaced), self.moment);
            let kept = match told {
                Err(_) => Appended::RunEnded,
                Ok(batch) => {
                    let author = Author::Outsider;
                    self.ports
                        .store
                        .append(Append {
                            run: self.run_id,
                            author,
                            batch,
                        })
                        .await?
                }
            };
            if kept == Appended::RunEnded {
                let late = LateResult { call, text };
                self.ports.shelves.keep_late(self.run_id, late).await?;
            }
        }
        Ok(())
    }
}

fn perceive(run: &Run) -> RunPerceived {
    RunPerceived {
        system: Body::inline("You are simulated."),
        tools: Body::inline("[]"),
        opening: vec![Message::User(vec![Part::Text(
            run.task().input.as_str().into(),
        )])],
        model: "scripted/sim".into(),
        fallbacks: Vec::new(),
        tariff: TARIFF,
        compactor: None,
        world: Some(Body::inline(r#""dawn""#)),
        context: BTreeMap::new(),
        supplied: Vec::new(),
        circles: None,
    }
}

/// A world that is another at every other turn.
pub(crate) fn look(run: &Run) -> Looked {
    let turns = run.control().turns;
    let world = format!("\"turn {}\"", turns / 2);
    let hash = Hash::of(world.as_bytes());
    let is_new = run.sights().world() != Some(hash);
    Looked {
        words: is_new.then(|| format!("It is now: {world}").into()),
        seen: is_new.then(|| Seen {
            world: hash,
            context: BTreeMap::new(),
        }),
    }
}

fn compact(ask: &Ask) -> MemoryCompacted {
    MemoryCompacted {
        replaced: ask.messages.len(),
        summary: vec![Message::user("A summary.")],
        usage: Usage {
            input_tokens: 50,
            output_tokens: 5,
            ..Usage::default()
        },
        cost: None,
        model: "scripted/sim".into(),
        active: Millis(5),
    }
}
