//! The tools of this process by name, each with its schema ready to judge.
//!
//! Never: calls one.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::id::ToolName;
use longhaul_core::port::tool::{Tool, ToolSpec};
use longhaul_core::time::Clock;
use serde_json::Value;

use crate::validation::SchemaValidator;

/// A tool that can't be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ToolRegistrationError {
    /// Its schema is none.
    #[error("the input schema of the tool `{tool}` is broken: {reason}")]
    InvalidSchema {
        /// Which tool.
        tool: ToolName,
        /// What is wrong.
        reason: String,
    },
    /// Two tools of one name.
    #[error("there are two tools named `{0}`")]
    Duplicate(ToolName),
}

/// A tool and the judge of its input.
#[derive(Debug, Clone)]
pub struct RegisteredTool {
    /// The tool; none: the heart knows what it means, and it is never called.
    pub(crate) tool: Option<Arc<dyn Tool>>,
    pub(crate) spec: Arc<ToolSpec>,
    validator: SchemaValidator,
}

impl RegisteredTool {
    /// A tool with the judge of its input, or why its schema is none.
    pub fn new(tool: Arc<dyn Tool>) -> Result<Self, ToolRegistrationError> {
        let card = tool.spec().clone();
        Self::from_spec(card, Some(tool))
    }

    /// A tool that the heart knows, or why its schema is none.
    pub(crate) fn control(card: ToolSpec) -> Result<Self, ToolRegistrationError> {
        Self::from_spec(card, None)
    }

    fn from_spec(
        card: ToolSpec,
        tool: Option<Arc<dyn Tool>>,
    ) -> Result<Self, ToolRegistrationError> {
        let validator = SchemaValidator::new(&card.schema);
        let validator = validator.map_err(|why| ToolRegistrationError::InvalidSchema {
            tool: card.name.clone(),
            reason: why,
        })?;
        Ok(Self { tool, spec: Arc::new(card), validator })
    }

    /// What it says of itself.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Whether it is never called: the heart knows what it means.
    pub const fn is_control(&self) -> bool {
        self.tool.is_none()
    }

    /// Whether it acts on this machine without walls.
    pub fn is_unsandboxed(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.is_unsandboxed())
    }

    /// Whether a call of it may be one that must not be repeated.
    pub fn may_be_once(&self) -> bool {
        let class = |tool: &Arc<dyn Tool>| tool.class(&Value::Object(serde_json::Map::new()));
        self.tool.as_ref().is_some_and(|tool| !class(tool).may_repeat())
    }

    /// What is wrong with this input, in words for the model.
    pub async fn input_error(&self, input: &Value, clock: &dyn Clock) -> Option<String> {
        let checked = self.validator.check(input, "the input", clock).await;
        let name = &self.spec.name;
        let words = |why| format!("the input of {name} does not fit its schema: {why}");
        checked.err().map(words)
    }
}

/// The tools of this process.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry(BTreeMap<String, RegisteredTool>);

impl ToolRegistry {
    /// A toolbox with these tools and those that the heart knows.
    pub fn new(
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Result<Self, ToolRegistrationError> {
        let mut toolbox = Self::default();
        for card in crate::control_tools::specs() {
            toolbox.insert(card, None)?;
        }
        for tool in tools {
            let card = tool.spec().clone();
            toolbox.insert(card, Some(tool))?;
        }
        Ok(toolbox)
    }

    /// One tool more.
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Result<Self, ToolRegistrationError> {
        let card = tool.spec().clone();
        self.insert(card, Some(tool))?;
        Ok(self)
    }

    fn insert(
        &mut self,
        card: ToolSpec,
        tool: Option<Arc<dyn Tool>>,
    ) -> Result<(), ToolRegistrationError> {
        let name = card.name.clone();
        let equipped = RegisteredTool::from_spec(card, tool)?;
        match self.0.insert(name.as_str().to_owned(), equipped) {
            None => Ok(()),
            Some(_) => Err(ToolRegistrationError::Duplicate(name)),
        }
    }

    /// The tool of this name.
    pub fn find(&self, name: &str) -> Option<&RegisteredTool> {
        self.0.get(name)
    }

    /// Every tool, by name.
    pub fn all(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.0.values()
    }
}
