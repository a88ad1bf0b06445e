//! Spend caps: runs wait at a cap until an amount is released, the cap is raised or its window ends,
//! and a cap can refuse new tasks.

use longhaul_api::spend::{RaiseCapBody, SpendCapAmount};
use longhaul_core::event::Event;
use longhaul_core::id::RunId;
use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, SpendCap,
};
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_core::wait::WaitReason;
use longhaul_engine::agent::{AgentRegistry, RunPolicyDefaults};
use longhaul_engine::background::spend_caps::SpendCaps;
use longhaul_engine::services::Services;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, Task};
use longhaul_testkit::latch::Latch;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, TestEngineBuilder, count, engine_with, outcome_text};

/// Upper bound of the worst case of one call of the fake model in tokens, and a lower bound of it.
const CALL_TOKENS_MAX: u64 = 12_000;
const CALL_TOKENS_MIN: u64 = 8_192;

/// Tokens that each call of the fake model uses.
const USED_TOKENS: u64 = 15;

fn cap(unit: CapUnit, limit: u64) -> SpendCap {
    SpendCap {
        window: CapWindowLength::Day,
        tz: "UTC".to_owned(),
        per: CapUsageGrouping::All,
        pattern: None,
        unit,
        limit,
        at_cap: CapReachedAction::Wait,
    }
}

/// Builds an engine with spend caps and without a worker.
fn with_caps(builder: TestEngineBuilder, caps: impl IntoIterator<Item = SpendCap>) -> TestEngine {
    let mut engine = builder.build();
    let caps = SpendCaps::new(caps.into_iter().collect()).unwrap();
    let services = Services { caps, ..engine.longhaul.services().clone() };
    let mut agents = AgentRegistry::default();
    for agent in engine.longhaul.agents() {
        agents.register((*agent).clone());
    }
    engine.longhaul = Longhaul::new(services, agents, RunPolicyDefaults::default());
    engine
}

/// Builds an engine with spend caps and one worker.
fn start_with_caps(
    builder: TestEngineBuilder,
    caps: impl IntoIterator<Item = SpendCap>,
) -> TestEngine {
    let mut engine = with_caps(builder, caps);
    engine.spawn_worker(|_| {});
    engine
}

fn now(engine: &TestEngine) -> Timestamp {
    engine.clock.as_ref().unwrap().now()
}

/// Waits until a run is parked at a cap, and returns the end of the cap's window.
async fn parked_at_cap(engine: &TestEngine, run: RunId) -> Timestamp {
    let journal = engine.until(run, "run.waiting").await;
    let Some(Event::RunWaiting(waiting)) = journal.last().map(|entry| &entry.event) else {
        panic!("{journal:?}");
    };
    let WaitReason::Cap(wait) = &waiting.wait else {
        panic!("{waiting:?}");
    };
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.status, view.reason.as_deref()), (Status::Waiting, Some("cap")));
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    let text = format!("The cap `{}`", wait.cap);
    assert!(
        explanation.message.starts_with(&text)
            && explanation.message.contains(&wait.until.to_string())
    );
    let shortage = wait.shortage.unwrap();
    assert!(shortage.needed > shortage.left && shortage.left <= shortage.limit, "{shortage:?}");
    let raise = format!("longhaul spend raise {}", wait.cap);
    assert!(explanation.command.starts_with(&raise), "{}", explanation.command);
    let listed = engine.longhaul.list_brief_runs(RunFilter { limit: 9, ..RunFilter::default() });
    let listed = listed.await.unwrap().into_iter().find(|row| row.id == run).unwrap();
    assert_eq!(listed.now, format!("waits: spend cap until {}", wait.until));
    wait.until
}

#[tokio::test]
async fn a_run_goes_on_when_a_call_of_another_run_has_ended() {
    let latch = Latch::closed();
    let reply = FakeReply::Text("done").after_latch(&latch);
    let caps = [cap(CapUnit::Tokens, CALL_TOKENS_MAX)];
    let engine = start_with_caps(engine_with([reply]).with_sim_clock(), caps);
    let first = engine.submit().await;
    latch.reached(1).await;
    let second = engine.submit().await;
    parked_at_cap(&engine, second).await;
    let count_now = engine.longhaul.list_spend_caps().await.unwrap().remove(0).counts.remove(0);
    let SpendCapAmount::Count(held) = count_now.held else { panic!("{count_now:?}") };
    assert!((CALL_TOKENS_MIN..CALL_TOKENS_MAX).contains(&held), "{count_now:?}");
    assert_eq!(count_now.left, SpendCapAmount::Count(CALL_TOKENS_MAX - held));
    assert_eq!((count_now.used, count_now.waiting), (SpendCapAmount::Count(0), 1));
    let before = now(&engine);
    latch.open();
    engine.advance_until(second, "run.completed").await;
    assert!(now(&engine).duration_since(before) < Millis::from_secs(60), "before the window ends");
    assert_eq!(outcome_text(&engine.ended(first).await), "done");
    let count_now = engine.longhaul.list_spend_caps().await.unwrap().remove(0).counts.remove(0);
    assert_eq!(count_now.used, SpendCapAmount::Count(2 * USED_TOKENS));
    assert_eq!((count_now.held, count_now.waiting), (SpendCapAmount::Count(0), 0));
}

#[tokio::test]
async fn a_run_goes_on_when_the_window_ends() {
    let engine = start_with_caps(engine_with([]).with_sim_clock(), [cap(CapUnit::Runs, 1)]);
    let first = engine.submit().await;
    engine.ended(first).await;
    let second = engine.submit().await;
    let until = parked_at_cap(&engine, second).await;
    // A message does not let a run pass a cap.
    engine.longhaul.resume_run(second, None, "cli:anna").await.unwrap();
    let journal = engine.advance_until(second, "run.resumed").await;
    let after = journal.last().unwrap().seq;
    engine.until_after(second, after, "run.waiting").await;
    assert_eq!(count(&engine.until(second, "run.waiting").await, "turn.started"), 0);
    let remaining = until.duration_since(now(&engine));
    engine.clock.as_ref().unwrap().advance(remaining);
    let journal = engine.advance_until(second, "run.completed").await;
    assert_eq!(count(&journal, "turn.started"), 1);
    let cap = engine.longhaul.list_spend_caps().await.unwrap().remove(0);
    assert_eq!(cap.counts[0].used, SpendCapAmount::Count(1), "in the new window");
    assert!(cap.resets_at > until);
}

#[tokio::test]
async fn a_raised_cap_lets_waiting_runs_go_on() {
    let per_actor = SpendCap { per: CapUsageGrouping::Actor, ..cap(CapUnit::Runs, 1) };
    let engine = start_with_caps(engine_with([]).with_sim_clock(), [per_actor]);
    let submit = async |actor: &str| {
        let actor = RawJson::parse(format!("{{\"id\": \"{actor}\"}}")).unwrap();
        let task = Task { actor: Some(actor), ..Task::new("tester", "Do it.") };
        engine.longhaul.submit(task).await.unwrap()
    };
    engine.ended(submit("anna").await).await;
    let (anna, bert) = (submit("anna").await, submit("bert").await);
    engine.ended(bert).await;
    parked_at_cap(&engine, anna).await;
    let explanation = engine.longhaul.explain_run(anna).await.unwrap();
    assert_eq!(explanation.command, "longhaul spend raise day-runs-actor --for anna --runs 2");
    let raise = async |id: &str, runs, subject: Option<&str>| {
        let subject = subject.map(str::to_owned);
        let body = RaiseCapBody { runs, subject, ..RaiseCapBody::default() };
        engine.longhaul.raise_cap(id, &body).await
    };
    for (id, runs, subject, code, part) in [
        ("day-runs-actr", Some(2), Some("anna"), "cap_not_found", "`day-runs-actr`"),
        ("day-runs-actor", None, Some("anna"), "invalid_raise", "in runs"),
        ("day-runs-actor", Some(0), Some("anna"), "invalid_raise", "above 0"),
        (
            "day-runs-actor",
            Some(1),
            Some("anna"),
            "invalid_raise",
            "must be higher than the current one, 1",
        ),
        ("day-runs-actor", Some(2), None, "invalid_raise", "name the actor"),
        ("day-runs-actor", Some(2), Some("ana"), "invalid_raise", "only of `anna`, `bert`"),
        ("day-runs-actor", Some(2), Some(&"x".repeat(201)), "invalid_raise", "200 bytes"),
    ] {
        let error = raise(id, runs, subject).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let raised = raise("day-runs-actor", Some(2), Some("anna")).await.unwrap();
    let limits: Vec<_> = raised.counts.iter().map(|one| (&*one.subject, one.limit)).collect();
    assert_eq!(limits, [("anna", SpendCapAmount::Count(2)), ("bert", SpendCapAmount::Count(1))]);
    engine.advance_until(anna, "run.completed").await;
}

#[tokio::test]
async fn a_raise_names_a_subject_that_the_cap_counts() {
    let pattern = Some("a*".to_owned());
    let per_actor = SpendCap { per: CapUsageGrouping::Actor, pattern, ..cap(CapUnit::Runs, 1) };
    let engine = with_caps(engine_with([]), [per_actor.clone()]);
    for (subject, part) in [
        ("bert", "applies only to `a*`, not to `bert`"),
        ("anna", "has counted no usage of any actor yet"),
    ] {
        let subject = Some(subject.to_owned());
        let body = RaiseCapBody { runs: Some(2), subject, ..RaiseCapBody::default() };
        let error = engine.longhaul.raise_cap(&per_actor.cap_id(), &body).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_command_contains_no_text_that_a_shell_would_interpret() {
    let per_actor = SpendCap { per: CapUsageGrouping::Actor, ..cap(CapUnit::Runs, 1) };
    let engine = start_with_caps(engine_with([]).with_sim_clock(), [per_actor]);
    for actor in ["Anna Bo", "$(reboot)", "-x"] {
        let actor = Some(RawJson::from_serialize(&actor));
        let task = || Task { actor: actor.clone(), ..Task::new("tester", "Do it.") };
        engine.ended(engine.longhaul.submit(task()).await.unwrap()).await;
        let waiting = engine.longhaul.submit(task()).await.unwrap();
        parked_at_cap(&engine, waiting).await;
        let explanation = engine.longhaul.explain_run(waiting).await.unwrap();
        assert_eq!(explanation.command, "longhaul spend raise day-runs-actor --for NAME --runs 2");
    }
}

#[tokio::test]
async fn a_higher_limit_of_the_configuration_lets_waiting_runs_go_on() {
    for caps in [vec![cap(CapUnit::Runs, 2)], Vec::new()] {
        let engine = engine_with([]).with_sim_clock();
        let mut engine = with_caps(engine, [cap(CapUnit::Runs, 1)]);
        let stop = engine.spawn_worker(|_| {});
        engine.ended(engine.submit().await).await;
        let second = engine.submit().await;
        parked_at_cap(&engine, second).await;
        stop.request_drain();
        engine.worker_stopped().await;
        let caps = SpendCaps::new(caps).unwrap();
        let services = Services { caps, ..engine.longhaul.services().clone() };
        let inbox = longhaul_core::id::InboxName::new("default").unwrap();
        let options =
            WorkerOptions { lease: Millis::from_secs(1_000_000_000), ..WorkerOptions::new(inbox) };
        let worker = Worker::new(&services, options);
        engine.workers.spawn(worker.run(longhaul_engine::shutdown::Shutdown::new()));
        engine.advance_until(second, "run.completed").await;
    }
}

#[tokio::test]
async fn a_cap_can_refuse_new_tasks() {
    let refuse = |unit, limit| SpendCap { at_cap: CapReachedAction::Refuse, ..cap(unit, limit) };
    let caps = [refuse(CapUnit::Runs, 2), refuse(CapUnit::Tokens, CALL_TOKENS_MAX)];
    let latch = Latch::closed();
    let reply = FakeReply::Text("done").after_latch(&latch);
    let engine = start_with_caps(engine_with([reply]).with_sim_clock(), caps);
    let first = engine.submit().await;
    latch.reached(1).await;
    let second = engine.submit().await;
    parked_at_cap(&engine, second).await;
    let task = || Task::new("tester", "Do it.");
    let error = engine.longhaul.submit(task()).await.unwrap_err();
    let Error::OverCap { cap, until, retry_after, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cap, "day-runs-all");
    assert_eq!(*retry_after, until.duration_since(now(&engine)));
    latch.open();
    engine.advance_until(second, "run.completed").await;
    engine.ended(first).await;
    let error = engine.longhaul.submit(task()).await.unwrap_err();
    assert_eq!(error.code(), "over_cap", "two runs were counted when they were submitted");
    engine.clock.as_ref().unwrap().advance(Millis::from_secs(24 * 60 * 60));
    engine.ended(engine.submit().await).await;
}

#[tokio::test]
async fn a_cap_below_one_call_limits_the_reply() {
    let engine = start_with_caps(engine_with([]).with_sim_clock(), [cap(CapUnit::Tokens, 5_000)]);
    engine.ended(engine.submit().await).await;
    let max_tokens = engine.model.requests()[0].max_tokens;
    assert!((1_024..5_000).contains(&max_tokens), "{max_tokens}");
    // A call never fits whole, so the next run does not wait for the next window either.
    engine.ended(engine.submit().await).await;
    let reduced_max_tokens = engine.model.requests()[1].max_tokens;
    assert!((1_024..max_tokens).contains(&reduced_max_tokens), "{reduced_max_tokens}");
    let none = start_with_caps(engine_with([]).with_sim_clock(), [cap(CapUnit::Tokens, 100)]);
    parked_at_cap(&none, none.submit().await).await;
}

#[tokio::test]
async fn the_hold_of_a_dead_worker_is_lost() {
    let latch = Latch::closed();
    let reply = FakeReply::Text("never").after_latch(&latch);
    let month = SpendCap { window: CapWindowLength::Month, ..cap(CapUnit::Tokens, 1_000_000) };
    let mut engine = with_caps(engine_with([reply]), [month]);
    let short_lease = |options: &mut WorkerOptions| options.lease = Millis(300);
    engine.spawn_worker(short_lease);
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
    let held = engine.longhaul.list_spend_caps().await.unwrap()[0].counts[0].held;
    let SpendCapAmount::Count(held) = held else { panic!("{held:?}") };
    engine.spawn_worker(short_lease);
    engine.ended(run).await;
    let count_now = engine.longhaul.list_spend_caps().await.unwrap().remove(0).counts.remove(0);
    assert_eq!(count_now.used, SpendCapAmount::Count(held + USED_TOKENS), "lost, and counted once");
    assert_eq!(count_now.held, SpendCapAmount::Count(0));
}

#[tokio::test]
async fn a_cap_per_model_counts_the_first_call_of_a_run() {
    let per_model = SpendCap { per: CapUsageGrouping::Model, ..cap(CapUnit::Tokens, 1_000_000) };
    let engine = start_with_caps(engine_with([FakeReply::Text("done")]), [per_model]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    let model = journal.iter().find_map(|entry| {
        let Event::RunPrepared(prepared) = &entry.event else {
            return None;
        };
        Some(prepared.model.clone())
    });
    let rows = engine.longhaul.services().records.cap_counter_rows().await.unwrap();
    let amounts: Vec<_> = rows.iter().map(|row| (row.key.subject.clone(), row.spent)).collect();
    assert_eq!(amounts, [(model.unwrap(), USED_TOKENS)]);
}
