//! Tests of model requests: streaming, retries, and one compaction of a conversation that no longer
//! fits.

use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::failure::FailureClass::{
    self, Auth, ContextOverflow, InvalidRequest, Network, Overloaded, Quota, RateLimit, Refused,
    Server, Timeout,
};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::raw::StoredText;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::{FakeReply, results, user_texts};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TIMEOUT, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

#[tokio::test]
async fn reply_text_is_streamed() {
    let latch = Latch::closed();
    let reply = FakeReply::StreamThen(
        "Once upon ",
        Box::new(FakeReply::Text("a time").after_latch(&latch)),
    );
    let engine = engine_with([reply]).start();
    let deltas = engine.longhaul.services().deltas.clone();
    let run = engine.submit().await;
    latch.reached(1).await;
    let mut listener = deltas.subscribe(run);
    let first = tokio::time::timeout(TIMEOUT, listener.next()).await.unwrap();
    assert_eq!((first.run, first.turn, first.offset, &*first.text), (run, 1, 0, "Once upon "));
    assert_eq!(&*deltas.partial_reply(run).unwrap().text, "Once upon ");
    latch.open();
    engine.ended(run).await;
    assert_eq!(deltas.partial_reply(run), None, "the journal has the reply now");
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
    for (reply, code) in cases {
        let label = format!("{reply:?}");
        let engine = engine_with([reply]).with_sim_clock().start();
        let run = engine.submit().await;
        let kind = if code.is_some() { "run.failed" } else { "run.completed" };
        let journal = engine.advance_until(run, kind).await;
        assert_eq!(outcome_text(&journal), code.unwrap_or("done"), "{label}");
        assert_eq!(count(&journal, "turn.failed"), 1, "{label}: {:?}", kinds(&journal));
        let requests = engine.model.requests();
        assert_eq!(requests.len(), if code.is_some() { 1 } else { 2 }, "{label}");
        assert_eq!(
            requests[0].messages,
            requests.last().unwrap().messages,
            "the same request is repeated"
        );
    }
}

#[tokio::test]
async fn an_outage_does_not_end_the_run() {
    let replies = vec![FakeReply::Fail(Overloaded); 6];
    let replies = replies.into_iter().chain([FakeReply::Text("at last")]);
    let engine = engine_with(replies).with_sim_clock().start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(outcome_text(&journal), "at last");
    assert_eq!(count(&journal, "run.retry_scheduled"), 0);
    assert_eq!(engine.model.requests().len(), 7);
}

#[tokio::test]
async fn runs_share_the_limit_of_a_provider() {
    let mut engine = engine_with([FakeReply::Fail(RateLimit)]).with_sim_clock().build();
    let mut runs = Vec::new();
    for _ in 0..10 {
        runs.push(engine.submit().await);
    }
    // One run at a time: the first run learns of the limit before the others call the model.
    let _worker = engine.spawn_worker(|options| options.concurrency = 1);
    for run in &runs {
        engine.until(*run, "run.waiting").await;
    }
    assert_eq!(engine.model.requests().len(), 1, "only one run has sent a request");
    let mut wakes = std::collections::BTreeSet::new();
    for run in &runs {
        let row = engine.longhaul.explain_run(*run).await.unwrap();
        assert!(row.message.contains("limits the request rate"), "{}", row.message);
        wakes.insert(row.message);
    }
    assert!(wakes.len() > 5, "the runs don't wake together: {wakes:?}");
    for run in runs {
        let journal = engine.advance_until(run, "run.completed").await;
        assert_eq!(outcome_text(&journal), "done");
    }
}

#[tokio::test]
async fn only_a_reply_to_a_later_request_ends_the_limit_of_a_provider() {
    let latch = Latch::closed();
    let early = FakeReply::Text("early").after_latch(&latch);
    let mut engine = engine_with([early]).with_sim_clock().build();
    let clock = engine.clock.clone().unwrap();
    let _worker = engine.spawn_worker(|options| options.concurrency = 4);
    let in_flight = engine.submit().await;
    latch.reached(1).await;
    clock.advance(Millis(100));
    engine.model.set_replies(vec![FakeReply::Fail(RateLimit)]);
    let limited = engine.submit().await;
    engine.until(limited, "run.waiting").await;
    latch.open();
    engine.ended(in_flight).await;
    let provider = "scripted";
    assert!(engine.store.provider_blocked_until(provider).await.unwrap().is_some());
    let next = engine.submit().await;
    let journal = engine.until(next, "run.waiting").await;
    assert_eq!(count(&journal, "turn.started"), 0, "{:?}", kinds(&journal));
    // A message lets the run call the model at once. Its reply ends the limit for all runs.
    let send = engine.longhaul.steer(limited, "go on", SteerDelivery::AfterBatch, "cli:anna");
    send.await.unwrap();
    engine.ended(limited).await;
    assert_eq!(engine.store.provider_blocked_until(provider).await.unwrap(), None);
    engine.model.set_replies(vec![FakeReply::Text("done")]);
    let free = engine.submit().await;
    engine.ended(free).await;
    // Another process stores a limit.
    engine.store.block_provider(provider, Millis::from_secs(60)).await.unwrap();
    clock.advance(Millis::from_secs(5));
    let blocked = engine.submit().await;
    let journal = engine.until(blocked, "run.waiting").await;
    assert_eq!(count(&journal, "turn.started"), 0, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_refused_key_blocks_a_run_with_recorded_work_until_it_is_resumed() {
    for class in [Auth, Quota] {
        let log = EffectLog::default();
        let replies = [
            FakeReply::call("act", json!({})),
            FakeReply::Fail(class),
            FakeReply::Text("finished"),
        ];
        let engine = engine_with(replies).tools([FakeTool::new("act", Pure, &log)]).start();
        let run = engine.submit().await;
        engine.gate(run).await;
        let explanation = engine.longhaul.explain_run(run).await.unwrap();
        assert_eq!(explanation.command, format!("longhaul resume {run}"));
        engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "finished");
        assert_eq!(count(&journal, "tool.started"), 1, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_provider_that_keeps_failing_ends_a_run_that_does_not_wait() {
    let engine = engine_with(vec![FakeReply::Fail(Overloaded); 20])
        .agent(|agent| agent.retry.outage = Some(Millis::ZERO))
        .with_sim_clock()
        .start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.failed").await;
    assert_eq!(outcome_text(&journal), "overloaded");
    assert_eq!(count(&journal, "run.retry_scheduled"), 1);
    assert_eq!(engine.model.requests().len(), 8, "four requests in each of two attempts");
}

/// Four turns of calls, so that there is something to summarize, followed by these replies.
fn long_conversation(replies: Vec<FakeReply>) -> Vec<FakeReply> {
    let turn = |n| FakeReply::call("act", json!({ "count": n }));
    (0..4).map(turn).chain(replies).collect()
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_compacted_once() {
    let replies = long_conversation(vec![
        FakeReply::Fail(ContextOverflow),
        FakeReply::Text("we looked three times"),
        FakeReply::Text("finished"),
    ]);
    let tool = FakeTool::new("act", Pure, &EffectLog::default());
    let engine = engine_with(replies).tools([tool]).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "finished");
    assert_eq!(count(&journal, "memory.compacted"), 1, "{:?}", kinds(&journal));
    let requests = engine.model.requests();
    let [.., before, summary_request, after] = &requests[..] else {
        panic!("{} requests", requests.len());
    };
    assert_eq!(summary_request.tools, StoredText::new_inline("[]"));
    assert!(user_texts(summary_request).last().unwrap().contains("Sum up all of it so far"));
    assert!(after.messages.len() < before.messages.len());
    let first_text = &user_texts(after)[0];
    assert!(first_text.starts_with("Do it."), "the task is kept: {first_text}");
    assert!(first_text.contains("we looked three times"), "{first_text}");
    assert_eq!(results(after), results(before), "the newest message is kept unchanged");
}

#[tokio::test]
async fn a_conversation_that_still_does_not_fit_ends_the_run() {
    let overflow = || FakeReply::Fail(ContextOverflow);
    let replies = long_conversation(vec![overflow(), FakeReply::Text("a summary"), overflow()]);
    let tool = FakeTool::new("act", Pure, &EffectLog::default());
    let engine = engine_with(replies).tools([tool]).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "context_overflow");
    assert_eq!(count(&journal, "memory.compacted"), 1);
}

#[tokio::test]
async fn a_session_that_is_kept_open_goes_on_in_the_same_conversation() {
    let engine = engine_with([FakeReply::Text("first"), FakeReply::Text("second")])
        .agent(|agent| agent.keep_open = Some(Millis::from_secs(3_600)))
        .with_sim_clock()
        .start();
    let run = engine.submit().await;
    let entries = engine.until(run, "run.waiting").await;
    let send = engine.longhaul.steer(run, "go on", SteerDelivery::AfterBatch, "cli:anna");
    send.await.unwrap();
    engine.until_after(run, entries.last().unwrap().seq, "run.waiting").await;
    assert_eq!(engine.user_texts(), ["Do it.", "go on"]);
    let clock = engine.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(3_600));
    assert_eq!(outcome_text(&engine.ended(run).await), "second");
}
