//! Sandboxes on the command line, with real sandboxes of the local provider.

use std::path::PathBuf;

use serde_json::Value;

use super::project::Project;
use super::server_harness::TestServer;
use super::terminal::run_at_terminal;

/// A project with a run that has used its sandbox and waits for a person.
struct SandboxProject {
    project: Project,
    run: String,
    /// The sandbox as `sandboxes show --json` prints it.
    sandbox: Value,
    _server: Option<TestServer>,
}

impl SandboxProject {
    fn new() -> Self {
        Self::with(|_| None)
    }

    /// Creates the project, and executes the run on a server.
    fn with_server() -> Self {
        Self::with(|project| Some(TestServer::start(project)))
    }

    fn with(start_server: impl FnOnce(&Project) -> Option<TestServer>) -> Self {
        let project = Project::new();
        project.write(
            "agents/builder.md",
            "---\nmodel: scripted/builder\ntools: [shell, ask_human]\nsandbox: { provider: local }\n\
             approve: [{ tool: shell, allow: true }]\n---\nYou build.\n",
        );
        project.write(
            "scripts/builder.yaml",
            "replies:\n\
             - tools: [{ name: shell, input: { command: 'echo made > file' } }]\n\
             - tools: [{ name: ask_human, input: { question: 'Good?' } }]\n",
        );
        let server = start_server(&project);
        let run = project.run_until_gate("builder");
        let sandbox = project.json(&["sandboxes", "ls", "--json"])["data"][0].clone();
        assert_eq!(sandbox["state"], "running", "{sandbox}");
        Self { project, run, sandbox, _server: server }
    }

    fn id(&self) -> &str {
        self.sandbox["id"].as_str().unwrap()
    }

    /// Returns the folder of this machine that is the work folder of the sandbox.
    fn workspace(&self) -> PathBuf {
        let sandboxes = self.project.path().join(".longhaul/sandboxes");
        sandboxes.join(self.sandbox["handle"].as_str().unwrap()).join("workspace")
    }

    /// Returns the commands that the journal of the run records, with their callers.
    fn recorded_commands(&self) -> Vec<(Vec<String>, String)> {
        let events = self.project.events(&self.run);
        let events = events.iter().filter(|event| event["type"] == "sandbox.command_run");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events
            .map(|event| {
                let command = event["data"]["command"].as_array().unwrap().iter().map(text);
                (command.collect(), text(&event["data"]["by"]))
            })
            .collect()
    }
}

#[test]
fn a_shell_runs_lines_of_stdin_and_keeps_the_folder() {
    let project = SandboxProject::new();
    let lines = "cat file\n\nmkdir -p src/deep && cd src/deep\npwd\nprintf 'no end'\n\
                 echo wrong >&2; (exit 3)\nexit\necho not run\n";
    let output = project.project.run_with_stdin(lines, &["sandboxes", "shell", project.id()], 1);
    assert_eq!(output.out, "made\n/workspace/src/deep\nno end");
    assert_eq!(output.err, "wrong\nexit 3\n");
    let recorded = project.recorded_commands();
    let lines: Vec<&str> = recorded.iter().map(|(command, _)| command[4].as_str()).collect();
    let expected = [
        "cat file",
        "mkdir -p src/deep && cd src/deep",
        "pwd",
        "printf 'no end'",
        "echo wrong >&2; (exit 3)",
    ];
    assert_eq!(lines, expected);
    assert!(recorded.iter().all(|(_, by)| by == "cli:anna"), "{recorded:?}");

    // The end of stdin is the end of the shell, and the last line decides the exit code.
    let lines = "false\ncd src; cat /dev/null; trap 'echo own' EXIT\nls";
    let output = project.project.run_with_stdin(lines, &["sandboxes", "shell", project.id()], 0);
    assert_eq!(output.out, "own\nfile\nsrc\n", "a line with its own trap keeps no folder");
}

/// A line must not run in another folder than the one that the person sees.
#[test]
fn a_shell_runs_nothing_in_a_folder_that_is_gone() {
    let project = SandboxProject::new();
    let lines = "mkdir gone && cd gone\nrmdir ../gone\ntouch lost\npwd\nls\n";
    let output = project.project.run_with_stdin(lines, &["sandboxes", "shell", project.id()], 0);
    assert_eq!(output.out, "/workspace\nfile\n", "{output:?}");
    assert!(output.err.contains("gone") && output.err.contains("exit 2"), "{output:?}");
}

#[test]
fn a_shell_says_what_to_do_with_a_stopped_sandbox_or_a_long_line() {
    let project = SandboxProject::new();
    let long = format!("echo {}\nls\n", "x".repeat(33 * 1024));
    let output = project.project.run_with_stdin(&long, &["sandboxes", "shell", project.id()], 2);
    assert!(output.err.contains("a line is longer than 32768 bytes"), "{output:?}");
    assert_eq!(output.out, "");
    project.project.run(&["sandboxes", "stop", project.id()], 0);
    let output = project.project.run_with_stdin("ls\n", &["sandboxes", "shell", project.id()], 2);
    let start = format!("longhaul sandboxes start {}", project.id());
    assert!(output.err.contains("is stopped, not running"), "{output:?}");
    assert!(output.err.contains(&start), "{output:?}");
    assert_eq!(project.recorded_commands(), []);
}

/// A shell at a terminal, over HTTP: Ctrl-C kills all processes of the line, and Ctrl-D ends the
/// shell.
#[test]
fn ctrl_c_kills_the_line_and_ctrl_d_ends_the_shell() {
    let project = SandboxProject::with_server();
    let held = project.workspace().join("held");
    let open_held = format!("open:{}", held.display());
    let suffix = &project.id()[project.id().len() - 7..];
    let steps = [
        ("/workspace$ ", "now:mkfifo held\n"),
        ("/workspace$ ", "now:flock lock sh -c 'cat held; exec sleep 100000'\n"),
        // The command holds the lock once it opens the pipe.
        ("'cat held; exec ", open_held.as_str()),
        ("sleep 100000'", "now:\u{3}"),
        ("The command was killed: Ctrl-C.", "now:"),
        ("/workspace$ ", "now:flock lock echo free\n"),
        ("free\r\nfree\r\n", "now:"),
        ("/workspace$ ", "now:(exit 7)\n"),
        ("\nexit 7\r\n", "now:\u{3}"),
        ("/workspace$ ", "now:\u{4}"),
    ];
    let args = ["sandboxes", "shell", suffix];
    let env = [("USER", "anna")];
    let (screen, code) = run_at_terminal(project.project.path(), &args, &env, &steps);
    assert_eq!(code, Some(1), "{screen}");
    assert!(screen.contains("free"), "{screen}");
    assert!(screen.contains(&format!("{suffix}:/workspace$ ")), "{screen}");
    assert_eq!(project.recorded_commands().len(), 4, "{screen}");
}
