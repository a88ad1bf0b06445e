//! Tests of `longhaul fork` and `longhaul diff`.

use serde_json::{Value, json};

use super::project::Project;

/// Executes an agent with two turns. Returns its run and the event with which the second turn
/// starts.
fn completed_run(project: &Project) -> (String, u64) {
    let run = project.json(&["run", "chat", "Tidy up.", "--json"]);
    let run = run["id"].as_str().unwrap().to_owned();
    let events = project.run(&["show", &run, "--events", "--json"], 0).out;
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut starts = events.filter(|event| event["type"] == "turn.started");
    (run, starts.nth(1).unwrap()["seq"].as_u64().unwrap())
}

#[test]
fn a_fork_goes_on_from_a_turn_and_is_compared_with_its_origin() {
    let project = Project::new();
    let (origin, second) = completed_run(&project);
    project.write("words.txt", "Tidy up twice.");
    let before = second.to_string();
    let fork = ["fork", &origin, "--before", &before, "--edit", "@words.txt", "--note", "why not"];
    let fork = project.json(&[&fork[..], &["--json"]].concat());
    let from = json!({ "run": origin, "through": second - 1, "note": "why not" });
    assert_eq!(fork["forked_from"], from);
    let fork = fork["id"].as_str().unwrap();
    project.run(&["watch", fork], 0);
    let page = project.run(&["show", fork], 0).out;
    assert!(page.contains(&format!("fork of   {origin} up to its event {}: why not", second - 1)));
    let transcript = project.run(&["show", fork, "--transcript"], 0).out;
    assert!(transcript.contains("Tidy up twice."), "{transcript}");
    let diff = project.run(&["diff", &origin, fork], 0).out;
    assert!(diff.contains(&format!("The events up to {} are the same.", second - 1)), "{diff}");
    assert!(diff.contains("First difference: turn 2\n"), "{diff}");
    assert!(diff.contains("  B  reads the edited message: Tidy up twice.\n"), "{diff}");
    assert!(diff.contains("   1 = vault_list {}\n"), "{diff}");
    assert!(diff.lines().all(|line| line.chars().count() <= 80), "{diff}");
    let data = project.json(&["diff", &origin, fork, "--json"]);
    assert_eq!((&data["a"]["turns"], &data["b"]["turns"]), (&json!(2), &json!(2)));
    assert_eq!(data["turns"][0]["same"], json!(true));
}

#[test]
fn an_event_before_the_first_turn_starts_again_and_an_unknown_one_is_refused() {
    let project = Project::new();
    let (origin, _) = completed_run(&project);
    let again = project.run(&["fork", &origin, "--before", "1"], 0).out;
    assert!(again.contains(&format!("starts {origin} again")), "{again}");
    assert!(again.contains("To drive it: longhaul watch run_"), "{again}");
    let goes_on = project.run(&["fork", &origin, "--before", "4"], 0).out;
    assert!(goes_on.contains("Nothing before it is repeated or paid again."), "{goes_on}");
    let unknown = project.run(&["fork", &origin, "--before", "999"], 2).err;
    assert!(unknown.contains("the run has no event 999"), "{unknown}");
    let result = ["fork", &origin, "--before", "4", "--result", "first", "x"];
    assert!(project.run(&result, 2).err.contains("such as t1.1"));
}
