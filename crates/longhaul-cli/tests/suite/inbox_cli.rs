//! Tests of `longhaul inbox`, `longhaul retry` and folder inboxes.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::project::{CommandOutput, Project, has_status};
use super::server_harness::TestServer;

/// Maximum number of polls before a test gives up: more than 30 seconds.
const POLLS_MAX: usize = 3_000;

fn project_with_mail() -> Project {
    let project = Project::new();
    project.write(
        "longhaul.toml",
        "[worker]\ninboxes = [\"default\", \"mail\"]\n\n[inboxes.mail]\nagent = \"plain\"\n",
    );
    project
}

#[test]
fn tasks_are_posted_from_arguments_files_and_stdin() {
    let project = project_with_mail();
    // Reading commands show what is configured, and create no store.
    assert_eq!(project.json(&["inbox", "--json"])["data"][0]["agent"], "plain");
    assert_eq!(project.json(&["inbox", "show", "mail", "--json"])["agent"], "plain");
    let output = project.run(&["inbox", "show", "mial"], 0);
    assert!(output.err.contains("no task was ever posted to `mial`"), "{output:?}");
    assert!(!project.path().join(".longhaul").exists());
    let post = |args: &[&str]| -> Value {
        let args = [&["inbox", "post", "mail", "--json"], args].concat();
        project.json(&args)
    };
    let run = post(&[
        "milk and eggs",
        "--type",
        "order",
        "--priority",
        "-2",
        "--lane",
        "l",
        "--actor",
        "Ada",
        "--metadata",
        "{\"threadId\": \"t\", \"resourceId\": \"r\"}",
        "--idempotency-key",
        "k",
        "--start-at",
        "2099-01-01T00:00:00Z",
    ]);
    for (field, value) in [
        ("agent", json!("plain")),
        ("inbox", json!("mail")),
        ("input", json!("milk and eggs")),
        ("type", json!("order")),
        ("priority", json!(-2)),
        ("lane", json!("l")),
        ("thread", json!("t")),
        ("resource", json!("r")),
        ("actor", json!({ "name": "Ada" })),
        ("reason", json!("start_at")),
    ] {
        assert_eq!(run[field], value, "{field}");
    }
    project.write("full.txt", &"x".repeat(1 << 20));
    assert_eq!(post(&["--file", "full.txt"])["input"].as_str().unwrap().len(), 1 << 20);
    project.write("order.json", "{\"id\": 7}");
    assert_eq!(post(&["--file", "order.json"])["input"], json!({ "id": 7 }));
    let args = ["inbox", "post", "mail", "-", "--agent", "slow", "--json"];
    let run = project.run_with_stdin("from stdin", &args, 0).json();
    assert_eq!((&run["input"], &run["agent"]), (&json!("from stdin"), &json!("slow")));
    let output = project.run(&["inbox", "post", "mail", "x"], 0);
    assert!(output.out.starts_with("run_"), "{output:?}");
    let output = project.run(&["inbox"], 0);
    let row: Vec<&str> = output.out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["mail", "plain", "no", "5", "0", "0", "0"]);
    let shown = project.run(&["inbox", "show", "mail"], 0);
    assert!(shown.err.contains("No live worker serves this inbox"), "{shown:?}");
    let shown = project.json(&["inbox", "show", "mail", "--json"]);
    assert_eq!((&shown["pending"], shown["tasks"].as_array().unwrap().len()), (&json!(5), 5));
}

#[test]
fn bad_tasks_are_rejected_with_a_reason() {
    let project = project_with_mail();
    project.write("large.txt", &"x".repeat((1 << 20) + 1));
    fs::write(project.path().join("binary.txt"), b"\xff").unwrap();
    for (args, reason) in [
        (&["news", "x"][..], "[inboxes.news] agent"),
        (&["mail", "x", "--agent", "nobody"], "no agent named `nobody`"),
        (&["mail", "--file", "large.txt"], "longer than 1048576 bytes"),
        (&["mail", "--file", "binary.txt"], "UTF-8"),
        (&["mail", "--file", "missing.txt"], "missing.txt"),
        (&["mail", "x", "--metadata", "[]"], "expected JSON such as"),
        (&["mail", "x", "--idempotency-key", ""], "1 to 255 printable ASCII"),
        (&["mail", "x", "--start-at", "noon"], "--start-at"),
        (&["mail"], "PAYLOAD"),
    ] {
        let args = [&["inbox", "post"], args].concat();
        let output = project.run(&args, 2);
        assert!(output.err.contains(reason), "{args:?}: {output:?}");
    }
}

/// Posts a task that fails, finds the dead letter, and retries it.
fn check_failed_task(project: &Project, command: impl Fn(&[&str]) -> Command) {
    let run = |args: &[&str], code: i32| {
        let output = CommandOutput::from_output(&command(args).output().unwrap());
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        output
    };
    let output = run(&["inbox", "post", "mail", "x", "--agent", "locked"], 0);
    let failed_run = output.out.trim().to_owned();
    project.wait_until(&failed_run, has_status("failed"));
    let listed = run(&["inbox", "--json"], 0).json();
    assert_eq!(listed["data"][0]["served"], true, "{listed}");
    let shown = run(&["inbox", "show", "mail"], 0);
    assert!(shown.out.contains("Dead letters") && shown.out.contains(&failed_run), "{shown:?}");
    let listed = run(&["ls", "--status", "failed", "--inbox", "mail"], 0);
    assert!(listed.out.contains(&failed_run), "{listed:?}");
    // The cause is fixed, but the run is pinned to its agent version; the script is not part of it.
    project.write("scripts/locked.yaml", "replies:\n- text: Open.\n");
    let retry_run = run(&["retry", &failed_run, "--json"], 0).json()["data"][0].clone();
    assert_eq!((&retry_run["retry_of"], &retry_run["attempt"]), (&json!(failed_run), &json!(2)));
    let retry_id = retry_run["id"].as_str().unwrap();
    project.wait_until(retry_id, |run| run["status"] == "completed" || run["status"] == "failed");
    let second_output = run(&["retry", &failed_run], 0);
    let expected = format!("{retry_id} has already retried this run and is completed");
    assert!(second_output.out.contains(&expected), "{second_output:?}");
    let shown = run(&["inbox", "show", "mail", "--json"], 0).json();
    let dead_letters = shown["dead_letters"].as_array().unwrap();
    assert!(dead_letters.iter().all(|run| run["id"] != *failed_run), "{shown}");
    let completed_run = run(&["inbox", "post", "mail", "x"], 0).out.trim().to_owned();
    project.wait_until(&completed_run, has_status("completed"));
    let output = run(&["retry", &completed_run], 2);
    assert!(output.err.contains("only a failed run can be retried"), "{output:?}");
}

#[test]
fn a_dead_letter_is_listed_and_retried_on_a_local_store() {
    let project = project_with_mail();
    let _worker = project.start_worker();
    check_failed_task(&project, |args| project.command(args));
}

#[test]
fn a_dead_letter_is_listed_and_retried_through_a_server() {
    let project = project_with_mail();
    let server = TestServer::start(&project);
    check_failed_task(&project, |args| {
        let mut command = project.command(args);
        command.env("LONGHAUL_URL", &server.url);
        command
    });
}

/// A worker that trusts the project. It is killed when dropped.
struct TrustingWorker(Child);

impl TrustingWorker {
    fn start(project: &Project) -> Self {
        let mut command = project.command(&["worker", "--quiet"]);
        command.env("LONGHAUL_TRUST", "1").stderr(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for TrustingWorker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Waits until a folder has this many results, and returns them.
fn wait_for_results(project: &Project, folder: &str, count: usize) -> Vec<Value> {
    let folder = project.path().join(folder);
    for _ in 0..POLLS_MAX {
        let entries = fs::read_dir(&folder).into_iter().flatten();
        let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let is_result = |path: &&PathBuf| path.to_string_lossy().ends_with(".result.json");
        let results: Vec<&PathBuf> = paths.iter().filter(is_result).collect();
        if results.len() >= count && paths.len() >= 2 * count {
            let parse = |path: &&PathBuf| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            return results.iter().map(parse).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no {count} results in {}", folder.display());
}

#[test]
fn a_worker_serves_the_folder_inboxes_of_a_project() {
    let project = project_with_mail();
    project.write("inbox/mail/note.txt", "milk");
    project.write("inbox/mail/half.part", "half");
    fs::write(project.path().join("inbox/mail/binary.txt"), b"\xff").unwrap();
    let _worker = TrustingWorker::start(&project);
    let done = wait_for_results(&project, "inbox/mail/done", 1);
    assert_eq!(done[0]["status"], "completed");
    assert_eq!(done[0]["output"]["text"], "Done: milk");
    let failed = wait_for_results(&project, "inbox/mail/failed", 1);
    assert!(failed[0]["error"]["message"].as_str().unwrap().contains("UTF-8"), "{failed:?}");
    assert!(project.path().join("inbox/mail/half.part").exists());
    let run = project.json(&["show", done[0]["run"].as_str().unwrap(), "--json"]);
    assert_eq!((&run["inbox"], &run["agent"]), (&json!("mail"), &json!("plain")));
}

#[test]
fn a_kill_loses_no_file_and_runs_none_twice() {
    let project = project_with_mail();
    for number in 0..20 {
        project.write(&format!("inbox/mail/{number}.txt"), &format!("note {number}"));
    }
    for round in 1..6 {
        let worker = TrustingWorker::start(&project);
        wait_for_results(&project, "inbox/mail/done", 3 * round);
        drop(worker);
    }
    let _worker = TrustingWorker::start(&project);
    let done = wait_for_results(&project, "inbox/mail/done", 20);
    let mut texts: Vec<&str> =
        done.iter().map(|result| result["output"]["text"].as_str().unwrap()).collect();
    texts.sort_unstable();
    let mut expected: Vec<String> = (0..20).map(|number| format!("Done: note {number}")).collect();
    expected.sort_unstable();
    assert_eq!(texts, expected);
    let runs = project.json(&["ls", "--all", "--json"]);
    assert_eq!(runs["data"].as_array().unwrap().len(), 20);
}

#[test]
fn a_folder_inbox_needs_trust_and_an_agent() {
    let project = project_with_mail();
    project.write("inbox/mail/note.txt", "milk");
    project.write("inbox/news/note.txt", "milk");
    let output = project.run_and_signal("-TERM", &["worker"], &["Stop"]);
    assert!(output.err.contains("inbox/mail` is not trusted yet"), "{output:?}");
    assert!(output.err.contains("set `[inboxes.news] agent`"), "{output:?}");
    assert!(project.path().join("inbox/mail/note.txt").exists());
    let output = project.run(&["trust"], 6);
    let text = format!("{}{}", output.out, output.err);
    assert!(text.contains("runs the agent `plain` on every file in inbox/mail"), "{text}");
}

#[test]
fn a_worker_with_named_inboxes_opens_no_other_folders() {
    let project = project_with_mail();
    project.write("inbox/news/note.txt", "milk");
    let warns_about_news = |inbox: &str| {
        let output = project.run_and_signal("-TERM", &["worker", "--inbox", inbox], &["Stop"]);
        output.err.contains("set `[inboxes.news] agent`")
    };
    assert_eq!((warns_about_news("mail"), warns_about_news("news")), (false, true));
}
