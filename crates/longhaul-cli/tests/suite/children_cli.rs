//! Child runs on the command line: `run` and `watch` drive and follow the whole tree, a question of a
//! child is answered at the child, and `show --tree`, `ls` and `why` show the tree.

use super::project::Project;

/// Creates a project with an agent that starts two child runs, each of which asks a question.
fn project_with_children() -> Project {
    let project = Project::new();
    let agent =
        |model: &str, more: &str| format!("---\nmodel: scripted/{model}\n{more}\n---\nWork.\n");
    let lead = "tools: [run_agent]\nchildren: { agents: [asker, plain] }";
    project.write("agents/lead.md", &agent("lead", lead));
    project.write("agents/asker.md", &agent("asker", "tools: [ask_human]"));
    let start =
        |agent: &str| format!("{{ name: run_agent, input: {{ agent: {agent}, input: x }} }}");
    let (asker, other) = (start("asker"), start("nobody"));
    project.write(
        "scripts/lead.yaml",
        &format!("replies:\n  - tools: [{asker}, {asker}, {other}]\n  - text: \"All: {{{{ last_result }}}}\"\n"),
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
    let stopped = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
    let root = stopped.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(stopped.json()["reason"], "child");
    let list = project.json(&["ls", "--parent", &root, "--json"]);
    let children: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(children.len(), 2);
    assert_eq!(
        project.json(&["ls", "--root", &root, "--json"])["data"].as_array().unwrap().len(),
        3
    );
    let why = project.run(&["why", &root], 0);
    assert!(why.out.contains("and 1 more child runs to end"), "{why:?}");
    assert!(why.out.contains("waits for an answer: Which?"), "{why:?}");
    let tree = project.run(&["show", &root, "--tree"], 0).out;
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines.len(), 3, "{tree}");
    assert!(lines[0].contains(&root) && lines[0].contains("lead"), "{tree}");
    assert!(lines[1].starts_with("├─ ▲ waiting: you") && lines[2].starts_with("└─ "), "{tree}");
    let json = project.json(&["show", &root, "--tree", "--json"]);
    assert_eq!(json["children"].as_array().unwrap().len(), 2);
    for child in &children {
        project.run(&["answer", child, "B"], 0);
    }
    let watched = project.run(&["watch", &root, "--no-input"], 0);
    assert!(watched.out.starts_with("All: "), "{watched:?}");
    let short = &children[0][children[0].len() - 6..];
    assert!(watched.err.lines().any(|line| line.starts_with(short)), "{watched:?}");
    let transcript = project.run(&["show", &root, "--transcript"], 0).out;
    assert!(transcript.contains("may not start `nobody`"), "{transcript}");
    let events = project.events(&root);
    let ended = events.iter().filter(|event| event["type"] == "child.ended").count();
    assert_eq!(ended, 2);
}

#[test]
fn a_cancel_of_the_root_ends_the_tree() {
    let project = project_with_children();
    let stopped = project.run(&["run", "lead", "go", "--no-input", "--json"], 3);
    let root = stopped.json()["id"].as_str().unwrap().to_owned();
    project.run(&["cancel", &root], 0);
    let _worker = project.start_worker();
    let list = project.json(&["ls", "--parent", &root, "--json"]);
    for child in list["data"].as_array().unwrap() {
        let id = child["id"].as_str().unwrap();
        project.wait_until(id, super::project::has_status("cancelled"));
    }
}
