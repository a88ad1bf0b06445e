//! Chains on the command line: files, checks, runs that follow all steps, single steps and exit
//! codes.

use super::project::Project;

/// Creates a project with a chain of a writer, a critic and a fixer.
fn project_with_chain() -> Project {
    let project = Project::new();
    for name in ["writer", "critic", "fixer"] {
        project.write(
            &format!("agents/{name}.md"),
            &format!("---\nmodel: scripted/{name}\n---\nWork.\n"),
        );
    }
    project.write("scripts/writer.yaml", "replies:\n  - text: \"A poem.\"\n");
    project.write("scripts/critic.yaml", "replies:\n  - text: '{\"issues_found\": true}'\n");
    project.write("scripts/fixer.yaml", "replies:\n  - text: \"A better poem.\"\n");
    project.write(
        "chains/poem.toml",
        r#"description = "Write, criticize, fix"
[[steps]]
agent = "writer"
[[steps]]
agent = "critic"
[[steps]]
agent = "fixer"
condition = "on_issues_found"
repeat = { from = "critic", until = "no_issues", max = 1 }
"#,
    );
    project
}

#[test]
fn a_chain_runs_to_its_end_and_is_shown() {
    let project = project_with_chain();
    let done = project.run(&["run", "--chain", "poem", "About", "rain"], 0);
    assert_eq!(done.out.trim(), "A better poem.");
    for step in ["critic  step 2 of 3", "fixer  step 3 of 3"] {
        assert_eq!(done.err.matches(step).count(), 2, "{done:?}");
    }
    let list = project.json(&["ls", "--all", "--json"]);
    let runs = list["data"].as_array().unwrap();
    let agents: Vec<&str> = runs.iter().rev().map(|run| run["agent"].as_str().unwrap()).collect();
    assert_eq!(agents.len(), 5, "{agents:?}");
    let root = runs.last().unwrap()["id"].as_str().unwrap();
    let view = project.json(&["show", root, "--json"]);
    assert_eq!(view["input"], "About rain");
    assert_eq!(view["chain"]["name"], "poem");
    assert_eq!((&view["chain"]["step"], &view["chain"]["of"]), (&1.into(), &3.into()));
    assert_eq!(view["chain"]["status"], "completed");
    let shown = project.run(&["show", root], 0).out;
    assert!(shown.contains("poem, step 1 of 3; completed, newest run run_"), "{shown}");
    let watched = project.run(&["watch", root, "--no-input"], 0);
    assert_eq!(watched.out.trim(), "A better poem.");
    let json = project.run(&["run", "--chain", "poem", "x", "--json"], 0).json();
    assert_eq!(
        (&json["agent"], &json["output"]["text"]),
        (&"fixer".into(), &"A better poem.".into())
    );
}

#[test]
fn one_step_runs_alone_and_a_failed_step_gives_the_exit_code() {
    let project = project_with_chain();
    let alone = project.run(&["run", "--chain", "poem", "--step", "critic", "x", "--json"], 0);
    assert_eq!(alone.json()["chain"]["of"], 1);
    assert_eq!(alone.json()["agent"], "critic");
    let error = project.run(&["run", "--chain", "peom", "x"], 2);
    assert!(error.err.contains("did you mean") || error.err.contains("poem"), "{error:?}");
    project.run(&["run", "--chain", "poem", "x", "--ephemeral"], 2);
    project.write(
        "scripts/critic.yaml",
        "replies:\n  - error: { status: 400, times: 9 }\n    text: x\n",
    );
    let failed = project.run(&["run", "--chain", "poem", "x", "--json"], 1);
    assert_eq!(failed.json()["chain"]["status"], "failed");
    assert_eq!(failed.json()["agent"], "critic");
}

#[test]
fn chains_are_listed_shown_and_checked() {
    let project = project_with_chain();
    let list = project.run(&["chains"], 0).out;
    for line in ["full-pipeline", "implement-and-review", "writer > critic > fixer"] {
        assert!(list.contains(line), "{list}");
    }
    let shown = project.run(&["chains", "show", "full-pipeline"], 0).out;
    assert!(shown.contains("4. bugfix · on_issues_found"), "{shown}");
    assert!(shown.contains("back to review until no_issues, at most 3 times"), "{shown}");
    project.run(&["chains", "check"], 0);
    project.write(
        "chains/bad.toml",
        r#"[[steps]]
agent = "wirter"
[[steps]]
agent = "critic"
condition = "sometimes"
[[steps]]
agent = "fixer"
repeat = { from = "later", max = 0 }
colour = "red"
"#,
    );
    project.write("chains/order.toml", "[[steps]]\nagent = \"writer\"\nrepeat = { from = \"critic\", max = 1 }\n[[steps]]\nagent = \"critic\"\n");
    project.write("chains/long.toml", &"[[steps]]\nagent = \"writer\"\n".repeat(11));
    project.write("chains/broken.toml", "steps = \n");
    let checked = project.run(&["chains", "check"], 2);
    for problem in [
        "chains/bad.toml:2:9: unknown agent `wirter`, did you mean `writer`?",
        "chains/bad.toml:5:13: unknown value for `condition`:",
        "chains/bad.toml:8:34: `max` is 0: write a whole number, 1 or more",
        "chains/bad.toml:9:1: unknown key `colour`",
        "chains/order.toml:3:19: `from` names the step `critic`, which comes after this step",
        "a chain has 1 to 10 steps, and this one has 11",
        "chains/broken.toml:1:",
    ] {
        assert!(checked.out.contains(problem), "{problem}\n{}", checked.out);
    }
    let error = project.run(&["run", "--chain", "order", "x"], 2);
    assert!(error.err.contains("chains/order.toml:3:19"), "{error:?}");
}

#[test]
fn the_built_in_pipeline_waits_for_the_plan_and_works_in_the_folder() {
    let project = Project::new();
    let args = ["--model", "scripted/plan"];
    let alone = ["run", "--chain", "full-pipeline", "--step", "plan", "Say hello", "--no-input"];
    let stopped = project.run(&[&alone[..], &args[..]].concat(), 3);
    assert!(stopped.err.contains("longhaul approve"), "{stopped:?}");
}
