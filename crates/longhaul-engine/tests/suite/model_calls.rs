//! Talk with the model: words are heard while they are spoken, failures are
//! tried again or end the run, and a conversation that no longer fits is summed
//! up once.

use longhaul_core::event::steer::Delivery;
use longhaul_core::failure::FailureClass::{
    self, Auth, ContextOverflow, InvalidRequest, Network, Overloaded, Quota, RateLimit, Refused,
    Server, Timeout,
};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::StoredText;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::{FakeReply, results, user_texts};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TIMEOUT, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

#[tokio::test]
async fn reply_text_is_streamed() {
    let door = Latch::new();
    let line =
        FakeReply::StreamThen("Once upon ", Box::new(FakeReply::Text("a time").after_latch(&door)));
    let house = engine_with([line]).start();
    let feed = house.longhaul.services().deltas.clone();
    let run = house.submit().await;
    door.reached(1).await;
    let mut listener = feed.subscribe(run);
    let first = tokio::time::timeout(TIMEOUT, listener.next()).await.unwrap();
    assert_eq!((first.run, first.turn, first.offset, &*first.text), (run, 1, 0, "Once upon "));
    assert_eq!(&*feed.partial_reply(run).unwrap().text, "Once upon ");
    door.open();
    house.ended(run).await;
    assert_eq!(feed.partial_reply(run), None, "the journal has them now");
}

#[tokio::test]
async fn a_transient_model_failure_is_retried_and_a_permanent_one_ends_the_run() {
    let cases: [(FakeReply, Option<&str>); 11] = [
        (FakeReply::Fail(RateLimit), None),
        (FakeReply::Fail(Overloaded), None),
        (FakeReply::Fail(Timeout), None),
        (FakeReply::Fail(Network), None),
        (FakeReply::Fail(Server), None),
        (FakeReply::Panic, None),
        (FakeReply::Fail(Auth), Some("auth")),
        (FakeReply::Fail(InvalidRequest), Some("invalid_request")),
        (FakeReply::Fail(Refused), Some("refused")),
        (FakeReply::Fail(Quota), Some("quota")),
        (FakeReply::Fail(FailureClass::Lost), None),
    ];
    for (line, code) in cases {
        let what = format!("{line:?}");
        let house = engine_with([line]).with_sim_clock().start();
        let run = house.submit().await;
        let kind = if code.is_some() { "run.failed" } else { "run.completed" };
        let journal = house.advance_until(run, kind).await;
        assert_eq!(outcome_text(&journal), code.unwrap_or("done"), "{what}");
        assert_eq!(count(&journal, "turn.failed"), 1, "{what}: {:?}", kinds(&journal));
        let asked = house.model.requests();
        assert_eq!(asked.len(), if code.is_some() { 1 } else { 2 }, "{what}");
        assert_eq!(asked[0].messages, asked.last().unwrap().messages, "the same is asked");
    }
}

#[tokio::test]
async fn a_provider_that_keeps_failing_ends_the_run() {
    let house = engine_with(vec![FakeReply::Fail(Overloaded); 20]).with_sim_clock().start();
    let run = house.submit().await;
    let journal = house.advance_until(run, "run.failed").await;
    assert_eq!(outcome_text(&journal), "overloaded");
    assert_eq!(count(&journal, "run.retry_scheduled"), 1);
    assert_eq!(house.model.requests().len(), 8, "four tries in each of two attempts");
}

/// Four turns of calls, so that there is something to sum up, and then this.
fn long_conversation(then: Vec<FakeReply>) -> Vec<FakeReply> {
    let turn = |n| FakeReply::call("act", json!({ "count": n }));
    (0..4).map(turn).chain(then).collect()
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_compacted_once() {
    let lines = long_conversation(vec![
        FakeReply::Fail(ContextOverflow),
        FakeReply::Text("we looked three times"),
        FakeReply::Text("finished"),
    ]);
    let hand = FakeTool::new("act", Pure, &EffectLog::default());
    let house = engine_with(lines).tools([hand]).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "finished");
    assert_eq!(count(&journal, "memory.compacted"), 1, "{:?}", kinds(&journal));
    let asked = house.model.requests();
    let [.., before, summing, after] = &asked[..] else {
        panic!("{} questions", asked.len());
    };
    assert_eq!(summing.tools, StoredText::inline("[]"));
    assert!(user_texts(summing).last().unwrap().contains("Sum up all of it so far"));
    assert!(after.messages.len() < before.messages.len());
    let opening = &user_texts(after)[0];
    assert!(opening.starts_with("Do it."), "the task is kept: {opening}");
    assert!(opening.contains("we looked three times"), "{opening}");
    assert_eq!(results(after), results(before), "the newest is kept as it is");
}

#[tokio::test]
async fn a_conversation_that_still_does_not_fit_ends_the_run() {
    let overflow = || FakeReply::Fail(ContextOverflow);
    let lines = long_conversation(vec![overflow(), FakeReply::Text("a summary"), overflow()]);
    let hand = FakeTool::new("act", Pure, &EffectLog::default());
    let house = engine_with(lines).tools([hand]).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "context_overflow");
    assert_eq!(count(&journal, "memory.compacted"), 1);
}

#[tokio::test]
async fn a_session_that_is_kept_open_goes_on_in_the_same_conversation() {
    let house = engine_with([FakeReply::Text("first"), FakeReply::Text("second")])
        .agent(|agent| agent.keep_open = Some(Millis::from_secs(3_600)))
        .with_sim_clock()
        .start();
    let run = house.submit().await;
    let seen = house.until(run, "run.waiting").await;
    let said = house.longhaul.steer(run, "go on", Delivery::AfterBatch, "cli:anna");
    said.await.unwrap();
    house.until_after(run, seen.last().unwrap().seq, "run.waiting").await;
    assert_eq!(house.user_texts(), ["Do it.", "go on"]);
    let clock = house.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(3_600));
    assert_eq!(outcome_text(&house.ended(run).await), "second");
}
