//! What is amiss around an agent is told early, in words for people, with a command
//! that fits.

use super::project::Project;

/// A project with one agent more.
fn with(front: &str, body: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\nmodel: scripted/talk\n{front}\n---\n{body}\n");
    project.write("agents/odd.md", &agent);
    project
}

#[test]
fn a_run_whose_prompt_can_not_be_made_is_to_be_cancelled() {
    let project = with("tools: []", "Tidy {{ input.room.name }}.");
    let said = project.say(&["run", "odd", "{}", "--no-input"], 3);
    assert!(said.err.contains("cancel this run"), "{}", said.err);
    assert!(!said.err.contains("longhaul answer"), "{}", said.err);
    let why = project.say(&["why", "@last"], 0);
    let why = format!("{}{}", why.out, why.err);
    assert!(why.contains("longhaul cancel run_"), "{why}");
    let gates = project.say(&["gates", "show", "@last"], 0).out;
    assert!(
        gates.contains("no answer helps: longhaul cancel run_"),
        "{gates}"
    );
}
