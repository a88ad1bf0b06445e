//! Tests of chains: order, conditions, rounds, results of earlier steps, gates that approve
//! themselves, lanes, cancels and retries.

use longhaul_api::steer::SteerState;
use longhaul_core::chain::{
    ChainRepeatEndCondition, ChainRepeatSpec, ChainSpec, ChainStatus, ChainStepCondition,
    ChainStepSpec,
};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{LaneKey, RunId, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateStatus, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_core::usage::{MicroUsd, Price};
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use serde_json::json;

use crate::suite::harness::model::{FakeReply, user_texts};
use crate::suite::harness::{TestEngine, answer, engine_with, kinds, outcome_text};

const ISSUES: &str = r#"{"issues_found": true, "text": "One bug."}"#;
const NO_ISSUES: &str = "```json\n{\"issues_found\": false}\n```";

fn chain(steps: Vec<ChainStepSpec>) -> Task {
    Task::for_chain(ChainSpec { steps, ..ChainSpec::default() }, "Build it.")
}

fn when(agent: &str, condition: ChainStepCondition) -> ChainStepSpec {
    ChainStepSpec { condition, ..ChainStepSpec::new(agent) }
}

/// A fix that goes back to `review` while there are issues.
fn fix_and_repeat(max: u32) -> ChainStepSpec {
    let until = ChainRepeatEndCondition::NoIssues;
    ChainStepSpec {
        repeat: Some(ChainRepeatSpec { from: "review".to_owned(), until, max }),
        ..when("fix", ChainStepCondition::OnIssuesFound)
    }
}

fn engine() -> TestEngine {
    let engine = engine_with([]).start();
    for name in ["plan", "build", "review", "fix"] {
        engine.add_agent(name, []);
    }
    engine
}

fn set_reply(engine: &TestEngine, agent: &str, reply: FakeReply) {
    engine.model.set_replies_of(&format!("scripted/{agent}"), vec![reply]);
}

fn result_gate(agent: &mut Agent) {
    agent.result_gate = Some(ResultApprovalGate {
        ask: "Is it good?".to_owned(),
        timeout: Some(GateTimeout::Never),
        on_timeout: GateTimeoutAction::Reject,
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
        auto_approve: None,
    });
}

impl TestEngine {
    async fn chain_row(&self, run: RunId) -> RunRow {
        self.longhaul.run_row(run).await.unwrap()
    }

    /// Waits until the chain of this run has ended, and returns its runs, oldest first.
    async fn chain_ended(&self, root: RunId) -> Vec<RunRow> {
        let mut runs = vec![root];
        loop {
            let newest = *runs.last().unwrap();
            self.ended(newest).await;
            match self.chain_row(newest).await.chain.unwrap().current {
                current if current == newest => break,
                _ => runs.push(next_run(&self.ended(newest).await)),
            }
        }
        let mut rows = Vec::new();
        for run in runs {
            rows.push(self.chain_row(run).await);
        }
        rows
    }
}

/// Returns the run of the step that this journal starts.
fn next_run(journal: &[JournalEntry]) -> RunId {
    let started = journal.iter().find_map(|entry| {
        let Event::ChainStepStarted(started) = &entry.event else { return None };
        Some(started.run)
    });
    started.expect("the journal starts a step")
}

fn agents(rows: &[RunRow]) -> Vec<&str> {
    rows.iter().map(|row| row.agent.as_str()).collect()
}

#[tokio::test]
async fn steps_run_in_order_under_one_root_and_see_the_previous_result() {
    let engine = engine();
    engine.add_changed_agent("plan", [FakeReply::Text("Use a map.")], |_| {});
    engine.add_changed_agent("build", [FakeReply::Text("Built.")], |_| {});
    engine.add_changed_agent("review", [], |agent| {
        agent.prompt = "{{ previous.output.text }} as in: {{ steps.plan.output.text }}".to_owned();
    });
    let steps = ["plan", "build", "review"].map(ChainStepSpec::new).to_vec();
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let rows = engine.chain_ended(root).await;
    assert_eq!(agents(&rows), ["plan", "build", "review"]);
    for row in &rows[1..] {
        assert_eq!((row.parent, row.root), (Some(root), root));
    }
    let journal = engine.ended(root).await;
    let [.., started, completed] = kinds(&journal)[..] else { panic!("{journal:?}") };
    assert_eq!((started, completed), ("chain.step_started", "run.completed"));
    let request_of = |run| {
        let requests = engine.model.requests();
        requests.into_iter().find(|request| request.run == run).unwrap()
    };
    let build = request_of(rows[1].id);
    assert_eq!(
        user_texts(&build),
        ["Build it.\n\n## Result of the previous step, `plan`\n\nUse a map."]
    );
    // A template that uses the results gets no copy in the task.
    let review = request_of(rows[2].id);
    assert_eq!(user_texts(&review), ["Build it."]);
    let system = format!("{:?}", review.system);
    assert!(system.contains("Built. as in: Use a map."), "{system}");
    let view = engine.longhaul.get_run(root).await.unwrap().chain.unwrap();
    assert_eq!((view.name, view.step, view.of), (None, 1, 3));
    assert_eq!((view.status, view.current), (ChainStatus::Completed, rows[2].id));
}

#[tokio::test]
async fn conditions_read_the_structured_output() {
    let steps = || {
        vec![
            ChainStepSpec::new("build"),
            when("review", ChainStepCondition::OnSuccess),
            when("fix", ChainStepCondition::OnIssuesFound),
            ChainStepSpec::new("plan"),
        ]
    };
    for (build, review, expected) in [
        ("Built.", ISSUES, &["build", "review", "fix", "plan"][..]),
        ("Built.", NO_ISSUES, &["build", "review", "plan"]),
        (r#"{"success": false}"#, ISSUES, &["build", "plan"]),
        (r#"{"success": true, "issues_found": "yes"}"#, "Fine.", &["build", "review", "plan"]),
    ] {
        let engine = engine();
        set_reply(&engine, "build", FakeReply::Text(build));
        set_reply(&engine, "review", FakeReply::Text(review));
        let root = engine.longhaul.submit(chain(steps())).await.unwrap();
        assert_eq!(agents(&engine.chain_ended(root).await), expected, "{build} {review}");
    }
}

#[tokio::test]
async fn rounds_are_bounded_and_every_round_is_a_run() {
    let engine = engine();
    set_reply(&engine, "review", FakeReply::Text(ISSUES));
    let steps = vec![ChainStepSpec::new("review"), fix_and_repeat(2), ChainStepSpec::new("plan")];
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let rows = engine.chain_ended(root).await;
    let expected = ["review", "fix", "review", "fix", "review", "fix", "plan"];
    assert_eq!(agents(&rows), expected);
    let steps: Vec<u32> = rows.iter().map(|row| row.chain.as_ref().unwrap().step).collect();
    assert_eq!(steps, [0, 1, 0, 1, 0, 1, 2]);
}

/// The maximum of a repeat counts over the whole chain, not for each round of another one.
#[tokio::test]
async fn the_rounds_of_nested_repeats_do_not_multiply() {
    let engine = engine();
    set_reply(&engine, "review", FakeReply::Text(ISSUES));
    let outer = ChainRepeatSpec {
        from: "review".to_owned(),
        until: ChainRepeatEndCondition::NoIssues,
        max: 2,
    };
    let plan = ChainStepSpec { repeat: Some(outer), ..ChainStepSpec::new("plan") };
    let steps = vec![ChainStepSpec::new("review"), fix_and_repeat(1), plan];
    let spec = ChainSpec { max_runs: Some(11), steps, ..ChainSpec::default() };
    let root = engine.longhaul.submit(Task::for_chain(spec, "Build it.")).await.unwrap();
    let rows = engine.chain_ended(root).await;
    let rounds = [&["review", "fix"][..], &["review", "fix", "plan"]];
    let later = ["review", "fix", "plan"];
    assert_eq!(agents(&rows), [rounds.concat(), [later, later].concat()].concat());
}

#[tokio::test]
async fn a_failed_or_rejected_step_ends_the_chain_and_a_retry_goes_on() {
    let engine = engine();
    set_reply(&engine, "build", FakeReply::Fail(FailureClass::InvalidRequest));
    let steps = ["plan", "build", "review"].map(ChainStepSpec::new).to_vec();
    let mut task = chain(steps);
    task.lane = Some(LaneKey::new("repo").unwrap());
    let root = engine.longhaul.submit(task).await.unwrap();
    let journal = engine.ended(root).await;
    let failed = next_run(&journal);
    assert_eq!(outcome_text(&engine.ended(failed).await), "invalid_request");
    let view = engine.longhaul.get_run(root).await.unwrap().chain.unwrap();
    assert_eq!((view.status, view.current), (ChainStatus::Failed, failed));
    let lane = engine.longhaul.lane(&LaneKey::new("repo").unwrap()).await.unwrap();
    assert!(!lane.busy, "the lane is free");
    set_reply(&engine, "build", FakeReply::Text("Built."));
    let retried = engine.longhaul.retry(failed, "cli:anna").await.unwrap().run_ids()[0];
    let rows = engine.chain_ended(retried).await;
    assert_eq!(agents(&rows), ["build", "review"]);
    let place = rows[0].chain.clone().unwrap();
    assert_eq!((place.step, place.steps, place.current), (1, 3, rows[1].id));
    assert_eq!(rows[0].root, retried, "a retry is a root of its own");
    let texts = user_texts(engine.model.requests().iter().rfind(|r| r.run == retried).unwrap());
    assert!(texts[0].contains("Result of the previous step, `plan`"), "{texts:?}");

    engine.add_changed_agent("plan", [], result_gate);
    let steps = ["plan", "build"].map(ChainStepSpec::new).to_vec();
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let gate = engine.gate(root).await;
    assert_eq!(engine.chain_row(root).await.chain.unwrap().current_status, Status::Waiting);
    engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Reject)).await.unwrap();
    let rows = engine.chain_ended(root).await;
    assert_eq!((agents(&rows), rows[0].code.as_deref()), (vec!["plan"], Some("rejected")));
}

#[tokio::test]
async fn the_lane_is_kept_and_a_cancel_of_any_step_cancels_the_chain() {
    let engine = engine();
    engine.add_agent("build", [FakeReply::call("ask_human", json!({ "question": "Which?" }))]);
    let lane = Some(LaneKey::new("repo").unwrap());
    let steps = ["plan", "build", "review"].map(ChainStepSpec::new).to_vec();
    let first = Task { lane: lane.clone(), ..chain(steps) };
    let root = engine.longhaul.submit(first).await.unwrap();
    let other = Task { lane, ..Task::new("plan", "Other.") };
    let other = engine.longhaul.submit(other).await.unwrap();
    let build = next_run(&engine.ended(root).await);
    engine.gate(build).await;
    let waiting = engine.chain_row(other).await;
    assert_eq!((waiting.status, waiting.reason.as_deref()), (Status::Pending, Some("lane")));
    engine.longhaul.cancel_run(root, "cli:anna", "").await.unwrap();
    assert_eq!(agents(&engine.chain_ended(root).await), ["plan", "build"]);
    let view = engine.longhaul.get_run(root).await.unwrap().chain.unwrap();
    assert_eq!(view.status, ChainStatus::Cancelled);
    engine.ended(other).await;
    let error = engine.longhaul.cancel_run(root, "cli:anna", "").await.unwrap_err();
    assert_eq!(error.code(), "run_ended");
}

#[tokio::test]
async fn commands_for_an_ended_step_apply_to_the_newest_run_of_the_chain() {
    let engine = engine();
    let question = || FakeReply::call("ask_human", json!({ "question": "Which?" }));
    let failure = FakeReply::Fail(FailureClass::InvalidRequest);
    engine.add_agent("build", [question(), failure]);
    let steps = ["plan", "build", "review"].map(ChainStepSpec::new).to_vec();
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let build = next_run(&engine.ended(root).await);
    engine.gate(build).await;
    let (longhaul, by) = (&engine.longhaul, "cli:anna");
    assert_eq!(longhaul.pause_run(root, by).await.unwrap(), build);
    assert_eq!(engine.chain_row(build).await.status, Status::Paused);
    assert_eq!(longhaul.resume_run(root, None, by).await.unwrap(), build);
    let message = SteerMessage {
        steer: SteerId::from_bits(7),
        text: "hurry".to_owned(),
        delivery: SteerDelivery::FollowUp,
        by: by.to_owned(),
        is_task: false,
    };
    for _ in 0..2 {
        let receipt = longhaul.steer_idempotently(root, message.clone()).await.unwrap();
        assert_eq!((receipt.run, receipt.id), (build, message.steer));
    }
    let receipt = longhaul.steer(root, "and well", SteerDelivery::FollowUp, by).await.unwrap();
    let messages = longhaul.list_steers(build).await.unwrap();
    assert_eq!((receipt.run, messages.len()), (build, 2));
    let updated = SteerMessage { text: "no hurry".to_owned(), ..message };
    longhaul.update_steer(root, updated).await.unwrap();
    longhaul.withdraw_steer(root, receipt.id, by).await.unwrap();
    let messages = longhaul.list_steers(build).await.unwrap();
    assert_eq!(
        (messages[0].text.as_str(), messages[1].status),
        ("no hurry", SteerState::Withdrawn)
    );

    let gate = engine.gate(build).await;
    let text = GateDecision::Answer("This one.".to_owned());
    longhaul.answer_gate(gate.spec.id, answer(&gate, text)).await.unwrap();
    engine.ended(build).await;
    assert_eq!(longhaul.pause_run(root, by).await.unwrap_err().code(), "run_ended");
    engine.add_agent("review", [question()]);
    set_reply(&engine, "build", FakeReply::Text("Built."));
    // The first run has not failed, but its chain has.
    let retry = longhaul.retry(root, by).await.unwrap().run_ids()[0];
    assert_eq!(longhaul.get_run(retry).await.unwrap().retry_of, Some(build));
    let repeated = longhaul.retry(build, by).await.unwrap();
    assert_eq!(repeated.run_ids(), [retry], "a failed run has one retry");
    let review = next_run(&engine.ended(retry).await);
    engine.gate(review).await;
    for run in [root, build, retry] {
        let view = longhaul.get_run(run).await.unwrap().chain.unwrap();
        assert_eq!((view.status, view.current), (ChainStatus::Waiting, review), "{run}");
        let explanation = longhaul.explain_run(run).await.unwrap();
        assert!(explanation.message.contains(&review.to_string()), "{explanation:?}");
    }
    assert_eq!(longhaul.retry(root, by).await.unwrap_err().code(), "not_failed");
    assert_eq!(longhaul.cancel_run(root, by, "").await.unwrap(), review);
    engine.ended(review).await;
    let view = longhaul.get_run(root).await.unwrap().chain.unwrap();
    assert_eq!(view.status, ChainStatus::Cancelled);
}

/// Returns an engine with a simulated clock, and the run of a chain whose first result approves
/// itself.
pub(crate) async fn auto_approving() -> (TestEngine, RunId) {
    let engine = engine_with([]).with_sim_clock().start();
    engine.add_changed_agent("plan", [], result_gate);
    engine.add_agent("build", []);
    let plan = ChainStepSpec { auto_approve: true, ..ChainStepSpec::new("plan") };
    let steps = vec![plan, ChainStepSpec::new("build")];
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let gate = engine.gate(root).await;
    assert_eq!(gate.auto_approves_at(), Some(gate.raised_at.plus(Millis::from_secs(3))));
    (engine, root)
}

#[tokio::test]
async fn a_result_is_approved_automatically_after_three_seconds() {
    let (engine, root) = auto_approving().await;
    let gate = engine.gate(root).await;
    let journal = engine.advance_until(root, "gate.answered").await;
    let answered = journal.iter().find(|entry| entry.event.kind() == "gate.answered").unwrap();
    assert!(answered.at.duration_since(gate.raised_at) >= Millis::from_secs(3));
    let gate = engine.longhaul.get_gate(gate.spec.id).await.unwrap();
    assert_eq!(gate.answers[0].answer.by, "chain");
    assert_eq!(engine.chain_ended(root).await.len(), 2);
}

#[tokio::test]
async fn a_person_stops_the_approval_by_an_answer_or_a_pause() {
    let (engine, root) = auto_approving().await;
    let gate = engine.gate(root).await;
    engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Reject)).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(root).await), "rejected");

    let (engine, root) = auto_approving().await;
    engine.longhaul.pause_run(root, "cli:anna").await.unwrap();
    let clock = engine.clock.clone().unwrap();
    let gate = engine.gate(root).await;
    assert_eq!(gate.auto_approves_at(), None);
    engine.longhaul.resume_run(root, None, "cli:anna").await.unwrap();
    clock.advance(Millis::from_secs(10));
    while engine.longhaul.services().records.next_timer_due().await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let gate = engine.longhaul.get_gate(gate.spec.id).await.unwrap();
    assert_eq!(gate.status, GateStatus::Open, "the gate waits for a person");
}

#[tokio::test]
async fn invalid_chains_are_refused() {
    let engine = engine();
    let repeat = |from: &str, max| ChainStepSpec {
        repeat: Some(ChainRepeatSpec {
            from: from.to_owned(),
            until: ChainRepeatEndCondition::NoIssues,
            max,
        }),
        ..ChainStepSpec::new("plan")
    };
    let build = || ChainStepSpec::new("build");
    let named = |agent: &str, name: &str| ChainStepSpec {
        name: Some(name.to_owned()),
        ..ChainStepSpec::new(agent)
    };
    for (steps, code, reason) in [
        (vec![], "invalid_task", "1 to 10 steps, and this one has 0"),
        (vec![build(); 11], "invalid_task", "this one has 11"),
        (vec![ChainStepSpec::new("buidl")], "agent_not_found", "`buidl`"),
        (vec![repeat("review", 1), build()], "invalid_task", "`from` names no step"),
        (vec![repeat("build", 1), build()], "invalid_task", "comes after this step"),
        (vec![build(), build(), repeat("build", 1)], "invalid_task", "several steps"),
        (
            vec![build(), named("plan", "x"), named("review", "x")],
            "invalid_task",
            "steps 2 and 3 both have the name `x`",
        ),
        (vec![named("plan", "build"), build()], "invalid_task", "steps 1 and 2 both have the name"),
        (vec![repeat("plan", 0)], "invalid_task", "`max` must be at least 1"),
        (vec![repeat("plan", 100)], "invalid_task", "could have 101"),
    ] {
        let error = engine.longhaul.submit(chain(steps)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = engine.longhaul.submit(Task::for_chain("nothing", "x")).await.unwrap_err();
    assert_eq!(error.code(), "chain_not_found");
    let rows = engine.longhaul.services().store.list_runs(RunFilter::default()).await.unwrap();
    assert!(rows.is_empty());
}

/// Runs a chain of four steps with two rounds over nine days of waiting, with a simulated clock.
#[tokio::test]
async fn a_chain_of_nine_days_takes_milliseconds() {
    let engine = engine_with([]).with_sim_clock().start();
    engine.model.set_price(Price { input: 1_000_000, output: 2_000_000, ..Price::FREE });
    engine.add_changed_agent("plan", [], result_gate);
    engine.add_agent("build", []);
    engine.add_agent("review", [FakeReply::Text(ISSUES)]);
    engine.add_agent("fix", [FakeReply::call("wait", json!({ "for": "4d" }))]);
    let steps =
        vec![ChainStepSpec::new("plan"), ChainStepSpec::new("build"), ChainStepSpec::new("review")];
    let steps = steps.into_iter().chain([fix_and_repeat(3)]).collect();
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let clock = engine.clock.clone().unwrap();
    let day = Millis::from_secs(24 * 60 * 60);
    let wait = |days: u64| _ = clock.advance(Millis(day.0 * days));

    let gate = engine.gate(root).await;
    wait(5);
    engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Approve)).await.unwrap();
    let build = next_run(&engine.ended(root).await);
    let review = next_run(&engine.ended(build).await);
    let fix = next_run(&engine.ended(review).await);
    engine.until(fix, "run.waiting").await;
    engine.model.set_replies_of("scripted/review", vec![FakeReply::Text(NO_ISSUES)]);
    wait(4);

    let rows = engine.chain_ended(root).await;
    assert_eq!(agents(&rows), ["plan", "build", "review", "fix", "review"]);
    let turns: Vec<u32> = rows.iter().map(|row| row.turns).collect();
    assert_eq!(turns, [1, 1, 1, 2, 1]);
    // Each turn has 10 tokens at one dollar and 5 at two dollars per million.
    let costs: Vec<u64> = rows.iter().map(|row| row.cost.unwrap().0).collect();
    assert_eq!(costs, [20, 20, 20, 40, 20]);
    let account = engine.longhaul.services().records.budget_account(root).await.unwrap().unwrap();
    assert_eq!((account.spent.micro_usd, account.spent.tokens), (MicroUsd(120), 90));
    assert_eq!((account.held.tokens, account.lost.tokens), (0, 0));
    let mut waited = Vec::new();
    for row in &rows {
        let view = engine.longhaul.get_run(row.id).await.unwrap();
        waited.push(view.waiting_ms / day.0);
        assert_eq!(view.active_ms, 0, "no simulated time passes during calls");
    }
    assert_eq!(waited, [5, 0, 0, 4, 0]);
    let last = rows.last().unwrap().finished_at.unwrap();
    let total = last.duration_since(rows[0].created_at);
    assert_eq!((total.0 / day.0, clock.now() >= last), (9, true));
    assert!(last > Timestamp::from_micros(0));
    let open = engine.longhaul.services().records.next_timer_due().await.unwrap();
    assert_eq!(open, None);
}

#[tokio::test]
async fn a_raised_budget_is_that_of_the_next_step_too() {
    let engine = engine_with([]).start();
    engine.add_agent("plan", [FakeReply::Text("A plan.")]);
    engine.add_agent("build", [FakeReply::Text("Built.")]);
    for name in ["plan", "build"] {
        let mut agent = (*engine.longhaul.get_agent(name).unwrap()).clone();
        agent.budget.caps.micro_usd = Some(MicroUsd(5_000_000));
        if name == "plan" {
            result_gate(&mut agent);
        }
        engine.longhaul.register(agent);
    }
    let steps = vec![ChainStepSpec::new("plan"), ChainStepSpec::new("build")];
    let root = engine.longhaul.submit(chain(steps)).await.unwrap();
    let gate = engine.gate(root).await;
    let resume = async |usd: u64| {
        let micro_usd = Some(MicroUsd(usd * 1_000_000));
        let raise = BudgetRaise { micro_usd, ..BudgetRaise::default() };
        engine.longhaul.resume_run(root, Some(raise), "cli:anna").await
    };
    resume(900).await.unwrap();
    let error = resume(800).await.unwrap_err();
    assert_eq!(error.code(), "budget_not_raised");
    let message = "the budget of money is $900.00 already, and a raise does not lower it";
    assert_eq!(error.to_string(), message);
    engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Approve)).await.unwrap();
    let build = engine.chain_ended(root).await[1].id;
    assert_eq!(engine.longhaul.get_run(build).await.unwrap().budget.usd, Some(900.0));
}
