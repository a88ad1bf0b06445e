//! Strangers judge the server: a client and a fuzzer in Python and an
//! `EventSource` on Node, none of which knows more than the server's description.
//! Two providers' SDKs judge the mock model.
//!
//! What they lean on is pinned in `tests/interop` and made ready by `scripts/interop`.

mod sdks;
mod server;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use longhaul_core::event::Event;
use serde_json::Value;

use super::project::{CommandOutput, Project};
use server::InteropServer;

/// An agent that thinks, asks and ends: its replies, with time for a message.
const TEST_AGENT: (&str, &str) = (
    "tools: [vault_list, vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write a note?' }",
    "replies:
- text: Looking first.
  tools: [{ name: vault_list, input: {} }]
- text: 'Looking once more, so that a message can come.'
  tools: [{ name: vault_list, input: {} }]
  delay: 300ms
- text: Writing.
  tools: [{ name: vault_write, input: { folder: Tasks, title: 'Buy {{ input }}', content: a, tags: [], confidence: 90 } }]
- text: 'Done: {{ last_result }}'
",
);

/// One reply of an agent that talks while it works.
const TALKER_REPLY: &str = "
- text: 'Some words before each look, so that somebody can hear them.'
  tools: [{ name: vault_list, input: {} }]
  delay: 100ms";

/// The script of an agent that talks, asks, and talks on.
fn talker_script() -> String {
    let ask = "\n- tools: [{ name: ask_human, input: { question: 'Go on?' } }]";
    let done = "\n- text: Done.\n";
    ["replies:", &TALKER_REPLY.repeat(5), ask, &TALKER_REPLY.repeat(10), done].concat()
}

/// A project with one more agent.
fn project(name: &str, (front, script): (&str, &str)) -> Project {
    let project = Project::new();
    let agent = format!("---\ndescription: A test.\nmodel: scripted/{name}\n{front}\n---\nYou.\n");
    project.write(&format!("agents/{name}.md"), &agent);
    project.write(&format!("scripts/{name}.yaml"), script);
    project
}

/// The folder with the judges' programs.
fn programs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop")
}

/// The folder with what they lean on.
fn packages_folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = std::env::var_os("LONGHAUL_INTEROP_DIR").filter(|said| !said.is_empty());
    let folder = here.join(said.map_or_else(|| "target/interop".into(), PathBuf::from));
    let ready = folder.join("stamp").is_file();
    let shown = folder.display();
    assert!(ready, "the interop programs are not installed in {shown}: run scripts/interop");
    folder
}

/// A judge in Python, in a folder of its own.
fn python_program(program: &str, project: &Project, server: &InteropServer) -> Command {
    let folder = project.path().join("interop");
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(packages_folder().join("python/bin/python"));
    command
        // Nothing is left beside the programs.
        .arg("-B")
        .arg(programs_folder().join(program))
        .arg(server.url())
        .current_dir(folder)
        .env("LONGHAUL_KEY", server.key())
        .env("PYTHONUTF8", "1");
    command
}

/// Runs a judge to its end; its last line.
fn run_program(command: &mut Command) -> String {
    let judge = InteropProgram(command.stdin(Stdio::null()).spawn_piped());
    let said = judge.finish();
    assert_eq!(said.code, 0, "{}\n{}", said.out, said.err);
    said.out.lines().last().unwrap_or_default().to_owned()
}

/// A judge at work, until it is dropped.
struct InteropProgram(Child);

impl InteropProgram {
    fn finish(mut self) -> CommandOutput {
        let mut err = self.0.stderr.take().unwrap();
        let heard = std::thread::spawn(move || std::io::read_to_string(&mut err).unwrap());
        let out = self.0.stdout.take().map(std::io::read_to_string);
        let out = out.transpose().unwrap().unwrap_or_default();
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        let err = heard.join().unwrap();
        CommandOutput { code, out, err }
    }
}

impl Drop for InteropProgram {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

trait SpawnPiped {
    fn spawn_piped(&mut self) -> Child;
}

impl SpawnPiped for Command {
    fn spawn_piped(&mut self) -> Child {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn().unwrap()
    }
}

#[test]
fn a_client_written_from_the_openapi_document_completes_a_run() {
    let project = project("interop", TEST_AGENT);
    let server = InteropServer::start(&project);
    let said = run_program(python_program("client.py", &project, &server).arg("interop"));
    assert!(said.contains("operations"), "{said}");
}

#[test]
fn a_fuzzer_finds_no_fault_in_the_api() {
    let project = project("interop", TEST_AGENT);
    let server = InteropServer::start(&project);
    let mut judge = python_program("fuzz.py", &project, &server);
    judge.arg("interop").arg(programs_folder().join("schemathesis.toml"));
    let said = run_program(&mut judge);
    assert!(said.contains("requests"), "{said}");
}

#[test]
fn an_event_source_reconnects_and_gets_every_event_once() {
    let script = talker_script();
    let project = project("talker", ("tools: [vault_list, ask_human]", &script));
    let mut server = InteropServer::start(&project);
    let run = server.submit("talker");
    let mut judge = InteropProgram(event_source_program(&server, &run).spawn_piped());
    let told = BufReader::new(judge.0.stdout.take().unwrap()).lines();
    let mut all = String::new();
    let mut last = Value::Null;
    let (mut opened, mut cuts) = (0, 0);
    let (mut asked, mut answered) = (false, false);
    for line in told.map(Result::unwrap) {
        all.push_str(&line);
        all.push('\n');
        last = serde_json::from_str(&line).unwrap();
        opened += usize::from(last.get("open").is_some());
        asked |= last["type"] == "gate.raised";
        // Once at a fact, and once while the model speaks.
        let cut_now = match cuts {
            0 => last["received"] == 10,
            1 => answered && last["deltas"].is_number(),
            _ => false,
        };
        if cut_now {
            cuts += 1;
            server = server.kill_and_restart(&project);
        }
        // The run waits until the judge is back, so that the rest is heard as it comes.
        if asked && opened == 2 && !answered {
            project.run(&["answer", &run, "yes"], 0);
            answered = true;
        }
    }
    let said = judge.finish();
    assert_eq!(said.code, 0, "{all}\n{}", said.err);
    assert_eq!((opened, cuts), (3, 2), "{all}");
    assert!(last["events"].is_number(), "{all}");
}

/// The judge that follows a run as a browser would.
fn event_source_program(server: &InteropServer, run: &str) -> Command {
    let kinds: Vec<&str> = Event::KINDS.iter().map(|(kind, _, _)| *kind).collect();
    let mut command = Command::new("node");
    command
        .arg(programs_folder().join("follow.mjs"))
        .arg(format!("{}/v1/runs/{run}/events", server.url()))
        .arg(kinds.join(","))
        .env("LONGHAUL_KEY", server.key())
        .env("LONGHAUL_INTEROP_DIR", packages_folder())
        .stdin(Stdio::null());
    command
}
