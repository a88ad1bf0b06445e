//! Tests of the `lane_busy` policies: what happens with a task whose lane is busy, and that no task
//! is lost.

use futures_util::future::join_all;
use longhaul_core::event::Event;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, RunId, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSource;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::Task;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_testkit::latch::Latch;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, TestEngineBuilder, engine_with, outcome_text};

/// An engine whose agent has one lane and this policy. Its model waits at the latch.
fn engine_with_policy(policy: LaneBusyPolicy, latch: &Latch) -> TestEngineBuilder {
    engine_with([FakeReply::Text("first reply").after_latch(latch)]).agent(|agent| {
        agent.lane = Some("lane".into());
        agent.lane_busy = policy;
        agent.context = vec!["shop".into()];
    })
}

fn task(input: &str) -> Task {
    Task::new("tester", input)
}

fn keyed(input: &str, key: &str) -> Task {
    Task { idempotency_key: Some(key.to_owned()), ..task(input) }
}

async fn submit(engine: &TestEngine, task: Task) -> SubmitOutcome {
    engine.longhaul.submit_task(task).await.unwrap()
}

/// Submits a task and returns the id of its new run.
async fn create(engine: &TestEngine, task: Task) -> RunId {
    match submit(engine, task).await {
        SubmitOutcome::Created(runs) => runs[0],
        other @ (SubmitOutcome::Existing(_) | SubmitOutcome::Added(_)) => {
            panic!("no new run: {other:?}")
        }
    }
}

async fn all_runs(engine: &TestEngine) -> Vec<RunId> {
    let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
    let runs = engine.longhaul.list_brief_runs(filter).await.unwrap();
    runs.iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn a_task_goes_to_the_run_in_progress_as_a_message() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Steer, &latch).start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    assert_eq!(submit(&engine, keyed("two", "k")).await, SubmitOutcome::Added(first));
    assert_eq!(submit(&engine, task("three")).await, SubmitOutcome::Added(first));
    // A repeated submit adds no second message, also after the run has ended.
    let existing = SubmitOutcome::Existing(vec![first]);
    assert_eq!(submit(&engine, keyed("two", "k")).await, existing);
    let error = engine.longhaul.submit_task(keyed("other", "k")).await.unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused");
    // A message has no context, so this task waits for the lane.
    let mut with_context = task("four");
    with_context.context.insert("shop".into(), RawJson::from_serialize(&7));
    let waiting = create(&engine, with_context).await;
    latch.open();
    assert_eq!(outcome_text(&engine.ended(first).await), "done");
    assert_eq!(outcome_text(&engine.ended(waiting).await), "first reply");
    let texts = engine.model.requests().into_iter().find(|request| request.turn == 2);
    let texts = crate::suite::harness::model::user_texts(&texts.unwrap());
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(submit(&engine, keyed("two", "k")).await, existing);
    create(&engine, task("five")).await;
}

#[tokio::test]
async fn tasks_are_collected_in_the_run_that_waits() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Collect, &latch).with_sim_clock().start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    let second = create(&engine, task("two")).await;
    for input in ["three", "four"] {
        assert_eq!(submit(&engine, keyed(input, input)).await, SubmitOutcome::Added(second));
    }
    let existing = SubmitOutcome::Existing(vec![second]);
    assert_eq!(submit(&engine, keyed("three", "three")).await, existing);
    latch.open();
    engine.ended(first).await;
    // The waiting run starts a second after the last message, and collects until then.
    let next_timer = async || engine.store.next_timer_due().await.unwrap();
    let clock = engine.clock.as_ref().unwrap();
    for input in ["five", "six"] {
        let view = engine.longhaul.get_run(second).await.unwrap();
        assert_eq!((view.status, view.reason.as_deref()), (Status::Pending, Some("collect")));
        clock.advance(Millis(600));
        assert_eq!(submit(&engine, task(input)).await, SubmitOutcome::Added(second));
        assert_eq!(next_timer().await, Some(clock.now().plus(Millis(1_000))));
    }
    engine.advance_until(second, "run.completed").await;
    assert_eq!(engine.user_texts(), ["two", "three", "four", "five", "six"]);
    assert_eq!(all_runs(&engine).await, [second, first]);
    create(&engine, task("seven")).await;
}

/// A message is only a text, so a task is added only to a run whose task is the same otherwise.
#[tokio::test]
async fn a_task_that_differs_in_more_than_its_text_waits() {
    let json = || Some(RawJson::from_serialize(&"x"));
    let full = || {
        let mut full = task("one");
        full.thread = Some(ThreadKey::new("t").unwrap());
        full.resource = Some(ResourceKey::new("r").unwrap());
        full.context.insert("shop".into(), RawJson::from_serialize(&7));
        full.tags = vec!["x".into()];
        full.model = Some("scripted/other".into());
        full.budget.caps.tokens = Some(100_000);
        (full.actor, full.links, full.metadata) = (json(), json(), json());
        full
    };
    type TaskChange = fn(&mut Task);
    let changes: [(&str, TaskChange); 13] = [
        ("thread", |task| task.thread = None),
        ("other thread", |task| task.thread = Some(ThreadKey::new("t2").unwrap())),
        ("resource", |task| task.resource = Some(ResourceKey::new("r2").unwrap())),
        ("context", |task| task.context.clear()),
        ("history", |task| task.history = vec![Message::user("before")]),
        ("model", |task| task.model = None),
        ("budget", |task| task.budget.caps.tokens = Some(200_000)),
        ("actor", |task| task.actor = None),
        ("links", |task| task.links = None),
        ("metadata", |task| task.metadata = Some(RawJson::from_serialize(&"y"))),
        ("tags", |task| task.tags.clear()),
        ("inbox", |task| task.inbox = Some(InboxName::new("other").unwrap())),
        ("external task", |task| {
            let inbox = InboxName::new("default").unwrap();
            task.source = Some(TaskSource { inbox, id: "1".into() });
        }),
    ];
    for policy in [LaneBusyPolicy::Steer, LaneBusyPolicy::Collect] {
        for (name, change) in changes {
            let engine = engine_with_policy(policy, &Latch::closed()).build();
            let first = create(&engine, full()).await;
            let same = Task { input: RawJson::from_serialize(&"two"), ..full() };
            assert_eq!(submit(&engine, same).await, SubmitOutcome::Added(first), "{policy:?}");
            let mut different = full();
            change(&mut different);
            let outcome = submit(&engine, different).await;
            assert!(matches!(outcome, SubmitOutcome::Created(_)), "{policy:?}: {name}");
        }
    }
}

/// The memory of a thread contains the tasks that were added to a run, but not the messages of
/// people to a run.
#[tokio::test]
async fn a_thread_contains_the_tasks_that_were_added_to_runs() {
    let thread = ThreadKey::new("t").unwrap();
    let task = |input: &str| Task { thread: Some(thread.clone()), ..task(input) };
    let user = Message::user;
    let assistant = Message::assistant;
    let cases = [
        (LaneBusyPolicy::Steer, vec![user("one"), user("two"), user("three"), assistant("done")]),
        (
            LaneBusyPolicy::Collect,
            vec![
                user("one"),
                assistant("first reply"),
                user("two"),
                user("three"),
                assistant("first reply"),
            ],
        ),
    ];
    for (policy, expected) in cases {
        let latch = Latch::closed();
        let engine = engine_with_policy(policy, &latch).start();
        let first = create(&engine, task("one")).await;
        latch.reached(1).await;
        let last = submit(&engine, task("two")).await.run_ids()[0];
        assert_eq!(submit(&engine, task("three")).await, SubmitOutcome::Added(last));
        engine.longhaul.steer(last, "hurry", SteerDelivery::AfterBatch, "anna").await.unwrap();
        latch.open();
        engine.ended(first).await;
        engine.ended(last).await;
        let found = engine.longhaul.thread_messages(&thread, 50).await.unwrap();
        assert_eq!(found, expected, "{policy:?}");
    }
}

#[tokio::test]
async fn the_newest_task_cancels_the_runs_before_it() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Interrupt, &latch).start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    // Tasks that are submitted together wait, whatever the policy.
    let waiting = engine.longhaul.submit_all(vec![task("two"), task("three")]).await.unwrap();
    let newest = create(&engine, keyed("four", "k")).await;
    for run in [first].iter().chain(waiting.run_ids()) {
        let journal = engine.ended(*run).await;
        let Event::RunCancelled(cancelled) = &journal.last().unwrap().event else {
            panic!("{run} is not cancelled");
        };
        let reason = format!("the newer run {newest} interrupted it");
        assert!(cancelled.reason.contains(&reason), "{}", cancelled.reason);
    }
    assert_eq!(
        submit(&engine, keyed("four", "k")).await,
        SubmitOutcome::Existing(vec![newest]),
        "a repeated submit interrupts nothing"
    );
    latch.open();
    assert_eq!(outcome_text(&engine.ended(newest).await), "first reply");
}

#[tokio::test]
async fn a_task_is_refused_while_the_lane_is_busy() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Reject, &latch).start();
    let first = create(&engine, keyed("one", "k")).await;
    let submit_error = async |task| engine.longhaul.submit_task(task).await.unwrap_err();
    let error = submit_error(task("two")).await;
    assert_eq!(error.code(), "lane_busy");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    let existing = SubmitOutcome::Existing(vec![first]);
    assert_eq!(submit(&engine, keyed("one", "k")).await, existing);
    latch.open();
    engine.ended(first).await;
    let lane = LaneKey::new("lane").unwrap();
    engine.longhaul.pause_lane(&lane).await.unwrap();
    create(&engine, task("three")).await;
    assert_eq!(submit_error(task("four")).await.code(), "lane_busy", "a paused lane is busy too");
}

/// Many tasks are submitted at once while runs of the lane end. Each of them becomes the input of a
/// run or a delivered message, exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_task_is_lost_or_doubled_in_a_race() {
    for policy in [LaneBusyPolicy::Enqueue, LaneBusyPolicy::Steer, LaneBusyPolicy::Collect] {
        let latch = Latch::closed();
        latch.open();
        let engine = engine_with_policy(policy, &latch).start();
        let inputs: Vec<String> = (0..60).map(|number| format!("task {number}")).collect();
        join_all(inputs.iter().map(|input| submit(&engine, keyed(input, input)))).await;
        // A second attempt of each request changes nothing.
        join_all(inputs.iter().map(|input| submit(&engine, keyed(input, input)))).await;
        let mut found = Vec::new();
        for run in all_runs(&engine).await {
            for entry in engine.ended(run).await {
                assert_ne!(entry.event.kind(), "steer.dropped", "{policy:?}");
                if let Event::RunCreated(created) = &entry.event {
                    found.push(created.task.input.to_value());
                }
                if let Event::SteerQueued(message) = &entry.event {
                    found.push(message.text.clone().into());
                }
            }
        }
        let mut found: Vec<String> =
            found.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        found.sort();
        let mut expected = inputs.clone();
        expected.sort();
        assert_eq!(found, expected, "{policy:?}");
    }
}

/// Of many tasks that are submitted at once, each becomes a run, the newest run completes, and every
/// other run is cancelled or has completed before. None is left in the lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_newest_of_many_tasks_wins_in_a_race() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Interrupt, &latch).start();
    let first = create(&engine, task("first")).await;
    latch.reached(1).await;
    let inputs: Vec<String> = (0..60).map(|number| format!("task {number}")).collect();
    let created = join_all(inputs.iter().map(|input| create(&engine, keyed(input, input)))).await;
    let repeated = join_all(inputs.iter().map(|input| submit(&engine, keyed(input, input)))).await;
    let existing = created.iter().map(|run| SubmitOutcome::Existing(vec![*run]));
    assert_eq!(repeated, existing.collect::<Vec<_>>());
    // The first run may complete if the model replies before the sweeper cancels the run.
    assert_eq!(engine.ended(first).await.last().unwrap().event.kind(), "run.cancelled");
    latch.open();
    let newest = create(&engine, task("last")).await;
    assert_eq!(engine.ended(newest).await.last().unwrap().event.kind(), "run.completed");
    for run in created {
        let end = engine.ended(run).await.last().unwrap().event.kind();
        assert!(["run.cancelled", "run.completed"].contains(&end), "{run}: {end}");
    }
    assert_eq!(all_runs(&engine).await.len(), 62);
    let lane = engine.longhaul.lane(&LaneKey::new("lane").unwrap()).await.unwrap();
    assert_eq!((lane.busy, lane.waiting), (false, 0));
}

/// Of many tasks that are submitted at once, exactly one gets the empty lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_tasks_gets_the_lane_in_a_race() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Reject, &latch).start();
    let inputs: Vec<String> = (0..60).map(|number| format!("task {number}")).collect();
    for round in 0..2 {
        let submits = inputs.iter().map(|input| engine.longhaul.submit_task(keyed(input, input)));
        let (accepted, refused): (Vec<_>, Vec<_>) =
            join_all(submits).await.into_iter().partition(Result::is_ok);
        assert_eq!((accepted.len(), refused.len()), (1, 59), "round {round}");
        assert!(refused.iter().all(|error| error.as_ref().unwrap_err().code() == "lane_busy"));
        // The second attempt of the accepted request finds its run.
        let is_new = matches!(accepted[0], Ok(SubmitOutcome::Created(_)));
        assert_eq!(is_new, round == 0);
    }
    latch.open();
    let runs = all_runs(&engine).await;
    assert_eq!(runs.len(), 1);
    engine.ended(runs[0]).await;
}
