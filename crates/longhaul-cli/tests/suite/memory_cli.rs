//! `remember`, `recall` and `longhaul memory` with the real binary, with and without a running
//! worker.

use super::project::Project;
use super::server_harness::TestServer;

/// A project with an agent that writes a note, and one that searches for it.
fn project() -> Project {
    let project = Project::new();
    let agent = |name: &str, tool: &str| {
        format!(
            "---\ndescription: A test.\nmodel: scripted/{name}\ntools: [{tool}]\n---\n\
             You.{{% for said in memory %}} {{{{ said.role }}}}: {{{{ said.text }}}}{{% endfor %}}\n"
        )
    };
    project.write("agents/noter.md", &agent("noter", "remember"));
    project.write(
        "scripts/noter.yaml",
        "replies:\n\
         - tools: [{ name: remember, input: { text: 'Likes {{ input }}', tags: [taste] } }]\n\
         - text: 'Kept: {{ last_result }}'\n",
    );
    project.write("agents/finder.md", &agent("finder", "recall"));
    project.write(
        "scripts/finder.yaml",
        "replies:\n\
         - tools: [{ name: recall, input: { query: '{{ input }}' } }]\n\
         - text: 'Found: {{ last_result }}'\n",
    );
    project
}

fn run_output(project: &Project, args: &[&str]) -> String {
    let run = project.json(&[&["run"], args, &["--json"]].concat());
    run["output"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_note_of_one_run_is_found_by_the_next_and_deleted_by_the_user() {
    let project = project();
    let saved_text = run_output(&project, &["noter", "green tea", "--resource", "ada"]);
    assert!(saved_text.starts_with("Kept: The note was saved as note_"), "{saved_text}");
    run_output(&project, &["noter", "black coffee", "--resource", "ada"]);
    let recalled_text = run_output(&project, &["finder", "tea?", "--resource", "ada"]);
    assert!(recalled_text.contains("Notes about ada, the best match first:"));
    assert!(recalled_text.contains("[taste]") && recalled_text.contains("Likes green tea"));
    assert!(!recalled_text.contains("coffee"), "{recalled_text}");
    let other_text = run_output(&project, &["finder", "tea", "--resource", "bob"]);
    assert!(other_text.contains("No note about bob"), "{other_text}");
    let without_resource = run_output(&project, &["finder", "tea"]);
    assert!(without_resource.contains("--resource NAME or --thread NAME"));

    let notes = project.json(&["memory", "notes", "ada", "--json"]);
    let texts: Vec<&str> = notes["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| note["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["Likes black coffee", "Likes green tea"]);
    let note = &notes["data"][1];
    assert_eq!(note["tags"], serde_json::json!(["taste"]));
    assert!(note["run"].as_str().unwrap().starts_with("run_"));
    let id = note["id"].as_str().unwrap();

    let output = project.run(&["memory", "notes", "ada", "TEA", "sugar"], 0);
    assert!(output.out.contains(id) && output.out.contains("Likes green tea"));
    assert!(!output.out.contains("coffee"), "{output:?}");
    let output = project.run(&["memory", "forget", id], 0);
    assert_eq!(output.out, "Deleted 1 note.\n");
    let output = project.run(&["memory", "forget", id], 2);
    assert!(output.err.contains("there is no note note_"), "{output:?}");
    let output = project.run(&["memory", "notes", "ada", "tea"], 0);
    assert!(output.err.contains("No note about `ada`"), "{output:?}");

    // Notes can be deleted while a worker drives.
    let _worker = project.start_worker();
    let output = project.run(&["memory", "forget", "--all", "ada"], 0);
    assert_eq!(output.out, "Deleted 1 note.\n");
    let output = project.run(&["memory", "notes", "ada"], 0);
    assert!(output.err.contains("There are no notes about `ada`."));
}

#[test]
fn a_thread_is_remembered_shown_and_cleared() {
    let project = project();
    run_output(&project, &["plain", "milk", "--thread", "shop"]);
    run_output(&project, &["plain", "bread", "--thread", "shop"]);
    let json = project.json(&["memory", "show", "shop", "--json"]);
    assert_eq!(json["count"], 4);
    assert_eq!(json["data"].as_array().unwrap().len(), 4);
    let output = project.run(&["memory", "show", "shop", "--limit", "2"], 0);
    assert!(output.out.starts_with("user:\n  bread\n"), "{output:?}");
    assert!(output.out.contains("\nassistant:\n  Done: "), "{output:?}");
    assert!(output.err.contains("The newest 2 of 4 messages."));
    // Earlier messages of the thread are part of the prompt.
    let run = project.json(&["run", "finder", "x", "--thread", "shop", "--json"]);
    let id = run["id"].as_str().unwrap();
    let page = project.run(&["show", id, "--transcript"], 0);
    assert!(page.out.contains("assistant: Done: milk"), "{page:?}");
    // Without a resource, notes belong to the thread.
    assert!(run["output"]["text"].as_str().unwrap().contains("about shop"));

    let _worker = project.start_worker();
    let output = project.run(&["memory", "clear", "shop"], 0);
    assert_eq!(output.out, "Deleted 6 messages of the thread `shop`.\n");
    let output = project.run(&["memory", "show", "shop"], 0);
    assert!(output.err.contains("The thread `shop` has no messages."));
}

#[test]
fn memory_commands_create_no_store() {
    let project = project();
    let output = project.run(&["memory", "show", "shop"], 0);
    assert!(output.err.contains("has no messages"), "{output:?}");
    let output = project.run(&["memory", "forget", "--all", "ada"], 0);
    assert_eq!(output.out, "Deleted 0 notes.\n");
    project.run(&["memory", "forget"], 2);
    project.run(&["memory", "forget", "note_x"], 2);
    project.run(&["memory", "show", "a\u{7}b"], 2);
    assert!(!project.store().exists());
    let mut command = project.command(&["memory", "notes", "ada"]);
    let output = command.env("LONGHAUL_URL", "http://127.0.0.1:1").output();
    let output = super::project::CommandOutput::from_output(&output.unwrap());
    assert_eq!(output.code, 2);
    assert!(output.err.contains("notes can only be read where their store is"));
}

#[test]
fn a_message_is_added_to_a_thread_with_and_without_a_server() {
    let project = project();
    let added = project.run(&["memory", "add", "shop", "I like milk."], 0);
    assert_eq!(added.out, "The thread `shop` has 1 message now.\n");
    let refused = project.run(&["memory", "add", "shop", " "], 2);
    assert!(refused.err.contains("a message of a thread must not be empty"), "{refused:?}");
    project.run(&["memory", "add", "shop", "x", "--role", "tool"], 2);
    let _server = TestServer::start(&project);
    let add = ["memory", "add", "shop", "Noted.", "--role", "assistant", "--json"];
    assert_eq!(project.json(&add)["count"], 2);
    let run = project.json(&["run", "finder", "x", "--thread", "shop", "--json"]);
    let id = run["id"].as_str().unwrap();
    let page = project.run(&["show", id, "--transcript"], 0);
    assert!(page.out.contains("user: I like milk. assistant: Noted."), "{page:?}");
    let shown = project.json(&["memory", "show", "shop", "--json"]);
    assert_eq!((&shown["count"], shown["data"].as_array().unwrap().len()), (&4.into(), 4));
    let output = project.run(&["memory", "clear", "shop"], 0);
    assert_eq!(output.out, "Deleted 4 messages of the thread `shop`.\n");
}
