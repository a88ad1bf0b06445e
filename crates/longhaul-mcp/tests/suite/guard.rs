//! A server does not outlive a driver that is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Millis;
use longhaul_mcp::{McpServers, ServerSpec, ServerTransport};
use longhaul_testkit::clock::SimClock;
use rustix::process::{Pid, test_kill_process};

use super::harness::RUN;

/// Environment variable with the directory in which the child process below starts its server.
const CHILD: &str = "LONGHAUL_TOOL_GUARD_CHILD";
/// A server that, like its own child, ignores the end of its input and all signals it can ignore.
const SERVER: &str = "trap '' HUP INT TERM
    sleep 600 & echo $! > own
    echo $$ > leader.part; mv leader.part leader
    while :; do sleep 1; done";

/// Maximum number of polls, and the interval between them: half a minute in all.
const POLLS_MAX: u32 = 6_000;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Not a test by itself: the driver process that is killed below.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let spec = ServerSpec {
        name: "deaf".into(),
        transport: ServerTransport::Stdio {
            command: "sh".into(),
            args: vec!["-c".into(), SERVER.into()],
            env: BTreeMap::new(),
            cwd: Some(folder),
        },
        per_run: false,
        timeout: Millis::from_secs(600),
    };
    let servers = McpServers::new(vec![spec], Arc::new(SimClock::new()));
    _ = servers.server_tools("deaf", None, RUN).await;
}

fn poll_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("the condition was not met in time");
}

fn read_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

#[test]
fn a_server_that_ignores_signals_is_killed_with_its_driver() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "suite::guard::child", "--nocapture"])
        .env(CHILD, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let leader = poll_until(|| read_pid(&folder.path().join("leader")));
    let own = read_pid(&folder.path().join("own")).unwrap();
    let is_gone = |process| test_kill_process(process).is_err() || is_zombie(process);
    assert!(!is_gone(leader) && !is_gone(own));
    driver.kill().unwrap();
    driver.wait().unwrap();
    poll_until(|| (is_gone(leader) && is_gone(own)).then_some(()));
}

/// Returns whether this is a killed process that its new parent has not reaped yet.
fn is_zombie(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}
