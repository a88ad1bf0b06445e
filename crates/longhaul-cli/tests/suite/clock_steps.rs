//! A real server whose wall clock is changed while it runs.
//!
//! A preloaded library adds the offset in a file to the wall clock of the process. The monotonic
//! clock is not changed.

use std::fs;
use std::process::Command;

use longhaul_core::time::{Millis, Timestamp};
use serde_json::json;

use super::project::{CommandOutput, Project, has_status};
use super::server_harness::{TestServer, local_key};

const CLOCK_SHIM_SOURCE: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME) {
        char text[32] = {0};
        int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
            close(file);
        }
    }
    return failed;
}
"#;

/// The replies take longer than the lease, so that a worker without a heartbeat would stop.
const SCRIPT: &str = "replies:
- text: On.
  delay: 1500ms
  tools: [{ name: vault_list, input: {} }]
- text: Done.
  delay: 1500ms
";

/// A project whose processes have a wall clock that can be set.
struct ShiftedClockProject(Project);

impl ShiftedClockProject {
    fn new() -> Self {
        let project = Project::new();
        project.write("longhaul.toml", "[worker]\nlease = \"1s\"\npoll = \"100ms\"\n");
        project.write("scripts/plain.yaml", SCRIPT);
        let agent =
            "---\ndescription: A test.\nmodel: scripted/plain\ntools: [vault_list]\n---\nYou.\n";
        project.write("agents/plain.md", agent);
        project.write("clock.c", CLOCK_SHIM_SOURCE);
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o", "clock.so", "clock.c"])
            .current_dir(project.path())
            .status();
        assert!(built.unwrap().success());
        let shifted_project = Self(project);
        shifted_project.set_offset(0);
        shifted_project
    }

    /// Sets the wall clock to this many seconds after the real one.
    fn set_offset(&self, offset: i64) {
        self.0.write("offset.new", &offset.to_string());
        let temp_file = self.0.path().join("offset.new");
        fs::rename(temp_file, self.0.path().join("offset")).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command
            .env("LD_PRELOAD", self.0.path().join("clock.so"))
            .env("CLOCK_OFFSET_FILE", self.0.path().join("offset"));
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from_output(&self.command(args).output().unwrap())
    }

    fn submit(&self) -> String {
        let output = self.run(&["submit", "plain", "milk"]);
        assert_eq!(output.code, 0, "{output:?}");
        output.out.trim().to_owned()
    }
}

#[test]
fn a_server_keeps_running_when_the_wall_clock_steps() {
    let project = ShiftedClockProject::new();
    let server = TestServer::from_command(project.command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--until-eof",
    ]));
    for offset in [-120, -3_720, -120, 0] {
        let before = project.submit();
        project.0.wait_until(&before, has_status("running"));
        project.set_offset(offset);
        let after = project.submit();
        for run in [before, after] {
            project.0.wait_until(&run, has_status("completed"));
            let claims = project.0.events(&run);
            let claims = claims.iter().filter(|event| event["type"] == "run.claimed");
            assert_eq!(claims.count(), 1, "{offset}");
        }
        assert_eq!(server.request("GET /readyz", &[], "").status, 200, "{offset}");
    }
}

#[test]
fn a_run_starts_when_the_wall_clock_reaches_its_start_time() {
    let project = ShiftedClockProject::new();
    let server = TestServer::from_command(project.command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--until-eof",
    ]));
    let first = project.0.wait_until(&project.submit(), has_status("completed"));
    let created_at: Timestamp = first["created_at"].as_str().unwrap().parse().unwrap();
    let start_at = created_at.plus(Millis::from_secs(3_600));
    let task = json!({ "agent": "plain", "input": "milk", "start_at": start_at }).to_string();
    let key = format!("Bearer {}", local_key(&project.0));
    let answer = server.request("POST /v1/runs", &[("authorization", &key)], &task);
    let run = answer.json()["id"].as_str().unwrap().to_owned();
    project.set_offset(-3_600);
    project.0.wait_until(&project.submit(), has_status("completed"));
    project.0.wait_until(&run, has_status("pending"));
    project.set_offset(3_600);
    project.0.wait_until(&run, has_status("completed"));
}

#[test]
fn a_clock_before_1970_is_reported() {
    let project = ShiftedClockProject::new();
    project.set_offset(-3_000_000_000);
    for args in [&["submit", "plain", "milk"][..], &["ls"], &["serve", "--listen", "127.0.0.1:0"]] {
        let output = project.run(args);
        assert_eq!(output.code, 2, "{output:?}");
        assert!(
            output.err.contains("before 1970") && output.err.contains("timedatectl"),
            "{output:?}"
        );
    }
}
