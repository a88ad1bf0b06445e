//! Built-in tools that access the disk. Their calls run on a thread that may block.

use std::error::Error;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::sandbox::Sandbox;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::Millis;

use crate::sandbox_copy::SandboxCopy;
use crate::typed::{TypedToolError, parse_input, tool_spec};

/// Default timeout of a call of a built-in tool. It is far longer than disk access takes.
pub(crate) const TIMEOUT: Option<Millis> = Some(Millis::from_secs(60));

/// Why a call failed, as the end of a sentence without its full stop.
pub(crate) type Reason = Box<dyn Error + Send + Sync>;

/// A built-in tool that accesses the disk. All methods but `rule_match_texts` may block.
pub(crate) trait DiskTool: Send + Sync + Debug + 'static {
    /// The input from the model: a struct with named fields.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;

    /// Description of the tool for the model.
    const DESCRIPTION: &'static str;

    const CLASS: EffectClass;

    /// Returns the tool for the sandbox whose work folder this is. `None` means that the tool does
    /// not work in sandboxes.
    fn in_sandbox(&self, _work_folder: PathBuf) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Whether `verify` is implemented.
    const VERIFIES: bool = false;

    /// Start of the message about a failed call, such as `The file was not read`.
    const FAILURE: &'static str;

    /// Returns the texts that approval rules match, also for an input that does not match the type.
    fn rule_match_texts(&self, input: &Value) -> Vec<String>;

    /// Returns what a call would change. Must change nothing.
    fn predict_effects(&self, _input: Self::Input, _ctx: &ToolContext) -> PredictedEffects {
        PredictedEffects::default()
    }

    fn call(&self, input: Self::Input, ctx: &ToolContext) -> Result<ToolOutput, Reason>;

    /// Checks whether an interrupted call with this input has taken effect.
    fn verify(&self, _input: Self::Input) -> VerifyOutcome {
        VerifyOutcome::Unknown
    }
}

/// Returns the [`Tool`] of a tool that accesses the disk.
pub(crate) fn disk_tool<T: DiskTool>(tool: T) -> Result<Arc<dyn Tool>, TypedToolError> {
    let spec = ToolSpec {
        can_verify: T::VERIFIES,
        timeout: TIMEOUT,
        ..tool_spec::<T::Input>(T::NAME, T::DESCRIPTION)?
    };
    Ok(Arc::new(DiskToolAdapter { spec, tool: Arc::new(tool) }))
}

#[derive(Debug)]
struct DiskToolAdapter<T> {
    spec: ToolSpec,
    tool: Arc<T>,
}

#[async_trait]
impl<T: DiskTool> Tool for DiskToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        T::CLASS
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.tool.rule_match_texts(input)
    }

    fn works_in_sandbox(&self) -> bool {
        self.tool.in_sandbox(PathBuf::new()).is_some()
    }

    async fn predict_effects(&self, input: &Value, ctx: &ToolContext) -> PredictedEffects {
        let parsed = T::Input::deserialize(input);
        let (Ok(input), Ok(tool)) = (parsed, self.tool_for_call(ctx, None)) else {
            return PredictedEffects::default();
        };
        let ctx = ctx.clone();
        let predict = run_on_blocking_thread(move || Ok(tool.predict_effects(input, &ctx)));
        predict.await.unwrap_or_default()
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let failure = |reason: Reason| ToolFailure::new(format!("{}: {reason}.", T::FAILURE));
        let path = input["path"].as_str().unwrap_or_default().to_owned();
        let input = parse_input(&self.spec, input)?;
        let copy = match remote_sandbox(ctx) {
            Some(sandbox) => Some(SandboxCopy::download(sandbox, &path).await.map_err(failure)?),
            None => None,
        };
        let folder = copy.as_ref().map(SandboxCopy::work_folder);
        let (tool, ctx) = (self.tool_for_call(ctx, folder)?, ctx.clone());
        let output =
            run_on_blocking_thread(move || tool.call(input, &ctx).map_err(failure)).await?;
        if let Some(copy) = copy.filter(|_| T::CLASS != EffectClass::Pure) {
            copy.upload().await.map_err(|error| {
                ToolFailure::with_possible_effect(format!("{}: {error}.", T::FAILURE))
            })?;
        }
        Ok(output)
    }

    async fn verify(&self, input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let Ok(input) = T::Input::deserialize(input) else {
            // An input that can't be parsed changes nothing.
            return VerifyOutcome::NotHappened;
        };
        let Ok(tool) = self.tool_for_call(ctx, None) else { return VerifyOutcome::Unknown };
        let verify = run_on_blocking_thread(move || Ok(tool.verify(input)));
        verify.await.unwrap_or(VerifyOutcome::Unknown)
    }
}

impl<T: DiskTool> DiskToolAdapter<T> {
    /// Returns the tool for a call: the one for the sandbox that the call works in, if there is one.
    /// `copied_folder` is a copy of the work folder of a sandbox on another machine.
    fn tool_for_call(
        &self,
        ctx: &ToolContext,
        copied_folder: Option<PathBuf>,
    ) -> Result<Arc<T>, ToolFailure> {
        let Some(sandbox) = &ctx.sandbox else { return Ok(Arc::clone(&self.tool)) };
        let own_folder = || sandbox.workspace_dir().map(Path::to_owned);
        let tool =
            copied_folder.or_else(own_folder).and_then(|folder| self.tool.in_sandbox(folder));
        tool.map(Arc::new).ok_or_else(|| {
            ToolFailure::new(format!("{}: it does not work in this sandbox.", T::FAILURE))
        })
    }
}

/// Returns the sandbox of a call, if its work folder is not a directory of this machine.
fn remote_sandbox(ctx: &ToolContext) -> Option<Arc<dyn Sandbox>> {
    ctx.sandbox.clone().filter(|sandbox| sandbox.workspace_dir().is_none())
}

/// Runs the closure `work` on a thread that may block.
pub(crate) async fn run_on_blocking_thread<T, F>(work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ToolFailure::with_possible_effect(
            "This call was interrupted. Check the current state, then try again.",
        ))
    })
}
