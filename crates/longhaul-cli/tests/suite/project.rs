//! Harness for command-line tests: a project in a temporary folder, and the real binary in it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::cli::remove_model_env;

/// Maximum number of polls before a test gives up: more than 30 seconds.
const POLLS_MAX: usize = 2_000;

/// Agents: name, fields of the front matter, and the replies of the script.
const AGENTS: &[(&str, &str, &str)] = &[
    ("plain", "tools: []", "- text: 'Done: {{ input }}'"),
    (
        "tidy",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write a note?' }",
        "- text: Writing.
  tools: [{ name: vault_write, input: { folder: Tasks, title: 'Buy {{ input }}', content: a, tags: [], confidence: 90 } }]
- text: 'Done: {{ last_result }}'",
    ),
    (
        "twice",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?', approvers: 2 }",
        "- tools: [{ name: vault_write, input: { folder: Tasks, title: Two, content: a, tags: [], confidence: 90 } }]
- text: Done.",
    ),
    (
        "foreign",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?', approvers: { count: 1, not: submitter } }",
        "- tools: [{ name: vault_write, input: { folder: Tasks, title: Own, content: a, tags: [], confidence: 90 } }]
- text: Done.",
    ),
    (
        "hasty",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?', timeout: 1s }",
        "- tools: [{ name: vault_write, input: { folder: Tasks, title: Late, content: a, tags: [], confidence: 90 } }]
- text: 'Done: {{ last_result }}'",
    ),
    (
        "evil",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?' }",
        "- text: \"\\e[2Jgone \\u202ereversed\"
  tools: [{ name: vault_write, input: { folder: Tasks, title: Evil, content: \"\\e[31mred\", tags: [], confidence: 90 } }]
- text: Done.",
    ),
    (
        "waiter",
        "tools: [wait]",
        "- tools: [{ name: wait, input: { signal: deployed } }]\n- text: 'Received: {{ last_result }}'",
    ),
    ("planner", "tools: []\napprove_result: true", "- text: A plan."),
    (
        "form",
        "tools: [ask_human]",
        "- tools: [{ name: ask_human, input: { question: 'Where to?', schema: { properties: { city: { type: string }, people: { type: integer, default: 2 } }, required: [city] } } }]
- text: 'Going: {{ last_result }}'",
    ),
    ("slow", "tools: []", "- text: At last.\n  delay: 60s"),
    (
        "steady",
        "tools: [vault_list]",
        "- text: On.\n  delay: 400ms\n  tools: [{ name: vault_list, input: {} }]",
    ),
    (
        "both",
        "tools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?' }",
        "- tools:
    - { name: vault_write, input: { folder: Tasks, title: One, content: a, tags: [], confidence: 90 } }
    - { name: vault_write, input: { folder: Tasks, title: Two, content: a, tags: [], confidence: 90 } }
- text: Done.",
    ),
    (
        "chat",
        "tools: [vault_list]",
        "- text: Looking.\n  delay: 700ms\n  tools: [{ name: vault_list, input: {} }]\n- text: Done.",
    ),
    (
        "ask",
        "tools: [ask_human]",
        "- tools: [{ name: ask_human, input: { question: 'Left or right?', options: [left, right] } }]
- text: 'Going: {{ last_result }}'",
    ),
    (
        "stuck",
        "tools: [report_blocked]",
        "- tools: [{ name: report_blocked, input: { reason: 'no key for the door' } }]
- text: 'On: {{ last_result }}'",
    ),
    (
        "looping",
        "max_turns: 2\ntools: [vault_list]",
        "- tools: [{ name: vault_list, input: {} }]",
    ),
    (
        "poor",
        "tools: [vault_list]\nbudget: { tokens: 10 }",
        "- text: Rich.\n  tools: [{ name: vault_list, input: {} }]\n- text: Done.",
    ),
    (
        "locked",
        "tools: []",
        "- error: { status: 401, times: 99 }\n  text: never",
    ),
];

/// Output and exit code of the binary.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    pub(crate) fn from_output(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Parses stdout as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A project with all test agents.
pub(crate) struct Project {
    folder: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = Self { folder };
        // Polling takes ten minutes, so only a notification explains a quick reaction.
        project.write("longhaul.toml", "[worker]\npoll = \"10m\"\n");
        for (name, front, replies) in AGENTS {
            let agent =
                format!("---\ndescription: A test.\nmodel: scripted/{name}\n{front}\n---\nYou.\n");
            project.write(&format!("agents/{name}.md"), &agent);
            project.write(&format!("scripts/{name}.yaml"), &format!("replies:\n{replies}\n"));
        }
        project
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the file of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path().join(".longhaul/longhaul.db")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Builds a command of the binary in this project, without the settings of the user who runs
    /// the tests.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LONGHAUL_") {
                command.env_remove(name);
            }
        }
        remove_model_env(&mut command);
        command
            .args(args)
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("USER", "anna")
            .env("NO_COLOR", "1")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary and asserts the exit code.
    pub(crate) fn run(&self, args: &[&str], code: i32) -> CommandOutput {
        let output = CommandOutput::from_output(&self.command(args).output().unwrap());
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        output
    }

    /// Runs the binary as another user and asserts the exit code.
    pub(crate) fn run_as(&self, user: &str, args: &[&str], code: i32) -> CommandOutput {
        let output = self.command(args).env("USER", user).output();
        let result = CommandOutput::from_output(&output.unwrap());
        assert_eq!(result.code, code, "{args:?}: {result:?}");
        result
    }

    /// Runs the binary with this stdin and asserts the exit code.
    pub(crate) fn run_with_stdin(&self, stdin: &str, args: &[&str], code: i32) -> CommandOutput {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin_pipe = child.stdin.take().unwrap();
        stdin_pipe.write_all(stdin.as_bytes()).unwrap();
        drop(stdin_pipe);
        let output = CommandOutput::from_output(&child.wait_with_output().unwrap());
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        output
    }

    /// Runs the binary and parses stdout as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.run(args, 0).json()
    }

    /// Submits a task and returns the run's id.
    pub(crate) fn submit(&self, agent: &str, input: &str) -> String {
        self.run(&["submit", agent, input], 0).out.trim().to_owned()
    }

    /// Runs an agent until a person is needed, and returns the run's id.
    pub(crate) fn run_until_gate(&self, agent: &str) -> String {
        let output = self.run(&["run", agent, "milk", "--no-input", "--json"], 3);
        output.json()["id"].as_str().unwrap().to_owned()
    }

    /// Polls a run until it matches.
    pub(crate) fn wait_until(&self, run: &str, predicate: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..POLLS_MAX {
            last = self.json(&["show", run, "--json"]);
            if predicate(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the run never matched: {last}");
    }

    /// Polls until no process drives the store.
    pub(crate) fn wait_until_no_driver(&self) {
        for _ in 0..POLLS_MAX {
            if !longhaul_store::store_has_driver_process(&self.store()).unwrap() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a process still drives the store");
    }

    /// Returns the journal of a run.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let output = self.run(&["show", run, "--events", "--json"], 0);
        let lines = output.out.lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Sends SIGINT each time a line of stderr contains the next of these texts. Returns the exit
    /// code and stderr.
    pub(crate) fn run_and_interrupt(&self, args: &[&str], at: &[&str]) -> CommandOutput {
        self.run_and_signal("-INT", args, at)
    }

    /// Sends another signal each time a line of stderr contains the next of these texts.
    pub(crate) fn run_and_signal(&self, signal: &str, args: &[&str], at: &[&str]) -> CommandOutput {
        let mut command = self.command(args);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut err = String::new();
        let mut expected = at.iter().peekable();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            err.push_str(&line);
            err.push('\n');
            if expected.next_if(|expected| line.contains(**expected)).is_some() {
                let id = child.id().to_string();
                let kill_status = Command::new("kill").args([signal, &id]).status();
                assert!(kill_status.unwrap().success());
            }
        }
        let code = child.wait().unwrap().code().unwrap_or(-1);
        let out = String::new();
        CommandOutput { code, out, err }
    }

    /// Starts a worker in another process and waits until it drives.
    pub(crate) fn start_worker(&self) -> WorkerProcess {
        self.start_worker_with(&[])
    }

    /// Starts a worker with these arguments and waits until it drives.
    pub(crate) fn start_worker_with(&self, args: &[&str]) -> WorkerProcess {
        let mut command = self.command(&[&["worker"], args].concat());
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap().contains("Stop"));
        assert!(is_ready, "the worker exited at once");
        // The output is read to its end, so that the worker never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        WorkerProcess(child)
    }
}

/// A worker process, until it is dropped.
pub(crate) struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Returns a check for a run's status.
pub(crate) fn has_status(status: &str) -> impl Fn(&Value) -> bool + '_ {
    move |run| run["status"] == status
}
