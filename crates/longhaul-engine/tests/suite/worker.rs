//! Workers: how many runs at once, how they go home, whom they tell, what they
//! do about a part that is missing, and how several share the work.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{InboxName, LaneKey, RunId};
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Decision, GateKind};
use longhaul_core::port::store::{RowsAsk, RunRow};
use longhaul_core::port::tool::Tool;
use longhaul_core::status::{Status, Wait};
use longhaul_engine::Task;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::ports::Ports;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::stop::Stop;
use longhaul_engine::toolbox::Toolbox;
use longhaul_engine::worker::{Worker, WorkerOptions};
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::shaky::Fault;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, answer, count, end, kinds, plan};
use longhaul_testkit::door::Door;

#[tokio::test]
async fn never_more_runs_at_once_than_a_worker_has_permits() {
    let door = Door::shut();
    let mut house = plan([Line::Text("done").behind(&door)]).open();
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(house.submit().await);
    }
    house.hire(|options| options.concurrency = 3);
    door.reached(3).await;
    let rows = house.longhaul.ports().store.rows(RowsAsk {
        limit: 100,
        ..RowsAsk::default()
    });
    let rows = rows.await.unwrap();
    let driven = rows.iter().filter(|row| row.worker.is_some());
    assert_eq!((driven.count(), door.came()), (3, 3));
    door.open();
    for run in runs {
        assert_eq!(end(&house.ended(run).await), "done");
    }
}

/// Whether a journal says that its run was let go of for another worker.
fn was_released(journal: &[Entry]) -> bool {
    journal.iter().any(
        |entry| matches!(&entry.event, Event::RunWaiting(waiting) if waiting.wait == Wait::Worker),
    )
}

#[tokio::test]
async fn a_run_in_a_question_is_let_go_of_and_another_worker_ends_it() {
    let door = Door::shut();
    let mut house = plan([Line::Text("never").behind(&door)]).open();
    let stop = house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    stop.drain();
    house.gone_home().await;
    house.hire(|_| {});
    let journal = house.ended(run).await;
    assert!(was_released(&journal), "{:?}", kinds(&journal));
    assert_eq!(
        (end(&journal).as_str(), count(&journal, "run.claimed")),
        ("done", 2)
    );
    let stopped = journal.iter().any(|entry| {
        matches!(&entry.event, Event::TurnFailed(failed)
            if failed.failure.class == FailureClass::Stopped)
    });
    assert!(stopped, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_run_in_a_call_ends_its_call_first() {
    for class in [Pure, Once] {
        let (door, deeds) = (Door::shut(), Deeds::default());
        let hand = Hand::new("act", class, &deeds).behind(&door);
        let mut house = plan([Line::call("act", json!({}))]).hands([hand]).open();
        let stop = house.hire(|options| options.drain = longhaul_core::time::Millis(5_000));
        let run = house.submit().await;
        door.reached(1).await;
        stop.drain();
        door.open();
        house.gone_home().await;
        assert_eq!(house.actor.asked().len(), 1);
        house.hire(|_| {});
        let journal = house.ended(run).await;
        assert!(was_released(&journal), "{:?}", kinds(&journal));
        assert_eq!(deeds.count("act begins"), 1);
        assert_eq!(count(&journal, "tool.in_doubt"), 0);
        assert_eq!(house.results(), [("{}".to_owned(), false)]);
    }
}

#[tokio::test]
async fn a_pure_call_that_is_cut_off_is_made_again_at_once() {
    let (door, deeds) = (Door::shut(), Deeds::default());
    let hand = Hand::new("act", Pure, &deeds).behind(&door);
    let mut house = plan([Line::call("act", json!({}))]).hands([hand]).open();
    let stop = house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    stop.cut();
    house.gone_home().await;
    door.open();
    house.hire(|_| {});
    let journal = house.ended(run).await;
    assert!(was_released(&journal), "{:?}", kinds(&journal));
    assert_eq!(end(&journal), "done");
    assert_eq!((deeds.count("act begins"), deeds.count("act ends")), (2, 1));
    assert_eq!(house.results(), [("{}".to_owned(), false)]);
}

#[tokio::test]
async fn a_run_is_let_go_of_without_reading_its_journal_again() {
    let door = Door::shut();
    let hand = Hand::new("act", Pure, &Deeds::default()).behind(&door);
    let mut house = plan([Line::call("act", json!({}))]).hands([hand]).open();
    let stop = house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house.store.fail_reads(Fault::Broken, 1);
    stop.cut();
    house.gone_home().await;
    assert!(!house.store.has_failed(), "nobody has read");
    let row = house.longhaul.ports().store.row(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
}

#[tokio::test]
async fn two_workers_share_the_work() {
    let door = Door::shut();
    let mut house = plan([Line::Text("done").behind(&door)]).open();
    for _ in 0..2 {
        house.hire(|options| options.concurrency = 1);
    }
    let runs = [house.submit().await, house.submit().await];
    door.reached(2).await;
    door.open();
    let mut workers = BTreeSet::new();
    for run in runs {
        for entry in house.ended(run).await {
            if let Event::RunClaimed(claimed) = entry.event {
                workers.insert(claimed.worker);
            }
        }
    }
    assert_eq!(workers.len(), 2);
}

#[tokio::test]
async fn the_runs_of_a_lane_go_one_after_another() {
    let deeds = Deeds::default();
    let hand = Hand::new("act", Once, &deeds);
    let mut house = plan([Line::call("act", json!({}))])
        .hands([hand])
        .agent(|agent| agent.lane = Some("repo:{{ input.repo }}".into()))
        .open();
    let submit = |n: usize| {
        let mut task = Task::new("tester", json!({ "repo": "a", "n": n }));
        task.lane = (n == 2).then(|| LaneKey::new("repo:a").unwrap());
        house.longhaul.submit(task)
    };
    let runs = [submit(0).await, submit(1).await, submit(2).await].map(Result::unwrap);
    let why = house.longhaul.why_view(runs[1]).await.unwrap();
    assert!(
        why.sentence.contains("the lane `repo:a`"),
        "{}",
        why.sentence
    );
    house.hire(|_| {});
    let mut ended_at = None;
    for run in runs {
        let journal = house.ended(run).await;
        let claimed = journal
            .iter()
            .find(|entry| entry.event.kind() == "run.claimed");
        assert!(
            claimed.map(|entry| entry.at) >= ended_at,
            "the one before has ended"
        );
        ended_at = journal.last().map(|entry| entry.at);
    }
    let alone = deeds.all();
    assert!(
        alone
            .chunks(2)
            .all(|pair| pair == ["act begins {}", "act ends {}"]),
        "{alone:?}"
    );
}

/// Writes down what it is told, and panics if it should.
#[derive(Debug, Default)]
struct Teller {
    told: Mutex<BTreeSet<&'static str>>,
    panics: bool,
}

impl Teller {
    fn hear(&self, what: &'static str) {
        self.told.lock().unwrap().insert(what);
        assert!(!self.panics, "a hook with a mistake");
    }
}

#[async_trait]
impl Hooks for Teller {
    async fn on_start(&self, _run: RunId) {
        self.hear("start");
    }

    async fn on_complete(&self, run: &RunRow) {
        assert_eq!(run.status, Status::Completed);
        self.hear("complete");
    }

    async fn on_error(&self, run: &RunRow) {
        assert_eq!(run.code.as_deref(), Some("auth"));
        self.hear("error");
    }

    async fn on_rest(&self, _run: &RunRow) {
        self.hear("rest");
    }

    async fn on_empty(&self) {
        self.hear("empty");
    }
}

#[tokio::test]
async fn hooks_are_told_and_one_that_panics_harms_nobody() {
    for panics in [false, true] {
        let hooks = Arc::new(Teller {
            panics,
            ..Teller::default()
        });
        let question = json!({ "question": "Which?" });
        let mut house = plan([Line::call("ask_human", question)]).open();
        let stop = house.hire_telling(hooks.clone());
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let said = answer(&gate, Decision::Answer("this".into()));
        house.longhaul.answer(gate.spec.id, said).await.unwrap();
        assert_eq!(end(&house.ended(run).await), "done");
        house.actor.learn(vec![Line::Fail(FailureClass::Auth)]);
        let bad = house.submit().await;
        assert_eq!(end(&house.ended(bad).await), "auth");
        stop.drain();
        house.gone_home().await;
        let told: Vec<&str> = hooks.told.lock().unwrap().iter().copied().collect();
        assert_eq!(
            told,
            ["complete", "empty", "error", "rest", "start"],
            "{panics}"
        );
    }
}

/// A run that is blocked, what it says, and how it ends after an answer.
async fn blocked(house: &House, run: RunId) -> (longhaul_core::policy::gate::GateRow, String) {
    let gate = house.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::Blocked);
    let row = house.longhaul.show(run).await.unwrap();
    assert_eq!(row.status, Status::Blocked);
    let ask = gate.spec.ask.clone();
    (gate, ask)
}

async fn unblock(house: &House, run: RunId, gate: &longhaul_core::policy::gate::GateRow) {
    let said = answer(gate, Decision::Answer("it is there now".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done", "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_missing_model_blocks_until_it_is_there() {
    const SENTENCE: &str = "No model is configured. Set one with `longhaul init`.";
    let house = plan([]).at_work();
    *house.models.gone.lock().unwrap() = Some(SENTENCE);
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert_eq!(sentence, SENTENCE);
    // An answer while it is still missing only asks anew.
    let said = answer(&gate, Decision::Answer("surely?".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let seen = house.until(run, "gate.answered").await;
    house
        .until_after(run, seen.last().unwrap().seq, "run.blocked")
        .await;
    let (gate, _) = blocked(&house, run).await;
    *house.models.gone.lock().unwrap() = None;
    unblock(&house, run, &gate).await;
}

#[tokio::test]
async fn a_missing_definition_blocks_until_it_is_there() {
    let house = plan([]).at_work();
    house.store.hides_definitions.store(true, Ordering::SeqCst);
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert!(sentence.contains("is not in the store"), "{sentence}");
    house.store.hides_definitions.store(false, Ordering::SeqCst);
    unblock(&house, run, &gate).await;
}

/// The same parts without any tool of a test.
fn without_tools(ports: &Ports) -> Ports {
    let paging = ReadOutput::new(ports.store.clone(), ports.shelves.clone()).unwrap();
    Ports {
        tools: Arc::new(Toolbox::new([Arc::new(paging) as Arc<dyn Tool>]).unwrap()),
        ..ports.clone()
    }
}

#[tokio::test]
async fn a_missing_tool_blocks_until_a_worker_has_it() {
    let deeds = Deeds::default();
    let hand = Hand::new("act", Pure, &deeds);
    let mut house = plan([Line::call("act", json!({}))]).hands([hand]).open();
    let options = WorkerOptions::new(InboxName::new("default").unwrap());
    let stop = Stop::new();
    let poor = Worker::new(&without_tools(house.longhaul.ports()), options);
    house.workers.spawn(poor.run(stop.clone()));
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert!(
        sentence.contains("the tool `act`, which this worker does not have"),
        "{sentence}"
    );
    stop.drain();
    house.gone_home().await;
    house.hire(|_| {});
    unblock(&house, run, &gate).await;
    assert_eq!(deeds.count("act ends"), 1);
}

#[tokio::test]
async fn a_prompt_that_can_not_be_made_blocks() {
    let house = plan([])
        .agent(|agent| agent.prompt = "You tidy {{ input.room }}.".into())
        .at_work();
    let run = house.submit().await;
    let (_, sentence) = blocked(&house, run).await;
    assert!(
        sentence.contains("The prompt of agent `tester` can't be made"),
        "{sentence}"
    );
    // The run keeps its agent, so no answer helps.
    assert!(sentence.contains("cancel this run"), "{sentence}");
    let why = house.longhaul.why_view(run).await.unwrap();
    assert_eq!(why.command, format!("longhaul cancel {run}"));
}
