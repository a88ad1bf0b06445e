//! Tests of schedules: each firing happens once, whatever the clock, the workers and the last run
//! do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_api::run::RunView;
use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_core::chain::{ChainSpec, ChainStepSpec};
use longhaul_core::failure::FailureClass;
use longhaul_core::port::auth::IdempotencyKey;
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::schedule::{CatchUp, Overlap};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::agent::{Agent, AgentRegistry};
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{SECRET, TIMEOUT, TestEngine, engine_with};

const HOUR: Millis = Millis::from_secs(3_600);

fn engine(replies: impl IntoIterator<Item = FakeReply>) -> TestEngine {
    engine_with(replies).with_sim_clock().build()
}

fn hourly(name: &str) -> NewScheduleBody {
    NewScheduleBody {
        cron: Some("0 * * * *".to_owned()),
        input: Some(RawJson::from_serialize(&"Do it.")),
        ..NewScheduleBody::new(name, "tester")
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns all runs, oldest first.
async fn runs(engine: &TestEngine) -> Vec<RunView> {
    let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
    let mut views = Vec::new();
    for row in engine.longhaul.services().store.list_runs(filter).await.unwrap().iter().rev() {
        views.push(engine.longhaul.get_run(row.id).await.unwrap());
    }
    views
}

/// Advances the clock second by second until a schedule satisfies the condition.
async fn until(
    engine: &TestEngine,
    name: &str,
    condition: impl Fn(&ScheduleView) -> bool,
) -> ScheduleView {
    let clock = engine.clock.as_ref().unwrap();
    let mut watch = engine.longhaul.services().store.watch_for_changes();
    let search = async {
        loop {
            let schedule = engine.longhaul.schedule(name).await.unwrap();
            if condition(&schedule) {
                return schedule;
            }
            let changed = watch.wait_for_change();
            match tokio::time::timeout(Duration::from_millis(2), changed).await {
                Ok(changed) => changed.unwrap(),
                Err(_) => drop(clock.advance(Millis::from_secs(1))),
            }
        }
    };
    tokio::time::timeout(TIMEOUT, search).await.expect("the schedule satisfies the condition")
}

/// Sets the clock to this time and waits until the schedule has fired for it.
async fn fire_at(engine: &TestEngine, name: &str, at: &str) -> ScheduleView {
    let clock = engine.clock.as_ref().unwrap();
    clock.set(time(at));
    until(engine, name, |schedule| schedule.next_at > Some(time(at))).await
}

#[tokio::test]
async fn a_schedule_fires_at_its_times_with_the_newest_agent() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    let body = NewScheduleBody { overlap: Overlap::Allow, ..hourly("hourly") };
    let created = engine.longhaul.create_schedule(body, None).await.unwrap();
    assert_eq!(created.next_at, Some(time("2026-01-01T01:00:00Z")));
    assert_eq!((created.last_run, created.tz.as_deref()), (None, Some("UTC")));
    let first = fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await;
    assert_eq!(first.next_at, Some(time("2026-01-01T02:00:00Z")));
    let mut agent: Agent = (*engine.longhaul.get_agent("tester").unwrap()).clone();
    agent.prompt = "You are changed.".to_owned();
    engine.longhaul.register(agent);
    let second = fire_at(&engine, "hourly", "2026-01-01T02:00:00Z").await;
    let [one, two] = runs(&engine).await.try_into().unwrap();
    assert_eq!((first.last_run, second.last_run), (Some(one.id), Some(two.id)));
    assert_ne!(one.agent_version, two.agent_version);
    let due = json!({ "schedule": "hourly", "due": "2026-01-01T02:00:00.000000Z" });
    assert_eq!(two.metadata.map(|data| data.to_value()), Some(due));
    let row = engine.longhaul.run_row(two.id).await.unwrap();
    assert_eq!(row.submitter.as_deref(), Some("schedule:hourly"));
    engine.ended(two.id).await;
    let schedule = engine.longhaul.schedule("hourly").await.unwrap();
    assert_eq!(schedule.last_status, Some(Status::Completed));
}

/// A chain whose retry has not ended counts as open.
#[tokio::test]
async fn a_firing_is_skipped_while_the_retry_of_a_chain_is_open() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    engine.add_agent("plan", [FakeReply::Fail(FailureClass::InvalidRequest)]);
    let steps = vec![ChainStepSpec::new("plan")];
    let spec = ChainSpec { steps, ..ChainSpec::default() };
    engine.longhaul.replace_chains([("alone".to_owned(), Arc::new(spec))].into());
    let body = NewScheduleBody {
        agent: None,
        chain: Some("alone".to_owned()),
        overlap: Overlap::Skip,
        ..hourly("hourly")
    };
    engine.longhaul.create_schedule(body, None).await.unwrap();
    let failed = fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await.last_run.unwrap();
    engine.ended(failed).await;
    let question = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine.model.set_replies_of("scripted/plan", vec![question]);
    let retry = engine.longhaul.retry(failed, "cli:anna").await.unwrap().run_ids()[0];
    engine.gate(retry).await;
    let skipped = fire_at(&engine, "hourly", "2026-01-01T02:00:00Z").await;
    assert_eq!((skipped.last_run, skipped.last_status), (Some(failed), Some(Status::Waiting)));
    assert!(skipped.last_error.unwrap().contains("has not ended"));
}

#[tokio::test]
async fn each_firing_happens_once_over_workers_and_restarts() {
    let mut engine = engine([]);
    let body =
        NewScheduleBody { catch_up: CatchUp::All, overlap: Overlap::Allow, ..hourly("hourly") };
    engine.longhaul.create_schedule(body, None).await.unwrap();
    let mut expected = BTreeSet::new();
    for restart in 0..3_u64 {
        let shutdowns = [(); 3].map(|()| engine.spawn_worker_with_schedules());
        let last = engine.clock.as_ref().unwrap().now().plus(Millis(HOUR.0 * 10));
        engine.clock.as_ref().unwrap().set(last);
        until(&engine, "hourly", |schedule| schedule.next_at > Some(last)).await;
        for shutdown in shutdowns {
            shutdown.request_drain();
            engine.worker_stopped().await;
        }
        expected.extend((1..=10).map(|hour| {
            let hours = restart * 10 + hour;
            longhaul_testkit::clock::SIM_START.plus(Millis(HOUR.0 * hours)).to_string()
        }));
        let times = runs(&engine).await.into_iter().map(|run| {
            let metadata = run.metadata.unwrap().to_value();
            metadata["due"].as_str().unwrap().to_owned()
        });
        let times: Vec<String> = times.collect();
        assert_eq!(times.len(), expected.len(), "{times:?}");
        assert_eq!(times.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_fires_nothing_again() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    engine.longhaul.create_schedule(hourly("hourly"), None).await.unwrap();
    fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await;
    engine.clock.as_ref().unwrap().set(time("2026-01-01T00:59:58Z"));
    let schedule = fire_at(&engine, "hourly", "2026-01-01T02:00:00Z").await;
    assert_eq!(schedule.next_at, Some(time("2026-01-01T03:00:00Z")));
    assert_eq!(runs(&engine).await.len(), 2);
}

#[tokio::test]
async fn catch_up_all_fires_each_time_once_over_a_clock_that_goes_back_and_forth() {
    let mut engine = engine([]);
    let body = NewScheduleBody { catch_up: CatchUp::All, overlap: Overlap::Allow, ..hourly("all") };
    engine.longhaul.create_schedule(body, None).await.unwrap();
    engine.longhaul.create_schedule(hourly("later"), None).await.unwrap();
    engine.spawn_worker_with_schedules();
    fire_at(&engine, "all", "2026-01-01T05:00:00Z").await;
    fire_at(&engine, "later", "2026-01-01T05:00:00Z").await;
    engine.clock.as_ref().unwrap().set(time("2026-01-01T02:30:00Z"));
    // The scheduler has looked at all schedules when it has moved the last one back.
    let next = Some(time("2026-01-01T03:00:00Z"));
    until(&engine, "later", |schedule| schedule.next_at == next).await;
    fire_at(&engine, "later", "2026-01-01T03:00:00Z").await;
    fire_at(&engine, "all", "2026-01-01T06:00:00Z").await;
    let due = runs(&engine).await.into_iter().map(|run| run.metadata.unwrap().to_value());
    let due = due.filter(|metadata| metadata["schedule"] == "all");
    let due: Vec<String> =
        due.map(|metadata| metadata["due"].as_str().unwrap()[11..13].to_owned()).collect();
    assert_eq!(due, ["01", "02", "03", "04", "05", "06"]);
}

#[tokio::test]
async fn missed_firings_are_caught_up_by_policy() {
    for (catch_up, count) in [(CatchUp::Skip, 0), (CatchUp::Once, 1), (CatchUp::All, 5)] {
        let mut engine = engine([]);
        let body = NewScheduleBody { catch_up, overlap: Overlap::Allow, ..hourly("hourly") };
        engine.longhaul.create_schedule(body, None).await.unwrap();
        engine.clock.as_ref().unwrap().set(time("2026-01-01T05:30:00Z"));
        engine.spawn_worker_with_schedules();
        let next = Some(time("2026-01-01T06:00:00Z"));
        let schedule = until(&engine, "hourly", |schedule| schedule.next_at == next).await;
        assert_eq!(runs(&engine).await.len(), count, "{catch_up:?}");
        let reason = schedule.last_error.unwrap_or_default();
        assert_eq!(reason.contains("no worker was running"), count == 0, "{reason}");
    }
}

#[tokio::test]
async fn an_open_last_run_is_handled_by_policy() {
    for (overlap, count) in [(Overlap::Skip, 1), (Overlap::Queue, 2), (Overlap::Allow, 2)] {
        let latch = Latch::closed();
        let mut engine = engine([FakeReply::Text("done").after_latch(&latch)]);
        engine.spawn_worker_with_schedules();
        let body = NewScheduleBody { overlap, ..hourly("hourly") };
        engine.longhaul.create_schedule(body, None).await.unwrap();
        fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await;
        latch.reached(1).await;
        let schedule = fire_at(&engine, "hourly", "2026-01-01T02:00:00Z").await;
        let all = runs(&engine).await;
        assert_eq!(all.len(), count, "{overlap:?}");
        let reason = schedule.last_error.unwrap_or_default();
        assert_eq!(reason.contains("has not ended"), overlap == Overlap::Skip, "{reason}");
        let lane = (overlap == Overlap::Queue).then(|| "schedule:hourly".to_owned());
        assert_eq!(all[0].lane, lane);
        if overlap == Overlap::Queue {
            assert_eq!(all[1].reason.as_deref(), Some("lane"));
        }
        latch.open();
        for run in &all {
            engine.ended(run.id).await;
        }
        // When the last run has ended, the next firing starts a run again.
        fire_at(&engine, "hourly", "2026-01-01T03:00:00Z").await;
        assert_eq!(runs(&engine).await.len(), count + 1, "{overlap:?}");
    }
}

#[tokio::test]
async fn an_idle_tick_can_be_scheduled_at_an_interval() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    let body = NewScheduleBody {
        every_ms: Some(30_000),
        event: Some("idle_tick".to_owned()),
        lane: Some("npc-7".to_owned()),
        ..NewScheduleBody::new("idle", "tester")
    };
    let created = engine.longhaul.create_schedule(body, None).await.unwrap();
    assert_eq!(created.next_at, Some(time("2026-01-01T00:00:30Z")));
    let schedule = until(&engine, "idle", |schedule| schedule.last_run.is_some()).await;
    let run = schedule.last_run.unwrap();
    engine.ended(run).await;
    assert_eq!(engine.user_texts(), ["You have a moment to yourself. What do you do?"]);
    let run = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((run.kind.as_deref(), run.lane.as_deref()), (Some("idle_tick"), Some("npc-7")));
    assert_eq!(run.budget.turns, Some(6));
}

#[tokio::test]
async fn a_firing_without_an_agent_is_reported() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    engine.longhaul.create_schedule(hourly("hourly"), None).await.unwrap();
    engine.longhaul.replace_agents(AgentRegistry::default());
    let schedule = fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await;
    assert_eq!(schedule.last_error.as_deref(), Some("there is no agent named `tester`"));
    assert_eq!(runs(&engine).await.len(), 0);
}

#[tokio::test]
async fn a_schedule_runs_on_demand_and_is_deleted() {
    let engine = engine([]);
    let created = engine.longhaul.create_schedule(hourly("hourly"), None).await.unwrap();
    let run = engine.longhaul.run_schedule("hourly", None, None).await.unwrap();
    let second = engine.longhaul.run_schedule("hourly", None, None).await.unwrap();
    let schedule = engine.longhaul.schedule("hourly").await.unwrap();
    assert_ne!(run.id, second.id);
    assert_eq!((schedule.next_at, schedule.last_run), (created.next_at, Some(second.id)));
    let deleted = engine.longhaul.delete_schedule("hourly").await.unwrap();
    assert_eq!(deleted.name, "hourly");
    assert_eq!(engine.longhaul.schedules().await.unwrap(), []);
    for name in ["hourly", "", "no such"] {
        let codes = [
            engine.longhaul.schedule(name).await.unwrap_err().code(),
            engine.longhaul.delete_schedule(name).await.unwrap_err().code(),
            engine.longhaul.run_schedule(name, None, None).await.unwrap_err().code(),
        ];
        assert_eq!(codes, ["schedule_not_found"; 3], "{name}");
    }
}

#[tokio::test]
async fn a_run_on_demand_with_a_used_key_is_returned_again() {
    let engine = engine([]);
    for name in ["hourly", "other"] {
        engine.longhaul.create_schedule(hourly(name), None).await.unwrap();
    }
    let key = |principal: &str| {
        Some(IdempotencyKey { principal: principal.to_owned(), key: "k".to_owned() })
    };
    let run = engine.longhaul.run_schedule("hourly", key("ops"), None).await.unwrap();
    let repeated = engine.longhaul.run_schedule("hourly", key("ops"), None).await.unwrap();
    assert_eq!((repeated.id, runs(&engine).await.len()), (run.id, 1));
    let reused = engine.longhaul.run_schedule("other", key("ops"), None).await.unwrap_err();
    assert_eq!(reused.code(), longhaul_engine::Error::IdempotencyKeyReused.code());
    let other_run = engine.longhaul.run_schedule("hourly", key("dev"), None).await.unwrap();
    assert_ne!(other_run.id, run.id);
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_and_back_does_not_stop_schedules() {
    let every = NewScheduleBody {
        cron: None,
        every_ms: Some(HOUR.0),
        catch_up: CatchUp::Skip,
        ..hourly("every")
    };
    for is_restarted in [false, true] {
        let mut engine = engine([]);
        let shutdown = engine.spawn_worker_with_schedules();
        let once = NewScheduleBody { catch_up: CatchUp::Once, ..hourly("hourly") };
        for body in [once, every.clone()] {
            engine.longhaul.create_schedule(body, None).await.unwrap();
        }
        let schedule = fire_at(&engine, "hourly", "2099-05-01T10:30:00Z").await;
        assert_eq!(schedule.next_at, Some(time("2099-05-01T11:00:00Z")));
        fire_at(&engine, "every", "2099-05-01T10:30:00Z").await;
        if is_restarted {
            shutdown.request_drain();
            engine.worker_stopped().await;
        }
        let correct = time("2026-01-01T00:30:00Z");
        engine.clock.as_ref().unwrap().set(correct);
        if is_restarted {
            engine.spawn_worker_with_schedules();
        }
        for name in ["hourly", "every"] {
            let is_moved = |view: &ScheduleView| view.next_at < Some(correct.plus(HOUR));
            let schedule = until(&engine, name, is_moved).await;
            let error = schedule.last_error.unwrap();
            assert!(error.starts_with("the clock was set back"), "{error}");
        }
        for name in ["hourly", "every"] {
            let schedule = fire_at(&engine, name, "2026-01-01T01:00:00Z").await;
            assert_eq!(schedule.next_at, Some(time("2026-01-01T02:00:00Z")));
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_a_little_repeats_no_firing() {
    let mut engine = engine([]);
    engine.spawn_worker_with_schedules();
    let body = NewScheduleBody { overlap: Overlap::Allow, ..hourly("hourly") };
    engine.longhaul.create_schedule(body, None).await.unwrap();
    fire_at(&engine, "hourly", "2026-01-01T01:00:00Z").await;
    engine.clock.as_ref().unwrap().set(time("2026-01-01T00:59:50Z"));
    let second = fire_at(&engine, "hourly", "2026-01-01T02:00:00Z").await;
    assert_eq!(second.next_at, Some(time("2026-01-01T03:00:00Z")));
    assert_eq!(runs(&engine).await.len(), 2);
}

#[tokio::test]
async fn an_invalid_schedule_is_rejected() {
    let engine = engine([]);
    engine.longhaul.create_schedule(hourly("taken"), None).await.unwrap();
    let long = "n".repeat(65);
    let with_cron = |cron: &str| NewScheduleBody { cron: Some(cron.to_owned()), ..hourly("new") };
    let base = || NewScheduleBody::new("new", "tester");
    let text = |text: &str| Some(text.to_owned());
    for (body, code, reason) in [
        (hourly("taken"), "schedule_exists", "already a schedule named `taken`"),
        (hourly(""), "invalid_schedule", "the name of a schedule"),
        (hourly("a b"), "invalid_schedule", "the name of a schedule"),
        (hourly("../a"), "invalid_schedule", "the name of a schedule"),
        (hourly(&long), "invalid_schedule", "1 to 64"),
        (with_cron("0 25 * * *"), "invalid_schedule", "`0 25 * * *` is invalid"),
        (with_cron("0 0 30 2 *"), "invalid_schedule", "never matches"),
        (
            NewScheduleBody { tz: text("Mars/Base"), ..hourly("new") },
            "invalid_schedule",
            "no time zone",
        ),
        (NewScheduleBody { every_ms: Some(5), ..base() }, "invalid_schedule", "`input`"),
        (
            NewScheduleBody { every_ms: Some(5), event: text("idle_tick"), ..base() },
            "invalid_schedule",
            "between 1 second and 366 days",
        ),
        (NewScheduleBody { every_ms: Some(5_000), ..hourly("new") }, "invalid_schedule", "either"),
        (NewScheduleBody { event: text("idle_tick"), ..base() }, "invalid_schedule", "either"),
        (NewScheduleBody { event: text(""), ..hourly("new") }, "empty", "must not be empty"),
        (NewScheduleBody { agent: text("nobody"), ..hourly("new") }, "agent_not_found", "`nobody`"),
        (NewScheduleBody { agent: None, ..hourly("new") }, "invalid_schedule", "`agent`"),
        (
            NewScheduleBody { chain: text("pair"), ..hourly("new") },
            "invalid_schedule",
            "either an `agent` or a `chain`",
        ),
        (
            NewScheduleBody { agent: None, chain: text("nothing"), ..hourly("new") },
            "chain_not_found",
            "`nothing`",
        ),
        (
            NewScheduleBody { lane: text(&"l".repeat(10_000)), ..hourly("new") },
            "invalid_task",
            "lane",
        ),
        (
            NewScheduleBody {
                input: Some(RawJson::from_serialize(&"x".repeat(1024 * 1024 + 1))),
                ..hourly("new")
            },
            "too_long",
            "a task's input",
        ),
        (hourly(SECRET), "invalid_task", "holds the secret"),
    ] {
        let error = engine.longhaul.create_schedule(body.clone(), None).await.unwrap_err();
        assert_eq!(error.code(), code, "{body:?}: {error}");
        assert!(error.to_string().contains(reason), "{body:?}: {error}");
    }
    let input = Some(RawJson::from_serialize(&format!("The key is {SECRET}.")));
    let body = NewScheduleBody { input, ..hourly("redacted") };
    let created = engine.longhaul.create_schedule(body, None).await.unwrap();
    assert_eq!(created.input.to_value(), json!("The key is {{secret:WORD}}."));
    assert_eq!(engine.longhaul.schedules().await.unwrap().len(), 2);
}
