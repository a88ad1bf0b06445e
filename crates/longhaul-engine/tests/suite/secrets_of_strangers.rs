//! Secrets that strangers bring: the files of a project, providers, servers, tools
//! and whoever looks at the world. Nothing of them reaches the store.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, Verdict};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::{Body, RawJson};
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Every, Eye, Skill};
use longhaul_testkit::door::Door;
use serde_json::json;

use crate::suite::house::eye::{Sight, Witness};
use crate::suite::house::model::{Line, results};
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, Plan, SECRET, count, end, plan};
use crate::suite::secrets::is_hidden;

/// What stands in the store behind the facts of a journal: its agent, its prompt
/// and its table.
async fn blobs(house: &House, journal: &[Entry]) -> String {
    let shelves = &house.longhaul.ports().shelves;
    let mut found = String::new();
    let mut add = |bytes: Option<Vec<u8>>| {
        found.push_str(&String::from_utf8(bytes.expect("it is kept")).unwrap());
    };
    for entry in journal {
        if let Event::RunCreated(submitted) = &entry.event {
            add(shelves.definition(submitted.task.definition).await.unwrap());
        }
        if let Event::RunPerceived(seen) = &entry.event {
            for body in [&seen.system, &seen.tools] {
                match body {
                    Body::Inline(_) => {}
                    Body::Blob(at) => add(shelves.blob(at.hash).await.unwrap()),
                }
            }
        }
    }
    found
}

/// A run of this plan comes to this fact, and the secret is nowhere.
async fn check(what: &str, plan: Plan, until: &str) {
    let house = plan.at_work();
    let run = house.submit().await;
    let journal = house.until(run, until).await;
    is_hidden(&house, &journal, (what, 0));
    let kept = blobs(&house, &journal).await;
    assert!(!kept.contains(SECRET), "{what}: {kept}");
    let kept = format!("{:?}", house.store);
    assert!(!kept.contains(SECRET), "{what}: {kept}");
}

#[tokio::test]
async fn what_is_read_of_an_agents_file_has_none() {
    type Change = fn(&mut Agent);
    let table: [(&str, Change); 7] = [
        ("the rules of the house", |agent| {
            agent.house_rules = format!("Never say {SECRET}.\n").repeat(200);
        }),
        ("the prompt", |agent| {
            agent.prompt = format!("You know {SECRET}, {{{{ input }}}}");
        }),
        ("the description", |agent| agent.description = SECRET.into()),
        ("a skill", |agent| {
            agent.skills = vec![Skill {
                name: "knots".into(),
                description: SECRET.into(),
            }];
        }),
        ("an event", |agent| {
            let words = format!("It was {SECRET}.");
            agent.events = [("quake".to_owned(), words)].into();
        }),
        ("the schema", |agent| {
            let schema = json!({ "type": "string", "description": SECRET });
            agent.output = Some(RawJson::of(&schema));
        }),
        ("a rule", |agent| {
            agent.rules = vec![GateRule {
                tool: "act".into(),
                subject: None,
                verdict: Verdict::Ask(format!("May it {SECRET}?")),
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
        let hands = ["read_skill"].map(|name| Hand::new(name, Pure, &Deeds::default()));
        let text = Line::Text("\"done\"");
        check(
            what,
            plan([text]).hands(hands).agent(change),
            "run.completed",
        )
        .await;
    }
}

#[tokio::test]
async fn a_prompt_says_that_something_was_left_out() {
    let prompt = format!("You know {SECRET}, {{{{ input }}}}");
    let house = plan([]).agent(|agent| agent.prompt = prompt).at_work();
    let run = house.submit().await;
    house.ended(run).await;
    let asked = format!("{:?}", house.actor.asked()[0].system);
    assert!(
        asked.contains("You know {{secret:WORD}}, Do it."),
        "{asked}"
    );
}

#[tokio::test]
async fn a_file_that_needs_one_is_refused() {
    type Change = fn(&mut Agent);
    let table: [Change; 7] = [
        |agent| agent.lane = Some(SECRET.into()),
        |agent| agent.tools.push(format!("mcp:{SECRET}")),
        |agent| {
            agent.perception = Some(longhaul_engine::agent::wish::Sight {
                eye: Eye::Url(format!("https://example.org/?key={SECRET}")),
                every: Every::Run,
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
        let house = plan([]).agent(change).open();
        let task = Task::new("tester", "Do it.");
        let said = house.longhaul.submit(task).await.unwrap_err().to_string();
        let right = said.contains("agent `tester` holds the secret `WORD`");
        assert!(right && !said.contains(SECRET), "{said}");
        assert!(!format!("{:?}", house.store).contains(SECRET));
    }
}

#[tokio::test]
async fn what_models_and_their_providers_say_has_none() {
    let deeds = Deeds::default();
    let act = || Hand::new("act", Once, &deeds);
    let reply = plan([Line::Text("It is xyzzy-plugh.")]);
    check("a reply", reply, "run.completed").await;
    let call = Line::call("act", json!({ "text": SECRET, SECRET: 1 }));
    check("a call", plan([call]).hands([act()]), "run.completed").await;
    let call = Line::call("ask_human", json!({ "question": SECRET }));
    check("a question", plan([call]), "gate.raised").await;
    let call = Line::call(SECRET, json!({}));
    check("a tool that is none", plan([call]), "run.completed").await;
    let no = Line::FailSaying(FailureClass::Auth, "the key xyzzy-plugh is wrong");
    check("a failure", plan([no]), "turn.failed").await;
    assert_eq!(deeds.all(), Vec::<String>::new(), "no tool was called");
}

#[tokio::test]
async fn a_call_that_holds_one_is_not_made_and_the_model_reads_why() {
    let deeds = Deeds::default();
    let calls = Line::Calls(vec![
        ("act", json!({ "text": "about {{secret:OTHER}}" })),
        (
            "act",
            json!({ "text": "about {{secret:OTHER}} and xyzzy-plugh" }),
        ),
    ]);
    let hands = [Hand::new("act", Once, &deeds)];
    let house = plan([calls]).hands(hands).at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    is_hidden(&house, &journal, ("a call", 1));
    let read = format!("{:?}", results(&house.actor.asked()[1]));
    let why = "its input holds the secret `WORD`, which is not handed to tools";
    assert_eq!(read.matches(why).count(), 1, "{read}");
    let begun = deeds.all();
    assert!(begun.iter().all(|deed| !deed.contains("WORD")), "{begun:?}");
    assert_eq!(count(&journal, "tool.started"), 1);
}

#[tokio::test]
async fn what_is_spoken_has_none() {
    let door = Door::shut();
    let rest = Box::new(Line::Speak(
        "y-plugh.",
        Box::new(Line::Text("done").behind(&door)),
    ));
    let house = plan([Line::Speak("It is xyzz", rest)]).at_work();
    let feed = house.longhaul.ports().feed.clone();
    let run = house.submit().await;
    door.reached(1).await;
    assert_eq!(&*feed.so_far(run).unwrap().text, "It is {{secret:WORD}}.");
    door.open();
    house.ended(run).await;
}

#[tokio::test]
async fn what_tools_say_of_themselves_has_none() {
    let deeds = Deeds::default();
    let mut told = Hand::new("act", Pure, &deeds);
    told.card.description = format!("Opens with {SECRET}. ").repeat(100);
    check("a card", plan([]).hands([told]), "run.completed").await;
    let call = || Line::call("act", json!({}));
    let failing = Hand::new("act", Once, &deeds).doing(|_, around| {
        around.progress.report(Some(5), SECRET);
        async { Err(ToolFailure::new(SECRET.to_owned())) }.boxed()
    });
    check(
        "a failure",
        plan([call()]).hands([failing]),
        "run.completed",
    )
    .await;
    let broken =
        Hand::new("act", Once, &deeds).doing(|_, _| async { panic!("it was {SECRET}") }.boxed());
    check("a panic", plan([call()]).hands([broken]), "run.completed").await;
}

#[tokio::test]
async fn what_is_missing_is_said_without_one() {
    let house = plan([]).open();
    *house.models.gone.lock().unwrap() = Some("Set the key xyzzy-plugh.");
    let mut house = house;
    house.hire(|_| {});
    let run = house.submit().await;
    let journal = house.until(run, "run.blocked").await;
    is_hidden(&house, &journal, ("what is missing", 1));
    assert!(!format!("{:?}", house.store).contains(SECRET));
}

#[tokio::test]
async fn whoever_looks_sees_none() {
    let world = Sight::World(json!({ "at": SECRET }), json!({ SECRET: [SECRET] }));
    for (sight, until) in [
        (world, "run.completed"),
        (Sight::Fails("the answer was xyzzy-plugh"), "run.blocked"),
    ] {
        let witness = Witness::of([sight]);
        let mut house = plan([]).looking(&witness, Every::Run);
        if until == "run.blocked" {
            house = house.at_standing_clock();
        }
        let house = house.at_work();
        let run = house.submit().await;
        let journal = match until {
            "run.blocked" => house.pass_until(run, until).await,
            _ => house.ended(run).await,
        };
        is_hidden(&house, &journal, ("a look", 1));
        assert!(!format!("{:?}", house.store).contains(SECRET));
        if until == "run.completed" {
            assert_eq!(end(&journal), "done");
        }
    }
}
