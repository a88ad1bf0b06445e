//! What a run sees: its prompt, section by section, and the world that somebody
//! looks at for it, once or before each turn.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{ResourceKey, RunId, ThreadKey};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::policy::gate::Decision;
use longhaul_core::raw::{Body, RawJson};
use longhaul_engine::Task;
use longhaul_engine::agent::wish::{Every, Skill};
use serde_json::json;

use crate::suite::house::eye::{Sight, Witness};
use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, answer, count, end, plan};

/// The system prompt of every question, with the run's own id left out.
fn systems(house: &House) -> Vec<String> {
    let asked = house.actor.asked();
    let systems = asked.iter().map(|ask| match &ask.system {
        Body::Inline(text) => text.replace(&ask.run.to_string(), "RUN"),
        Body::Blob(at) => panic!("a model knows no blobs: {at:?}"),
    });
    systems.collect()
}

#[tokio::test]
async fn a_plain_agent_has_its_own_words_and_how_things_stand() {
    let house = plan([Line::Text("done")]).at_standing_clock().at_work();
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

fn full(witness: &Witness) -> House {
    let deeds = Deeds::default();
    let hands = ["remember", "recall", "read_skill"].map(|name| Hand::new(name, Pure, &deeds));
    plan([Line::call("ask_human", json!({ "question": "Which?" }))])
        .hands(hands)
        .looking(witness, Every::Run)
        .agent(|agent| {
            agent.prompt = "You are {{ input.role }}.\n".into();
            agent.house_rules = "# House\nNever say {{ never }}.\n".into();
            agent.skills = vec![Skill {
                name: "knots".into(),
                description: "How to tie\n  knots.".into(),
            }];
            agent.output = Some(RawJson::of(&json!({ "type": "object" })));
        })
        .at_standing_clock()
        .at_work()
}

async fn full_run(house: &House) -> RunId {
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
async fn the_sections_stand_in_their_order_and_are_made_once() {
    let witness = Witness::worlds([json!({ "summary": "A calm sea." }), json!("another")]);
    let mut house = full(&witness);
    house.actor.learn(vec![
        Line::call("ask_human", json!({ "question": "Which?" })),
        Line::Text("{}"),
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
    assert_eq!(witness.glances().len(), 1);
    assert_eq!(witness.glances()[0].event.as_deref(), Some("idle_tick"));
    assert_eq!(count(&house.ended(run).await, "run.perceived"), 1);
    // The same inputs at the same time give the same bytes.
    house = full(&Witness::worlds([json!({ "summary": "A calm sea." })]));
    house.actor.learn(vec![
        Line::call("ask_human", json!({ "question": "Which?" })),
        Line::Text("{}"),
    ]);
    full_run(&house).await;
    assert_eq!(self::systems(&house)[0], systems[0]);
}

#[tokio::test]
async fn a_prompt_that_speaks_of_the_world_is_not_told_it_twice() {
    let witness = Witness::worlds([json!({ "weather": "rain" })]);
    let house = plan([Line::Text("done")])
        .looking(&witness, Every::Run)
        .agent(|agent| agent.prompt = "Outside: {{ perception.weather }}.".into())
        .at_work();
    let run = house.submit().await;
    house.ended(run).await;
    let system = systems(&house).remove(0);
    assert!(
        system.starts_with("Outside: rain.\n\n## Current state\n"),
        "{system}"
    );
}

#[tokio::test]
async fn tools_are_given_what_was_seen_also_after_a_rest() {
    let seen = json!({ "map": "harbour", "recipient": "from the world" });
    let witness = Witness::of([Sight::World(json!({}), seen)]);
    let deeds = Deeds::default();
    let told = Hand::new("tell", Pure, &deeds).doing(|_, around| {
        let context = serde_json::to_string(&around.context).unwrap();
        async move { Ok(ToolOutput::text(context)) }.boxed()
    });
    let house = plan([
        Line::call("ask_human", json!({ "question": "Which?" })),
        Line::call("tell", json!({})),
    ])
    .hands([told])
    .looking(&witness, Every::Run)
    .agent(|agent| agent.context = vec!["recipient".into()])
    .at_work();
    let mut task = Task::new("tester", "Do it.");
    let recipient = RawJson::of(&"from the caller");
    task.context.insert("recipient".into(), recipient);
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let said = answer(&gate, Decision::Answer("That.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.ended(run).await;
    let context = r#"{"map":"harbour","recipient":"from the caller"}"#;
    assert_eq!(house.results(), [(context.to_owned(), false)]);
    assert_eq!(witness.glances().len(), 1);
}

/// What the runtime told the model with each turn.
fn asides(journal: &[Entry]) -> Vec<Vec<String>> {
    let started = journal.iter().filter_map(|entry| {
        let Event::TurnStarted(started) = &entry.event else {
            return None;
        };
        let said = started.asides.iter().map(|aside| aside.text.to_string());
        Some(said.collect())
    });
    started.collect()
}

#[tokio::test]
async fn before_each_turn_the_model_is_told_what_is_new() {
    let witness = Witness::worlds([json!("dawn"), json!("noon"), json!("noon"), json!("night")]);
    let deeds = Deeds::default();
    let look = || Line::call("look", json!({}));
    let house = plan([look(), look(), look()])
        .hands([Hand::new("look", Pure, &deeds)])
        .looking(&witness, Every::Turn)
        .at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    let now = |world: &str| format!("[longhaul] The world around you, as it is now:\n\n{world}");
    let wanted = vec![vec![], vec![now("noon")], vec![], vec![now("night")]];
    assert_eq!(asides(&journal), wanted);
    assert_eq!(witness.glances().len(), 4);
    assert_eq!(count(&journal, "run.perceived"), 1);
    assert_eq!(house.heard().last(), Some(&now("night")));
}

#[tokio::test]
async fn who_looks_is_told_for_whom_and_before_which_turn() {
    let witness = Witness::worlds([json!("dawn")]);
    let deeds = Deeds::default();
    let look = || Line::call("look", json!({}));
    let mut house = plan([look(), look()])
        .hands([Hand::new("look", Pure, &deeds)])
        .looking(&witness, Every::Turn)
        .open();
    house.hire(|_| {});
    let mut task = Task::new("tester", "Do it.");
    task.actor = Some(RawJson::of(&json!({ "name": "Ada" })));
    task.thread = Some(ThreadKey::new("deck").unwrap());
    task.resource = Some(ResourceKey::new("ada").unwrap());
    let run = house.longhaul.submit(task.clone()).await.unwrap();
    house.ended(run).await;
    let glances = witness.glances();
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
    let glance = witness.glances().swap_remove(glances.len());
    assert_eq!((glance.run, glance.turn), (run, 1));
    assert_eq!(
        (glance.actor, glance.thread, glance.resource),
        (None, None, None)
    );
}

#[tokio::test]
async fn a_look_that_fails_is_tried_again_and_then_the_run_waits() {
    let sights = [
        Sight::Fails("no light"),
        Sight::Panics,
        Sight::Fails("still no light"),
        Sight::World(json!("light"), json!({})),
    ];
    let witness = Witness::of(sights);
    let house = plan([Line::Text("done")])
        .looking(&witness, Every::Run)
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    house.pass_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    assert_eq!(witness.glances().len(), 3);
    assert_eq!(
        gate.spec.ask,
        "Nobody could look at the world for agent `tester`: the context provider failed: still \
         no light. Mend what looks for it, then answer here: it is asked again."
    );
    let said = answer(&gate, Decision::Answer("Mended.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    assert_eq!(witness.glances().len(), 4);
}

#[tokio::test]
async fn a_failure_that_lasts_is_not_tried_again() {
    let witness = Witness::of([Sight::Lasts("no map")]);
    let house = plan([Line::Text("done")])
        .looking(&witness, Every::Run)
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert!(gate.spec.ask.contains("no map"), "{}", gate.spec.ask);
    assert_eq!(witness.glances().len(), 1);
    let why = house.longhaul.why_view(run).await.unwrap();
    assert_eq!(
        why.command,
        format!("longhaul answer {} TEXT", gate.spec.id)
    );
}

#[tokio::test]
async fn a_world_that_lacks_what_the_prompt_needs_may_be_mended() {
    let witness = Witness::worlds([json!({}), json!({ "sky": "blue" })]);
    let house = plan([Line::Text("done")])
        .agent(|agent| agent.prompt = "The sky is {{ perception.sky }}.".into())
        .looking(&witness, Every::Run)
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    assert!(ask.contains("mend what looks, then answer here"), "{ask}");
    let said = answer(&gate, Decision::Answer("Mended.".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    assert_eq!(end(&house.ended(run).await), "done");
}

#[tokio::test]
async fn a_look_that_used_up_its_time_is_not_tried_again() {
    let witness = Witness::of([Sight::Hangs]);
    let house = plan([Line::Text("done")])
        .looking(&witness, Every::Run)
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    house.pass_until(run, "run.blocked").await;
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    assert!(ask.contains("longer than 32 s"), "{ask}");
    assert_eq!(witness.glances().len(), 1);
}

#[tokio::test]
async fn an_agent_whose_eye_is_not_here_waits_and_says_so() {
    let house = plan([Line::Text("done")])
        .agent(|agent| {
            let eye = longhaul_engine::agent::wish::Eye::Named("nobody".into());
            let every = Every::Run;
            agent.perception = Some(longhaul_engine::agent::wish::Sight { eye, every });
        })
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert!(
        gate.spec.ask.contains("nobody who could look"),
        "{}",
        gate.spec.ask
    );
}
