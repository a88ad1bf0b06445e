//! Tools that others bring: the table that the model was told of rules.

use longhaul_core::policy::gate::Decision;
use longhaul_core::raw::Body;
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
