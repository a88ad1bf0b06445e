//! The tools of this process by name, each with the validator for its input schema.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::GateTimeout;
use longhaul_core::port::tool::{Tool, ToolSpec};
use longhaul_core::time::Clock;
use serde_json::Value;

use crate::guard::validation::SchemaValidator;
use crate::tools::control::{control_tool_specs, question_tool_specs};

/// Reason why a tool could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum ToolRegistrationError {
    /// The input schema of the tool is not a valid JSON Schema, or too complex.
    #[error("the input schema of the tool `{tool}` is invalid: {reason}")]
    InvalidSchema {
        tool: ToolName,
        /// What is wrong with the schema.
        reason: String,
    },
    /// Two tools have this name.
    #[error("there are two tools named `{0}`")]
    Duplicate(ToolName),
}

type Result<T, E = ToolRegistrationError> = std::result::Result<T, E>;

/// Sets the timeout in the descriptions of those tools in `tools` whose calls wait for an answer.
/// `None` means that the descriptions have the default already.
pub(crate) fn describe_question_timeout(
    tools: &mut BTreeMap<String, RegisteredTool>,
    timeout: Option<GateTimeout>,
) -> Result<()> {
    for spec in timeout.map(question_tool_specs).unwrap_or_default() {
        if let Some(tool) = tools.get_mut(spec.name.as_str()) {
            *tool = RegisteredTool::new_control_tool(spec)?;
        }
    }
    Ok(())
}

/// A tool with the validator for its input.
#[derive(Debug, Clone)]
pub struct RegisteredTool {
    /// Implementation of the tool. `None` for a control tool, which the state machine handles and
    /// nobody calls.
    pub(crate) tool: Option<Arc<dyn Tool>>,
    pub(crate) spec: Arc<ToolSpec>,
    /// Compiled when it is first used, and at registration unless the tool is built in.
    validator: Arc<OnceLock<Result<SchemaValidator, String>>>,
}

impl RegisteredTool {
    /// Wraps a tool together with the validator for its input. Fails if its input schema is
    /// invalid.
    pub fn from_tool(tool: Arc<dyn Tool>) -> Result<Self> {
        let registered = Self::with_uncompiled_schema(tool.spec().clone(), Some(tool));
        registered.compile_input_schema().map(|()| registered)
    }

    /// Wraps the spec of a control tool. Fails if its input schema is invalid.
    pub(crate) fn new_control_tool(spec: ToolSpec) -> Result<Self> {
        let registered = Self::with_uncompiled_schema(spec, None);
        registered.compile_input_schema().map(|()| registered)
    }

    fn with_uncompiled_schema(spec: ToolSpec, tool: Option<Arc<dyn Tool>>) -> Self {
        Self { tool, spec: Arc::new(spec), validator: Arc::default() }
    }

    /// Compiles the input schema of the tool, unless this was already done.
    ///
    /// # Errors
    /// The schema is invalid, or too complex.
    pub fn compile_input_schema(&self) -> Result<()> {
        match self.input_validator() {
            Ok(_) => Ok(()),
            Err(reason) => Err(ToolRegistrationError::InvalidSchema {
                tool: self.spec.name.clone(),
                reason: reason.clone(),
            }),
        }
    }

    fn input_validator(&self) -> &Result<SchemaValidator, String> {
        self.validator.get_or_init(|| SchemaValidator::new(&self.spec.schema))
    }

    /// Returns the tool's spec: name, description and input schema.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Whether this is a control tool, which the state machine handles.
    pub const fn is_control(&self) -> bool {
        self.tool.is_none()
    }

    /// Whether the tool acts on this machine without a sandbox.
    pub fn is_unsandboxed(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.is_unsandboxed())
    }

    /// Whether calls of this tool may have effects that must not be repeated, such as sending a
    /// mail.
    pub fn may_have_unrepeatable_effects(&self) -> bool {
        self.class().is_some_and(|class| !class.may_repeat())
    }

    /// Returns the effect class of a call without arguments. `None` means that this is a control
    /// tool.
    pub fn class(&self) -> Option<EffectClass> {
        self.class_of_call(&Value::Object(serde_json::Map::new()))
    }

    /// Returns the effect class of a call with this input. `None` means that this is a control
    /// tool.
    pub fn class_of_call(&self, input: &Value) -> Option<EffectClass> {
        self.tool.as_ref().map(|tool| tool.class(input))
    }

    /// Validates the input of a call. Returns an error message for the model, or `None` if the
    /// input is valid.
    pub async fn find_input_error(&self, input: &Value, clock: &dyn Clock) -> Option<String> {
        let name = &self.spec.name;
        let checked = match self.input_validator() {
            Ok(validator) => validator.validate(input, "the input", clock).await,
            Err(reason) => return Some(format!("the input schema of {name} is invalid: {reason}")),
        };
        let message = |reason| format!("the input of {name} does not match its schema: {reason}");
        checked.err().map(message)
    }
}

/// The tools of this process, by name.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry(BTreeMap<String, RegisteredTool>);

impl ToolRegistry {
    /// Creates a registry with these tools and the control tools.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self> {
        tools.into_iter().try_fold(Self::of_built_in_tools([])?, Self::with_tool)
    }

    /// Creates a registry with the control tools and these built-in tools. Their input schemas are
    /// compiled when they are first used, because compiling all of them takes a large part of the
    /// time in which a command starts. A test compiles them.
    pub fn of_built_in_tools(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self> {
        let mut registry = Self::default();
        for spec in control_tool_specs() {
            registry.insert_tool(RegisteredTool::with_uncompiled_schema(spec, None))?;
        }
        tools.into_iter().try_fold(registry, Self::with_built_in_tool)
    }

    /// Returns the registry with this built-in tool added, whose input schema is compiled when it
    /// is first used. Fails if another tool has the same name.
    pub fn with_built_in_tool(mut self, tool: Arc<dyn Tool>) -> Result<Self> {
        let spec = tool.spec().clone();
        self.insert_tool(RegisteredTool::with_uncompiled_schema(spec, Some(tool)))?;
        Ok(self)
    }

    /// Returns the registry with this tool added. Fails if the tool's input schema is invalid or
    /// another tool has the same name.
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Result<Self> {
        self.insert_tool(RegisteredTool::from_tool(tool)?)?;
        Ok(self)
    }

    fn insert_tool(&mut self, registered: RegisteredTool) -> Result<()> {
        let name = registered.spec.name.clone();
        match self.0.insert(name.as_str().to_owned(), registered) {
            None => Ok(()),
            Some(_) => Err(ToolRegistrationError::Duplicate(name)),
        }
    }

    pub fn find_tool(&self, name: &str) -> Option<&RegisteredTool> {
        self.0.get(name)
    }

    /// Iterates over all tools in the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.0.values()
    }
}
