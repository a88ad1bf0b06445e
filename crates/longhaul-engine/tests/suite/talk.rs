//! Talk with the model: words are heard while they are spoken, failures are
//! tried again or end the run, and a conversation that no longer fits is summed
//! up once.

use longhaul_core::event::steer::Delivery;
use longhaul_core::failure::FailureClass::{
    self, Auth, ContextOverflow, InvalidRequest, Network, Overloaded, Quota, RateLimit, Refused,
    Server, Timeout,
};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::Body;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::house::model::{Line, heard, results};
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{PATIENCE, count, end, kinds, plan};
use longhaul_testkit::door::Door;

#[tokio::test]
async fn words_are_heard_while_they_are_spoken() {
    let door = Door::shut();
    let line = Line::Speak("Once upon ", Box::new(Line::Text("a time").behind(&door)));
    let house = plan([line]).at_work();
    let feed = house.longhaul.ports().feed.clone();
    let run = house.submit().await;
    door.reached(1).await;
    let mut listener = feed.listen(run);
    let first = tokio::time::timeout(PATIENCE, listener.next())
        .await
        .unwrap();
    assert_eq!(
        (first.run, first.turn, first.offset, &*first.text),
        (run, 1, 0, "Once upon ")
    );
    assert_eq!(&*feed.so_far(run).unwrap().text, "Once upon ");
    door.open();
    house.ended(run).await;
    assert_eq!(feed.so_far(run), None, "the journal has them now");
}

#[tokio::test]
async fn a_failure_that_may_pass_is_waited_out_and_another_ends_the_run() {
    let cases: [(Line, Option<&str>); 11] = [
        (Line::Fail(RateLimit), None),
        (Line::Fail(Overloaded), None),
        (Line::Fail(Timeout), None),
        (Line::Fail(Network), None),
        (Line::Fail(Server), None),
        (Line::Panic, None),
        (Line::Fail(Auth), Some("auth")),
        (Line::Fail(InvalidRequest), Some("invalid_request")),
        (Line::Fail(Refused), Some("refused")),
        (Line::Fail(Quota), Some("quota")),
        (Line::Fail(FailureClass::Lost), None),
    ];
    for (line, code) in cases {
        let what = format!("{line:?}");
        let house = plan([line]).at_standing_clock().at_work();
        let run = house.submit().await;
        let kind = if code.is_some() {
            "run.failed"
        } else {
            "run.completed"
        };
        let journal = house.pass_until(run, kind).await;
        assert_eq!(end(&journal), code.unwrap_or("done"), "{what}");
        assert_eq!(
            count(&journal, "turn.failed"),
            1,
            "{what}: {:?}",
            kinds(&journal)
        );
        let asked = house.actor.asked();
        assert_eq!(asked.len(), if code.is_some() { 1 } else { 2 }, "{what}");
        assert_eq!(
            asked[0].messages,
            asked.last().unwrap().messages,
            "the same is asked"
        );
    }
}

#[tokio::test]
async fn a_provider_that_never_gets_over_it_ends_the_run() {
    let house = plan(vec![Line::Fail(Overloaded); 20])
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    let journal = house.pass_until(run, "run.failed").await;
    assert_eq!(end(&journal), "overloaded");
    assert_eq!(count(&journal, "run.retry_scheduled"), 1);
    assert_eq!(
        house.actor.asked().len(),
        8,
        "four tries in each of two attempts"
    );
}

/// Four turns of calls, so that there is something to sum up, and then this.
fn long_talk(then: Vec<Line>) -> Vec<Line> {
    let turn = |n| Line::call("act", json!({ "count": n }));
    (0..4).map(turn).chain(then).collect()
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_summed_up_once() {
    let lines = long_talk(vec![
        Line::Fail(ContextOverflow),
        Line::Text("we looked three times"),
        Line::Text("finished"),
    ]);
    let hand = Hand::new("act", Pure, &Deeds::default());
    let house = plan(lines).hands([hand]).at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "finished");
    assert_eq!(
        count(&journal, "memory.compacted"),
        1,
        "{:?}",
        kinds(&journal)
    );
    let asked = house.actor.asked();
    let [.., before, summing, after] = &asked[..] else {
        panic!("{} questions", asked.len());
    };
    assert_eq!(summing.tools, Body::inline("[]"));
    assert!(
        heard(summing)
            .last()
            .unwrap()
            .contains("Sum up all of it so far")
    );
    assert!(after.messages.len() < before.messages.len());
    let opening = &heard(after)[0];
    assert!(opening.starts_with("Do it."), "the task is kept: {opening}");
    assert!(opening.contains("we looked three times"), "{opening}");
    assert_eq!(
        results(after),
        results(before),
        "the newest is kept as it is"
    );
}

#[tokio::test]
async fn a_conversation_that_still_does_not_fit_ends_the_run() {
    let overflow = || Line::Fail(ContextOverflow);
    let lines = long_talk(vec![overflow(), Line::Text("a summary"), overflow()]);
    let hand = Hand::new("act", Pure, &Deeds::default());
    let house = plan(lines).hands([hand]).at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "context_overflow");
    assert_eq!(count(&journal, "memory.compacted"), 1);
}

#[tokio::test]
async fn a_session_that_is_kept_open_goes_on_in_the_same_conversation() {
    let house = plan([Line::Text("first"), Line::Text("second")])
        .agent(|agent| agent.keep_open = Some(Millis::from_secs(3_600)))
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    let seen = house.until(run, "run.waiting").await;
    let said = house
        .longhaul
        .steer(run, "go on", Delivery::AfterBatch, "cli:anna");
    said.await.unwrap();
    house
        .until_after(run, seen.last().unwrap().seq, "run.waiting")
        .await;
    assert_eq!(house.heard(), ["Do it.", "go on"]);
    let clock = house.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(3_600));
    assert_eq!(end(&house.ended(run).await), "second");
}
