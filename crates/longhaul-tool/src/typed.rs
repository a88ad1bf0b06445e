//! A tool of one's own whose input is a Rust type: the schema comes from the
//! type, and what the model sent has become the type before the tool sees it.
//!
//! Never: shows the model what the runtime injects. What surrounds a call comes
//! beside the input, is no part of the schema, and can't be set from there.

mod schema;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{IdError, ToolName};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::canonical_json;
use longhaul_core::time::Millis;

use crate::tool_support;

/// Something an agent can do, with an input that is a type.
///
/// Comments on the input's fields are what the model reads of them; with
/// `#[serde(deny_unknown_fields)]` nothing else is let in.
#[async_trait]
pub trait TypedTool: Send + Sync + Debug + 'static {
    /// What the model sends: a struct with named fields.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Its name.
    const NAME: &'static str;

    /// What it does, for the model.
    const DESCRIPTION: &'static str;

    /// What its calls do to the world, unless `class` knows better.
    const CLASS: EffectClass = EffectClass::Once;

    /// It can look whether a call has happened: `verify` is its own.
    const VERIFIES: bool = false;

    /// What it wants done in doubt; none: what the agent says.
    const IN_DOUBT: Option<InDoubtPolicy> = None;

    /// How long a call may take; none: the runtime's usual.
    const TIMEOUT: Option<Millis> = None;

    /// A call that is let go of ends for good: what it had begun is stopped before
    /// its drop returns, so that it is never in doubt.
    const IS_CANCEL_SAFE: bool = false;

    /// What this call does to the world.
    fn class(&self, _input: &Self::Input) -> EffectClass {
        Self::CLASS
    }

    /// What rules match against; none: the whole input as canonical JSON.
    fn subjects(&self, _input: &Self::Input) -> Option<Vec<String>> {
        None
    }

    /// What rules match against, read from the input as it was sent. A tool that can name its
    /// subjects for input of another type, too, has a version of its own.
    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        let typed = Self::Input::deserialize(input).ok();
        let subjects = typed.and_then(|typed| self.subjects(&typed));
        subjects.unwrap_or_else(|| vec![canonical_json(input)])
    }

    /// Does it.
    async fn call(
        &self,
        input: Self::Input,
        around: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure>;

    /// Looks whether a call under this key has happened.
    async fn verify(&self, _input: Self::Input, _around: &ToolContext) -> VerifyOutcome {
        VerifyOutcome::Unknown
    }
}

/// A typed tool that can't be one.
#[derive(Debug, thiserror::Error)]
pub enum TypedToolError {
    /// Its name is none.
    #[error(transparent)]
    Name(#[from] IdError),
    /// Providers take the schema of an object and nothing else at its top.
    #[error(
        "the input of the tool `{tool}` is {found}, and a tool's input is an object: make its type a \
         struct with named fields, and put what differs into one of them"
    )]
    InputNotObject {
        /// Which tool.
        tool: ToolName,
        /// What its type is instead.
        found: &'static str,
    },
}

/// The tool as the runtime takes it.
pub fn typed<T: TypedTool>(tool: T) -> Result<Arc<dyn Tool>, TypedToolError> {
    let name = ToolName::new(T::NAME)?;
    let schema = schema::input_schema::<T::Input>();
    let schema =
        schema.map_err(|found| TypedToolError::InputNotObject { tool: name.clone(), found })?;
    let card = ToolSpec {
        name,
        description: T::DESCRIPTION.to_owned(),
        schema,
        can_verify: T::VERIFIES,
        in_doubt: T::IN_DOUBT,
        timeout: T::TIMEOUT,
    };
    Ok(Arc::new(TypedAdapter { spec: card, tool }))
}

/// A typed tool behind the port.
#[derive(Debug)]
struct TypedAdapter<T> {
    spec: ToolSpec,
    tool: T,
}

#[async_trait]
impl<T: TypedTool> Tool for TypedAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, input: &Value) -> EffectClass {
        let input = T::Input::deserialize(input);
        input.map_or(T::CLASS, |input| self.tool.class(&input))
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        self.tool.raw_subjects(input)
    }

    fn is_cancel_safe(&self) -> bool {
        T::IS_CANCEL_SAFE
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input = tool_support::parse_input(&self.spec, input)?;
        self.tool.call(input, around).await
    }

    async fn verify(&self, input: Value, around: &ToolContext) -> VerifyOutcome {
        match tool_support::parse_input(&self.spec, input) {
            Ok(input) => self.tool.verify(input, around).await,
            // What can't be read was never called.
            Err(_) => VerifyOutcome::Unknown,
        }
    }
}
