//! Tests of external tasks and of the delivery of their ends from the outbox.

use std::sync::Mutex;

use async_trait::async_trait;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::port::records::DueOutboxMessage;
use longhaul_core::task::TaskSource;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::background::outbox::{OutboxReceiver, deliver_due_messages};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, engine_with};

const ENDPOINT: &str = "inbox:mail";

/// Reaction of the test receiver to a delivery.
#[derive(Debug, Clone, Copy)]
enum Reaction {
    Accept,
    Refuse,
    Panic,
    Block,
}

/// A receiver that records what was delivered.
#[derive(Debug, Default)]
struct TestReceiver {
    reactions: Mutex<Vec<Reaction>>,
    log: Mutex<Vec<String>>,
}

impl TestReceiver {
    fn new(reactions: &[Reaction]) -> Self {
        let mut reactions = reactions.to_vec();
        reactions.reverse();
        Self { reactions: Mutex::new(reactions), log: Mutex::default() }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

#[async_trait]
impl OutboxReceiver for TestReceiver {
    async fn deliver(&self, message: &DueOutboxMessage) -> Result<(), String> {
        self.log.lock().unwrap().push(format!("deliver {}", message.row.body));
        let reaction = self.reactions.lock().unwrap().pop().unwrap_or(Reaction::Accept);
        match reaction {
            Reaction::Accept => Ok(()),
            Reaction::Refuse => Err("not now".to_owned()),
            Reaction::Panic => panic!("this receiver panics"),
            Reaction::Block => std::future::pending().await,
        }
    }

    async fn on_delivered(&self, message: &DueOutboxMessage) {
        self.log.lock().unwrap().push(format!("delivered {}", message.row.body));
    }
}

fn external_task(id: &str, input: &str) -> Task {
    let inbox = InboxName::new("mail").unwrap();
    Task { source: Some(TaskSource { inbox, id: id.to_owned() }), ..Task::new("tester", input) }
}

fn mail_engine() -> TestEngine {
    let mut engine = engine_with([FakeReply::Text("Done.")]).with_sim_clock().build();
    engine.spawn_worker(|options| options.inboxes.push(InboxName::new("mail").unwrap()));
    engine
}

async fn deliver(engine: &TestEngine, receiver: &TestReceiver) {
    deliver_due_messages(engine.longhaul.services(), ENDPOINT, receiver).await.unwrap();
}

#[tokio::test]
async fn an_external_task_is_submitted_once_and_its_end_is_delivered() {
    let engine = mail_engine();
    let run = engine.longhaul.submit(external_task("7", "x")).await.unwrap();
    // A second claim of the same task finds the same run, whatever its agent and input are now.
    assert_eq!(engine.longhaul.submit(external_task("7", "y")).await.unwrap(), run);
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.inbox.as_str(), view.input.as_str()), ("mail", "\"x\""));
    engine.ended(run).await;
    let receiver = TestReceiver::default();
    let messages = async || {
        let records = &engine.longhaul.services().records;
        records.due_outbox_messages(ENDPOINT, 9).await.unwrap()
    };
    let first = messages().await;
    assert_eq!(first[0].run, run);
    deliver(&engine, &receiver).await;
    assert_eq!(receiver.log(), ["deliver 7", "delivered 7"]);
    assert_eq!(messages().await, []);
    assert_eq!(engine.longhaul.submit(external_task("7", "x")).await.unwrap(), run);
    assert_ne!(engine.longhaul.submit(external_task("8", "x")).await.unwrap(), run);
}

#[tokio::test]
async fn a_cancelled_run_is_reported_too() {
    let engine = engine_with([]).build();
    let run = engine.longhaul.submit(external_task("7", "x")).await.unwrap();
    engine.longhaul.cancel_run(run, "cli:anna", "").await.unwrap();
    let receiver = TestReceiver::default();
    deliver(&engine, &receiver).await;
    assert_eq!(receiver.log(), ["deliver 7", "delivered 7"]);
}

#[tokio::test]
async fn a_failed_delivery_is_repeated_later() {
    let engine = mail_engine();
    let clock = engine.clock.clone().unwrap();
    let run: RunId = engine.longhaul.submit(external_task("7", "x")).await.unwrap();
    engine.ended(run).await;
    let receiver = TestReceiver::new(&[Reaction::Refuse, Reaction::Panic, Reaction::Block]);
    for (attempt, delay) in [(1, 1_000), (2, 2_000)] {
        deliver(&engine, &receiver).await;
        assert_eq!(receiver.log().len(), attempt);
        clock.advance(Millis(delay - 1));
        deliver(&engine, &receiver).await;
        assert_eq!(receiver.log().len(), attempt);
        clock.advance(Millis(1));
    }
    // A delivery that never returns times out.
    let advance_clock = async {
        while receiver.log().len() < 3 {
            tokio::task::yield_now().await;
        }
        clock.advance(Millis::from_secs(30));
    };
    tokio::join!(deliver(&engine, &receiver), advance_clock);
    clock.advance(Millis::from_secs(4));
    deliver(&engine, &receiver).await;
    assert_eq!(receiver.log()[3..], ["deliver 7", "delivered 7"]);
    deliver(&engine, &receiver).await;
    assert_eq!(receiver.log().len(), 5);
}
