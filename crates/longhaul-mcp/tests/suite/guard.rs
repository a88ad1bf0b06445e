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
use rustix::process::{Pid, Signal, getpgid, kill_process_group, test_kill_process};

use super::harness::RUN;

/// Environment variables with the directory in which the child process below starts its server, and
/// with the shell script that is the server.
const CHILD: &str = "LONGHAUL_TOOL_GUARD_CHILD";
const CHILD_SERVER: &str = "LONGHAUL_TOOL_GUARD_SERVER";

/// A server that, like its own child, ignores the end of its input and most signals.
const SERVER_THAT_IGNORES_SIGNALS: &str = "trap '' HUP INT TERM USR1
    sleep 600 & echo $! > child
    echo $$ > server.part; mv server.part server
    while :; do sleep 1; done";

/// A server that kills its driver as the first thing it does.
const SERVER_THAT_KILLS_ITS_DRIVER: &str = "echo $$ > server; kill -s KILL $DRIVER; exec sleep 600";

/// A server in a process group of its own, with a child in it: `timeout` makes a new process group.
const SERVER_IN_OWN_GROUP: &str = "exec timeout --signal=KILL 600 sh -c '
    sleep 600 & echo $! > child
    echo $$ > server.part; mv server.part server
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
        name: "scripted".into(),
        transport: ServerTransport::Stdio {
            command: "sh".into(),
            args: vec!["-c".into(), std::env::var(CHILD_SERVER).unwrap()],
            env: BTreeMap::from([("DRIVER".into(), std::process::id().to_string())]),
            cwd: Some(folder),
        },
        per_run: false,
        timeout: Millis::from_secs(600),
    };
    let servers = McpServers::new(vec![spec], Arc::new(SimClock::new()));
    _ = servers.server_tools("scripted", None, RUN).await;
}

fn poll_until<T>(mut check: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS_MAX {
        if let Some(found) = check() {
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

/// Starts a server, kills its driver, and waits until the server and its child are gone. `signals` are
/// sent to the server's process group before.
fn check_killed_with_driver(server: &str, signals: &[Signal]) {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = start_driver(folder.path(), server);
    let server = poll_until(|| read_pid(&folder.path().join("server")));
    let child = read_pid(&folder.path().join("child")).unwrap();
    let group = getpgid(Some(server)).unwrap();
    for signal in signals {
        poll_until(|| is_ignored(group, *signal).then_some(()));
        kill_process_group(group, *signal).unwrap();
    }
    assert!(!is_gone(server) && !is_gone(child));
    driver.kill().unwrap();
    driver.wait().unwrap();
    poll_until(|| (is_gone(server) && is_gone(child)).then_some(()));
}

#[test]
fn a_server_that_ignores_signals_is_killed_with_its_driver() {
    check_killed_with_driver(SERVER_THAT_IGNORES_SIGNALS, &[]);
}

#[test]
fn a_server_is_killed_with_its_driver_after_signals_to_its_process_group() {
    check_killed_with_driver(SERVER_THAT_IGNORES_SIGNALS, &[Signal::TERM, Signal::USR1]);
}

#[test]
fn a_server_in_its_own_process_group_is_killed_with_its_driver() {
    check_killed_with_driver(SERVER_IN_OWN_GROUP, &[]);
}

/// Repeated, because a guard that is started after the server is missing in some of the runs only.
#[test]
fn a_server_is_killed_with_a_driver_that_is_killed_as_the_server_starts() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = start_driver(folder.path(), SERVER_THAT_KILLS_ITS_DRIVER);
        driver.wait().unwrap();
        let server = read_pid(&folder.path().join("server")).unwrap();
        poll_until(|| is_gone(server).then_some(()));
    }
}

fn is_ignored(process: Pid, signal: Signal) -> bool {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(path).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// Returns whether this is a killed process that its new parent has not reaped yet.
fn is_zombie(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}
