//! Secrets that strangers bring: the files of a project, providers, servers, tools
//! and whoever looks at the world. Nothing of them reaches the store.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, RuleAction};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{PerceptionInterval, PerceptionSource, Skill};
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::context_provider::{FakeContextProvider, FakePerception};
use crate::suite::harness::model::{FakeReply, results};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{
    SECRET, TestEngine, TestEngineBuilder, count, engine_with, outcome_text,
};
use crate::suite::secrets::is_hidden;

/// What stands in the store behind the facts of a journal: its agent, its prompt
/// and its table.
async fn blobs(house: &TestEngine, journal: &[Entry]) -> String {
    let shelves = &house.longhaul.services().records;
    let mut found = String::new();
    let mut add = |bytes: Option<Vec<u8>>| {
        found.push_str(&String::from_utf8(bytes.expect("it is kept")).unwrap());
    };
    for entry in journal {
        if let Event::RunCreated(submitted) = &entry.event {
            add(shelves.definition(submitted.task.definition).await.unwrap());
        }
        if let Event::RunPrepared(seen) = &entry.event {
            for body in [&seen.system, &seen.tools] {
                match body {
                    StoredText::Inline(_) => {}
                    StoredText::Blob(at) => add(shelves.blob(at.hash).await.unwrap()),
                }
            }
        }
    }
    found
}

/// A run of this plan comes to this fact, and the secret is nowhere.
async fn check(what: &str, plan: TestEngineBuilder, until: &str) {
    let house = plan.start();
    let run = house.submit().await;
    let journal = house.until(run, until).await;
    is_hidden(&house, &journal, (what, 0));
    let kept = blobs(&house, &journal).await;
    assert!(!kept.contains(SECRET), "{what}: {kept}");
    let kept = format!("{:?}", house.store);
    assert!(!kept.contains(SECRET), "{what}: {kept}");
}

#[tokio::test]
async fn agent_definitions_are_stored_without_secrets() {
    type Change = fn(&mut Agent);
    let table: [(&str, Change); 7] = [
        ("the rules of the house", |agent| {
            agent.project_rules = format!("Never say {SECRET}.\n").repeat(200);
        }),
        ("the prompt", |agent| {
            agent.prompt = format!("You know {SECRET}, {{{{ input }}}}");
        }),
        ("the description", |agent| agent.description = SECRET.into()),
        ("a skill", |agent| {
            agent.skills = vec![Skill { name: "knots".into(), description: SECRET.into() }];
        }),
        ("an event", |agent| {
            let words = format!("It was {SECRET}.");
            agent.events = [("quake".to_owned(), words)].into();
        }),
        ("the schema", |agent| {
            let schema = json!({ "type": "string", "description": SECRET });
            agent.output = Some(RawJson::from_serialize(&schema));
        }),
        ("a rule", |agent| {
            agent.rules = vec![GateRule {
                tool: "act".into(),
                subject: None,
                action: RuleAction::Ask(format!("May it {SECRET}?")),
                always: false,
                timeout: None,
                on_timeout: OnTimeout::Reject,
                in_doubt: None,
                approvers: Approvers::default(),
                remind: None,
            }];
        }),
    ];
    for (what, change) in table {
        let hands = ["read_skill"].map(|name| FakeTool::new(name, Pure, &EffectLog::default()));
        let text = FakeReply::Text("\"done\"");
        check(what, engine_with([text]).tools(hands).agent(change), "run.completed").await;
    }
}

#[tokio::test]
async fn a_prompt_shows_that_a_secret_was_redacted() {
    let prompt = format!("You know {SECRET}, {{{{ input }}}}");
    let house = engine_with([]).agent(|agent| agent.prompt = prompt).start();
    let run = house.submit().await;
    house.ended(run).await;
    let asked = format!("{:?}", house.model.requests()[0].system);
    assert!(asked.contains("You know {{secret:WORD}}, Do it."), "{asked}");
}

#[tokio::test]
async fn an_agent_file_that_needs_a_secret_is_rejected() {
    type Change = fn(&mut Agent);
    let table: [Change; 7] = [
        |agent| agent.lane = Some(SECRET.into()),
        |agent| agent.tools.push(format!("mcp:{SECRET}")),
        |agent| {
            agent.perception = Some(longhaul_engine::agent::config::PerceptionConfig {
                source: PerceptionSource::Url(format!("https://example.org/?key={SECRET}")),
                every: PerceptionInterval::Run,
            });
        },
        |agent| agent.prompt = format!("{{{{ range(\"{SECRET}\") }}}}"),
        |agent| agent.prompt = format!("A{{% if input == '{SECRET}' %}}B{{% endif %}}"),
        |agent| agent.prompt = format!("{{{{ '}}}}' ~ \"{SECRET}\" }}}}"),
        |agent| {
            let words = format!("{{{{ '{SECRET}' }}}}");
            agent.events = [("quake".to_owned(), words)].into();
        },
    ];
    for change in table {
        let house = engine_with([]).agent(change).build();
        let task = Task::new("tester", "Do it.");
        let said = house.longhaul.submit(task).await.unwrap_err().to_string();
        let right = said.contains("agent `tester` holds the secret `WORD`");
        assert!(right && !said.contains(SECRET), "{said}");
        assert!(!format!("{:?}", house.store).contains(SECRET));
    }
}

#[tokio::test]
async fn model_replies_and_errors_are_stored_without_secrets() {
    let deeds = EffectLog::default();
    let act = || FakeTool::new("act", Once, &deeds);
    let reply = engine_with([FakeReply::Text("It is xyzzy-plugh.")]);
    check("a reply", reply, "run.completed").await;
    let call = FakeReply::call("act", json!({ "text": SECRET, SECRET: 1 }));
    check("a call", engine_with([call]).tools([act()]), "run.completed").await;
    let call = FakeReply::call("ask_human", json!({ "question": SECRET }));
    check("a question", engine_with([call]), "gate.raised").await;
    let call = FakeReply::call(SECRET, json!({}));
    check("a tool that is none", engine_with([call]), "run.completed").await;
    let no = FakeReply::FailWith(FailureClass::Auth, "the key xyzzy-plugh is wrong");
    check("a failure", engine_with([no]), "turn.failed").await;
    assert_eq!(deeds.all(), Vec::<String>::new(), "no tool was called");
}

#[tokio::test]
async fn a_call_that_contains_a_secret_is_not_made() {
    let deeds = EffectLog::default();
    let calls = FakeReply::Calls(vec![
        ("act", json!({ "text": "about {{secret:OTHER}}" })),
        ("act", json!({ "text": "about {{secret:OTHER}} and xyzzy-plugh" })),
    ]);
    let hands = [FakeTool::new("act", Once, &deeds)];
    let house = engine_with([calls]).tools(hands).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    is_hidden(&house, &journal, ("a call", 1));
    let read = format!("{:?}", results(&house.model.requests()[1]));
    let why = "its input holds the secret `WORD`, which is not handed to tools";
    assert_eq!(read.matches(why).count(), 1, "{read}");
    let begun = deeds.all();
    assert!(begun.iter().all(|deed| !deed.contains("WORD")), "{begun:?}");
    assert_eq!(count(&journal, "tool.started"), 1);
}

#[tokio::test]
async fn streamed_text_has_no_secrets() {
    let door = Latch::new();
    let rest = Box::new(FakeReply::StreamThen(
        "y-plugh.",
        Box::new(FakeReply::Text("done").after_latch(&door)),
    ));
    let house = engine_with([FakeReply::StreamThen("It is xyzz", rest)]).start();
    let feed = house.longhaul.services().deltas.clone();
    let run = house.submit().await;
    door.reached(1).await;
    assert_eq!(&*feed.partial_reply(run).unwrap().text, "It is {{secret:WORD}}.");
    door.open();
    house.ended(run).await;
}

#[tokio::test]
async fn tool_specs_are_stored_without_secrets() {
    let deeds = EffectLog::default();
    let mut told = FakeTool::new("act", Pure, &deeds);
    told.spec.description = format!("Opens with {SECRET}. ").repeat(100);
    check("a card", engine_with([]).tools([told]), "run.completed").await;
    let call = || FakeReply::call("act", json!({}));
    let failing = FakeTool::new("act", Once, &deeds).with_action(|_, around| {
        around.progress.report(Some(5), SECRET);
        async { Err(ToolFailure::new(SECRET.to_owned())) }.boxed()
    });
    check("a failure", engine_with([call()]).tools([failing]), "run.completed").await;
    let broken = FakeTool::new("act", Once, &deeds)
        .with_action(|_, _| async { panic!("it was {SECRET}") }.boxed());
    check("a panic", engine_with([call()]).tools([broken]), "run.completed").await;
}

#[tokio::test]
async fn blocked_messages_have_no_secrets() {
    let house = engine_with([]).build();
    *house.models.missing_message.lock().unwrap() = Some("Set the key xyzzy-plugh.");
    let mut house = house;
    house.spawn_worker(|_| {});
    let run = house.submit().await;
    let journal = house.until(run, "run.blocked").await;
    is_hidden(&house, &journal, ("what is missing", 1));
    assert!(!format!("{:?}", house.store).contains(SECRET));
}

#[tokio::test]
async fn context_providers_get_no_secrets() {
    let world = FakePerception::World(json!({ "at": SECRET }), json!({ SECRET: [SECRET] }));
    for (sight, until) in [
        (world, "run.completed"),
        (FakePerception::Transient("the answer was xyzzy-plugh"), "run.blocked"),
    ] {
        let witness = FakeContextProvider::new([sight]);
        let mut house = engine_with([]).perception(&witness, PerceptionInterval::Run);
        if until == "run.blocked" {
            house = house.with_sim_clock();
        }
        let house = house.start();
        let run = house.submit().await;
        let journal = match until {
            "run.blocked" => house.advance_until(run, until).await,
            _ => house.ended(run).await,
        };
        is_hidden(&house, &journal, ("a look", 1));
        assert!(!format!("{:?}", house.store).contains(SECRET));
        if until == "run.completed" {
            assert_eq!(outcome_text(&journal), "done");
        }
    }
}
