//! What a run sees: its prompt, section by section, and the world that somebody
//! looks at for it, once or before each turn.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{ResourceKey, RunId, ThreadKey};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::policy::gate::Decision;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_engine::Task;
use longhaul_engine::agent::config::{PerceptionInterval, Skill};
use serde_json::json;

use crate::suite::harness::context_provider::{FakeContextProvider, FakePerception};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, outcome_text};

/// The system prompt of every question, with the run's own id left out.
fn systems(house: &TestEngine) -> Vec<String> {
    let asked = house.model.requests();
    let systems = asked.iter().map(|ask| match &ask.system {
        StoredText::Inline(text) => text.replace(&ask.run.to_string(), "RUN"),
        StoredText::Blob(at) => panic!("a model knows no blobs: {at:?}"),
    });
    systems.collect()
}

#[tokio::test]
async fn a_minimal_prompt_has_the_agents_text_and_the_run_section() {
    let house = engine_with([FakeReply::Text("done")]).with_sim_clock().start();
    let run = house.submit().await;
    house.ended(run).await;
    insta::assert_snapshot!(systems(&house)[0], @r"
    You are tested.

    ## Current state

    - Now: 2026-01-01 00:00 UTC, a Thursday.
    - You are the agent `tester` in RUN.
    - Your limits: 200 turns, $5.00, 4 h of work.
    ");
}

fn engine_with_all_sections(witness: &FakeContextProvider) -> TestEngine {
    let deeds = EffectLog::default();
    let hands = ["remember", "recall", "read_skill"].map(|name| FakeTool::new(name, Pure, &deeds));
    engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))])
        .tools(hands)
        .perception(witness, PerceptionInterval::Run)
        .agent(|agent| {
            agent.prompt = "You are {{ input.role }}.\n".into();
            agent.project_rules = "# House\nNever say {{ never }}.\n".into();
            agent.skills =
                vec![Skill { name: "knots".into(), description: "How to tie\n  knots.".into() }];
            agent.output = Some(RawJson::from_serialize(&json!({ "type": "object" })));
        })
        .with_sim_clock()
        .start()
}

async fn full_run(house: &TestEngine) -> RunId {
    let mut task = Task::new("tester", json!({ "role": "a sailor" }));
    task.thread = Some(ThreadKey::new("deck").unwrap());
    task.resource = Some(ResourceKey::new("Ada").unwrap());
    task.kind = Some("idle_tick".into());
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let said = answer(&gate, Decision::Answer("That.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.until(run, "run.completed").await;
    run
}

#[tokio::test]
async fn prompt_sections_are_ordered_and_rendered_once() {
    let witness =
        FakeContextProvider::worlds([json!({ "summary": "A calm sea." }), json!("another")]);
    let mut house = engine_with_all_sections(&witness);
    house.model.set_replies(vec![
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::Text("{}"),
    ]);
    let run = full_run(&house).await;
    let systems = systems(&house);
    insta::assert_snapshot!(systems[0], @r#"
    You are a sailor.

    ## The world around you

    A calm sea.

    {"summary":"A calm sea."}

    ## Skills

    What others have found out about doing things well. When one of these fits the work, read it first with `read_skill`.

    - `knots`: How to tie knots.

    ## Memory

    Your notes outlive this run: `remember` keeps one, `recall` finds what you kept before. Look there before you ask for what you may know already.

    ## Rules

    # House
    Never say {{ never }}.

    ## Current state

    - Now: 2026-01-01 00:00 UTC, a Thursday.
    - You are the agent `tester` in RUN.
    - This is the conversation `deck`, about `Ada`.
    - An event made this run: `idle_tick`.
    - Your limits: 6 turns, $5.00, 4 h of work.
    - Your result is data that fits this JSON Schema: {"type":"object"}
    - End with the tool `finish`, with that data as its `output`; an answer that is nothing but the JSON is taken too.
    "#);
    // It rested and was claimed again: nobody looked or wrote anew.
    assert_eq!(systems[1], systems[0]);
    assert_eq!(witness.requests().len(), 1);
    assert_eq!(witness.requests()[0].event.as_deref(), Some("idle_tick"));
    assert_eq!(count(&house.ended(run).await, "run.prepared"), 1);
    // The same inputs at the same time give the same bytes.
    house = engine_with_all_sections(&FakeContextProvider::worlds([
        json!({ "summary": "A calm sea." }),
    ]));
    house.model.set_replies(vec![
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::Text("{}"),
    ]);
    full_run(&house).await;
    assert_eq!(self::systems(&house)[0], systems[0]);
}

#[tokio::test]
async fn a_prompt_that_uses_the_world_has_no_world_section() {
    let witness = FakeContextProvider::worlds([json!({ "weather": "rain" })]);
    let house = engine_with([FakeReply::Text("done")])
        .perception(&witness, PerceptionInterval::Run)
        .agent(|agent| agent.prompt = "Outside: {{ perception.weather }}.".into())
        .start();
    let run = house.submit().await;
    house.ended(run).await;
    let system = systems(&house).remove(0);
    assert!(system.starts_with("Outside: rain.\n\n## Current state\n"), "{system}");
}

#[tokio::test]
async fn tools_get_the_perceived_context_also_after_a_park() {
    let seen = json!({ "map": "harbour", "recipient": "from the world" });
    let witness = FakeContextProvider::new([FakePerception::World(json!({}), seen)]);
    let deeds = EffectLog::default();
    let told = FakeTool::new("tell", Pure, &deeds).with_action(|_, around| {
        let context = serde_json::to_string(&around.context).unwrap();
        async move { Ok(ToolOutput::text(context)) }.boxed()
    });
    let house = engine_with([
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::call("tell", json!({})),
    ])
    .tools([told])
    .perception(&witness, PerceptionInterval::Run)
    .agent(|agent| agent.context = vec!["recipient".into()])
    .start();
    let mut task = Task::new("tester", "Do it.");
    let recipient = RawJson::from_serialize(&"from the caller");
    task.context.insert("recipient".into(), recipient);
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let said = answer(&gate, Decision::Answer("That.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.ended(run).await;
    let context = r#"{"map":"harbour","recipient":"from the caller"}"#;
    assert_eq!(house.results(), [(context.to_owned(), false)]);
    assert_eq!(witness.requests().len(), 1);
}

/// What the runtime told the model with each turn.
fn runtime_messages(journal: &[Entry]) -> Vec<Vec<String>> {
    let started = journal.iter().filter_map(|entry| {
        let Event::TurnStarted(started) = &entry.event else {
            return None;
        };
        let said = started.runtime_messages.iter().map(|aside| aside.text.to_string());
        Some(said.collect())
    });
    started.collect()
}

#[tokio::test]
async fn the_model_reads_perception_changes_before_each_turn() {
    let witness =
        FakeContextProvider::worlds([json!("dawn"), json!("noon"), json!("noon"), json!("night")]);
    let deeds = EffectLog::default();
    let look = || FakeReply::call("look", json!({}));
    let house = engine_with([look(), look(), look()])
        .tools([FakeTool::new("look", Pure, &deeds)])
        .perception(&witness, PerceptionInterval::Turn)
        .start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let now = |world: &str| format!("[longhaul] The world around you, as it is now:\n\n{world}");
    let wanted = vec![vec![], vec![now("noon")], vec![], vec![now("night")]];
    assert_eq!(runtime_messages(&journal), wanted);
    assert_eq!(witness.requests().len(), 4);
    assert_eq!(count(&journal, "run.prepared"), 1);
    assert_eq!(house.user_texts().last(), Some(&now("night")));
}

#[tokio::test]
async fn the_context_provider_gets_actor_and_turn() {
    let witness = FakeContextProvider::worlds([json!("dawn")]);
    let deeds = EffectLog::default();
    let look = || FakeReply::call("look", json!({}));
    let mut house = engine_with([look(), look()])
        .tools([FakeTool::new("look", Pure, &deeds)])
        .perception(&witness, PerceptionInterval::Turn)
        .build();
    house.spawn_worker(|_| {});
    let mut task = Task::new("tester", "Do it.");
    task.actor = Some(RawJson::from_serialize(&json!({ "name": "Ada" })));
    task.thread = Some(ThreadKey::new("deck").unwrap());
    task.resource = Some(ResourceKey::new("ada").unwrap());
    let run = house.longhaul.submit(task.clone()).await.unwrap();
    house.ended(run).await;
    let glances = witness.requests();
    let turns: Vec<u32> = glances.iter().map(|glance| glance.turn).collect();
    assert_eq!(turns, [1, 2, 3]);
    for glance in &glances {
        assert_eq!((glance.run, &glance.input), (run, &task.input));
        assert_eq!(glance.actor, task.actor);
        assert_eq!(glance.thread, task.thread);
        assert_eq!(glance.resource, task.resource);
    }
    let run = house.submit().await;
    house.ended(run).await;
    let glance = witness.requests().swap_remove(glances.len());
    assert_eq!((glance.run, glance.turn), (run, 1));
    assert_eq!((glance.actor, glance.thread, glance.resource), (None, None, None));
}

#[tokio::test]
async fn a_failed_perception_is_retried_and_then_blocks_the_run() {
    let sights = [
        FakePerception::Transient("no light"),
        FakePerception::Panics,
        FakePerception::Transient("still no light"),
        FakePerception::World(json!("light"), json!({})),
    ];
    let witness = FakeContextProvider::new(sights);
    let house = engine_with([FakeReply::Text("done")])
        .perception(&witness, PerceptionInterval::Run)
        .with_sim_clock()
        .start();
    let run = house.submit().await;
    house.advance_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    assert_eq!(witness.requests().len(), 3);
    assert_eq!(
        gate.spec.ask,
        "Nobody could look at the world for agent `tester`: the context provider failed: still \
         no light. Mend what looks for it, then answer here: it is asked again."
    );
    let said = answer(&gate, Decision::Answer("Mended.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(witness.requests().len(), 4);
}

#[tokio::test]
async fn a_permanent_perception_failure_is_not_retried() {
    let witness = FakeContextProvider::new([FakePerception::Permanent("no map")]);
    let house = engine_with([FakeReply::Text("done")])
        .perception(&witness, PerceptionInterval::Run)
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert!(gate.spec.ask.contains("no map"), "{}", gate.spec.ask);
    assert_eq!(witness.requests().len(), 1);
    let why = house.longhaul.why_view(run).await.unwrap();
    assert_eq!(why.command, format!("longhaul answer {} TEXT", gate.spec.id));
}

#[tokio::test]
async fn a_run_blocked_by_a_missing_world_value_can_be_resumed() {
    let witness = FakeContextProvider::worlds([json!({}), json!({ "sky": "blue" })]);
    let house = engine_with([FakeReply::Text("done")])
        .agent(|agent| agent.prompt = "The sky is {{ perception.sky }}.".into())
        .perception(&witness, PerceptionInterval::Run)
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    assert!(ask.contains("mend what looks, then answer here"), "{ask}");
    let said = answer(&gate, Decision::Answer("Mended.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");
}

#[tokio::test]
async fn a_timed_out_perception_is_not_retried() {
    let witness = FakeContextProvider::new([FakePerception::Hangs]);
    let house = engine_with([FakeReply::Text("done")])
        .perception(&witness, PerceptionInterval::Run)
        .with_sim_clock()
        .start();
    let run = house.submit().await;
    house.advance_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    assert!(ask.contains("longer than 32 s"), "{ask}");
    assert_eq!(witness.requests().len(), 1);
}

#[tokio::test]
async fn a_missing_context_provider_blocks_the_run() {
    let house = engine_with([FakeReply::Text("done")])
        .agent(|agent| {
            let eye = longhaul_engine::agent::config::PerceptionSource::Named("nobody".into());
            let every = PerceptionInterval::Run;
            agent.perception =
                Some(longhaul_engine::agent::config::PerceptionConfig { source: eye, every });
        })
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert!(gate.spec.ask.contains("nobody who could look"), "{}", gate.spec.ask);
}
