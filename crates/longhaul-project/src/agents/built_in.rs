//! The agents that are part of the binary, each with a script for the scripted model (a model that
//! plays fixed responses and needs no API key).

/// An agent that is part of the binary.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInAgent {
    /// Name of the agent and of the script with the model's replies.
    pub name: &'static str,
    /// Text of the agent file.
    pub file: &'static str,
    /// Script that the model `scripted/NAME` plays if the project has no script with this name.
    pub script: &'static str,
}

/// All built-in agents, sorted by name.
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

/// Returns the script of the built-in agent with this name.
pub(crate) fn built_in_model_script(name: &str) -> Option<&'static str> {
    let agent = BUILT_IN_AGENTS.iter().find(|agent| agent.name == name);
    agent.map(|agent| agent.script)
}
