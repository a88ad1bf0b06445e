//! The real binary, killed with SIGKILL repeatedly. The verdict of the command itself is not
//! trusted: the result is verified again from the journals and the probe file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateStatus,
};
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::status::Status;
use longhaul_project::config::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::CRASH_PROBE_FILE_VAR;
use longhaul_store::OpenMode;
use serde_json::Value;
use tempfile::TempDir;

use super::cli::longhaul_in;

const BINARY: &str = env!("CARGO_BIN_EXE_longhaul");

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process that is killed and reaped when it is dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts the binary in this folder, without the settings of the user who runs the test.
fn spawn_binary(folder: &Path, args: &[&str]) -> KilledOnDrop {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGHAUL_") {
            command.env_remove(name);
        }
    }
    let child = command
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .env(CRASH_PROBE_FILE_VAR, "crash_probe.jsonl")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    KilledOnDrop(child.expect("the binary runs"))
}

/// Opens the folder's store as an outsider.
pub(super) fn open_outsider(folder: &Path) -> ProjectRuntime {
    let process_env = ProcessEnv {
        cwd: folder.to_path_buf(),
        env: [(CRASH_PROBE_FILE_VAR.to_owned(), "crash_probe.jsonl".to_owned())].into(),
        ..ProcessEnv::default()
    };
    let options = ProjectOpenOptions {
        mode: OpenMode::Outsider,
        holder: "a test".to_owned(),
        on_fatal: None,
        recorder: None,
        loaded_agents: None,
    };
    open_runtime(load::load(&process_env, &[]).unwrap(), options).unwrap()
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Polls until there is a value.
fn wait_until<T>(description: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    for _ in 0..12_000 {
        if let Some(value) = poll() {
            return value;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("timed out waiting for {description}")
}

pub(super) fn read_journal(runtime: &ProjectRuntime, run: RunId) -> Vec<JournalEntry> {
    let events = runtime.longhaul.read_run_journal(run, Seq::START, 100_000);
    block_on(events).unwrap()
}

pub(super) fn list_runs(runtime: &ProjectRuntime) -> Vec<(RunId, Status)> {
    let filter = RunFilter { limit: 100_000, ..RunFilter::default() };
    let runs = block_on(runtime.longhaul.list_brief_runs(filter)).unwrap();
    runs.into_iter().map(|run| (run.id, run.status)).collect()
}

/// Counts probe records by tool and key. A killed process may leave part of a record before the
/// next one.
fn probe_counts(file: &Path) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let start = line.rfind("{\"tool\":").unwrap_or_default();
        let line: Value = match serde_json::from_str(&line[start..]) {
            Err(error) if error.is_eof() => continue,
            line => line.unwrap(),
        };
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        *counts.entry((text("tool"), text("key"))).or_default() += 1;
    }
    counts
}

fn count_events(entries: &[JournalEntry], kind: &str) -> usize {
    let matching = entries.iter().filter(|entry| entry.event.kind() == kind);
    matching.count()
}

/// What a journal says about one call.
#[derive(Default)]
pub(super) struct CallRecord {
    pub(super) tool: String,
    pub(super) starts: u64,
    pub(super) ends: u64,
    pub(super) in_doubt: bool,
    decision: Option<&'static str>,
}

/// Reads a journal directly, without the runtime's fold and the command's own verification.
pub(super) fn call_records(entries: &[JournalEntry]) -> BTreeMap<CallId, CallRecord> {
    let mut calls: BTreeMap<CallId, CallRecord> = BTreeMap::new();
    let mut gates = BTreeMap::new();
    let mut replied_turns = Vec::new();
    for (position, entry) in (1..).zip(entries) {
        assert_eq!(entry.seq.0, position, "a gap in {}", entry.run);
        #[expect(clippy::wildcard_enum_match_arm, reason = "only turns and calls count")]
        match &entry.event {
            Event::TurnStarted(data) => {
                let is_repeated = replied_turns.contains(&data.turn);
                assert!(!is_repeated, "{}: turn {} was repeated", entry.run, data.turn);
            }
            Event::TurnCompleted(data) => {
                assert!(!replied_turns.contains(&data.turn));
                replied_turns.push(data.turn);
                for (index, call) in (1..).zip(&data.calls) {
                    let turn = data.turn;
                    let record = calls.entry(CallId { turn, index }).or_default();
                    record.tool = call.tool.to_string();
                }
            }
            Event::ToolStarted(data) => {
                let call = calls.get_mut(&data.call).unwrap();
                assert_eq!(call.ends, 0, "{} {} was repeated", entry.run, data.call);
                call.starts += 1;
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                calls.get_mut(&data.call).unwrap().ends += 1;
            }
            Event::ToolInDoubt(data) => calls.get_mut(&data.call).unwrap().in_doubt = true,
            Event::GateRaised(data) => {
                gates.insert(data.gate.id, data.gate.call.unwrap());
            }
            Event::GateAnswered(data) => {
                let call = calls.get_mut(&gates[&data.gate]).unwrap();
                call.decision = Some(data.answer.decision.as_str());
            }
            _ => {}
        }
    }
    assert_eq!(replied_turns, (1..=12).collect::<Vec<u32>>());
    calls
}

/// Compares one run with the probe records, and returns the number of in-doubt calls.
fn check_against_probe(
    run: RunId,
    entries: &[JournalEntry],
    probe_counts: &mut BTreeMap<(String, String), u64>,
) -> u64 {
    let mut in_doubt_count = 0;
    for (call, record) in call_records(entries) {
        let effects = probe_counts.remove(&(record.tool.clone(), call.call_idempotency_key(run)));
        let effects = effects.unwrap_or_default();
        assert_eq!(record.ends, 1, "{run} {call} has one result");
        assert!(effects <= record.starts, "{run} {call} had an effect without a start");
        in_doubt_count += u64::from(record.in_doubt);
        if record.tool != "probe_send" {
            assert!(!record.in_doubt && effects >= 1, "{run} {call}");
            continue;
        }
        assert_eq!(record.starts, 1, "{run} {call} must not be started again");
        let expected = match (record.in_doubt, record.decision) {
            (false, None) | (true, Some("complete")) => 1,
            (true, Some("reject")) => 0,
            other => panic!("{run} {call} was settled by {other:?}"),
        };
        assert_eq!(effects, expected, "{run} {call}: number of probe records");
    }
    in_doubt_count
}

/// Runs the built-in chaos test with this number of kills and checks its scorecard, which is
/// returned with the temporary folder of the command.
pub(super) fn survive_kills(kills: u64, options: &[&str]) -> (TempDir, Value) {
    let runs = (kills * 2 / 5).max(2);
    let temp_home = tempfile::tempdir().unwrap();
    let temp = temp_home.path().to_str().unwrap();
    let (kills_text, runs_text) = (kills.to_string(), runs.to_string());
    let args =
        ["chaos", "--runs", &runs_text, "--kills", &kills_text, "--seed", "7", "--keep", "--json"];
    let args = [&args[..], options].concat();
    let output = longhaul_in(temp_home.path(), &args, &[("TMPDIR", temp)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let scorecard: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scorecard["verdict"], "passed", "{scorecard}");
    assert_eq!(scorecard["runs"]["completed"], scorecard["runs"]["submitted"], "{scorecard}");
    assert!(scorecard["runs"]["completed"].as_u64().unwrap() >= runs, "{scorecard}");
    for (name, count) in scorecard["violation_counts"].as_object().unwrap() {
        assert_eq!(*count, 0, "{name}: {scorecard}");
    }
    assert_eq!(scorecard["kills"], kills, "{scorecard}");
    assert_eq!(scorecard["restarts"], kills, "{scorecard}");
    assert!(scorecard["recoveries"].as_u64().unwrap() >= kills / 2, "{scorecard}");
    (temp_home, scorecard)
}

/// Returns the number of kills in long tests, or else the given number.
pub(super) fn kill_count(default: u64) -> u64 {
    let text = std::env::var("LONGHAUL_KILLS").unwrap_or_default();
    text.parse().unwrap_or(default)
}

#[test]
fn runs_survive_fifty_kills() {
    let (_temp, scorecard) = survive_kills(kill_count(50), &[]);
    let folder = PathBuf::from(scorecard["folder"].as_str().unwrap());
    let runtime = open_outsider(&folder);
    let rows = list_runs(&runtime);
    assert_eq!(scorecard["runs"]["submitted"], rows.len());
    let mut counts = probe_counts(&folder.join("crash_probe.jsonl"));
    let mut in_doubt_count = 0;
    for (run, status) in rows {
        assert_eq!(status, Status::Completed, "{run}");
        in_doubt_count += check_against_probe(run, &read_journal(&runtime, run), &mut counts);
    }
    assert!(counts.is_empty(), "probe records without a call: {counts:?}");
    let shown_in_doubt = scorecard["in_doubt"].as_array().unwrap().len() as u64;
    assert_eq!(shown_in_doubt, in_doubt_count, "{scorecard}");
    assert!(in_doubt_count > 0, "no kill has hit a call that must not be repeated");
}

/// A project whose only run makes one slow `once` call and ends.
fn slow_send_project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("longhaul.toml", "");
    write("agents/slow.md", "---\ntools: [probe_send]\nmodel: scripted/slow\n---\nYou send.");
    write(
        "scripts/slow.yaml",
        "replies:\n  - tools: [{ name: probe_send, input: { note: once, delay_ms: 3000 } }]\n  - text: Sent.\n",
    );
    folder
}

fn open_gate(runtime: &ProjectRuntime) -> Option<GateRow> {
    let filter = GateFilter { status: Some(GateStatus::Open), limit: 10, ..GateFilter::default() };
    block_on(runtime.longhaul.list_gates(filter)).unwrap().pop()
}

/// Submits a run of the slow sender.
fn submit_slow(folder: &Path) -> RunId {
    let output = longhaul_in(
        folder,
        &["submit", "slow", "go"],
        &[(CRASH_PROBE_FILE_VAR, "crash_probe.jsonl")],
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// Kills the worker during a `once` call as soon as `moment` returns true.
fn kill_mid_call(
    is_reached: impl Fn(&ProjectRuntime, RunId, &Path) -> bool,
    decision: GateDecision,
    expected_count: u64,
) {
    let folder = slow_send_project();
    let folder = folder.path();
    let file = folder.join("crash_probe.jsonl");
    let call = CallId { turn: 1, index: 1 };
    let count_sent = |run: RunId| {
        let key = ("probe_send".to_owned(), call.call_idempotency_key(run));
        probe_counts(&file).get(&key).copied().unwrap_or_default()
    };
    let run = submit_slow(folder);
    let runtime = open_outsider(folder);

    let worker = spawn_binary(folder, &["worker", "--quiet"]);
    wait_until("the moment to kill", || is_reached(&runtime, run, &file).then_some(()));
    drop(worker);
    assert_eq!(count_sent(run), expected_count);

    let _worker = spawn_binary(folder, &["worker", "--quiet"]);
    let gate = wait_until("a gate", || open_gate(&runtime));
    assert_eq!((gate.run, gate.spec.kind), (run, GateKind::InDoubt));
    // The same worker makes the call for another run. A repeated call of this run, started earlier,
    // would have left its record by then.
    let other_run = submit_slow(folder);
    wait_until("the record of the other run", || (count_sent(other_run) == 1).then_some(()));
    assert_eq!(count_sent(run), expected_count);
    let answer = Answer {
        decision,
        by: "test".to_owned(),
        scope: AnswerScope::Once,
        note: None,
        payload: None,
        digest: None,
    };
    block_on(runtime.longhaul.answer_gate(gate.spec.id, answer)).unwrap();
    wait_until("the end of the run", || {
        let is_completed = list_runs(&runtime).contains(&(run, Status::Completed));
        is_completed.then_some(())
    });
    let entries = read_journal(&runtime, run);
    assert_eq!(count_events(&entries, "tool.in_doubt"), 1);
    assert_eq!(count_events(&entries, "tool.started"), 1);
    assert_eq!(count_sent(run), expected_count);
}

#[test]
fn a_once_call_killed_after_its_effect_is_in_doubt_and_never_repeated() {
    let line = |_: &ProjectRuntime, _: RunId, file: &Path| !probe_counts(file).is_empty();
    kill_mid_call(line, GateDecision::Complete, 1);
}

#[test]
fn a_once_call_killed_before_its_effect_is_in_doubt_and_never_repeated() {
    let has_started = |runtime: &ProjectRuntime, run: RunId, _: &Path| {
        count_events(&read_journal(runtime, run), "tool.started") == 1
    };
    kill_mid_call(has_started, GateDecision::Reject, 0);
}

#[test]
fn chaos_runs_a_users_agent_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("agents")).unwrap();
    fs::create_dir_all(folder.join("scripts")).unwrap();
    fs::create_dir_all(folder.join("tmp")).unwrap();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    fs::write(
        folder.join("agents/notes.md"),
        "---\ntools: [vault_write]\nmodel: scripted/notes\napprove:\n  - { tool: vault_write, ask: May it? }\n---\nYou note.",
    )
    .unwrap();
    fs::write(
        folder.join("scripts/notes.yaml"),
        "replies:\n  - delay: 5ms\n    tools: [{ name: vault_write, input: { path: a.md, content: one } }]\n  - text: Noted.\n",
    )
    .unwrap();
    let temp = folder.join("tmp");
    let env = [("TMPDIR", temp.to_str().unwrap())];
    let args = ["chaos", "notes", "--runs", "4", "--kills", "4", "--seed", "1"];
    let output = longhaul_in(folder, &args, &env);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("0 failed, 0 cancelled"), "{text}");
    assert!(text.contains("kills with SIGKILL                           4\n"), "{text}");
    assert!(text.contains("All guarantees held (seed 1"), "{text}");
    assert!(!folder.join(".longhaul").exists(), "the user's own store is not used");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "the temporary folder is removed");
}

#[test]
fn trust_of_the_project_applies_to_its_copy() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, text) in [
        ("longhaul.toml", ""),
        (
            "agents/sh.md",
            "---\ntools: [shell]\nmodel: scripted/sh\nsandbox: { isolation: none }\napprove: [{ tool: shell, allow: true }]\n---\nYou.",
        ),
        (
            "scripts/sh.yaml",
            "replies:\n  - tools: [{ name: shell, input: { command: 'true' } }]\n  - text: Done.\n",
        ),
        ("tmp/keep", ""),
    ] {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let temp = folder.join("tmp");
    let env = [("TMPDIR", temp.to_str().unwrap())];
    let args = ["chaos", "sh", "--runs", "2", "--kills", "0", "--yes"];
    let output = longhaul_in(folder, &args, &env);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    for expected in [
        "The tool `shell` of agent `sh` is not trusted yet",
        "longhaul trust",
        "LONGHAUL_TRUST=1 longhaul chaos sh",
    ] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    let output = longhaul_in(folder, &["trust", "--yes"], &env);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = longhaul_in(folder, &args, &env);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("2 submitted, 2 completed"), "{text}");
}

#[test]
fn chaos_with_real_models_or_tools_needs_confirmation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("agents")).unwrap();
    let agent = "---\nmodel: anthropic/claude\n---\nYou cost money.";
    fs::write(folder.join("agents/real.md"), agent).unwrap();
    let env = [("TMPDIR", folder.to_str().unwrap())];
    let output = longhaul_in(folder, &["chaos", "real"], &env);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("anthropic/claude is a real model"), "{text}");
    assert!(text.contains("longhaul chaos --yes real"), "{text}");
    // A model that is chosen because of an API key counts too.
    let agent = "---\ndescription: Takes what is there.\n---\nYou cost money.";
    fs::write(folder.join("agents/open.md"), agent).unwrap();
    let env_with_key = [env[0], ("ANTHROPIC_API_KEY", "sk-nothing")];
    let output = longhaul_in(folder, &["chaos", "open"], &env_with_key);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("anthropic/claude-sonnet-5-5 is a real model"), "{text}");
    let output = longhaul_in(folder, &["chaos", "nobody"], &env);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn interrupted_chaos_leaves_neither_worker_nor_folder() {
    let temp_home = tempfile::tempdir().unwrap();
    let mut chaos = spawn_binary(temp_home.path(), &["chaos", "--kills", "10000"]);
    let created_folder = || fs::read_dir(temp_home.path()).unwrap().next();
    let folder = wait_until("a worker", || {
        let folder = created_folder()?.unwrap().path();
        folder.join("worker.log").exists().then_some(folder)
    });
    let pid = rustix::process::Pid::from_child(&chaos.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = chaos.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(created_folder().is_none(), "the folder is left");
    let workers = fs::read_dir("/proc").unwrap().filter_map(|process| {
        let cwd = fs::read_link(process.ok()?.path().join("cwd")).ok()?;
        cwd.to_str()?.starts_with(folder.to_str()?).then_some(cwd)
    });
    assert_eq!(workers.count(), 0, "a worker is left");
}
