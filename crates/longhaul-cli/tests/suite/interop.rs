//! Third-party programs test the server: a client and a fuzzer in Python, an `EventSource` on Node,
//! and generated clients in Python and TypeScript, which know only the server's API description.
//! The SDKs of two providers test the mock model.
//!
//! Their dependencies are pinned in `tests/interop` and installed by `scripts/interop`.

mod sdks;
mod server;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use longhaul_core::event::Event;
use serde_json::Value;

use super::project::{CommandOutput, Project};
use server::InteropServer;

/// An agent that calls tools, needs an approval and ends: its front matter and replies, with time
/// for a message.
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
- text: 'Some text before each tool call, so that a client can receive it.'
  tools: [{ name: vault_list, input: {} }]
  delay: 100ms";

/// Returns the script of an agent that talks, asks, and talks again.
fn talker_script() -> String {
    let question = "\n- tools: [{ name: ask_human, input: { question: 'Go on?' } }]";
    let last_reply = "\n- text: Done.\n";
    ["replies:", &TALKER_REPLY.repeat(5), question, &TALKER_REPLY.repeat(10), last_reply].concat()
}

/// A project with one additional agent.
fn project(name: &str, (front, script): (&str, &str)) -> Project {
    let project = Project::new();
    let agent = format!("---\ndescription: A test.\nmodel: scripted/{name}\n{front}\n---\nYou.\n");
    project.write(&format!("agents/{name}.md"), &agent);
    project.write(&format!("scripts/{name}.yaml"), script);
    project
}

/// Returns the folder of the test programs.
fn programs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop")
}

/// Returns the folder of their dependencies.
fn packages_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let value = std::env::var_os("LONGHAUL_INTEROP_DIR").filter(|value| !value.is_empty());
    let folder = workspace.join(value.map_or_else(|| "target/interop".into(), PathBuf::from));
    let is_installed = folder.join("stamp").is_file();
    let path = folder.display();
    assert!(is_installed, "the interop programs are not installed in {path}: run scripts/interop");
    folder
}

/// Builds the command of a Python program, in its own folder.
fn python_program(program: &str, project: &Project, server: &InteropServer) -> Command {
    let mut command = Command::new(packages_folder().join("python/bin/python"));
    // Writes no bytecode files beside the programs.
    command.arg("-B").env("PYTHONUTF8", "1");
    add_program(&mut command, program, (project, server));
    command
}

/// Builds the command of a program on Node, in its own folder.
fn node_program(program: &str, project: &Project, server: &InteropServer) -> Command {
    let mut command = Command::new("node");
    add_program(&mut command, program, (project, server));
    command.env("LONGHAUL_INTEROP_DIR", packages_folder());
    command
}

fn add_program(
    command: &mut Command,
    program: &str,
    (project, server): (&Project, &InteropServer),
) {
    let folder = project.path().join("interop");
    std::fs::create_dir_all(&folder).unwrap();
    command
        .arg(programs_folder().join(program))
        .arg(server.url())
        .current_dir(folder)
        .env("LONGHAUL_KEY", server.key());
}

/// Runs a program to its end and returns its last line.
fn run_program(command: &mut Command) -> String {
    let program = InteropProgram(command.stdin(Stdio::null()).spawn_piped());
    let output = program.finish();
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    output.out.lines().last().unwrap_or_default().to_owned()
}

/// A running program, until it is dropped.
struct InteropProgram(Child);

impl InteropProgram {
    fn finish(mut self) -> CommandOutput {
        let mut err = self.0.stderr.take().unwrap();
        let reader = std::thread::spawn(move || std::io::read_to_string(&mut err).unwrap());
        let out = self.0.stdout.take().map(std::io::read_to_string);
        let out = out.transpose().unwrap().unwrap_or_default();
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        let err = reader.join().unwrap();
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
    let output = run_program(python_program("client.py", &project, &server).arg("interop"));
    assert!(output.contains("operations"), "{output}");
}

#[test]
fn generated_clients_start_a_run_a_batch_and_a_chain() {
    for build_program in [
        |project: &Project, server: &InteropServer| python_program("generated.py", project, server),
        |project: &Project, server: &InteropServer| node_program("generated.mjs", project, server),
    ] {
        let project = Project::new();
        let server = InteropServer::start(&project);
        let output = run_program(build_program(&project, &server).arg("plain"));
        assert_eq!(output, "a run, a batch and a chain");
    }
}

#[test]
fn a_fuzzer_finds_no_fault_in_the_api() {
    let project = project("interop", TEST_AGENT);
    let server = InteropServer::start(&project);
    let mut program = python_program("fuzz.py", &project, &server);
    program.arg("interop").arg(programs_folder().join("schemathesis.toml"));
    let output = run_program(&mut program);
    assert!(output.contains("requests"), "{output}");
}

#[test]
fn an_event_source_reconnects_and_gets_every_event_once() {
    let script = talker_script();
    let project = project("talker", ("tools: [vault_list, ask_human]", &script));
    let mut server = InteropServer::start(&project);
    let run = server.submit("talker");
    let mut program = InteropProgram(event_source_program(&server, &run).spawn_piped());
    let lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let mut all = String::new();
    let mut last = Value::Null;
    let (mut open_count, mut cut_count) = (0, 0);
    let (mut has_asked, mut is_answered) = (false, false);
    for line in lines.map(Result::unwrap) {
        all.push_str(&line);
        all.push('\n');
        last = serde_json::from_str(&line).unwrap();
        open_count += usize::from(last.get("open").is_some());
        has_asked |= last["type"] == "gate.raised";
        // Once at an event, and once while the model streams text.
        let must_cut = match cut_count {
            0 => last["received"] == 10,
            1 => is_answered && last["deltas"].is_number(),
            _ => false,
        };
        if must_cut {
            cut_count += 1;
            server = server.kill_and_restart(&project);
        }
        // The run waits until the client has reconnected, so that the client gets the rest live.
        if has_asked && open_count == 2 && !is_answered {
            project.run(&["answer", &run, "yes"], 0);
            is_answered = true;
        }
    }
    let output = program.finish();
    assert_eq!(output.code, 0, "{all}\n{}", output.err);
    assert_eq!((open_count, cut_count), (3, 2), "{all}");
    assert!(last["events"].is_number(), "{all}");
}

/// Builds the command that follows a run as a browser would.
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
