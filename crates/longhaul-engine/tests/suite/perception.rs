//! Tests of the system prompt and of context providers, asked once or before each turn.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{ResourceKey, RunId, ThreadKey};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_engine::Task;
use longhaul_engine::agent::config::{PerceptionInterval, Skill};
use serde_json::json;

use crate::suite::harness::context_provider::{FakeContextProvider, FakePerception};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, outcome_text};

/// Returns the system prompt of every request, with the run id replaced.
fn systems(engine: &TestEngine) -> Vec<String> {
    let requests = engine.model.requests();
    let systems = requests.iter().map(|request| match &request.system {
        StoredText::Inline(text) => text.replace(&request.run.to_string(), "RUN"),
        StoredText::Blob(at) => panic!("a model must not get blob references: {at:?}"),
    });
    systems.collect()
}

#[tokio::test]
async fn a_minimal_prompt_has_the_agents_text_and_the_run_section() {
    let engine = engine_with([FakeReply::Text("done")]).with_sim_clock().start();
    let run = engine.submit().await;
    engine.ended(run).await;
    insta::assert_snapshot!(systems(&engine)[0], @r"
    You are tested.

    ## Current state

    - Now: 2026-01-01 00:00 UTC, a Thursday.
    - You are the agent `tester` in RUN.
    - Your limits: 200 turns, $5.00, 4h of work.
    ");
}

fn engine_with_all_sections(provider: &FakeContextProvider) -> TestEngine {
    let effects = EffectLog::default();
    let tools =
        ["remember", "recall", "read_skill"].map(|name| FakeTool::new(name, Pure, &effects));
    engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))])
        .tools(tools)
        .perception(provider, PerceptionInterval::Run)
        .agent(|agent| {
            agent.prompt = "You are {{ input.role }}.\n".into();
            agent.project_rules = "# Style\nNever say {{ never }}.\n".into();
            agent.skills =
                vec![Skill { name: "knots".into(), description: "How to tie\n  knots.".into() }];
            agent.output = Some(RawJson::from_serialize(&json!({ "type": "object" })));
        })
        .with_sim_clock()
        .start()
}

async fn full_run(engine: &TestEngine) -> RunId {
    let mut task = Task::new("tester", json!({ "role": "a sailor" }));
    task.thread = Some(ThreadKey::new("deck").unwrap());
    task.resource = Some(ResourceKey::new("Ada").unwrap());
    task.kind = Some("idle_tick".into());
    let run = engine.longhaul.submit(task).await.unwrap();
    let gate = engine.gate(run).await;
    let gate_answer = answer(&gate, GateDecision::Answer("That.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.until(run, "run.completed").await;
    run
}

#[tokio::test]
async fn prompt_sections_are_ordered_and_rendered_once() {
    let provider =
        FakeContextProvider::worlds([json!({ "summary": "A calm sea." }), json!("another")]);
    let mut engine = engine_with_all_sections(&provider);
    engine.model.set_replies(vec![
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::Text("{}"),
    ]);
    let run = full_run(&engine).await;
    let systems = systems(&engine);
    insta::assert_snapshot!(systems[0], @r#"
    You are a sailor.

    ## The world around you

    A calm sea.

    {"summary":"A calm sea."}

    ## Skills

    Instructions for specific kinds of work. When one of these fits your task, read it first with `read_skill`.

    - `knots`: How to tie knots.

    ## Memory

    Your notes outlive this run: `remember` saves a note, `recall` finds saved notes. Search them before you ask for something that you may already know.

    ## Rules

    # Style
    Never say {{ never }}.

    ## Current state

    - Now: 2026-01-01 00:00 UTC, a Thursday.
    - You are the agent `tester` in RUN.
    - This is the conversation `deck`, about `Ada`.
    - This run was started by the event `idle_tick`.
    - Your limits: 6 turns, $5.00, 4h of work.
    - Your result must be data that matches this JSON Schema: {"type":"object"}
    - End with the tool `finish`, with that data as its `output`; an answer that is only the JSON is accepted, too.
    "#);
    // The run was parked and claimed again: the provider was not asked and the prompt not rendered
    // again.
    assert_eq!(systems[1], systems[0]);
    assert_eq!(provider.requests().len(), 1);
    assert_eq!(provider.requests()[0].event.as_deref(), Some("idle_tick"));
    assert_eq!(count(&engine.ended(run).await, "run.prepared"), 1);
    // The same inputs at the same time give the same bytes.
    engine = engine_with_all_sections(&FakeContextProvider::worlds([
        json!({ "summary": "A calm sea." }),
    ]));
    engine.model.set_replies(vec![
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::Text("{}"),
    ]);
    full_run(&engine).await;
    assert_eq!(self::systems(&engine)[0], systems[0]);
}

#[tokio::test]
async fn a_prompt_that_uses_the_world_has_no_world_section() {
    let provider = FakeContextProvider::worlds([json!({ "weather": "rain" })]);
    let engine = engine_with([FakeReply::Text("done")])
        .perception(&provider, PerceptionInterval::Run)
        .agent(|agent| agent.prompt = "Outside: {{ perception.weather }}.".into())
        .start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let system = systems(&engine).remove(0);
    assert!(system.starts_with("Outside: rain.\n\n## Current state\n"), "{system}");
}

#[tokio::test]
async fn tools_get_the_perceived_context_also_after_a_park() {
    let perceived = json!({ "map": "harbour", "recipient": "from the world" });
    let provider = FakeContextProvider::new([FakePerception::World(json!({}), perceived)]);
    let effects = EffectLog::default();
    let tool = FakeTool::new("tell", Pure, &effects).with_action(|_, ctx| {
        let context = serde_json::to_string(&ctx.context).unwrap();
        async move { Ok(ToolOutput::text(context)) }.boxed()
    });
    let engine = engine_with([
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::call("tell", json!({})),
    ])
    .tools([tool])
    .perception(&provider, PerceptionInterval::Run)
    .agent(|agent| agent.context = vec!["recipient".into()])
    .start();
    let mut task = Task::new("tester", "Do it.");
    let recipient = RawJson::from_serialize(&"from the caller");
    task.context.insert("recipient".into(), recipient);
    let run = engine.longhaul.submit(task).await.unwrap();
    let gate = engine.gate(run).await;
    let gate_answer = answer(&gate, GateDecision::Answer("That.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.ended(run).await;
    let context = r#"{"map":"harbour","recipient":"from the caller"}"#;
    assert_eq!(engine.results(), [(context.to_owned(), false)]);
    assert_eq!(provider.requests().len(), 1);
}

/// Returns the runtime messages of each turn.
fn runtime_messages(journal: &[JournalEntry]) -> Vec<Vec<String>> {
    let started = journal.iter().filter_map(|entry| {
        let Event::TurnStarted(started) = &entry.event else {
            return None;
        };
        let texts = started.runtime_messages.iter().map(|message| message.text.to_string());
        Some(texts.collect())
    });
    started.collect()
}

#[tokio::test]
async fn the_model_reads_perception_changes_before_each_turn() {
    let provider =
        FakeContextProvider::worlds([json!("dawn"), json!("noon"), json!("noon"), json!("night")]);
    let effects = EffectLog::default();
    let look = || FakeReply::call("look", json!({}));
    let engine = engine_with([look(), look(), look()])
        .tools([FakeTool::new("look", Pure, &effects)])
        .perception(&provider, PerceptionInterval::Turn)
        .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let now = |world: &str| format!("[longhaul] The world around you, as it is now:\n\n{world}");
    let expected = vec![vec![], vec![now("noon")], vec![], vec![now("night")]];
    assert_eq!(runtime_messages(&journal), expected);
    assert_eq!(provider.requests().len(), 4);
    assert_eq!(count(&journal, "run.prepared"), 1);
    assert_eq!(engine.user_texts().last(), Some(&now("night")));
}

#[tokio::test]
async fn the_context_provider_gets_actor_and_turn() {
    let provider = FakeContextProvider::worlds([json!("dawn")]);
    let effects = EffectLog::default();
    let look = || FakeReply::call("look", json!({}));
    let mut engine = engine_with([look(), look()])
        .tools([FakeTool::new("look", Pure, &effects)])
        .perception(&provider, PerceptionInterval::Turn)
        .build();
    engine.spawn_worker(|_| {});
    let mut task = Task::new("tester", "Do it.");
    task.actor = Some(RawJson::from_serialize(&json!({ "name": "Ada" })));
    task.thread = Some(ThreadKey::new("deck").unwrap());
    task.resource = Some(ResourceKey::new("ada").unwrap());
    let run = engine.longhaul.submit(task.clone()).await.unwrap();
    engine.ended(run).await;
    let requests = provider.requests();
    let turns: Vec<u32> = requests.iter().map(|request| request.turn).collect();
    assert_eq!(turns, [1, 2, 3]);
    for request in &requests {
        assert_eq!((request.run, &request.input), (run, &task.input));
        assert_eq!(request.actor, task.actor);
        assert_eq!(request.thread, task.thread);
        assert_eq!(request.resource, task.resource);
    }
    let run = engine.submit().await;
    engine.ended(run).await;
    let request = provider.requests().swap_remove(requests.len());
    assert_eq!((request.run, request.turn), (run, 1));
    assert_eq!((request.actor, request.thread, request.resource), (None, None, None));
}

#[tokio::test]
async fn a_failed_perception_is_retried_and_then_blocks_the_run() {
    let responses = [
        FakePerception::Transient("no light"),
        FakePerception::Panics,
        FakePerception::Transient("still no light"),
        FakePerception::World(json!("light"), json!({})),
    ];
    let provider = FakeContextProvider::new(responses);
    let engine = engine_with([FakeReply::Text("done")])
        .perception(&provider, PerceptionInterval::Run)
        .with_sim_clock()
        .start();
    let run = engine.submit().await;
    engine.advance_until(run, "run.blocked").await;
    let gate = engine.gate(run).await;
    assert_eq!(provider.requests().len(), 3);
    assert_eq!(
        gate.spec.ask,
        "Context for agent `tester` could not be fetched: the context provider failed: still \
         no light. Fix the context provider, then resume the run or answer here to retry."
    );
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(explanation.command, format!("longhaul resume {run}"));
    let gate_answer = answer(&gate, GateDecision::Answer("Fixed.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(provider.requests().len(), 4);
}

#[tokio::test]
async fn a_permanent_perception_failure_is_not_retried() {
    let provider = FakeContextProvider::new([FakePerception::Permanent("no map")]);
    let engine = engine_with([FakeReply::Text("done")])
        .perception(&provider, PerceptionInterval::Run)
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert!(gate.spec.ask.contains("no map"), "{}", gate.spec.ask);
    assert_eq!(provider.requests().len(), 1);
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(explanation.command, format!("longhaul resume {run}"));
}

#[tokio::test]
async fn a_run_blocked_by_a_missing_world_value_can_be_resumed() {
    let provider = FakeContextProvider::worlds([json!({}), json!({ "sky": "blue" })]);
    let engine = engine_with([FakeReply::Text("done")])
        .agent(|agent| agent.prompt = "The sky is {{ perception.sky }}.".into())
        .perception(&provider, PerceptionInterval::Run)
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let question = &gate.spec.ask;
    assert!(
        question.contains("fix the provider, then resume the run or answer here"),
        "{question}"
    );
    let gate_answer = answer(&gate, GateDecision::Answer("Fixed.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
}

#[tokio::test]
async fn a_timed_out_perception_is_not_retried() {
    let provider = FakeContextProvider::new([FakePerception::Hangs]);
    let engine = engine_with([FakeReply::Text("done")])
        .perception(&provider, PerceptionInterval::Run)
        .with_sim_clock()
        .start();
    let run = engine.submit().await;
    engine.advance_until(run, "run.blocked").await;
    let gate = engine.gate(run).await;
    let question = &gate.spec.ask;
    assert!(question.contains("longer than 32s"), "{question}");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn a_missing_context_provider_blocks_the_run() {
    let engine = engine_with([FakeReply::Text("done")])
        .agent(|agent| {
            let source = longhaul_engine::agent::config::PerceptionSource::Named("nobody".into());
            let every = PerceptionInterval::Run;
            agent.perception =
                Some(longhaul_engine::agent::config::PerceptionConfig { source, every });
        })
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert!(gate.spec.ask.contains("no context providers"), "{}", gate.spec.ask);
}
