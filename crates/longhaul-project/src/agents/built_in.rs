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

/// Embeds the files of one built-in agent. A macro, since `include_str` needs a literal.
macro_rules! built_in {
    ($name:literal) => {
        BuiltInAgent {
            name: $name,
            file: include_str!(concat!("../../agents/", $name, ".md")),
            script: include_str!(concat!("../../scripts/", $name, ".yaml")),
        }
    };
}

/// All built-in agents, sorted by name.
pub const BUILT_IN_AGENTS: &[BuiltInAgent] = &[
    built_in!("assistant"),
    built_in!("bugfix"),
    built_in!("implement"),
    built_in!("integrations_agent"),
    built_in!("plan"),
    built_in!("planner_agent"),
    built_in!("research_agent"),
    built_in!("review"),
    built_in!("writer_agent"),
];

/// Returns the script of the built-in agent with this name.
pub(crate) fn built_in_model_script(name: &str) -> Option<&'static str> {
    let agent = BUILT_IN_AGENTS.iter().find(|agent| agent.name == name);
    agent.map(|agent| agent.script)
}
