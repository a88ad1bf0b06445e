//! Graded results on the command line: `run` drives the grading runs, and `show`, `why` and `agents`
//! show the rubric and the verdicts.

use super::project::Project;

/// Creates a project whose agent says `A`, then `B`, and whose grader accepts results with this text.
fn graded_project(accepted: &str) -> Project {
    let project = Project::new();
    let outcome = "outcome: { rubric: ./rubric.md, grader: scripted/grader, max_rounds: 2 }";
    project.write(
        "agents/writer.md",
        &format!("---\nmodel: scripted/writer\n{outcome}\n---\nWrite.\n"),
    );
    project.write("rubric.md", "The result is B.\n");
    project.write("scripts/writer.yaml", "replies:\n  - text: A\n  - text: B\n");
    let condition = format!("{{{{ \"true\" if \"{accepted}\" in input.result else \"false\" }}}}");
    let verdict = format!("{{\"satisfied\": {condition}, \"note\": \"Is it {accepted}?\"}}");
    project.write("scripts/grader.yaml", &format!("replies:\n  - text: '{verdict}'\n"));
    project
}

#[test]
fn a_run_is_graded_until_its_result_is_accepted() {
    let project = graded_project("B");
    let output = project.run(&["run", "writer", "go", "--no-input"], 0);
    assert_eq!(output.out.trim(), "B");
    assert!(output.err.contains("round 1: not satisfied: Is it B?"), "{}", output.err);
    assert!(output.err.contains("round 2: satisfied: Is it B?"), "{}", output.err);
    let run_view = project.run(&["show", "@last", "--json"], 0).json();
    assert_eq!(run_view["agent"], "writer", "the newest run that is no child");
    let root = run_view["id"].as_str().unwrap().to_owned();
    let page = project.run(&["show", &root], 0).out;
    assert!(page.contains("outcome   round 1: not satisfied: Is it B?"), "{page}");
    assert!(page.contains("outcome   round 2: satisfied: Is it B?"), "{page}");
    let json = project.json(&["show", &root, "--json"]);
    let verdicts: Vec<&str> = json["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["not_satisfied", "satisfied"]);
    let tree = project.run(&["show", &root, "--tree"], 0).out;
    assert_eq!(tree.lines().filter(|line| line.contains("outcome:grader")).count(), 2, "{tree}");
    let transcript = project.run(&["show", &root, "--transcript"], 0).out;
    assert!(transcript.contains("Note of the grader"), "{transcript}");
    let kinds: Vec<String> = project
        .events(&root)
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .filter(|kind| kind.starts_with("outcome.") || kind.starts_with("child."))
        .collect();
    let round = ["child.started", "child.ended", "outcome.graded"];
    assert_eq!(kinds, [round, round].concat());
}

#[test]
fn a_result_that_is_never_accepted_is_kept() {
    let project = graded_project("C");
    let run_view = project.run(&["run", "writer", "go", "--no-input", "--json"], 1).json();
    assert_eq!(run_view["error"]["code"], "outcome_not_met");
    assert_eq!(run_view["error"]["partial_text"], "B");
    let id = run_view["id"].as_str().unwrap();
    let why = project.run(&["why", id], 0).out;
    assert!(
        why.contains("did not meet the rubric in round 2 of 2") && why.contains("retry"),
        "{why}"
    );
}

#[test]
fn the_rubric_is_checked_and_shown() {
    let project = graded_project("B");
    let output = project.run(&["agents", "show", "writer"], 0).out;
    let line = "rubric: \"The result is B.\", grader: scripted/grader, max_rounds: 2";
    assert!(output.contains(line), "{output}");
    let unknown = "outcome: { rubric: Good, grader: nobody/x }";
    let agent = format!("---\nmodel: scripted/writer\n{unknown}\n---\nWrite.\n");
    project.write("agents/writer.md", &agent);
    let output = project.run(&["agents", "check"], 2).out;
    let expected =
        "agents/writer.md:3:34: the model `nobody/x` can't be used: There is no provider";
    assert!(output.contains(expected), "{output}");
}
