//! `approve --for` and `rules` on the command line.

use serde_json::json;

use super::project::Project;

#[test]
fn an_approval_for_the_agent_is_used_listed_and_revoked() {
    let project = Project::new();
    assert!(project.run(&["rules"], 0).err.contains("--for agent"));
    let run = project.run_until_gate("tidy");
    let card = project.run(&["gates", "show", &run], 0).out;
    let expected =
        "--for run · --for agent · --for project would also approve: vault_write (every call)";
    assert!(card.contains(expected), "{card}");
    project.run(&["approve", &run, "--yes", "--for", "everywhere"], 2);
    let edit = json!({
        "folder": "Tasks", "title": "Buy tea", "content": "a", "tags": [], "confidence": 90,
    });
    let args = ["approve", &run, "--yes", "--for", "agent", "--edit", &edit.to_string()];
    let output = project.run(&args, 2);
    assert!(output.err.contains("offered: once"), "{output:?}");
    let output = project.run(&["approve", &run, "--yes", "--scope", "agent"], 0);
    assert!(output.out.starts_with("Approved for this agent: vault_write"), "{output:?}");
    project.run(&["watch", &run], 0);
    let output = project.run(&["run", "tidy", "bread", "--no-input"], 0);
    let rules = project.json(&["rules", "--json"]);
    let rule = &rules["data"][0];
    let (id, by) = (rule["id"].as_str().unwrap(), rule["by"].as_str().unwrap());
    let expected_note = format!("allowed by the remembered approval {id} ({by}, for this agent)");
    assert!(
        output.err.contains(&expected_note) || output.out.contains(&expected_note),
        "{output:?}"
    );
    assert_eq!((&rule["agent"], &rule["used"]), (&json!("tidy"), &json!(1)));
    let table = project.run(&["rules", "ls"], 0).out;
    for part in [id, "agent tidy", "vault_write (every call)", by] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let output = project.run(&["rules", "rm", &id[id.len() - 8..]], 0);
    assert!(output.out.starts_with("Revoked: vault_write (every call) asks again"), "{output:?}");
    let output = project.run(&["rules", "revoke", id], 2);
    assert!(output.err.contains("already revoked by cli:anna"), "{output:?}");
    let output = project.run(&["rules", "rm", "rule_00000000000000000000000000"], 2);
    assert!(output.err.contains("longhaul rules --all"), "{output:?}");
    let unknown_rule = project.run(&["rules", "rm", "rule_7"], 2);
    assert!(unknown_rule.err.contains("longhaul rules --all"), "{}", unknown_rule.err);
    project.run_until_gate("tidy");
}

#[test]
fn a_rule_for_several_approvers_is_remembered_for_the_run_at_most() {
    let project = Project::new();
    let run = project.run_until_gate("twice");
    let output = project.run(&["approve", &run, "--yes", "--for", "project"], 2);
    assert!(output.err.contains("offered: once, run"), "{output:?}");
    project.run(&["approve", &run, "--yes", "--for", "run"], 0);
}
