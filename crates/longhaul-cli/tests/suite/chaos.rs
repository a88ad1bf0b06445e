//! The real binary, killed with SIGKILL again and again. The command's own verdict is not
//! believed: what came of it is counted here once more, by the journals and the witness's file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longhaul::assemble::{House, Opening, open};
use longhaul::config::load;
use longhaul::config::settings::WITNESS_FILE;
use longhaul::config::surroundings::Surroundings;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::status::Status;
use longhaul_store::Role;
use serde_json::Value;
use tempfile::TempDir;

use super::front::longhaul_in;

const BINARY: &str = env!("CARGO_BIN_EXE_longhaul");

/// Looks are so far apart.
const LOOK: Duration = Duration::from_millis(5);

/// A process that is killed and reaped whatever happens to the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The binary in this folder, without settings of whoever runs the test.
fn binary(folder: &Path, args: &[&str]) -> Killed {
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
        .env(WITNESS_FILE, "witness.jsonl")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Killed(child.expect("the binary runs"))
}

/// The folder's store, as an outsider sees it.
fn outsider(folder: &Path) -> House {
    let here = Surroundings {
        cwd: folder.to_path_buf(),
        env: [(WITNESS_FILE.to_owned(), "witness.jsonl".to_owned())].into(),
        ..Surroundings::default()
    };
    let opening = Opening {
        role: Role::Outsider,
        holder: "a test".to_owned(),
        fatal: None,
        recorder: None,
    };
    open(load::load(&here, &[]).unwrap(), opening).unwrap()
}

fn wait_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Looks until there is something to see.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..12_000 {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(LOOK);
    }
    panic!("never seen: {what}")
}

fn journal(house: &House, run: RunId) -> Vec<Entry> {
    let events = house.longhaul.events(run, Seq::START, 100_000);
    wait_on(events).unwrap()
}

fn rows(house: &House) -> Vec<(RunId, Status)> {
    let ask = RowsAsk {
        limit: 100_000,
        ..RowsAsk::default()
    };
    let listed = wait_on(house.longhaul.brief(ask)).unwrap();
    listed
        .into_iter()
        .map(|listed| (listed.id, listed.status))
        .collect()
}

/// Witness lines by tool and key. A killed process may leave a part of one before the next.
fn lines(file: &Path) -> BTreeMap<(String, String), u64> {
    let mut seen = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let start = line.rfind("{\"tool\":").unwrap_or_default();
        let line: Value = match serde_json::from_str(&line[start..]) {
            Err(error) if error.is_eof() => continue,
            line => line.unwrap(),
        };
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        *seen.entry((text("tool"), text("key"))).or_default() += 1;
    }
    seen
}

fn count(entries: &[Entry], kind: &str) -> usize {
    let of_kind = entries.iter().filter(|entry| entry.event.kind() == kind);
    of_kind.count()
}

/// What a journal says of one call.
#[derive(Default)]
struct Told {
    tool: String,
    starts: u64,
    ends: u64,
    doubted: bool,
    decision: Option<&'static str>,
}

/// Reads a journal by itself, without the fold and without the command's judge.
fn told(entries: &[Entry]) -> BTreeMap<CallId, Told> {
    let mut calls: BTreeMap<CallId, Told> = BTreeMap::new();
    let mut gates = BTreeMap::new();
    let mut replied = Vec::new();
    for (place, entry) in (1..).zip(entries) {
        assert_eq!(entry.seq.0, place, "a gap in {}", entry.run);
        #[expect(clippy::wildcard_enum_match_arm, reason = "only turns and calls count")]
        match &entry.event {
            Event::TurnStarted(data) => {
                let again = replied.contains(&data.turn);
                assert!(!again, "{}: turn {} again", entry.run, data.turn);
            }
            Event::TurnCompleted(data) => {
                assert!(!replied.contains(&data.turn));
                replied.push(data.turn);
                for (index, call) in (1..).zip(&data.calls) {
                    let turn = data.turn;
                    let told = calls.entry(CallId { turn, index }).or_default();
                    told.tool = call.tool.to_string();
                }
            }
            Event::ToolStarted(data) => {
                let call = calls.get_mut(&data.call).unwrap();
                assert_eq!(call.ends, 0, "{} {} again", entry.run, data.call);
                call.starts += 1;
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                calls.get_mut(&data.call).unwrap().ends += 1;
            }
            Event::ToolInDoubt(data) => calls.get_mut(&data.call).unwrap().doubted = true,
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
    assert_eq!(replied, (1..=12).collect::<Vec<u32>>());
    calls
}

/// Holds one run against the world; how many of its calls were in doubt.
fn hold_against_world(
    run: RunId,
    entries: &[Entry],
    world: &mut BTreeMap<(String, String), u64>,
) -> u64 {
    let mut doubts = 0;
    for (call, told) in told(entries) {
        let seen = world.remove(&(told.tool.clone(), call.key(run)));
        let seen = seen.unwrap_or_default();
        assert_eq!(told.ends, 1, "{run} {call} has one result");
        assert!(seen <= told.starts, "{run} {call} was done unstarted");
        doubts += u64::from(told.doubted);
        if told.tool != "witness_send" {
            assert!(!told.doubted && seen >= 1, "{run} {call}");
            continue;
        }
        assert_eq!(told.starts, 1, "{run} {call} is never begun again");
        let expected = match (told.doubted, told.decision) {
            (false, None) | (true, Some("complete")) => 1,
            (true, Some("reject")) => 0,
            other => panic!("{run} {call} was settled by {other:?}"),
        };
        assert_eq!(seen, expected, "{run} {call} in the world");
    }
    doubts
}

#[test]
fn runs_outlive_fifty_kills() {
    let wanted = std::env::var("LONGHAUL_KILLS").unwrap_or_default();
    let kills: u64 = wanted.parse().unwrap_or(50);
    let runs = (kills * 2 / 5).max(2);
    let home = tempfile::tempdir().unwrap();
    let temp = home.path().to_str().unwrap();
    let (kills_text, runs_text) = (kills.to_string(), runs.to_string());
    let output = longhaul_in(
        home.path(),
        &[
            "chaos",
            "--runs",
            &runs_text,
            "--kills",
            &kills_text,
            "--seed",
            "7",
            "--keep",
            "--json",
        ],
        &[("TMPDIR", temp)],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let card: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(card["verdict"], "holds", "{card}");
    assert_eq!(card["runs"]["completed"], runs, "{card}");
    for (name, broken) in card["must_be_zero"].as_object().unwrap() {
        assert_eq!(*broken, 0, "{name}: {card}");
    }
    // How much work is left is guessed, so a few kills may find nothing to kill.
    let happened = card["kills"]["happened"].as_u64().unwrap();
    assert!(happened * 10 >= kills * 9, "{card}");
    assert_eq!(card["restarts"], happened, "{card}");
    assert!(
        card["picked_up"].as_u64().unwrap() >= happened / 2,
        "{card}"
    );

    let folder = PathBuf::from(card["folder"].as_str().unwrap());
    let house = outsider(&folder);
    let rows = rows(&house);
    assert_eq!(rows.len() as u64, runs);
    let mut world = lines(&folder.join("witness.jsonl"));
    let mut doubts = 0;
    for (run, status) in rows {
        assert_eq!(status, Status::Completed, "{run}");
        doubts += hold_against_world(run, &journal(&house, run), &mut world);
    }
    assert!(world.is_empty(), "nobody asked for {world:?}");
    let visible = card["in_doubt"].as_array().unwrap().len() as u64;
    assert_eq!(visible, doubts, "{card}");
    assert!(
        doubts > 0,
        "no kill has hit a call that must not be repeated"
    );
}

/// A project whose one run sends once, slowly, and ends.
fn slow_sender() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("longhaul.toml", "");
    write(
        "agents/slow.md",
        "---\ntools: [witness_send]\nmodel: scripted/slow\n---\nYou send.",
    );
    write(
        "scripts/slow.yaml",
        "replies:\n  - tools: [{ name: witness_send, input: { note: once, delay_ms: 3000 } }]\n  - text: Sent.\n",
    );
    folder
}

fn open_gate(house: &House) -> Option<GateRow> {
    let ask = GatesAsk {
        status: Some(GateStatus::Open),
        limit: 10,
        ..GatesAsk::default()
    };
    wait_on(house.longhaul.gates(ask)).unwrap().pop()
}

/// Submits a run of the slow sender.
fn submit_slow(folder: &Path) -> RunId {
    let submitted = longhaul_in(
        folder,
        &["submit", "slow", "go"],
        &[(WITNESS_FILE, "witness.jsonl")],
    );
    assert!(submitted.status.success(), "{submitted:?}");
    let text = String::from_utf8(submitted.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// Kills the worker in a `once` call as soon as `moment` has come.
fn cut_off(moment: impl Fn(&House, RunId, &Path) -> bool, decision: Decision, sent: u64) {
    let folder = slow_sender();
    let folder = folder.path();
    let file = folder.join("witness.jsonl");
    let call = CallId { turn: 1, index: 1 };
    let sent_by = |run: RunId| {
        let key = ("witness_send".to_owned(), call.key(run));
        lines(&file).get(&key).copied().unwrap_or_default()
    };
    let run = submit_slow(folder);
    let house = outsider(folder);

    let worker = binary(folder, &["worker", "--quiet"]);
    until("the moment", || moment(&house, run, &file).then_some(()));
    drop(worker);
    assert_eq!(sent_by(run), sent);

    let _worker = binary(folder, &["worker", "--quiet"]);
    let gate = until("a gate", || open_gate(&house));
    assert_eq!((gate.run, gate.spec.kind), (run, GateKind::InDoubt));
    // The same worker sends for another run: a second sending for this one, begun earlier,
    // would have left its line before.
    let other = submit_slow(folder);
    until("the other run's line", || {
        (sent_by(other) == 1).then_some(())
    });
    assert_eq!(sent_by(run), sent);
    let answer = Answer {
        decision,
        by: "test".to_owned(),
        scope: Scope::Once,
        note: None,
        payload: None,
        digest: None,
    };
    wait_on(house.longhaul.answer(gate.spec.id, answer)).unwrap();
    until("the end", || {
        let ended = rows(&house).contains(&(run, Status::Completed));
        ended.then_some(())
    });
    let entries = journal(&house, run);
    assert_eq!(count(&entries, "tool.in_doubt"), 1);
    assert_eq!(count(&entries, "tool.started"), 1);
    assert_eq!(sent_by(run), sent);
}

#[test]
fn a_once_call_cut_off_after_its_deed_is_in_doubt_and_never_repeated() {
    let line = |_: &House, _: RunId, file: &Path| !lines(file).is_empty();
    cut_off(line, Decision::Complete, 1);
}

#[test]
fn a_once_call_cut_off_before_its_deed_is_in_doubt_and_never_repeated() {
    let begun =
        |house: &House, run: RunId, _: &Path| count(&journal(house, run), "tool.started") == 1;
    cut_off(begun, Decision::Reject, 0);
}

#[test]
fn a_users_own_agent_is_stormed_in_a_copy() {
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
    let args = [
        "chaos", "notes", "--runs", "4", "--kills", "4", "--seed", "1",
    ];
    let output = longhaul_in(folder, &args, &env);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("4 submitted, 4 completed"), "{text}");
    assert!(text.contains("Every promise held, seed 1"), "{text}");
    assert!(!folder.join(".longhaul").exists(), "the user's own store");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "it cleans up");
}

#[test]
fn what_is_trusted_in_the_project_is_trusted_in_its_copy() {
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
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    for words in [
        "The tool `shell` of agent `sh` is not trusted yet",
        "longhaul trust",
        "LONGHAUL_TRUST=1 longhaul chaos sh",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let trusted = longhaul_in(folder, &["trust", "--yes"], &env);
    assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
    let output = longhaul_in(folder, &args, &env);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("2 submitted, 2 completed"), "{text}");
}

#[test]
fn what_is_no_rehearsal_needs_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("agents")).unwrap();
    let agent = "---\nmodel: anthropic/claude\n---\nYou cost money.";
    fs::write(folder.join("agents/real.md"), agent).unwrap();
    let env = [("TMPDIR", folder.to_str().unwrap())];
    let output = longhaul_in(folder, &["chaos", "real"], &env);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(
        text.contains("anthropic/claude is asked for real"),
        "{text}"
    );
    assert!(text.contains("longhaul chaos --yes real"), "{text}");
    // So is a model that nobody named but a key.
    let agent = "---\ndescription: Takes what is there.\n---\nYou cost money.";
    fs::write(folder.join("agents/open.md"), agent).unwrap();
    let keyed = [env[0], ("ANTHROPIC_API_KEY", "sk-nothing")];
    let output = longhaul_in(folder, &["chaos", "open"], &keyed);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(
        text.contains("anthropic/claude-sonnet-5-5 is asked for real"),
        "{text}"
    );
    let output = longhaul_in(folder, &["chaos", "nobody"], &env);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_storm_that_is_stopped_leaves_neither_worker_nor_folder() {
    let home = tempfile::tempdir().unwrap();
    let mut chaos = binary(home.path(), &["chaos", "--kills", "10000"]);
    let made = || fs::read_dir(home.path()).unwrap().next();
    let folder = until("a worker", || {
        let folder = made()?.unwrap().path();
        folder.join("worker.log").exists().then_some(folder)
    });
    let pid = rustix::process::Pid::from_child(&chaos.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = chaos.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(made().is_none(), "the folder is left");
    let at_work = fs::read_dir("/proc").unwrap().filter_map(|process| {
        let cwd = fs::read_link(process.ok()?.path().join("cwd")).ok()?;
        cwd.to_str()?.starts_with(folder.to_str()?).then_some(cwd)
    });
    assert_eq!(at_work.count(), 0, "a worker is left");
}
