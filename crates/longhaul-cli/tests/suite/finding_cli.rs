//! Finding the runs that need a person among many: filters, short ids, several approvals, deletion
//! and sums of the cost.

use serde_json::Value;

use super::project::{Project, has_status};
use super::terminal::run_at_terminal;

fn ids(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().unwrap();
    data.iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[test]
fn runs_are_found_by_what_was_submitted() {
    let project = Project::new();
    let leak = project.submit("plain", "Fix the LEAK in ticket 123");
    let args = ["submit", "plain", "Other", "--thread", "chat", "--resource", "ann"];
    let other = project.run(&args, 0).out.trim().to_owned();
    for (args, expected) in [
        (&["--search", "ticket 123"][..], &[&leak][..]),
        (&["--search", "fix the leak"], &[&leak]),
        (&["--search", "ticket%"], &[]),
        (&["--thread", "chat"], &[&other]),
        (&["--resource", "ann", "--search", "leak"], &[]),
        (&["--since", "1h"], &[&other, &leak]),
        (&["--until", "1h"], &[]),
        (&["--since", "2020-01-01", "--until", "2020-01-02T00:00:00Z"], &[]),
        (&["--reason", "worker"], &[&other, &leak]),
        (&["--tag", "none"], &[]),
        (&["--sort", "waiting"], &[&leak, &other]),
        (&["--mine"], &[]),
    ] {
        let args = [&["ls", "--json"], args].concat();
        assert_eq!(ids(&project.json(&args)), expected, "{args:?}");
    }
    for (args, part) in [
        (&["--since", "soon"][..], "expected an age such as 30m"),
        (&["--sort", "size"], "possible values: created"),
        (&["--search", &"x".repeat(300)], "`search` must have 1 to 256 characters"),
        (&["--thread", ""], "--thread"),
    ] {
        let output = project.run(&[&["ls"], args].concat(), 2);
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    let output = project.run(&["ls", "--mine"], 0);
    assert!(output.err.contains("Nothing needs you."), "{output:?}");
}

#[test]
fn a_list_at_a_terminal_has_short_ids_and_fits_its_width() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let (screen, code) = run_at_terminal(project.path(), &["ls"], &[], &[]);
    assert_eq!(code, Some(0), "{screen}");
    let short = &run[run.len() - 6..];
    assert!(screen.contains(&format!("\n{short}  ")), "{screen}");
    assert!(!screen.contains(&run), "{screen}");
    assert!(screen.contains("▲ waiting: approval  milk  "), "{screen}");
    for line in screen.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(project.json(&["show", short, "--json"])["id"], run.as_str());
    let mine = project.json(&["ls", "--mine", "--json"]);
    assert_eq!(ids(&mine), [run.as_str()]);
}

#[test]
fn ids_are_found_by_their_ends_and_last_means_the_run_that_asks() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let newer = project.run(&["run", "plain", "x", "--json"], 0).json();
    let gate = project.json(&["gates", "--json"])["data"][0].clone();
    assert_eq!((&gate["agent"], &gate["task"]), (&"tidy".into(), &"milk".into()));
    for id in [&run[run.len() - 4..], &run[..run.len() - 2]] {
        assert_eq!(project.json(&["show", id, "--json"])["id"], run.as_str(), "{id}");
    }
    assert_eq!(project.json(&["show", "@last", "--json"])["id"], newer["id"]);
    let prefix = &run[..9];
    let output = project.run(&["show", prefix], 2);
    for part in ["several ids begin or end with", &run, newer["id"].as_str().unwrap()] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    let output = project.run(&["show", "abc"], 2);
    assert!(output.err.contains("4 or more of its first or last characters"), "{output:?}");
    let approved = project.run(&["approve", "@last", "--yes", "--json"], 0).json();
    assert_eq!(approved["run"], run.as_str());
}

#[test]
fn several_gates_are_approved_after_one_question() {
    let project = Project::new();
    let runs: Vec<String> = (0..3).map(|_| project.run_until_gate("tidy")).collect();
    let question = project.run_until_gate("form");
    let output = project.run(&["approve", &runs[0], &runs[1]], 2);
    assert!(output.err.contains("no terminal to ask on"), "{output:?}");
    let output = project.run(&["approve", "--yes"], 2);
    assert!(output.err.contains("--yes needs the gate to approve"), "{output:?}");
    let output = project.run(&["approve"], 2);
    assert!(output.err.contains("longhaul gates"), "{output:?}");
    let output = project.run(&["approve", "--agent", "plain", "--yes"], 0);
    assert!(output.err.contains("No open approval matches."), "{output:?}");
    let output = project.run(&["approve", &runs[0], &question, "--yes"], 2);
    assert!(output.err.contains("can't be approved"), "{output:?}");
    assert_eq!(ids(&project.json(&["gates", "--json"])).len(), 4, "nothing was approved");
    let steps = [("approve 2 calls for this agent? [y/N]", "y\n")];
    let args = ["approve", &runs[0], &runs[1], "--for", "agent", "--payload", "{\"a\":1}"];
    let (screen, code) = run_at_terminal(project.path(), &args, &[], &steps);
    let (card, question) = screen.split_once("  also allowed for this agent: vault_write").unwrap();
    assert_eq!(card.matches("│ folder: Tasks\n").count(), 2, "{screen}");
    assert!(question.contains("  each run gets this data: {\"a\":1}\n"), "{screen}");
    assert!(screen.contains("2 of 2 calls approved."), "{screen}");
    assert_eq!(code, Some(0), "{screen}");
    let filter = ["approve", "--agent", "tidy", "--tool", "vault_write", "--yes"];
    assert!(project.run(&filter, 0).err.contains("1 of 1 call approved."));
    assert_eq!(ids(&project.json(&["gates", "--json"])).len(), 1);
}

#[test]
fn open_approvals_are_stepped_through_at_a_terminal() {
    let project = Project::new();
    for _ in 0..3 {
        project.run_until_gate("tidy");
    }
    let prompt = "a approve · r reject · s skip · q quit:";
    let steps = [(prompt, "a\n"), (prompt, "s\n"), (prompt, "r\n")];
    let (screen, code) = run_at_terminal(project.path(), &["approve"], &[], &steps);
    assert!(screen.contains("3 of 3\n") && screen.contains("tidy: milk"), "{screen}");
    assert!(screen.contains("Approved: ") && screen.contains("Rejected: "), "{screen}");
    assert!(screen.contains("2 of 3 decided."), "{screen}");
    assert_eq!(code, Some(3), "{screen}");
    assert_eq!(ids(&project.json(&["gates", "--json"])).len(), 1);
}

#[test]
fn an_ended_run_is_deleted_with_its_cassette() {
    let project = Project::new();
    let kept = project.run(&["run", "plain", "kept", "--json"], 0).json();
    let run = project.run(&["run", "plain", "secret", "--json"], 0).json();
    let id = run["id"].as_str().unwrap();
    project.run(&["export", id, "--cassette"], 0);
    let cassette = project.path().join(format!(".longhaul/cassettes/{id}.jsonl"));
    assert!(cassette.exists());
    let output = project.run(&["rm", id], 2);
    assert!(output.err.contains("add --yes"), "{output:?}");
    let steps = [("delete it for ever? [y/N]", "n\n")];
    let (screen, code) = run_at_terminal(project.path(), &["rm", id], &[], &steps);
    assert!(screen.contains("is kept.") && code == Some(0), "{screen}");
    let output = project.run(&["rm", id, "--yes"], 0);
    assert_eq!(output.out, format!("Deleted: {id} (1 run, 1 cassette).\n"));
    assert!(!cassette.exists());
    let output = project.run(&["show", id], 2);
    assert!(output.err.contains("there is no run"), "{output:?}");
    assert_eq!(ids(&project.json(&["ls", "--json"])), [kept["id"].as_str().unwrap()]);
    let waiting = project.run_until_gate("tidy");
    let output = project.run(&["rm", &waiting, "--yes"], 2);
    assert!(output.err.contains(&format!("longhaul cancel {waiting}")), "{output:?}");
    project.run(&["db", "check"], 0);
}

#[test]
fn the_cost_is_summed_up_by_day_agent_and_model() {
    let project = Project::new();
    let output = project.run(&["spend"], 0);
    assert!(output.err.contains("No model was called in this time"), "{output:?}");
    project.run(&["run", "plain", "x"], 0);
    let waiting = project.run_until_gate("tidy");
    project.wait_until(&waiting, has_status("waiting"));
    let usage = project.json(&["spend", "--json"])["usage"].clone();
    let agents: Vec<&str> =
        usage.as_array().unwrap().iter().map(|sum| sum["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["plain", "tidy"], "open runs count, too");
    assert_eq!(usage[1]["calls"], 1);
    let output = project.run(&["spend"], 0);
    let titles: Vec<&str> = output.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(titles, ["DAY", "AGENT", "MODEL", "CALLS", "INPUT", "OUTPUT", "COST"]);
    assert!(output.out.contains("scripted/tidy"), "{output:?}");
    assert!(output.err.contains("Total: $") && output.err.contains("2 model calls"), "{output:?}");
}
