//! One run, no store: a journal in a list, driven by the heart alone.
//!
//! Never: a second writer. It shows that a journal is enough to go on from.

use std::collections::BTreeMap;

use longhaul_core::change::{Batch, TimerKind};
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::run::{RunClaimed, RunPerceived};
use longhaul_core::event::tool::ToolVerified;
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::id::{Epoch, Seq, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::shelves::DueTimer;
use longhaul_core::raw::Body;
use longhaul_core::status::Outcome;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Usage;
use longhaul_run::input::{Replied, ToolDone, ToolEnd};
use longhaul_run::next::{Todo, Work, check_conversation};
use longhaul_run::outside::Word;
use longhaul_run::state::control::Rest;
use longhaul_run::{Input, Moment, Run, Step, decide, next};

use crate::sim::Fault;
use crate::sim::driver::look;
use crate::sim::outside::{Deed, Outside};
use crate::sim::script::{Script, TARIFF, appraise};

/// So many steps bring any scripted run to its end.
const STEPS_MAX: usize = 10_000;

/// A run and its journal.
#[derive(Debug, Clone)]
pub struct Lone {
    run: Run,
    journal: Vec<Entry>,
    outside: Outside,
    now: Timestamp,
}

impl Lone {
    /// Takes up a run from its journal, as a new driver.
    pub fn take_up(journal: &[Entry]) -> Result<Self, Fault> {
        let run = Run::replay(journal)?;
        let now = journal
            .last()
            .map_or_else(Timestamp::default, |entry| entry.at);
        Ok(Self {
            run,
            journal: journal.to_vec(),
            outside: Outside::default(),
            now,
        })
    }

    /// Goes on to the end: every gate is answered, every timer fires.
    pub fn finish(mut self) -> Result<(Outcome, Vec<Entry>), Fault> {
        self.claim()?;
        for _ in 0..STEPS_MAX {
            if let Some(outcome) = self.run.outcome() {
                return Ok((outcome.clone(), self.journal));
            }
            self.now = self.now.plus(Millis(1));
            let step = next(&self.run, self.now);
            if step == Step::Rest {
                self.wake()?;
                self.claim()?;
            } else {
                let input = self.act(step)?;
                self.tell(input)?;
            }
        }
        Err("a run without an end".into())
    }

    fn moment(&self) -> Moment {
        Moment::at(self.now)
    }

    fn claim(&mut self) -> Result<(), Fault> {
        if self.run.outcome().is_some() {
            return Ok(());
        }
        let epoch = Epoch(self.run.control().epoch.0 + 1);
        let worker = WorkerId::from_bits(u128::from(epoch.0));
        self.write(Batch {
            events: vec![Event::RunClaimed(RunClaimed { worker, epoch })],
            changes: Vec::new(),
        })?;
        self.tell(Input::GoOn)
    }

    fn tell(&mut self, input: Input) -> Result<(), Fault> {
        let batch = decide(&self.run, input, self.moment())?;
        self.write(batch)
    }

    fn write(&mut self, batch: Batch) -> Result<(), Fault> {
        for event in batch.events {
            // A fact is only as good as what can be read back of it.
            let event = Event::decode(event.kind(), event.version(), &event.encode()?)?;
            let epoch = if let Event::RunClaimed(claimed) = &event {
                claimed.epoch
            } else {
                self.run.control().epoch
            };
            let seq: Seq = self.run.seq().next();
            let entry = Entry {
                run: self.run.id(),
                seq,
                at: self.now,
                epoch,
                event,
            };
            self.run.apply(&entry)?;
            self.journal.push(entry);
        }
        Ok(())
    }

    fn act(&self, step: Step) -> Result<Input, Fault> {
        Ok(match step {
            Step::Perceive => {
                let seen = RunPerceived {
                    system: Body::inline("You are simulated."),
                    tools: Body::inline("[]"),
                    opening: vec![Message::user(self.run.task().input.as_str())],
                    model: "scripted/sim".into(),
                    fallbacks: Vec::new(),
                    tariff: TARIFF,
                    compactor: None,
                    world: None,
                    context: BTreeMap::new(),
                    supplied: Vec::new(),
                    circles: None,
                };
                Input::Perceived(Box::new(seen), Vec::new())
            }
            Step::Look => Input::Looked(Box::new(look(&self.run))),
            Step::AskModel(ask) => {
                check_conversation(&ask.messages)?;
                match Script::of(&self.run.task().input).reply(&ask) {
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
            }
            Step::Compact(ask) => Input::Compacted(Box::new(MemoryCompacted {
                replaced: ask.messages.len(),
                summary: vec![Message::user("A summary.")],
                usage: Usage::default(),
                cost: None,
                model: "scripted/sim".into(),
                active: Millis(5),
            })),
            Step::UseTools(todos) => self.use_tools(&todos),
            Step::Park(_) | Step::Finish(_) | Step::GoOn | Step::Rest => Input::GoOn,
        })
    }

    fn use_tools(&self, todos: &[Todo]) -> Input {
        let run = self.run.id();
        let epoch = self.run.control().epoch;
        if let Some(look) = todos.iter().find(|todo| todo.work == Work::Verify) {
            let finding = self.outside.verify(run, look.call);
            let call = look.call;
            return Input::Verified(ToolVerified { call, finding }, Vec::new());
        }
        let done = todos.iter().map(|todo| {
            let (call, class) = (todo.call, todo.class);
            let output = self.outside.act(Deed {
                run,
                call,
                epoch,
                class,
            });
            ToolDone {
                call,
                end: ToolEnd::Completed,
                output,
                active: Millis(2),
                blobs: Vec::new(),
            }
        });
        Input::ToolsDone(done.collect())
    }

    /// Whatever it waits for comes: a person, a time, money.
    fn wake(&mut self) -> Result<(), Fault> {
        if let Some(gate) = self.run.control().gates.first().cloned() {
            let decision = match gate.kind {
                GateKind::Approval | GateKind::Result => Decision::Approve,
                GateKind::InDoubt => Decision::Answer("it went well".into()),
                GateKind::Question | GateKind::Blocked => Decision::Answer("left".into()),
                GateKind::Signal => Decision::Complete,
            };
            let answer = Answer {
                decision,
                by: "anna".into(),
                scope: Scope::Once,
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
            return self.tell(Input::Outside(Word::Answer { gate, answer }));
        }
        let rest = self.run.control().rest.clone();
        if let Some(Rest::Parked {
            wait,
            timer: Some(timer),
        }) = &rest
        {
            self.now = wait.until().unwrap_or(self.now).max(self.now);
            let due = Box::new(DueTimer {
                timer: *timer,
                run: self.run.id(),
                what: TimerKind::Wake,
                due: self.now,
                ended: false,
                gate: None,
            });
            return self.tell(Input::Outside(Word::Timer(due)));
        }
        let raise = longhaul_core::policy::budget::Raise {
            micros: Some(longhaul_core::usage::Micros(1_000_000_000)),
            ..Default::default()
        };
        self.tell(Input::Outside(Word::Resume {
            by: "anna".into(),
            raise: Some(raise),
        }))
    }
}
