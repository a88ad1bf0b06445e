//! Secrets in untrusted data (project files, providers, servers, tools, context providers) never
//! reach the store.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeoutAction,
};
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

/// Returns the blobs that a journal refers to: agent definition, prompt and tool table.
async fn blobs(engine: &TestEngine, journal: &[JournalEntry]) -> String {
    let records = &engine.longhaul.services().records;
    let mut found = String::new();
    let mut add = |bytes: Option<Vec<u8>>| {
        found.push_str(&String::from_utf8(bytes.expect("the blob is stored")).unwrap());
    };
    for entry in journal {
        if let Event::RunCreated(submitted) = &entry.event {
            add(records.agent_definition(submitted.task.definition).await.unwrap());
        }
        if let Event::RunPrepared(prepared) = &entry.event {
            for body in [&prepared.system, &prepared.tools] {
                match body {
                    StoredText::Inline(_) => {}
                    StoredText::Blob(at) => add(records.blob(at.hash).await.unwrap()),
                }
            }
        }
    }
    found
}

/// Runs this engine up to this event, and checks that the secret is nowhere.
async fn check(label: &str, builder: TestEngineBuilder, until: &str) {
    let engine = builder.start();
    let run = engine.submit().await;
    let journal = engine.until(run, until).await;
    is_hidden(&engine, &journal, (label, 0));
    let stored = blobs(&engine, &journal).await;
    assert!(!stored.contains(SECRET), "{label}: {stored}");
    let stored = format!("{:?}", engine.store);
    assert!(!stored.contains(SECRET), "{label}: {stored}");
}

#[tokio::test]
async fn agent_definitions_are_stored_without_secrets() {
    type Change = fn(&mut Agent);
    let table: [(&str, Change); 7] = [
        ("the project rules", |agent| {
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
            let template = format!("It was {SECRET}.");
            agent.events = [("quake".to_owned(), template)].into();
        }),
        ("the schema", |agent| {
            let schema = json!({ "type": "string", "description": SECRET });
            agent.output = Some(RawJson::from_serialize(&schema));
        }),
        ("a rule", |agent| {
            agent.rules = vec![GateRule {
                tool: "act".into(),
                match_glob: None,
                action: GateRuleAction::Ask(format!("May it {SECRET}?")),
                always: false,
                timeout: None,
                on_timeout: GateTimeoutAction::Reject,
                in_doubt: None,
                approvers: ApprovalRequirement::default(),
                remind: None,
                escalation: Vec::new(),
                tags: Vec::new(),
            }];
        }),
    ];
    for (label, change) in table {
        let tools = ["read_skill"].map(|name| FakeTool::new(name, Pure, &EffectLog::default()));
        let text = FakeReply::Text("\"done\"");
        check(label, engine_with([text]).tools(tools).agent(change), "run.completed").await;
    }
}

#[tokio::test]
async fn a_prompt_shows_that_a_secret_was_redacted() {
    let prompt = format!("You know {SECRET}, {{{{ input }}}}");
    let engine = engine_with([]).agent(|agent| agent.prompt = prompt).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let system = format!("{:?}", engine.model.requests()[0].system);
    assert!(system.contains("You know {{secret:WORD}}, Do it."), "{system}");
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
            let template = format!("{{{{ '{SECRET}' }}}}");
            agent.events = [("quake".to_owned(), template)].into();
        },
    ];
    for change in table {
        let engine = engine_with([]).agent(change).build();
        let task = Task::new("tester", "Do it.");
        let message = engine.longhaul.submit(task).await.unwrap_err().to_string();
        let is_expected = message.contains("agent `tester` holds the secret `WORD`");
        assert!(is_expected && !message.contains(SECRET), "{message}");
        assert!(!format!("{:?}", engine.store).contains(SECRET));
    }
}

#[tokio::test]
async fn model_replies_and_errors_are_stored_without_secrets() {
    let effects = EffectLog::default();
    let act = || FakeTool::new("act", Once, &effects);
    let reply = engine_with([FakeReply::Text("It is xyzzy-plugh.")]);
    check("a reply", reply, "run.completed").await;
    let call = FakeReply::call("act", json!({ "text": SECRET, SECRET: 1 }));
    check("a call", engine_with([call]).tools([act()]), "run.completed").await;
    let call = FakeReply::call("ask_human", json!({ "question": SECRET }));
    check("a question", engine_with([call]), "gate.raised").await;
    let call = FakeReply::call(SECRET, json!({}));
    check("a tool that is none", engine_with([call]), "run.completed").await;
    let failure = FakeReply::FailWith(FailureClass::Auth, "the key xyzzy-plugh is wrong");
    check("a failure", engine_with([failure]), "turn.failed").await;
    assert_eq!(effects.all(), Vec::<String>::new(), "no tool was called");
}

#[tokio::test]
async fn a_call_that_contains_a_secret_is_not_made() {
    let effects = EffectLog::default();
    let calls = FakeReply::Calls(vec![
        ("act", json!({ "text": "about {{secret:OTHER}}" })),
        ("act", json!({ "text": "about {{secret:OTHER}} and xyzzy-plugh" })),
    ]);
    let tools = [FakeTool::new("act", Once, &effects)];
    let engine = engine_with([calls]).tools(tools).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    is_hidden(&engine, &journal, ("a call", 1));
    let results_text = format!("{:?}", results(&engine.model.requests()[1]));
    let refusal = "the input holds the secret `WORD`, which is not passed to tools";
    assert_eq!(results_text.matches(refusal).count(), 1, "{results_text}");
    let started = effects.all();
    assert!(started.iter().all(|effect| !effect.contains("WORD")), "{started:?}");
    assert_eq!(count(&journal, "tool.started"), 1);
}

#[tokio::test]
async fn streamed_text_has_no_secrets() {
    let latch = Latch::closed();
    let rest = Box::new(FakeReply::StreamThen(
        "y-plugh.",
        Box::new(FakeReply::Text("done").after_latch(&latch)),
    ));
    let engine = engine_with([FakeReply::StreamThen("It is xyzz", rest)]).start();
    let deltas = engine.longhaul.services().deltas.clone();
    let run = engine.submit().await;
    latch.reached(1).await;
    assert_eq!(&*deltas.partial_reply(run).unwrap().text, "It is {{secret:WORD}}.");
    latch.open();
    engine.ended(run).await;
}

#[tokio::test]
async fn tool_specs_are_stored_without_secrets() {
    let effects = EffectLog::default();
    let mut tool = FakeTool::new("act", Pure, &effects);
    tool.spec.description = format!("Opens with {SECRET}. ").repeat(100);
    check("a card", engine_with([]).tools([tool]), "run.completed").await;
    let call = || FakeReply::call("act", json!({}));
    let failing = FakeTool::new("act", Once, &effects).with_action(|_, ctx| {
        ctx.progress.report(Some(5), SECRET);
        async { Err(ToolFailure::new(SECRET.to_owned())) }.boxed()
    });
    check("a failure", engine_with([call()]).tools([failing]), "run.completed").await;
    let panicking_tool = FakeTool::new("act", Once, &effects)
        .with_action(|_, _| async { panic!("it was {SECRET}") }.boxed());
    check("a panic", engine_with([call()]).tools([panicking_tool]), "run.completed").await;
}

#[tokio::test]
async fn blocked_messages_have_no_secrets() {
    let engine = engine_with([]).build();
    *engine.models.missing_message.lock().unwrap() = Some("Set the key xyzzy-plugh.");
    let mut engine = engine;
    engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    let journal = engine.until(run, "run.blocked").await;
    is_hidden(&engine, &journal, ("what is missing", 1));
    assert!(!format!("{:?}", engine.store).contains(SECRET));
}

#[tokio::test]
async fn context_providers_get_no_secrets() {
    let perception = FakePerception::World(json!({ "at": SECRET }), json!({ SECRET: [SECRET] }));
    for (response, until) in [
        (perception, "run.completed"),
        (FakePerception::Transient("the answer was xyzzy-plugh"), "run.blocked"),
    ] {
        let provider = FakeContextProvider::new([response]);
        let mut engine = engine_with([]).perception(&provider, PerceptionInterval::Run);
        if until == "run.blocked" {
            engine = engine.with_sim_clock();
        }
        let engine = engine.start();
        let run = engine.submit().await;
        let journal = match until {
            "run.blocked" => engine.advance_until(run, until).await,
            _ => engine.ended(run).await,
        };
        is_hidden(&engine, &journal, ("a look", 1));
        assert!(!format!("{:?}", engine.store).contains(SECRET));
        if until == "run.completed" {
            assert_eq!(outcome_text(&journal), "done");
        }
    }
}
