//! Tools that others bring: the table that the model was told of rules.

use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, RuleAction};
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::time::Millis;
use longhaul_testkit::latch::Latch;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool_source::FakeToolSource;
use crate::suite::harness::{TestEngine, answer, engine_with, outcome_text};

/// A run that asks a person first, then wants both tools.
fn engine_with_source(stock: &FakeToolSource) -> TestEngine {
    let both =
        FakeReply::Calls(vec![("mcp__shop__buy", json!({})), ("mcp__shop__sell", json!({}))]);
    let asks = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine_with([asks, both]).external_tools(stock).start()
}

#[tokio::test]
async fn external_tools_are_pinned_and_a_removed_one_is_an_error() {
    let stock = FakeToolSource::default();
    stock.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/gone"]));
    let house = engine_with_source(&stock);
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert_eq!(stock.released_runs(), [run]);
    stock.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let said = answer(&gate, Decision::Answer("Both.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    let results = house.results();
    assert_eq!(results[0], ("{}".to_owned(), false));
    let (words, is_error) = &results[1];
    assert!(*is_error && words.contains("there is no tool `mcp__shop__sell`"), "{words}");
    assert_eq!(stock.effects().all().len(), 2);
    let asked = house.model.requests();
    let StoredText::Inline(tools) = &asked[1].tools else {
        panic!("a text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    let names = tools.as_array().unwrap().iter().map(|row| &row["name"]);
    let names: Vec<&Value> = names.filter(|name| name.as_str().unwrap().contains("shop")).collect();
    assert_eq!(names, ["mcp__shop__buy", "mcp__shop__gone"]);
}

#[tokio::test]
async fn an_unreachable_tool_server_blocks_the_run() {
    let stock = FakeToolSource::default();
    stock.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let house = engine_with_source(&stock);
    let run = house.submit().await;
    let gate = house.gate(run).await;
    stock.set_tools(None);
    let said = answer(&gate, Decision::Answer("Both.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    assert_eq!(gate.spec.ask, "The shop can't be reached. Start it.");
    stock.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let said = answer(&gate, Decision::Answer("It is there.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    assert_eq!(house.results().len(), 2);
}

/// A shop that does not answer before a door is open, at a clock that stands.
fn slow() -> (FakeToolSource, Latch, TestEngine) {
    let (stock, door) = (FakeToolSource::default(), Latch::new());
    stock.set_tools(Some(vec!["mcp:shop/buy"]));
    stock.block_load(&door);
    let house = engine_with([]).external_tools(&stock).with_sim_clock().build();
    (stock, door, house)
}

#[tokio::test]
async fn a_cancel_is_processed_while_a_tool_server_starts() {
    let (stock, door, mut house) = slow();
    house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house.longhaul.cancel(run, "cli:anna", "enough").await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "run.cancelled");
    assert_eq!(stock.effects().all(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_shutdown_does_not_wait_for_a_tool_server() {
    let (_, door, mut house) = slow();
    let stop = house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    // The clock stands: it goes by itself, and not because it is cut off.
    stop.drain();
    house.worker_stopped().await;
    let row = house.longhaul.services().store.get_run(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
    door.open();
    house.spawn_worker(|_| {});
    assert_eq!(outcome_text(&house.ended(run).await), "done");
}

#[tokio::test]
async fn a_tool_server_that_never_starts_is_named() {
    let (_, door, mut house) = slow();
    house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house.advance_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    let named = "after 90 s not all of it was there: `mcp:shop`";
    assert!(gate.spec.ask.contains(named), "{}", gate.spec.ask);
    door.open();
    let said = answer(&gate, Decision::Answer("It is there.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");
}

#[tokio::test]
async fn editing_a_call_does_not_wait_for_a_tool_server() {
    let stock = FakeToolSource::default();
    stock.set_tools(Some(vec!["mcp:shop/buy"]));
    let rule = GateRule {
        tool: "mcp:shop/buy".into(),
        subject: None,
        action: RuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    let house = engine_with([FakeReply::call("mcp__shop__buy", json!({}))])
        .external_tools(&stock)
        .agent(|agent| agent.rules = vec![rule])
        .with_sim_clock()
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let door = Latch::new();
    stock.block_load(&door);
    let edit = Decision::Edit(RawJson::from_serialize(&json!({ "text": "two" })));
    let answered = house.longhaul.answer(gate.spec.id, answer(&gate, edit));
    let passing = async {
        door.reached(1).await;
        house.clock.as_ref().unwrap().advance(Millis::from_secs(20));
    };
    let (answered, ()) = tokio::join!(answered, passing);
    let said = answered.unwrap_err().to_string();
    assert!(said.contains("can't be checked now"), "{said}");
}

#[tokio::test]
async fn external_tools_are_released_after_a_panic() {
    let (stock, exit) = (FakeToolSource::default(), Latch::new());
    stock.panic_on_load();
    stock.block_release(&exit);
    exit.open();
    let house = engine_with([]).external_tools(&stock).start();
    let run = house.submit().await;
    exit.reached(1).await;
    assert_eq!(stock.released_runs()[0], run);
}

#[tokio::test]
async fn releasing_external_tools_has_a_timeout() {
    let (stock, exit) = (FakeToolSource::default(), Latch::new());
    stock.set_tools(Some(vec!["mcp:shop/buy"]));
    stock.block_release(&exit);
    let mut house = engine_with([]).external_tools(&stock).with_sim_clock().build();
    house.spawn_worker(|options| options.concurrency = 1);
    let (first, second) = (house.submit().await, house.submit().await);
    house.ended(first).await;
    exit.reached(1).await;
    house.advance_until(second, "run.completed").await;
}
