//! What leaves a project waits for trust where a program of it would be run, and
//! stays inside of it where it says otherwise.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use longhaul::assemble::eyes::Lookouts;
use longhaul::assemble::out::Out;
use longhaul::config::load;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul::trust::thing::{Kind, Thing};
use longhaul::trust::warden::Warden;
use longhaul_core::id::{AgentName, RunId};
use longhaul_core::port::context::Glance;
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Timestamp};
use longhaul_engine::agent::wish::Eye;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::Eyes;
use serde_json::Value;
use tempfile::TempDir;

use super::front::longhaul_in;

fn project(toml: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let agent = "---\nmodel: scripted/a\ntools: [send_message]\ncontext: [recipient]\napprove: [{ tool: send_message, allow: true }]\n---\nYou.";
    let script = "replies:\n  - tools: [{ name: send_message, input: { text: Hello. } }]\n  - text: 'Done: {{ last_result }}'\n";
    let send = "#!/bin/sh\ncat > sent\n";
    for (name, text) in [
        ("longhaul.toml", toml),
        ("agents/a.md", agent),
        ("scripts/a.yaml", script),
        ("send", send),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let run = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path().join("send"), run).unwrap();
    folder
}

fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    (out, err)
}

const RUN: [&str; 6] = ["run", "a", "x", "--no-input", "--context", "recipient=anna"];

#[test]
fn a_message_is_handed_to_a_program_once_it_is_trusted() {
    let folder = project("[tools.send_message]\ndeliver = \"command:./send\"\n");
    let folder = folder.path();
    let (_, err) = run(folder, &RUN, 3);
    let says = "The command `./send` that messages go to is not trusted yet";
    assert!(err.contains(says), "{err}");
    assert!(!folder.join("sent").exists());
    run(folder, &["trust", "--yes"], 0);
    run(folder, &["answer", "@last", "It is trusted now."], 0);
    let (out, err) = run(folder, &["watch", "@last", "--no-input"], 0);
    assert!(format!("{out}{err}").contains("delivered"), "{out}{err}");
    let sent = fs::read_to_string(folder.join("sent")).unwrap();
    assert!(sent.contains("Hello."), "{sent}");
    fs::write(folder.join("send"), "#!/bin/sh\nrm sent\n").unwrap();
    let (_, err) = run(folder, &RUN, 3);
    assert!(err.contains("has changed since it was trusted"), "{err}");
    assert!(folder.join("sent").exists());
}

#[test]
fn without_a_word_a_message_is_a_line_in_a_file_of_the_project() {
    let folder = project("");
    let folder = folder.path();
    run(folder, &RUN, 0);
    let sent = fs::read_to_string(folder.join(".longhaul/outbox.jsonl")).unwrap();
    let sent: Value = serde_json::from_str(sent.lines().next().unwrap()).unwrap();
    assert!(sent.to_string().contains("Hello."), "{sent}");
}

#[test]
fn a_setting_that_does_not_fit_is_met_with_its_place() {
    for (toml, says) in [
        (
            "[tools.send_message]\ndeliver = \"fle:x\"\n",
            "longhaul.toml:2:1: `tools.send_message.deliver`: `fle` is no way to deliver",
        ),
        (
            "[outbound]\nallow = [\"http://x\"]\n",
            "longhaul.toml:2:1: `outbound.allow`: ",
        ),
        (
            "[tools.send_message]\ndeliver = \"file:../../.bashrc\"\n",
            "leads out of the project",
        ),
        (
            "[tools.send_message]\ndeliver = \"file:/tmp/x\"\n",
            "leads out of the project",
        ),
        (
            "[tools.log_interaction]\nfile = \"../x\"\n",
            "leads out of the project",
        ),
    ] {
        let folder = project(toml);
        let (_, err) = run(folder.path(), &RUN, 2);
        assert!(err.contains(says), "{toml}: {err}");
    }
}

fn config(root: &Path) -> Config {
    let here = Surroundings {
        cwd: root.to_owned(),
        home: Some(root.join("home")),
        ..Surroundings::default()
    };
    load::load(&here, &[]).unwrap()
}

#[tokio::test]
async fn a_program_looks_at_the_world_once_it_is_trusted() {
    let folder = project("");
    let root = folder.path();
    let look = root.join("look");
    fs::write(&look, "#!/bin/sh\necho '{\"weather\": \"rain\"}'\n").unwrap();
    fs::set_permissions(&look, fs::Permissions::from_mode(0o755)).unwrap();
    let config = config(root);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let out = Out::new(&config, &clock).unwrap();
    let eyes = Lookouts::new(&config, out.guarded, clock);
    let words = vec!["./look".to_owned()];
    let eye = Eye::Command(words.clone());
    let why = eyes.find(&eye).unwrap_err();
    assert!(
        why.contains("The perception command `./look` is not trusted yet"),
        "{why}"
    );
    let thing = Thing::command(Kind::Perception, root, &words);
    let warden = Warden::of(&config);
    warden.trust(&thing, Timestamp::from_micros(1)).unwrap();
    let glance = Glance {
        run: RunId::from_bits(7),
        agent: AgentName::new("a").unwrap(),
        event: None,
        input: RawJson::null(),
    };
    let seen = eyes.find(&eye).unwrap().look(&glance).await.unwrap();
    assert!(seen.world.as_str().contains("rain"), "{seen:?}");
    fs::write(&look, "#!/bin/sh\necho '{}'\n").unwrap();
    let why = eyes.find(&eye).unwrap_err();
    assert!(why.contains("has changed since it was trusted"), "{why}");
    // Whoever is at a private address is not asked unless a door is open.
    let near = eyes
        .find(&Eye::Url("http://127.0.0.1:9/".to_owned()))
        .unwrap();
    let why = near.look(&glance).await.unwrap_err().to_string();
    assert!(why.contains("127.0.0.1"), "{why}");
    let why = eyes.find(&Eye::Named("game".to_owned())).unwrap_err();
    assert!(why.contains("`game`"), "{why}");
}
