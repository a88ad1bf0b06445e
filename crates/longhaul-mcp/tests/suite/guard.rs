//! A server does not outlive a driver that is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Millis;
use longhaul_mcp::{McpServers, ServerSpec, ServerTransport};
use longhaul_testkit::clock::SimClock;
use rustix::process::{Pid, test_kill_process};

use super::harness::RUN;

/// Environment variables with the directory in which the child process below starts its server, and
/// with the shell script that is the server.
const CHILD: &str = "LONGHAUL_TOOL_GUARD_CHILD";
const CHILD_SERVER: &str = "LONGHAUL_TOOL_GUARD_SERVER";

/// A server that, like its own child, ignores the end of its input and all signals it can ignore.
const SERVER: &str = "trap '' HUP INT TERM
    sleep 600 & echo $! > own
    echo $$ > leader.part; mv leader.part leader
    while :; do sleep 1; done";

/// A server that kills its driver before the driver can do anything more.
const KILLS_DRIVER: &str = "echo $$ > leader; kill -s KILL $PPID; while :; do sleep 1; done";
/// A server that leads a process group of its own, with a child in it. Started through `timeout`,
/// which makes a new process group.
const OWN_GROUP: &str = "exec timeout --signal=KILL 600 sh -c '
    sleep 600 & echo $! > own
    echo $$ > leader.part; mv leader.part leader
    while :; do sleep 1; done'";

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
            args: vec!["-c".into(), std::env::var(CHILD_SERVER).unwrap()],
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

/// Starts the child process above with this script as its server.
fn start_driver(folder: &Path, server: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "suite::guard::child", "--nocapture"])
        .env(CHILD, folder)
        .env(CHILD_SERVER, server)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err() || is_zombie(process)
}

fn check_killed_with_driver(server: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = start_driver(folder.path(), server);
    let leader = poll_until(|| read_pid(&folder.path().join("leader")));
    let own = read_pid(&folder.path().join("own")).unwrap();
    assert!(!is_gone(leader) && !is_gone(own));
    driver.kill().unwrap();
    driver.wait().unwrap();
    poll_until(|| (is_gone(leader) && is_gone(own)).then_some(()));
}

#[test]
fn a_server_that_ignores_signals_is_killed_with_its_driver() {
    check_killed_with_driver(SERVER);
}

#[test]
fn a_server_in_its_own_process_group_is_killed_with_its_driver() {
    check_killed_with_driver(OWN_GROUP);
}

/// Repeated, because a guard that is started after the server is missing in some of the runs only.
#[test]
fn a_server_is_killed_with_a_driver_that_is_killed_as_the_server_starts() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = start_driver(folder.path(), KILLS_DRIVER);
        driver.wait().unwrap();
        let server = read_pid(&folder.path().join("leader")).unwrap();
        poll_until(|| is_gone(server).then_some(()));
    }
}

/// Returns whether this is a killed process that its new parent has not reaped yet.
fn is_zombie(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}
