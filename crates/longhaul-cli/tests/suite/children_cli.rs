//! Child runs on the command line: `run` and `watch` drive and follow the whole tree, a question of a
//! child is answered at the child, and `show --tree`, `ls` and `why` show the tree.

use super::project::Project;

/// Creates a project with an agent that starts two child runs, each of which asks a question.
fn project_with_children() -> Project {
    let project = Project::new();
    let agent =
        |model: &str, front: &str| format!("---\nmodel: scripted/{model}\n{front}\n---\nWork.\n");
    let lead_front = "tools: [run_agent]\nchildren: { agents: [asker, plain] }";
    project.write("agents/lead.md", &agent("lead", lead_front));
    project.write("agents/asker.md", &agent("asker", "tools: [ask_human]"));
    let start_call =
        |agent: &str| format!("{{ name: run_agent, input: {{ agent: {agent}, input: x }} }}");
    let (asker, unknown) = (start_call("asker"), start_call("nobody"));
    project.write(
        "scripts/lead.yaml",
        &format!("replies:\n  - tools: [{asker}, {asker}, {unknown}]\n  - text: \"All: {{{{ last_result }}}}\"\n"),
    );
    project.write(
        "scripts/asker.yaml",
        "replies:\n  - tools: [{ name: ask_human, input: { question: \"Which?\" } }]\n  - text: \"Thanks.\"\n",
    );
    project
}

#[test]
fn a_tree_is_driven_shown_and_answered() {
    let project = project_with_children();
    let output = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
    let root = output.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(output.json()["reason"], "child");
    let list = project.json(&["ls", "--parent", &root, "--json"]);
    let children: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(children.len(), 2);
    assert_eq!(
        project.json(&["ls", "--root", &root, "--json"])["data"].as_array().unwrap().len(),
        3
    );
    let child_tree = project.json(&["ls", "--root", children[0], "--json"]);
    assert_eq!(child_tree["data"].as_array().unwrap().len(), 3, "the tree of the child");
    let why = project.run(&["why", &root], 0);
    assert!(why.out.contains("and 1 more child run to end"), "{why:?}");
    assert!(why.out.contains("waits for an answer: Which?"), "{why:?}");
    let tree = project.run(&["show", &root, "--tree"], 0).out;
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines.len(), 3, "{tree}");
    assert!(lines[0].contains(&root) && lines[0].contains("lead"), "{tree}");
    assert!(lines[1].starts_with("├─ ▲ waiting: you") && lines[2].starts_with("└─ "), "{tree}");
    let json = project.json(&["show", &root, "--tree", "--json"]);
    assert_eq!(json["children"].as_array().unwrap().len(), 2);
    let output = project.run(&["answer", &root, "B"], 2);
    assert!(output.err.contains(&format!("{root} has 2 open gates")), "{output:?}");
    project.run(&["answer", children[0], "B"], 0);
    project.run(&["answer", "@last", "B"], 0);
    let output = project.run(&["watch", &root, "--no-input"], 0);
    assert!(output.out.starts_with("All: "), "{output:?}");
    let short_id = &children[0][children[0].len() - 6..];
    assert!(output.err.lines().any(|line| line.starts_with(short_id)), "{output:?}");
    let transcript = project.run(&["show", &root, "--transcript"], 0).out;
    assert!(transcript.contains("may not start `nobody`"), "{transcript}");
    let events = project.events(&root);
    let ended_count = events.iter().filter(|event| event["type"] == "child.ended").count();
    assert_eq!(ended_count, 2);
}

#[test]
fn a_run_stops_at_the_gate_of_a_child_when_another_child_has_ended() {
    let project = project_with_children();
    let agent = "---\nmodel: scripted/quick\n---\nWork.\n";
    project.write("agents/plain.md", agent);
    project.write("scripts/quick.yaml", "replies:\n  - text: \"Done.\"\n");
    let start_call =
        |agent: &str| format!("{{ name: run_agent, input: {{ agent: {agent}, input: x }} }}");
    let calls = [start_call("asker"), start_call("plain"), start_call("plain")].join(", ");
    project
        .write("scripts/lead.yaml", &format!("replies:\n  - tools: [{calls}]\n  - text: Read.\n"));
    for _ in 0..5 {
        let output = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
        assert_eq!(output.json()["reason"], "child");
        let root = output.json()["id"].as_str().unwrap().to_owned();
        let is_child_end = |event: &&serde_json::Value| event["type"] == "child.ended";
        assert_eq!(project.events(&root).iter().filter(is_child_end).count(), 2);
    }
}

#[test]
fn a_run_goes_on_beside_the_gate_of_a_child_while_a_wait_ends_by_itself() {
    let project = project_with_children();
    let wait = "{ name: wait, input: { for: 1s } }";
    let start_call = |agent: &str| {
        format!("{{ name: run_agent, input: {{ agent: {agent}, input: x, background: true }} }}")
    };
    let agent = |front: &str| format!("---\nmodel: scripted/{front}\n---\nWork.\n");
    let lead_front = "lead\ntools: [run_agent, wait]\nchildren: { agents: [asker, plain] }";
    project.write("agents/lead.md", &agent(lead_front));
    project.write("agents/plain.md", &agent("plain\ntools: [wait]"));
    project.write("scripts/plain.yaml", &format!("replies:\n  - tools: [{wait}]\n  - text: ok\n"));
    let asker = start_call("asker");
    project.write(
        "scripts/lead.yaml",
        &format!("replies:\n  - tools: [{asker}]\n  - tools: [{wait}]\n  - text: end\n"),
    );
    // The run ends only after its child, which needs a person.
    let stopped = project.run(&["run", "lead", "go", "--no-input"], 3);
    assert!(stopped.err.contains("wait: the wait is over"), "{stopped:?}");
    assert!(!stopped.err.contains("--no-input would exit"), "{stopped:?}");
    let calls = [asker, start_call("plain")].join(", ").replace(", background: true", "");
    project.write("scripts/lead.yaml", &format!("replies:\n  - tools: [{calls}]\n  - text: end\n"));
    let stopped = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
    let events = project.events(stopped.json()["id"].as_str().unwrap());
    assert_eq!(events.iter().filter(|event| event["type"] == "child.ended").count(), 1);
}

#[test]
fn agents_show_and_check_know_child_runs() {
    let project = project_with_children();
    let output = project.run(&["agents", "show", "lead"], 0).out;
    assert!(
        output.contains("run_agent (with child_status, steer_child, cancel_child)"),
        "{output}"
    );
    let other_agent = "---\nmodel: scripted/lead\ntools: [run_agent]\nchildren: { agents: [asker, gone] }\n---\n.\n";
    project.write("agents/other.md", other_agent);
    let output = project.run(&["agents", "check", "other"], 0);
    let text = format!("{}{}", output.out, output.err);
    assert!(
        text.contains("`children` names the agent `gone`, which the project does not have"),
        "{text}"
    );
    assert!(!text.contains("names the agent `asker`"), "{text}");
}

#[test]
fn a_cancel_of_the_root_ends_the_tree() {
    let project = project_with_children();
    let output = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
    let root = output.json()["id"].as_str().unwrap().to_owned();
    let output = project.run(&["cancel", &root], 0);
    assert!(output.out.contains("the 2 open child runs of this run next"), "{output:?}");
    let _worker = project.start_worker();
    let list = project.json(&["ls", "--parent", &root, "--json"]);
    for child in list["data"].as_array().unwrap() {
        let id = child["id"].as_str().unwrap();
        project.wait_until(id, super::project::has_status("cancelled"));
    }
}
