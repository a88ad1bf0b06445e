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
    let output = project.run(&["run", "--chain", "poem", "About", "rain"], 0);
    assert_eq!(output.out.trim(), "A better poem.");
    for step in ["critic  step 2 of 3", "fixer  step 3 of 3"] {
        assert_eq!(output.err.matches(step).count(), 2, "{output:?}");
    }
    let list = project.json(&["ls", "--all", "--all-runs", "--json"]);
    let runs = list["data"].as_array().unwrap();
    let agents: Vec<&str> = runs.iter().rev().map(|run| run["agent"].as_str().unwrap()).collect();
    assert_eq!(agents.len(), 5, "{agents:?}");
    let root = runs.last().unwrap()["id"].as_str().unwrap();
    let view = project.json(&["show", root, "--json"]);
    assert_eq!(view["input"], "About rain");
    assert_eq!(view["chain"]["name"], "poem");
    assert_eq!((&view["chain"]["step"], &view["chain"]["of"]), (&1.into(), &3.into()));
    assert_eq!(view["chain"]["status"], "completed");
    let output = project.run(&["show", root], 0).out;
    assert!(output.contains("poem, step 1 of 3; completed, newest run run_"), "{output}");
    let output = project.run(&["watch", root, "--no-input"], 0);
    assert_eq!(output.out.trim(), "A better poem.");
    let json = project.run(&["run", "--chain", "poem", "x", "--json"], 0).json();
    assert_eq!(
        (&json["agent"], &json["output"]["text"]),
        (&"fixer".into(), &"A better poem.".into())
    );
}

#[test]
fn a_chain_that_goes_on_does_not_end_the_command_with_success() {
    let project = project_with_chain();
    project.write("agents/writer.md", "---\nmodel: scripted/writer\nkeep_open: 1h\n---\nWork.\n");
    let_critic_ask(&project);
    let args = ["run", "--chain", "poem", "x", "--json", "--wait", "--timeout", "2s"];
    let output = project.run(&args, 124);
    assert_eq!(output.json()["agent"], "critic");
}

#[test]
fn one_step_runs_alone_and_a_failed_step_gives_the_exit_code() {
    let project = project_with_chain();
    let single_step =
        project.run(&["run", "--chain", "poem", "--step", "critic", "x", "--json"], 0);
    assert_eq!(single_step.json()["chain"]["of"], 1);
    assert_eq!(single_step.json()["agent"], "critic");
    let error = project.run(&["run", "--chain", "peom", "x"], 2);
    assert!(error.err.contains("did you mean") || error.err.contains("poem"), "{error:?}");
    project.run(&["run", "--chain", "poem", "x", "--ephemeral"], 2);
    project.write(
        "scripts/critic.yaml",
        "replies:\n  - error: { status: 400, times: 9 }\n    text: x\n",
    );
    let output = project.run(&["run", "--chain", "poem", "x", "--json"], 1);
    assert_eq!(output.json()["chain"]["status"], "failed");
    assert_eq!(output.json()["agent"], "critic");
}

#[test]
fn chains_are_listed_shown_and_checked() {
    let project = project_with_chain();
    let list = project.run(&["chains"], 0).out;
    for line in ["full-pipeline", "implement-and-review", "writer > critic > fixer"] {
        assert!(list.contains(line), "{list}");
    }
    let output = project.run(&["chains", "show", "full-pipeline"], 0).out;
    assert!(output.contains("4. bugfix · on_issues_found"), "{output}");
    assert!(
        output.contains("back to the step review until no_issues, at most 3 times"),
        "{output}"
    );
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
    let duplicate_names =
        "[[steps]]\nagent = \"writer\"\n[[steps]]\nagent = \"critic\"\nname = \"writer\"\n";
    project.write("chains/same.toml", duplicate_names);
    project.write("chains/long.toml", &"[[steps]]\nagent = \"writer\"\n".repeat(11));
    project.write("chains/broken.toml", "steps = \n");
    let output = project.run(&["chains", "check"], 2);
    for problem in [
        "chains/bad.toml:2:9: unknown agent `wirter`, did you mean `writer`?",
        "chains/bad.toml:5:13: unknown value for `condition`:",
        "chains/bad.toml:8:34: `max` is 0: write a whole number, 1 or more",
        "chains/bad.toml:9:1: unknown key `colour`",
        "chains/order.toml:3:19: `from` names the step `critic`, which comes after this step",
        "a chain has 1 to 10 steps, and this one has 11",
        "chains/same.toml:5:8: steps 1 and 2 both have the name `writer`",
        "chains/broken.toml:1:",
    ] {
        assert!(output.out.contains(problem), "{problem}\n{}", output.out);
    }
    for args in [&["run", "--chain", "order", "x"][..], &["chains", "show", "order"]] {
        let error = project.run(args, 2);
        assert!(error.err.contains("chains/order.toml:3:19"), "{error:?}");
    }
    let error = project.run(&["chains", "show", "broken"], 2);
    assert!(error.err.contains("chains/broken.toml:1:"), "{error:?}");
}

#[test]
fn an_agent_beside_a_chain_is_refused() {
    let project = project_with_chain();
    let error = project.run(&["run", "writer", "--chain", "poem", "About", "rain"], 2);
    assert!(error.err.contains("`writer` is an agent"), "{error:?}");
    let quoted_args = ["run", "--chain", "poem", "--step", "writer", "writer of rain", "--json"];
    assert_eq!(project.run(&quoted_args, 0).json()["input"], "writer of rain");
}

#[test]
fn schedules_name_their_chain() {
    let project = project_with_chain();
    let error = project.run(&["schedules", "add", "s", "--every", "1h", "--input", "x"], 2);
    assert!(error.err.contains("--agent") && error.err.contains("--chain"), "{error:?}");
    let chain = ["--chain", "poem", "--every", "1h", "--input", "x"];
    project.run(&[&["schedules", "add", "s"][..], &chain].concat(), 0);
    let list = project.run(&["schedules"], 0).out;
    assert!(list.contains("chain poem"), "{list}");
}

/// Lets the agent of the second step ask a person a question.
fn let_critic_ask(project: &Project) {
    let question = "  - tools: [{ name: ask_human, input: { question: \"Which?\" } }]\n";
    project.write("scripts/critic.yaml", &format!("replies:\n{question}  - text: \"Fine.\"\n"));
    project.write("agents/critic.md", "---\nmodel: scripted/critic\ntools: [ask_human]\n---\nX.\n");
}

/// Lets the second step of the chain wait at a question, and returns the first and the second run.
fn chain_at_question(project: &Project) -> [String; 2] {
    let_critic_ask(project);
    let run_json = project.run(&["run", "--chain", "poem", "x", "--json", "--no-input"], 3).json();
    let id = |field: &str| run_json[field].as_str().unwrap().to_owned();
    [id("root"), id("id")]
}

#[test]
fn commands_for_the_first_run_name_the_run_that_they_change() {
    let project = project_with_chain();
    let [first, second] = chain_at_question(&project);
    let prefix = format!("{first} has ended; its chain is at step 2 of 3, {second}. ");
    for (args, expected) in
        [(&["pause"][..], "is paused"), (&["resume"], "is resumed"), (&["cancel"], "is cancelled")]
    {
        let out = project.run(&[args, &[first.as_str()]].concat(), 0).out;
        assert!(out.starts_with(&format!("{prefix}{second} {expected}")), "{out}");
    }
    let [first, second] = chain_at_question(&project);
    let sent = project.run(&["steer", &first, "--delivery", "follow_up", "hurry"], 0).out;
    assert!(sent.contains(&format!("Queued for {second}")), "{sent}");
    let id = sent.lines().last().and_then(|line| line.split_whitespace().next()).unwrap();
    project.run(&["steer", &first, "--edit", id, "no hurry"], 0);
    let status = project.run(&["steer", &first, "--status"], 0).out;
    assert!(status.contains("no hurry"), "{status}");
    let output = project.run(&["steer", &first, "--withdraw", id], 0).out;
    assert!(output.contains("withdrawn"), "{output}");
}

#[test]
fn a_retried_chain_is_followed_from_its_first_run() {
    let project = project_with_chain();
    let failing_script = "replies:\n  - error: { status: 400, times: 9 }\n    text: x\n";
    project.write("scripts/critic.yaml", failing_script);
    let failed_run = project.run(&["run", "--chain", "poem", "x", "--json"], 1).json();
    let (first, failed_run) =
        (failed_run["root"].as_str().unwrap(), failed_run["id"].as_str().unwrap());
    project.write("scripts/critic.yaml", "replies:\n  - text: \"Good.\"\n");
    let output = project.run(&["retry", first], 0).out;
    let prefix = format!("{first} has ended; its chain is at step 2 of 3, {failed_run}. ");
    let rest = output.strip_prefix(&prefix).unwrap_or_else(|| panic!("{output}"));
    let (retry_id, rest) = rest.split_once(' ').unwrap();
    assert!(rest.starts_with(&format!("retries {failed_run}.")), "{output}");
    let output = project.run(&["show", first], 0).out;
    assert!(output.contains(&format!("running, newest run {retry_id}")), "{output}");
    let output = project.run(&["watch", first, "--no-input"], 0);
    assert_eq!(output.out.trim(), "Good.");
    assert!(output.err.contains(&format!("its chain was retried as {retry_id}")), "{output:?}");
}

#[test]
fn a_batch_shows_the_current_steps_of_its_chains() {
    let project = project_with_chain();
    chain_at_question(&project);
    project.write("tasks.jsonl", r#"{"chain": "poem", "input": "x"}"#);
    let out = project.run(&["batch", "submit", "tasks.jsonl"], 0).out;
    let [batch, first] = out.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{out}") };
    project.run(&["watch", first, "--no-input"], 3);
    let output = project.run(&["batch", "show", batch], 0).out;
    let row = output.lines().find(|line| line.contains(first)).unwrap();
    assert!(row.contains("critic 2/3") && row.contains("waiting"), "{output}");
}

#[test]
fn the_built_in_pipeline_waits_for_the_plan_and_works_in_the_folder() {
    let project = Project::new();
    let args = ["--model", "scripted/plan"];
    let step_args =
        ["run", "--chain", "full-pipeline", "--step", "plan", "Say hello", "--no-input"];
    let output = project.run(&[&step_args[..], &args[..]].concat(), 3);
    assert!(output.err.contains("longhaul approve"), "{output:?}");
}
