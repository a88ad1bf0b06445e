//! The tools of this process by name, each with its schema ready to judge.
//!
//! Never: calls one.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::id::ToolName;
use longhaul_core::port::tool::{Tool, ToolCard};
use longhaul_core::time::Clock;
use serde_json::Value;

use crate::validation::SchemaValidator;

/// A tool that can't be taken in.
#[derive(Debug, thiserror::Error)]
pub enum BadTool {
    /// Its schema is none.
    #[error("the input schema of the tool `{tool}` is broken: {why}")]
    Schema {
        /// Which tool.
        tool: ToolName,
        /// What is wrong.
        why: String,
    },
    /// Two tools of one name.
    #[error("there are two tools named `{0}`")]
    Twice(ToolName),
}

/// A tool and the judge of its input.
#[derive(Debug, Clone)]
pub struct Equipped {
    /// The tool; none: the heart knows what it means, and it is never called.
    pub(crate) tool: Option<Arc<dyn Tool>>,
    pub(crate) card: Arc<ToolCard>,
    validator: SchemaValidator,
}

impl Equipped {
    /// A tool with the judge of its input, or why its schema is none.
    pub fn new(tool: Arc<dyn Tool>) -> Result<Self, BadTool> {
        let card = tool.card().clone();
        Self::of(card, Some(tool))
    }

    /// A tool that the heart knows, or why its schema is none.
    pub(crate) fn control(card: ToolCard) -> Result<Self, BadTool> {
        Self::of(card, None)
    }

    fn of(card: ToolCard, tool: Option<Arc<dyn Tool>>) -> Result<Self, BadTool> {
        let validator = SchemaValidator::new(&card.schema);
        let validator = validator.map_err(|why| BadTool::Schema {
            tool: card.name.clone(),
            why,
        })?;
        Ok(Self {
            tool,
            card: Arc::new(card),
            validator,
        })
    }

    /// What it says of itself.
    pub fn card(&self) -> &ToolCard {
        &self.card
    }

    /// Whether it is never called: the heart knows what it means.
    pub const fn is_control(&self) -> bool {
        self.tool.is_none()
    }

    /// Whether it acts on this machine without walls.
    pub fn is_unwalled(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.is_unwalled())
    }

    /// Whether a call of it may be one that must not be repeated.
    pub fn may_be_once(&self) -> bool {
        let class = |tool: &Arc<dyn Tool>| tool.class(&Value::Object(serde_json::Map::new()));
        self.tool
            .as_ref()
            .is_some_and(|tool| !class(tool).may_repeat())
    }

    /// What is wrong with this input, in words for the model.
    pub async fn fault(&self, input: &Value, clock: &dyn Clock) -> Option<String> {
        let checked = self.validator.check(input, "the input", clock).await;
        let name = &self.card.name;
        let words = |why| format!("the input of {name} does not fit its schema: {why}");
        checked.err().map(words)
    }
}

/// The tools of this process.
#[derive(Debug, Clone, Default)]
pub struct Toolbox(BTreeMap<String, Equipped>);

impl Toolbox {
    /// A toolbox with these tools and those that the heart knows.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, BadTool> {
        let mut toolbox = Self::default();
        for card in crate::control::cards() {
            toolbox.put(card, None)?;
        }
        for tool in tools {
            let card = tool.card().clone();
            toolbox.put(card, Some(tool))?;
        }
        Ok(toolbox)
    }

    /// One tool more.
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Result<Self, BadTool> {
        let card = tool.card().clone();
        self.put(card, Some(tool))?;
        Ok(self)
    }

    fn put(&mut self, card: ToolCard, tool: Option<Arc<dyn Tool>>) -> Result<(), BadTool> {
        let name = card.name.clone();
        let equipped = Equipped::of(card, tool)?;
        match self.0.insert(name.as_str().to_owned(), equipped) {
            None => Ok(()),
            Some(_) => Err(BadTool::Twice(name)),
        }
    }

    /// The tool of this name.
    pub fn find(&self, name: &str) -> Option<&Equipped> {
        self.0.get(name)
    }

    /// Every tool, by name.
    pub fn all(&self) -> impl Iterator<Item = &Equipped> {
        self.0.values()
    }
}
