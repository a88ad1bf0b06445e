//! A run that kills its worker process each time is blocked; other runs continue.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::project::{CommandOutput, Project, has_status};

/// A server that is restarted whenever its process dies.
struct RestartingServer<'a> {
    project: &'a Project,
    child: Child,
    crashes: usize,
}

impl<'a> RestartingServer<'a> {
    fn new(project: &'a Project) -> Self {
        Self { project, child: start_server(project), crashes: 0 }
    }

    /// Restarts the server until the run matches.
    fn wait_until(&mut self, run: &str, predicate: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..3_000 {
            if self.child.try_wait().unwrap().is_some() {
                self.crashes += 1;
                self.child = start_server(self.project);
            }
            // The server may die during the request.
            let output = self.project.command(&["show", run, "--json"]).output();
            let output = CommandOutput::from_output(&output.unwrap());
            if output.code == 0 && predicate(&output.json()) {
                return output.json();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the run never matched, after {} deaths", self.crashes);
    }
}

impl Drop for RestartingServer<'_> {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn start_server(project: &Project) -> Child {
    let mut command = project.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("LONGHAUL_TRUST", "1");
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().unwrap()
}

/// A project with an agent that kills the process, and a slow one.
fn project(front: &str, replies: &str) -> Project {
    let project = Project::new();
    let agent = |name: &str, front: &str, replies: &str| {
        let text =
            format!("---\ndescription: A test.\nmodel: scripted/{name}\n{front}\n---\nYou.\n");
        project.write(&format!("agents/{name}.md"), &text);
        project.write(&format!("scripts/{name}.yaml"), &format!("replies:\n{replies}"));
    };
    agent("fatal", front, replies);
    let long_script = "- { text: On., delay: 2s, tools: [{ name: vault_list, input: {} }] }\n- { text: Done., delay: 2s }\n";
    agent("long", "tools: [vault_list]", long_script);
    project
}

fn assert_blocked_after_four_crashes(project: &Project, position: &str) {
    // Submitted without a server, because a server that dies at once can't respond.
    let (long_run, fatal_run) = (project.submit("long", "milk"), project.submit("fatal", "milk"));
    let mut server = RestartingServer::new(project);
    server.wait_until(&fatal_run, has_status("blocked"));
    assert_eq!(server.crashes, 4);
    server.wait_until(&long_run, has_status("completed"));
    let why = project.run(&["why", &fatal_run], 0).out;
    for part in
        ["died 4 times in a row at the same point", position, "longhaul cancel", "longhaul resume"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    let output = project.run(&["ls"], 0).out;
    assert!(output.contains("blocked"), "{output}");
    // After an answer the run is retried, and the count starts again.
    drop(server);
    project.run(&["answer", &fatal_run, "Again."], 0);
    let mut server = RestartingServer::new(project);
    server.wait_until(&fatal_run, has_status("blocked"));
    assert_eq!(server.crashes, 4);
    project.run(&["cancel", &fatal_run], 0);
    server.wait_until(&fatal_run, has_status("cancelled"));
}

#[test]
fn a_tool_that_kills_its_process_blocks_its_run() {
    let front = "tools: [shell]\nsandbox: { isolation: none }\n\
                 approve: [{ tool: shell, allow: true }]\n\
                 effects: [{ tool: shell, match: 'kill *', class: pure }]";
    let replies = "- tools: [{ name: shell, input: { command: kill -9 $PPID } }]\n- text: Done.\n";
    assert_blocked_after_four_crashes(&project(front, replies), "during a call of `shell`");
}

#[test]
fn a_context_command_that_kills_its_process_blocks_its_run() {
    let front = "tools: []\nperception: { command: [sh, -c, 'kill -9 $PPID'] }";
    assert_blocked_after_four_crashes(&project(front, "- text: Done.\n"), "before its first turn");
}
