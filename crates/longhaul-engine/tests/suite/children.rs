//! Tests of child runs: results, failures, limits, gates inside children and cancels.

use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::RunId;
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_run::CHILDREN_MAX;
use longhaul_testkit::latch::Latch;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};

fn run_agent(agent: &str, input: &str) -> (&'static str, Value) {
    ("run_agent", json!({ "agent": agent, "input": input }))
}

fn in_background(agent: &str) -> (&'static str, Value) {
    ("run_agent", json!({ "agent": agent, "input": "Read.", "background": true }))
}

/// Starts an engine whose agent gives these replies and may start child runs.
fn engine(replies: impl IntoIterator<Item = FakeReply>) -> TestEngine {
    engine_with(replies).agent(|agent| agent.tools.push("run_agent".to_owned())).start()
}

/// Waits until the run has started this many children.
async fn children(engine: &TestEngine, run: RunId, count: usize) -> Vec<RunRow> {
    engine.until(run, "run.waiting").await;
    let rows = engine.descendants(run).await;
    assert_eq!(rows.len(), count);
    rows
}

#[tokio::test]
async fn the_result_of_a_child_is_the_result_of_its_call() {
    let engine = engine([FakeReply::Calls(vec![run_agent("reader", "Read a.")])]);
    engine.add_agent("reader", [FakeReply::Text("It says B.")]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(engine.results(), [("It says B.".to_owned(), false)]);
    assert_eq!(count(&journal, "run.claimed"), 2, "the run was released while it waited");
    assert_eq!(count(&journal, "child.started"), 1);
    assert_eq!(count(&journal, "child.ended"), 1);
    let rows = engine.descendants(run).await;
    let row = &rows[0];
    assert_eq!((rows.len(), row.parent, row.root), (1, Some(run), run));
    assert_eq!(engine.user_texts().len(), 1, "the run has its own conversation");
    let parent = engine.longhaul.get_run(run).await.unwrap();
    let child = engine.longhaul.get_run(row.id).await.unwrap();
    assert_eq!((child.agent.as_str(), child.parent), ("reader", Some(run)));
    assert_eq!((child.inbox, child.lane), (parent.inbox, None));
}

#[tokio::test]
async fn a_child_that_does_not_start_or_fails_is_an_error_for_the_model() {
    let large = "x".repeat(1_100_000);
    let engine = engine_with([FakeReply::Calls(vec![
        run_agent("redaer", "a"),
        run_agent("writer", "a"),
        run_agent("reader", &large),
        run_agent("reader", "a"),
        ("run_agent", json!({ "agent": "reader" })),
    ])]);
    let engine = engine.agent(|agent| {
        agent.tools.push("run_agent".to_owned());
        agent.children.agents = vec!["redaer".to_owned(), "reader".to_owned()];
    });
    let engine = engine.start();
    engine.add_agent("reader", [FakeReply::Fail(longhaul_core::failure::FailureClass::Auth)]);
    engine.add_changed_agent("writer", [], |agent| agent.description = "Writes.".to_owned());
    let run = engine.submit().await;
    engine.ended(run).await;
    let results = engine.results();
    let expected = [
        "there is no agent named `redaer`",
        "this agent may not start `writer`, only `redaer`, `reader`",
        "input is longer than",
        "failed (auth)",
        "does not match its schema",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.1 && result.0.contains(expected), "{expected}: {result:?}");
    }
    assert_eq!(results.len(), expected.len());
}

#[tokio::test]
async fn an_agent_that_starts_itself_ends_at_the_maximum_depth() {
    let engine = engine([FakeReply::Calls(vec![run_agent("tester", "Again.")])]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let rows = engine.descendants(run).await;
    assert_eq!(rows.len(), 5);
    let requests = engine.model.requests();
    let deepest = requests.iter().rev().find(|request| request.run == rows[4].id).unwrap();
    let results = crate::suite::harness::model::results(deepest);
    assert!(results[0].0.contains("5 levels below the first run"), "{results:?}");
}

#[tokio::test]
async fn the_number_of_open_runs_of_a_tree_is_bounded() {
    let calls = vec![run_agent("reader", "a"); CHILDREN_MAX + 1];
    let engine = engine([FakeReply::Calls(calls)]);
    engine.add_agent("reader", [FakeReply::Text("B")]);
    let run = engine.submit().await;
    engine.ended(run).await;
    let failed: Vec<_> = engine.results().into_iter().filter(|(_, failed)| *failed).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].0.contains("32 child runs are open"), "{failed:?}");
    assert_eq!(engine.descendants(run).await.len(), CHILDREN_MAX);
}

#[tokio::test]
async fn gates_in_children_are_answered_there() {
    let engine = engine([FakeReply::Calls(vec![run_agent("asker", "a"), run_agent("asker", "b")])]);
    let ask = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine.add_agent("asker", [ask, FakeReply::Text("thanks")]);
    let run = engine.submit().await;
    for row in children(&engine, run, 2).await {
        let gate = engine.gate(row.id).await;
        assert_eq!(gate.run, row.id);
        let gate_answer = answer(&gate, GateDecision::Answer("B".into()));
        engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    }
    engine.ended(run).await;
    assert_eq!(engine.results(), vec![("thanks".to_owned(), false); 2]);
}

#[tokio::test]
async fn a_cancel_reaches_the_children_unless_the_agent_keeps_them() {
    for (on_cancel, expected) in [
        (ChildCancelPolicy::Cancel, Status::Cancelled),
        (ChildCancelPolicy::Keep, Status::Completed),
    ] {
        let engine = engine_with([FakeReply::Calls(vec![run_agent("asker", "a")])]);
        let engine = engine.agent(|agent| {
            agent.tools.push("run_agent".to_owned());
            agent.children.on_cancel = on_cancel;
        });
        let engine = engine.start();
        engine.add_agent("asker", [FakeReply::call("ask_human", json!({ "question": "Which?" }))]);
        let run = engine.submit().await;
        let child = children(&engine, run, 1).await[0].id;
        let gate = engine.gate(child).await;
        engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
        if on_cancel == ChildCancelPolicy::Keep {
            let gate_answer = answer(&gate, GateDecision::Answer("B".into()));
            engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
        }
        engine.ended(child).await;
        assert_eq!(engine.longhaul.get_run(child).await.unwrap().status, expected);
        let journal = engine.ended(run).await;
        assert_eq!(count(&journal, "child.ended"), 0, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_run_learns_of_children_in_the_background_before_it_ends() {
    let engine = engine([
        FakeReply::Calls(vec![in_background("reader")]),
        FakeReply::Text("Meanwhile."),
        FakeReply::Text("All read."),
    ]);
    engine.add_agent("reader", [FakeReply::Text("It says B.")]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "All read.");
    let messages = engine.user_texts();
    assert!(
        messages.last().unwrap().ends_with("of agent `reader` ended: It says B."),
        "{messages:?}"
    );
}

#[tokio::test]
async fn a_long_result_of_a_child_can_be_read_page_by_page() {
    let long: &'static str = "0123456789abcdef".repeat(2_000).leak();
    let engine = engine([
        FakeReply::Calls(vec![run_agent("reader", "a")]),
        FakeReply::call("read_output", json!({ "call": "t1.1", "offset": 31_990 })),
    ]);
    engine.add_agent("reader", [FakeReply::Text(long)]);
    let run = engine.submit().await;
    engine.ended(run).await;
    assert!(engine.results()[0].0.starts_with("6789abcdef\n"), "{:?}", engine.results());
}

#[tokio::test]
async fn a_model_can_look_at_its_children_write_to_them_and_cancel_them() {
    let engine = engine_with([
        FakeReply::Calls(vec![in_background("asker"), in_background("asker")]),
        FakeReply::call("child_status", json!({})),
        FakeReply::call("child_status", json!({})),
        FakeReply::call("child_status", json!({})),
    ]);
    let engine = engine.agent(|agent| agent.tools.push("run_agent".to_owned())).start();
    engine.add_agent("asker", [FakeReply::call("ask_human", json!({ "question": "Which?" }))]);
    let run = engine.submit().await;
    let rows = children(&engine, run, 2).await;
    let requests = engine.model.requests();
    let parent_requests: Vec<_> = requests.iter().filter(|request| request.run == run).collect();
    let results = |index: usize| crate::suite::harness::model::results(parent_requests[index]);
    let status = &results(2)[0].0;
    assert!(rows.iter().all(|row| status.contains(&row.id.to_string())), "{status}");
    let (text, is_error) = &results(4)[0];
    assert!(*is_error && text.contains("Call `wait` with `child`"), "{text}");
    let cancel = |row: &RunRow| ("cancel_child", json!({ "child": row.id, "text": "enough" }));
    let mut replies = vec![FakeReply::Text("unused"); parent_requests.len()];
    replies.push(FakeReply::Calls(rows.iter().map(cancel).collect()));
    engine.model.set_replies(replies);
    engine.longhaul.steer(run, "Stop them.", SteerDelivery::AfterBatch, "cli:anna").await.unwrap();
    engine.ended(run).await;
    for row in rows {
        let view = engine.longhaul.get_run(row.id).await.unwrap();
        assert_eq!(view.status, Status::Cancelled);
    }
}

#[tokio::test]
async fn a_message_of_a_model_reaches_its_own_children_only() {
    let engine = engine_with([FakeReply::Calls(vec![in_background("asker")])]);
    let engine = engine.agent(|agent| agent.tools.push("run_agent".to_owned())).start();
    let ask = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine.add_agent("asker", [ask, FakeReply::Text("thanks")]);
    let other = engine.submit().await;
    let child = children(&engine, other, 1).await[0].id;
    engine.gate(child).await;
    let steer = json!({ "child": child, "text": "B" });
    engine.add_agent("boss", [FakeReply::call("steer_child", steer.clone())]);
    let boss = engine.longhaul.submit(longhaul_engine::Task::new("boss", "Go.")).await.unwrap();
    engine.ended(boss).await;
    let results = engine.results();
    assert!(results[0].0.contains("is not a child run of this run"), "{results:?}");
    engine.model.set_replies(vec![
        FakeReply::Calls(vec![in_background("asker")]),
        FakeReply::Text("Waiting."),
        FakeReply::call("steer_child", steer),
    ]);
    engine.longhaul.steer(other, "Go on.", SteerDelivery::AfterBatch, "cli:anna").await.unwrap();
    let journal = engine.ended(other).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(outcome_text(&engine.ended(child).await), "thanks", "the message was the answer");
}

#[tokio::test]
async fn a_parent_is_explained_by_what_its_child_waits_for() {
    let engine = engine([FakeReply::Calls(vec![run_agent("asker", "a")])]);
    engine.add_agent("asker", [FakeReply::call("ask_human", json!({ "question": "Which?" }))]);
    let run = engine.submit().await;
    let child = children(&engine, run, 1).await[0].id;
    let gate = engine.gate(child).await.spec.id;
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    let expected =
        format!("The run waits for {child} to end. {child}: The run waits for an answer: Which?");
    assert_eq!(
        (explanation.message, explanation.command),
        (expected, format!("longhaul answer {gate} TEXT"))
    );
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    engine.ended(child).await;
}

#[tokio::test]
async fn a_child_whose_call_does_not_fit_beside_that_of_another_child_waits_for_it() {
    let latch = Latch::closed();
    let engine =
        engine([FakeReply::Calls(vec![run_agent("reader", "a"), run_agent("reader", "b")])]);
    engine.add_agent("reader", [FakeReply::Text("read").after_latch(&latch)]);
    let mut task = longhaul_engine::Task::new("tester", "Go.");
    // Enough for one call at a time.
    task.budget.caps.tokens = Some(14_000);
    let run = engine.longhaul.submit(task).await.unwrap();
    let rows = children(&engine, run, 2).await;
    let waits = rows.iter().map(|row| Box::pin(engine.until(row.id, "run.waiting")));
    let (entries, _, _) = futures_util::future::select_all(waits).await;
    let waiting = entries.last().unwrap().run;
    let explanation = engine.longhaul.explain_run(waiting).await.unwrap();
    assert_eq!(
        (explanation.reason.as_deref(), explanation.command.as_str()),
        (Some("budget_held"), "")
    );
    latch.open();
    engine.ended(run).await;
    assert_eq!(engine.results(), vec![("read".to_owned(), false); 2]);
}

#[tokio::test]
async fn runs_that_start_children_at_the_same_time_stay_within_the_limit_of_the_tree() {
    let ask = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    let engine = engine([FakeReply::Calls(vec![run_agent("middle", "a"); 3])]);
    engine.add_agent("middle", [FakeReply::Calls(vec![run_agent("asker", "b"); 12])]);
    engine.add_agent("asker", [ask, FakeReply::Text("thanks")]);
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    let rows = engine.descendants(run).await;
    let middles: Vec<_> = rows.iter().filter(|row| row.parent == Some(run)).collect();
    let mut failed = 0;
    for middle in &middles {
        failed += count(&engine.until(middle.id, "run.waiting").await, "tool.failed");
    }
    assert_eq!((middles.len(), engine.descendants(run).await.len()), (3, CHILDREN_MAX));
    assert_eq!(failed, 3 + 36 - CHILDREN_MAX);
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    engine.ended(run).await;
}

#[tokio::test]
async fn the_whole_output_of_a_child_in_the_background_can_be_read() {
    let long: &'static str = "0123456789abcdef".repeat(2_000).leak();
    let engine = engine([
        FakeReply::Calls(vec![in_background("reader")]),
        FakeReply::Text("Meanwhile."),
        FakeReply::call("read_output", json!({ "call": "t1.1", "offset": 31_990 })),
    ]);
    engine.add_agent("reader", [FakeReply::Text(long)]);
    let run = engine.submit().await;
    engine.ended(run).await;
    let results = engine.results();
    assert!(results[0].0.starts_with("6789abcdef\n"), "{results:?}");
}

#[tokio::test]
async fn a_parent_is_explained_by_the_child_that_needs_a_person() {
    let latch = Latch::closed();
    let calls = vec![run_agent("reader", "a"), run_agent("asker", "b")];
    let engine = engine([FakeReply::Calls(calls)]);
    engine.add_agent("reader", [FakeReply::Text("read").after_latch(&latch)]);
    engine.add_agent("asker", [FakeReply::call("ask_human", json!({ "question": "Which?" }))]);
    let run = engine.submit().await;
    let rows = children(&engine, run, 2).await;
    let asker = rows.iter().find(|row| row.agent.as_str() == "asker").unwrap().id;
    let gate = engine.gate(asker).await.spec.id;
    engine.until(asker, "run.waiting").await;
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(
        explanation.command,
        format!("longhaul answer {gate} TEXT"),
        "{}",
        explanation.message
    );
    assert!(explanation.message.contains("and 1 more child run to end"), "{}", explanation.message);
    latch.open();
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    engine.ended(asker).await;
}

#[tokio::test]
async fn a_child_does_not_stay_open_for_messages() {
    let engine = engine([FakeReply::Calls(vec![run_agent("talker", "a")])]);
    engine.add_agent("talker", [FakeReply::Text("hello")]);
    let mut talker = (*engine.longhaul.get_agent("talker").unwrap()).clone();
    talker.keep_open = Some(Millis::from_secs(3_600));
    engine.longhaul.register(talker);
    let run = engine.submit().await;
    engine.ended(run).await;
    assert_eq!(engine.results(), [("hello".to_owned(), false)]);
}

#[tokio::test]
async fn the_budget_in_the_file_of_a_child_limits_the_child() {
    let engine = engine([FakeReply::Calls(vec![run_agent("reader", "a")])]);
    engine.add_agent("reader", [FakeReply::Text("read")]);
    let mut reader = (*engine.longhaul.get_agent("reader").unwrap()).clone();
    reader.budget.caps.tokens = Some(500);
    engine.longhaul.register(reader);
    let run = engine.submit().await;
    let child = children(&engine, run, 1).await[0].id;
    engine.until(child, "run.waiting").await;
    let explanation = engine.longhaul.explain_run(child).await.unwrap();
    assert_eq!(explanation.message, "The run's budget of tokens is used up.");
    assert_eq!(explanation.command, format!("longhaul resume {child} --budget tokens=100000"));
    let raise = BudgetRaise { tokens: Some(100_000), ..BudgetRaise::default() };
    engine.longhaul.resume_run(child, Some(raise), "cli:anna").await.unwrap();
    engine.ended(run).await;
    assert_eq!(engine.results(), [("read".to_owned(), false)]);
}

#[tokio::test]
async fn the_budget_of_a_kept_child_can_be_raised_after_its_root_has_ended() {
    let long = "x".repeat(60_000);
    let engine = engine_with([FakeReply::Calls(vec![run_agent("reader", &long)])]);
    let engine = engine.agent(|agent| {
        agent.tools.push("run_agent".to_owned());
        agent.children.on_cancel = ChildCancelPolicy::Keep;
        agent.budget.caps.tokens = Some(8_000);
    });
    let engine = engine.start();
    engine.add_agent("reader", [FakeReply::Text("read")]);
    let run = engine.submit().await;
    let child = children(&engine, run, 1).await[0].id;
    engine.until(child, "run.waiting").await;
    let explain = async || engine.longhaul.explain_run(child).await.unwrap();
    assert_eq!(explain().await.message, "The run's budget of tokens of its whole tree is used up.");
    assert_eq!(explain().await.command, format!("longhaul resume {run} --budget tokens=100000"));
    let resume_child = async |tokens| {
        let raise = BudgetRaise { tokens: Some(tokens), ..BudgetRaise::default() };
        engine.longhaul.resume_run(child, Some(raise), "cli:anna").await
    };
    let error = resume_child(100_000).await.unwrap_err().to_string();
    let expected = format!(
        "the budget that the run shares with its root run is used up: raise it through {run}"
    );
    assert_eq!(error, expected);
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    engine.ended(run).await;
    assert_eq!(explain().await.command, format!("longhaul resume {child} --budget tokens=100000"));
    let error = resume_child(7_000).await.unwrap_err().to_string();
    assert_eq!(error, "the budget of tokens is 8000 already, and a raise does not lower it");
    resume_child(100_000).await.unwrap();
    assert_eq!(engine.longhaul.get_run(child).await.unwrap().budget.tokens, None);
    assert_eq!(outcome_text(&engine.ended(child).await), "read");
}
