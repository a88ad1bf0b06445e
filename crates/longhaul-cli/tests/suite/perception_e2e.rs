//! End-to-end test of perception: a command is called before each turn, together with an event
//! text, a skill and project rules. The context that the command returns reaches a tool and never
//! the model.

use std::fs;

use crate::suite::project::Project;

const AGENT: &str = r#"---
description: Somebody in a town.
model: scripted/npc
tools: [send_message, vault_list]
skills: [style]
context: [recipient]
perception: { command: [python3, look.py], every: turn }
approve:
  - { tool: send_message, match: bob, allow: true }
  - { tool: send_message, deny: "only to bob" }
events:
  player_proximity: "A player named {{ actor.name }} has approached."
---
You live in a town. Today: {{ perception.weather }}.
"#;

/// Counts its calls in a file and returns another weather each time but the last.
const PERCEPTION_SCRIPT: &str = r#"
import json, sys
asked = json.load(sys.stdin)
assert asked["event"] == "player_proximity" and asked["agent"] == "npc", asked
looks = open("looks", "a+"); looks.write("x"); looks.seek(0)
weather = ["sun", "rain", "rain"][len(looks.read()) - 1]
print(json.dumps({"world": {"weather": weather}, "context": {"recipient": "bob"}}))
"#;

const SCRIPT: &str = "replies:
  - tools: [{ name: vault_list, input: {} }]
  - tools: [{ name: send_message, input: { text: hello } }]
  - text: 'Bye: {{ last_result }}'
";

#[test]
fn perception_events_skills_and_rules_reach_an_agent() {
    let project = Project::new();
    project.write("agents/npc.md", AGENT);
    project.write("scripts/npc.yaml", SCRIPT);
    project.write("look.py", PERCEPTION_SCRIPT);
    project.write("AGENTS.md", "No swearing.\n");
    let skill = "---\nname: style\ndescription: How to write.\n---\nBe short.\n";
    project.write("skills/style/SKILL.md", skill);
    let actor = r#"{"name":"Ann"}"#;
    let task = ["run", "npc", "{}", "--type", "player_proximity", "--actor", actor];
    let task = [&task[..], &["--no-input"]].concat();
    // The perception command is not trusted yet.
    project.run(&task, 3);
    assert!(!project.path().join("looks").exists());
    project.run(&["trust", "--yes"], 0);
    project.run(&task, 0);
    let transcript = project.run(&["show", "@last", "--transcript"], 0).out;
    for expected in [
        "You live in a town. Today: sun.",
        "- `style`: How to write.",
        "No swearing.",
        "This run was started by the event `player_proximity`.",
        "A player named Ann has approached.",
        "{\"weather\": \"rain\"}",
        "Bye: The message was delivered.",
    ] {
        assert_eq!(transcript.matches(expected).count(), 1, "{expected}: {transcript}");
    }
    assert!(!transcript.contains("bob"), "{transcript}");
    let provider_log = fs::read_to_string(project.path().join("looks")).unwrap();
    assert_eq!(provider_log.len(), 3);
    let outbox = project.path().join(".longhaul/outbox.jsonl");
    let outbox = fs::read_to_string(outbox).unwrap();
    assert!(outbox.contains(r#""recipient":"bob","text":"hello""#), "{outbox}");
}
