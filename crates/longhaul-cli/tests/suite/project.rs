//! A project in a folder of its own, and the real binary in it: what the tests
//! of the command line stand on.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::cli::remove_model_env;

/// So often it is looked before a test gives up: half a minute and more.
const POLLS_MAX: usize = 2_000;

/// Agents: a name, what stands in the front matter, and the replies of its script.
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

/// What the binary said.
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

    /// What it said as data, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|bad| panic!("{bad}: {self:?}"))
    }
}

/// A project with all agents of the kit.
pub(crate) struct Project {
    folder: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = Self { folder };
        // Only a wake-up explains a quick reaction: nobody would look for ten minutes.
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

    /// The file that holds the runs.
    pub(crate) fn store(&self) -> PathBuf {
        self.path().join(".longhaul/longhaul.db")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// The binary here, with no settings of whoever runs the tests.
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

    /// Says this to the binary, and wants this exit code.
    pub(crate) fn run(&self, args: &[&str], code: i32) -> CommandOutput {
        let said = CommandOutput::from_output(&self.command(args).output().unwrap());
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    }

    /// The same as somebody else.
    pub(crate) fn run_as(&self, who: &str, args: &[&str], code: i32) -> CommandOutput {
        let output = self.command(args).env("USER", who).output();
        let said = CommandOutput::from_output(&output.unwrap());
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    }

    /// The same with words on stdin.
    pub(crate) fn run_with_stdin(&self, stdin: &str, args: &[&str], code: i32) -> CommandOutput {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        let said = CommandOutput::from_output(&child.wait_with_output().unwrap());
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    }

    /// What it says as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.run(args, 0).json()
    }

    /// Submits a task; its id.
    pub(crate) fn submit(&self, agent: &str, input: &str) -> String {
        self.run(&["submit", agent, input], 0).out.trim().to_owned()
    }

    /// Runs an agent until a person is needed; the run's id.
    pub(crate) fn run_until_gate(&self, agent: &str) -> String {
        let said = self.run(&["run", agent, "milk", "--no-input", "--json"], 3);
        said.json()["id"].as_str().unwrap().to_owned()
    }

    /// Looks at a run until it is as wanted.
    pub(crate) fn wait_until(&self, run: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..POLLS_MAX {
            last = self.json(&["show", run, "--json"]);
            if wanted(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never came: {last}");
    }

    /// The journal of a run.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let said = self.run(&["show", run, "--events", "--json"], 0);
        let lines = said.out.lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Presses Ctrl-C each time the binary has said the next of these words; how
    /// it ended, and what it said in all.
    pub(crate) fn run_and_interrupt(&self, args: &[&str], at: &[&str]) -> CommandOutput {
        self.run_and_signal("-INT", args, at)
    }

    /// The same with another signal.
    pub(crate) fn run_and_signal(&self, signal: &str, args: &[&str], at: &[&str]) -> CommandOutput {
        let mut command = self.command(args);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut err = String::new();
        let mut words = at.iter().peekable();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            err.push_str(&line);
            err.push('\n');
            if words.next_if(|words| line.contains(**words)).is_some() {
                let id = child.id().to_string();
                let sent = Command::new("kill").args([signal, &id]).status();
                assert!(sent.unwrap().success());
            }
        }
        let code = child.wait().unwrap().code().unwrap_or(-1);
        let out = String::new();
        CommandOutput { code, out, err }
    }

    /// Another process that drives; it has begun when this returns.
    pub(crate) fn start_worker(&self) -> WorkerProcess {
        let mut command = self.command(&["worker"]);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let up = lines.any(|line| line.unwrap().contains("Stop"));
        assert!(up, "the worker ended at once");
        // Its talk is read on, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        WorkerProcess(child)
    }
}

/// A process that drives, until it is dropped.
pub(crate) struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Whether a run stands so.
pub(crate) fn has_status(status: &str) -> impl Fn(&Value) -> bool + '_ {
    move |run| run["status"] == status
}
