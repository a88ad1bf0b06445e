//! The agents that ship with the binary, each with a script that plays it.
//!
//! Never: reads the disk. They are the same wherever the binary is.

/// An agent that ships with the binary.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInAgent {
    /// Its name, and its script's.
    pub name: &'static str,
    /// Its file.
    pub file: &'static str,
    /// What `scripted/NAME` plays where the project has no script of that name.
    pub script: &'static str,
}

/// All of them, by name.
pub const BUILT_IN_AGENTS: &[BuiltInAgent] = &[
    BuiltInAgent {
        name: "assistant",
        file: include_str!("../../agents/assistant.md"),
        script: include_str!("../../scripts/assistant.yaml"),
    },
    BuiltInAgent {
        name: "bugfix",
        file: include_str!("../../agents/bugfix.md"),
        script: include_str!("../../scripts/bugfix.yaml"),
    },
    BuiltInAgent {
        name: "implement",
        file: include_str!("../../agents/implement.md"),
        script: include_str!("../../scripts/implement.yaml"),
    },
    BuiltInAgent {
        name: "integrations_agent",
        file: include_str!("../../agents/integrations_agent.md"),
        script: include_str!("../../scripts/integrations_agent.yaml"),
    },
    BuiltInAgent {
        name: "plan",
        file: include_str!("../../agents/plan.md"),
        script: include_str!("../../scripts/plan.yaml"),
    },
    BuiltInAgent {
        name: "planner_agent",
        file: include_str!("../../agents/planner_agent.md"),
        script: include_str!("../../scripts/planner_agent.yaml"),
    },
    BuiltInAgent {
        name: "research_agent",
        file: include_str!("../../agents/research_agent.md"),
        script: include_str!("../../scripts/research_agent.yaml"),
    },
    BuiltInAgent {
        name: "review",
        file: include_str!("../../agents/review.md"),
        script: include_str!("../../scripts/review.yaml"),
    },
    BuiltInAgent {
        name: "writer_agent",
        file: include_str!("../../agents/writer_agent.md"),
        script: include_str!("../../scripts/writer_agent.yaml"),
    },
];

/// The script of this name that ships with the binary.
pub(crate) fn script(name: &str) -> Option<&'static str> {
    let shipped = BUILT_IN_AGENTS.iter().find(|shipped| shipped.name == name);
    shipped.map(|shipped| shipped.script)
}
