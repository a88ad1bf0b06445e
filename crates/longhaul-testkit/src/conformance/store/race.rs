//! Many hands at once. Each check runs a bounded number of rounds, and looks
//! afterwards whether anything was lost, doubled or passed over.
//!
//! Never: waits for what may not come. A run that sleeps for ever is seen
//! because nothing is left to do while it is not ended.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{Batch, Change, SandboxRow, SandboxState, Seat, Settlement};
use longhaul_core::event::Event;
use longhaul_core::event::world::TimerFired;
use longhaul_core::id::{GateId, InboxName, RunId, SandboxId, Seq, WorkerId};
use longhaul_core::port::store::{Appended, ClaimAsk, GatesAsk, ReadAsk, Refused};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, Micros};

use crate::conformance::store::facts::{
    And as _, answers, arms, ends, fires, gate_spec, only, parks, progress, raises, releases, says,
    spends,
};
use crate::conformance::store::kit::{Held, World, claim_ask, inbox, stands};

/// How often a driver decides again before the check gives up on it.
const DECISIONS_MAX: usize = 20;

/// How many rounds go on at the same time.
const ABREAST: usize = 16;

/// A driver parks while somebody answers. Either the driver sees the answer, or
/// the answer wakes the run: it never sleeps for ever.
pub async fn a_park_that_races_an_answer_never_sleeps(world: World) {
    let worker = world.worker().await;
    abreast(&world, world.at.rounds, move |world, number| async move {
        let round = Round {
            world,
            worker,
            number,
        };
        let mut held = round.begin().await;
        let gate = round.world.ids.gate();
        held.write(raises(gate_spec(gate))).await;
        let run = held.run;
        let mut sides = JoinSet::new();
        sides.spawn(park_unless_answered(held));
        let outside = round.world.clone();
        sides.spawn(async move {
            yield_now().await;
            stands(&outside.tell(run, answers(gate, "cli:anna")).await);
        });
        sides.join_all().await;
        round.end().await;
    })
    .await;
}

/// Of many who answer at once one is first, and all the others learn who.
pub async fn a_gate_hears_one_of_many_voices(world: World) {
    let worker = world.worker().await;
    abreast(
        &world,
        world.at.rounds / 20,
        move |world, number| async move {
            let round = Round {
                world,
                worker,
                number,
            };
            let mut held = round.begin().await;
            let gate = round.world.ids.gate();
            held.write(raises(gate_spec(gate))).await;
            held.park("approval").await;
            let mut voices = JoinSet::new();
            for voice in 0..4 {
                let world = round.world.clone();
                let run = held.run;
                voices.spawn(async move {
                    let by = format!("cli:{voice}");
                    (by.clone(), world.tell(run, answers(gate, &by)).await)
                });
            }
            let said = voices.join_all().await;
            let heard = said.iter().filter(|(_, told)| is_at(told));
            let heard: Vec<&str> = heard.map(|(by, _)| by.as_str()).collect();
            assert_eq!(heard.len(), 1, "{said:?}");
            assert_eq!(answered_by(&round.world, gate).await, heard);
            let facts = round.world.kinds(held.run).await;
            let answered = facts.iter().filter(|kind| **kind == "gate.answered");
            assert_eq!(answered.count(), 1);
            round.end().await;
        },
    )
    .await;
}

/// Many sweeps at once tell each timer once.
pub async fn a_timer_is_told_by_one_of_many_sweeps(world: World) {
    let worker = world.worker().await;
    let rounds = world.at.rounds / 40;
    for _ in 0..rounds {
        let mut held = world.held(|_| {}).await;
        let timer = arms(world.ids.timer(), held.run, Millis(5));
        held.write(parks("timer").and(timer)).await;
    }
    world.pass(Millis(5));
    let mut sweeps = JoinSet::new();
    for _ in 0..4 {
        sweeps.spawn(sweep(world.clone()));
    }
    let told: usize = sweeps.join_all().await.into_iter().sum();
    assert_eq!(told, rounds);
    assert_eq!(world.at.shelves.next_due().await.expect("next due"), None);
    assert_eq!(world.claim(worker).await.len(), rounds);
}

/// However many runs of a tree hold at once, the cap is never passed.
pub async fn holds_of_a_tree_never_pass_its_cap(world: World) {
    let worker = world.worker().await;
    let root = world
        .open(|task| task.policy.budget.micros = Some(Micros(300)))
        .await;
    for _ in 0..5 {
        let child = world.new_run(|task| {
            task.root = root;
            task.parent = Some(root);
        });
        world.ask(vec![child]).await;
    }
    let mut drivers = JoinSet::new();
    for claimed in world.claim(worker).await {
        let held = Held::new(&world, worker, &claimed);
        drivers.spawn(spend(held, root, world.at.rounds / 40));
    }
    let spent: u64 = drivers.join_all().await.into_iter().sum();
    let account = world.at.shelves.account(root).await.expect("account");
    let account = account.expect("a root has an account");
    assert_eq!(account.held, Hold::default());
    assert_eq!(account.spent.micros, Micros(spent));
    assert!(spent <= 300, "{account:?}");
}

/// More runs than seats, each queueing before it tries to sit: never more sit
/// than there are seats, and everybody sits once.
pub async fn seats_are_enough_for_everybody_in_turn(world: World) {
    let runs = (world.at.rounds / 100).clamp(6, 24);
    for _ in 0..runs {
        world.open(|_| {}).await;
    }
    let mut crew = JoinSet::new();
    for _ in 0..4 {
        let worker = world.worker().await;
        crew.spawn(sit_in_turn(world.clone(), worker));
    }
    let mut sat: usize = crew.join_all().await.into_iter().sum();
    // Whoever was told of a seat when its crew had gone home is served now.
    let last = world.worker().await;
    sat += sit_in_turn(world.clone(), last).await;
    assert_eq!(sat, runs, "somebody waits beside a free seat");
}

/// A journal that a driver and outsiders write to at once has no gap and no
/// fact twice.
pub async fn a_journal_has_no_gap_under_many_pens(world: World) {
    let held = world.held(|_| {}).await;
    let run = held.run;
    let rounds = world.at.rounds / 20;
    let mut pens = JoinSet::new();
    pens.spawn(write_on(held, rounds));
    for _ in 0..2 {
        let world = world.clone();
        pens.spawn(async move {
            for _ in 0..rounds {
                let timer = world.ids.timer();
                let fact = Event::TimerFired(TimerFired { timer });
                stands(&world.tell(run, says([fact])).await);
                yield_now().await;
            }
        });
    }
    pens.join_all().await;
    let entries = read_all(&world, run, Seq::START).await;
    let gapless = entries
        .iter()
        .zip(1..)
        .all(|((seq, _), count)| seq.0 == count);
    assert!(gapless, "a gap in {run}");
    let count = |kind| {
        entries
            .iter()
            .filter(|(_, event)| event.kind() == kind)
            .count()
    };
    assert_eq!(
        (count("progress.reported"), count("timer.fired")),
        (rounds, 2 * rounds)
    );
    assert_eq!(world.row(run).await.last.0 as usize, entries.len());
}

/// Runs so many rounds, some of them at the same time.
async fn abreast<F, R>(world: &World, rounds: usize, round: F)
where
    F: Fn(World, usize) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let mut going = JoinSet::new();
    for number in 0..rounds {
        if going.len() >= ABREAST {
            joined(going.join_next().await);
        }
        going.spawn(round(world.clone(), number));
    }
    while let Some(done) = going.join_next().await {
        joined(Some(done));
    }
}

/// Hands a failed assertion of a round on to the check.
fn joined(done: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(failed)) = done {
        match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(failed) => panic!("{failed}"),
        }
    }
}

/// One round of a race: a run in an inbox of its own, so that rounds which go
/// on at the same time don't take each other's.
#[derive(Debug, Clone)]
struct Round {
    world: World,
    worker: WorkerId,
    number: usize,
}

impl Round {
    async fn begin(&self) -> Held {
        self.world.open(|task| task.inbox = self.inbox()).await;
        self.take().await.expect("a run was opened")
    }

    /// The run is ready, or it sleeps for ever.
    async fn end(&self) {
        let mut held = self.take().await.expect("the run was woken");
        held.write(ends()).await;
    }

    async fn take(&self) -> Option<Held> {
        let ask = ClaimAsk {
            inboxes: vec![self.inbox()],
            ..claim_ask(self.worker)
        };
        let claimed = self.world.claim_as(ask).await.pop()?;
        Some(Held::new(&self.world, self.worker, &claimed))
    }

    fn inbox(&self) -> InboxName {
        inbox(&format!("round{}", self.number))
    }
}

/// What a driver does at a gate: it reads, and parks if nobody has answered.
async fn park_unless_answered(mut held: Held) {
    for _ in 0..DECISIONS_MAX {
        let tail = read_all(&held.world, held.run, held.last).await;
        held.last = tail.last().map_or(held.last, |(seq, _)| *seq);
        let batch = if tail
            .iter()
            .any(|(_, event)| event.kind() == "gate.answered")
        {
            releases()
        } else {
            parks("approval")
        };
        yield_now().await;
        match held.append(batch).await {
            Appended::At { .. } => return,
            Appended::MovedOn => {}
            other @ (Appended::Fenced
            | Appended::RunEnded
            | Appended::NoRun
            | Appended::Refused(_)) => panic!("{other:?}"),
        }
    }
    panic!("{} moved on {DECISIONS_MAX} times", held.run);
}

/// Tells every timer that is due, as a sweep does, and says how many it told.
async fn sweep(world: World) -> usize {
    let mut told = 0;
    loop {
        let due = world.at.shelves.due(8).await.expect("due");
        if due.is_empty() {
            return told;
        }
        for row in due {
            let heard = world.tell(row.run, fires(row.timer)).await;
            told += usize::from(is_at(&heard));
            if heard == Appended::RunEnded {
                world.tell(row.run, only(spends(row.timer))).await;
            }
            yield_now().await;
        }
    }
}

/// Drives what is ready and says how many runs it saw through.
async fn sit_in_turn(world: World, worker: WorkerId) -> usize {
    let mut ended = 0;
    loop {
        sweep(world.clone()).await;
        let Some(held) = world.try_take(worker).await else {
            return ended;
        };
        ended += usize::from(sit_or_park(held).await);
    }
}

/// Queues, then tries to sit; sits, gets up and ends, or parks. Whoever queues
/// first can't miss the seat that is freed between the try and the park.
async fn sit_or_park(mut held: Held) -> bool {
    let sandbox = SandboxId::from_bits(held.run.bits());
    let mut sits = false;
    for _ in 0..DECISIONS_MAX {
        held.last = held.world.row(held.run).await.last;
        if sits {
            if is_at(&held.append(ends().and(Change::FreeSeat(sandbox))).await) {
                return true;
            }
            continue;
        }
        let queues = Change::QueueSeat("local".to_owned());
        if !is_at(&held.change(queues).await) {
            continue;
        }
        yield_now().await;
        let told = held.append(sits_down(sandbox, held.run)).await;
        sits = is_at(&told);
        let is_full = told == Appended::Refused(Refused::NoSeat);
        if is_full && is_at(&held.append(parks("sandbox_slot")).await) {
            return false;
        }
        yield_now().await;
    }
    panic!("{} moved on {DECISIONS_MAX} times", held.run);
}

fn sits_down(sandbox: SandboxId, owner: RunId) -> Batch {
    let provider = "local".to_owned();
    let row = SandboxRow {
        sandbox,
        provider: provider.clone(),
        handle: String::new(),
        state: SandboxState::Running,
        host: None,
        owner,
    };
    let seat = Seat {
        sandbox,
        provider,
        seats: 2,
    };
    says([progress(1)])
        .and(Change::TakeSeat(seat))
        .and(Change::SetSandbox(row))
}

/// Holds and settles so often, and says what it spent.
async fn spend(mut held: Held, root: RunId, rounds: usize) -> u64 {
    let hold = Hold {
        micros: Micros(70),
        tokens: 7,
    };
    let used = Hold {
        micros: Micros(1),
        tokens: 1,
    };
    let mut spent = 0;
    for _ in 0..rounds {
        if !is_at(&held.change(Change::Hold(hold)).await) {
            yield_now().await;
            continue;
        }
        let account = held.world.at.shelves.account(root).await.expect("account");
        let account = account.expect("a root has an account");
        let total = account.held.micros.0 + account.spent.micros.0 + account.lost.micros.0;
        assert!(total <= 300, "{account:?}");
        yield_now().await;
        let settlement = Settlement {
            held: hold,
            spent: used,
            lost: Hold::default(),
        };
        stands(&held.change(Change::Settle(settlement)).await);
        spent += 1;
    }
    spent
}

/// Writes so many facts, reading on whenever others were faster.
async fn write_on(mut held: Held, facts: usize) {
    let mut written = 0;
    // Outsiders write so much and no more, and each makes one decision void.
    for _ in 0..=3 * facts {
        if written == facts {
            return;
        }
        match held.append(says([progress(1)])).await {
            Appended::At { .. } => written += 1,
            Appended::MovedOn => {
                let tail = read_all(&held.world, held.run, held.last).await;
                held.last = tail.last().map_or(held.last, |(seq, _)| *seq);
            }
            other @ (Appended::Fenced
            | Appended::RunEnded
            | Appended::NoRun
            | Appended::Refused(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!(written, facts);
}

async fn read_all(world: &World, run: RunId, after: Seq) -> Vec<(Seq, Event)> {
    let ask = ReadAsk {
        run,
        after,
        limit: usize::MAX,
    };
    let page = world.at.store.read(ask).await.expect("read");
    let entries = page.entries.into_iter();
    entries.map(|entry| (entry.seq, entry.event)).collect()
}

async fn answered_by(world: &World, gate: GateId) -> Vec<String> {
    let ask = GatesAsk {
        gate: Some(gate),
        limit: 1,
        ..GatesAsk::default()
    };
    let rows = world.at.store.gates(ask).await.expect("gates");
    let answers = rows.into_iter().flat_map(|row| row.answers);
    answers.map(|given| given.answer.by).collect()
}

fn is_at(appended: &Appended) -> bool {
    matches!(appended, Appended::At { .. })
}
