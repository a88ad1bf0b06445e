//! Tools that others bring: the table that the model was told of rules.

use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, Verdict};
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::time::Millis;
use longhaul_testkit::door::Door;
use serde_json::{Value, json};

use crate::suite::house::model::Line;
use crate::suite::house::stock::Stock;
use crate::suite::house::{House, answer, end, plan};

/// A run that asks a person first, then wants both tools.
fn shop(stock: &Stock) -> House {
    let both = Line::Calls(vec![
        ("mcp__shop__buy", json!({})),
        ("mcp__shop__sell", json!({})),
    ]);
    let asks = Line::call("ask_human", json!({ "question": "Which?" }));
    plan([asks, both]).supplied(stock).at_work()
}

#[tokio::test]
async fn what_came_later_is_not_there_and_what_went_says_so() {
    let stock = Stock::default();
    stock.brings(Some(vec!["mcp:shop/buy", "mcp:shop/gone"]));
    let house = shop(&stock);
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert_eq!(stock.let_go_of(), [run]);
    stock.brings(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let said = answer(&gate, Decision::Answer("Both.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(end(&house.ended(run).await), "done");
    let results = house.results();
    assert_eq!(results[0], ("{}".to_owned(), false));
    let (words, is_error) = &results[1];
    assert!(
        *is_error && words.contains("there is no tool `mcp__shop__sell`"),
        "{words}"
    );
    assert_eq!(stock.deeds().all().len(), 2);
    let asked = house.actor.asked();
    let Body::Inline(tools) = &asked[1].tools else {
        panic!("a text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    let names = tools.as_array().unwrap().iter().map(|row| &row["name"]);
    let names: Vec<&Value> = names
        .filter(|name| name.as_str().unwrap().contains("shop"))
        .collect();
    assert_eq!(names, ["mcp__shop__buy", "mcp__shop__gone"]);
}

#[tokio::test]
async fn a_server_that_can_not_be_reached_keeps_the_run_waiting() {
    let stock = Stock::default();
    stock.brings(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let house = shop(&stock);
    let run = house.submit().await;
    let gate = house.gate(run).await;
    stock.brings(None);
    let said = answer(&gate, Decision::Answer("Both.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    assert_eq!(gate.spec.ask, "The shop can't be reached. Start it.");
    stock.brings(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let said = answer(&gate, Decision::Answer("It is there.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(end(&house.ended(run).await), "done");
    assert_eq!(house.results().len(), 2);
}

/// A shop that does not answer before a door is open, at a clock that stands.
fn slow() -> (Stock, Door, House) {
    let (stock, door) = (Stock::default(), Door::shut());
    stock.brings(Some(vec!["mcp:shop/buy"]));
    stock.behind(&door);
    let house = plan([]).supplied(&stock).at_standing_clock().open();
    (stock, door, house)
}

#[tokio::test]
async fn a_cancel_is_heard_while_a_server_starts() {
    let (stock, door, mut house) = slow();
    house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house
        .longhaul
        .cancel(run, "cli:anna", "enough")
        .await
        .unwrap();
    assert_eq!(end(&house.ended(run).await), "run.cancelled");
    assert_eq!(stock.deeds().all(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_that_goes_does_not_wait_for_a_server() {
    let (_, door, mut house) = slow();
    let stop = house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    // The clock stands: it goes by itself, and not because it is cut off.
    stop.drain();
    house.gone_home().await;
    let row = house.longhaul.ports().store.row(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
    door.open();
    house.hire(|_| {});
    assert_eq!(end(&house.ended(run).await), "done");
}

#[tokio::test]
async fn a_server_that_never_starts_is_named() {
    let (_, door, mut house) = slow();
    house.hire(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house.pass_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    let named = "after 90 s not all of it was there: `mcp:shop`";
    assert!(gate.spec.ask.contains(named), "{}", gate.spec.ask);
    door.open();
    let said = answer(&gate, Decision::Answer("It is there.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(end(&house.ended(run).await), "done");
}

#[tokio::test]
async fn whoever_edits_a_call_is_not_kept_waiting_for_a_server() {
    let stock = Stock::default();
    stock.brings(Some(vec!["mcp:shop/buy"]));
    let rule = GateRule {
        tool: "mcp:shop/buy".into(),
        subject: None,
        verdict: Verdict::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    let house = plan([Line::call("mcp__shop__buy", json!({}))])
        .supplied(&stock)
        .agent(|agent| agent.rules = vec![rule])
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let door = Door::shut();
    stock.behind(&door);
    let edit = Decision::Edit(RawJson::of(&json!({ "text": "two" })));
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
async fn what_was_opened_is_closed_also_after_a_panic() {
    let (stock, exit) = (Stock::default(), Door::shut());
    stock.panics();
    stock.leaving_by(&exit);
    exit.open();
    let house = plan([]).supplied(&stock).at_work();
    let run = house.submit().await;
    exit.reached(1).await;
    assert_eq!(stock.let_go_of()[0], run);
}

#[tokio::test]
async fn nobody_waits_long_for_what_can_not_be_closed() {
    let (stock, exit) = (Stock::default(), Door::shut());
    stock.brings(Some(vec!["mcp:shop/buy"]));
    stock.leaving_by(&exit);
    let mut house = plan([]).supplied(&stock).at_standing_clock().open();
    house.hire(|options| options.concurrency = 1);
    let (first, second) = (house.submit().await, house.submit().await);
    house.ended(first).await;
    exit.reached(1).await;
    house.pass_until(second, "run.completed").await;
}
