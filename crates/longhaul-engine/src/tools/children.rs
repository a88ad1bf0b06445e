//! Tools with which the model of a run looks at its child runs, writes to them and cancels them. Every
//! agent with `run_agent` has them.
//!
//! Invariant: a run can only reach its own child runs.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::store::{JournalReadRequest, RunFilter, RunRow};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::Timestamp;
use longhaul_run::commands::RunCommand;
use longhaul_run::explain::explain_run_state;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Result;
use crate::handle::Longhaul;
use crate::prompt::grading::GRADER;
use crate::replay::replay_run_state;
use crate::services::Services;

/// Name of the tool that shows the state of child runs.
pub(crate) const CHILD_STATUS: &str = CHILD_TOOLS[0];

/// Names of the tools that show, message and cancel child runs. Every agent with `run_agent` has
/// them.
pub const CHILD_TOOLS: [&str; 3] = ["child_status", "steer_child", "cancel_child"];

/// Maximum number of child runs that one call of `child_status` shows.
const CHILDREN_SHOWN_MAX: usize = 100;

/// Number of events at the end of a child run's journal that are searched for its last progress
/// report.
const PROGRESS_EVENTS: u64 = 200;

/// Maximum length in bytes of a message to a child run.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Action of a tool on child runs: show their status, send a message or cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildToolAction {
    Status,
    Steer,
    Cancel,
}

/// A tool that shows, messages or cancels child runs.
#[derive(Debug)]
struct ChildTool {
    spec: ToolSpec,
    action: ChildToolAction,
    services: Services,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildToolInput {
    child: Option<RunId>,
    #[serde(default)]
    text: String,
}

/// Returns the tools that show, message and cancel child runs.
pub(crate) fn child_tools(services: &Services) -> Vec<Arc<dyn Tool>> {
    let child = json!({ "type": "string", "pattern": "^run_", "description": "Id of a child run" });
    let text = json!({ "type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX });
    let definitions: [(_, _, _, _, &[&str]); 3] = [
        (
            ChildToolAction::Status,
            CHILD_STATUS,
            "Shows what your child runs are doing, or one of them. To wait for one, call `wait` \
             instead of asking again.",
            json!({ "child": child }),
            &[],
        ),
        (
            ChildToolAction::Steer,
            CHILD_TOOLS[1],
            "Sends a message to a child run that has not ended. It reads the message after its \
             current calls.",
            json!({ "child": child, "text": text }),
            &["child", "text"],
        ),
        (
            ChildToolAction::Cancel,
            CHILD_TOOLS[2],
            "Cancels a child run, for the reason given in `text`.",
            json!({ "child": child, "text": text }),
            &["child"],
        ),
    ];
    let tools = definitions.map(|(action, name, description, properties, required)| {
        let spec = ToolSpec::with_input_properties(name, description, properties, required);
        Arc::new(ChildTool { spec, action, services: services.clone() }) as Arc<dyn Tool>
    });
    tools.into()
}

#[async_trait]
impl Tool for ChildTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        match self.action {
            ChildToolAction::Status => EffectClass::Pure,
            ChildToolAction::Steer | ChildToolAction::Cancel => EffectClass::Keyed,
        }
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: ChildToolInput = serde_json::from_value(input)
            .map_err(|error| ToolFailure::new(format!("the input is invalid: {error}")))?;
        let rows = match input.child {
            Some(child) => vec![self.find_child(ctx.run, child).await?],
            None => self.list_children(ctx.run).await?,
        };
        let text = match (self.action, rows.as_slice()) {
            (ChildToolAction::Status, []) => "this run has started no child runs".to_owned(),
            (ChildToolAction::Status, rows) => {
                let mut lines = Vec::with_capacity(rows.len());
                for row in rows {
                    lines.push(self.describe_child(row).await.map_err(to_tool_failure)?);
                }
                lines.join("\n")
            }
            (ChildToolAction::Steer, [row]) => self.steer_child(row, input.text, ctx).await?,
            (ChildToolAction::Cancel, [row]) => self.cancel_child(row, input.text, ctx).await?,
            (ChildToolAction::Steer | ChildToolAction::Cancel, _) => {
                return Err(ToolFailure::new("`child` must be the id of a child run"));
            }
        };
        Ok(ToolOutput::text(text))
    }
}

impl ChildTool {
    /// Returns the row of the child run `child`. Fails if it is not a child of `parent`.
    async fn find_child(&self, parent: RunId, child: RunId) -> Result<RunRow, ToolFailure> {
        let row = self.services.store.get_run(child).await.map_err(to_tool_failure)?;
        row.filter(|row| row.parent == Some(parent) && row.agent.as_str() != GRADER)
            .ok_or_else(|| ToolFailure::new(format!("{child} is not a child run of this run")))
    }

    async fn list_children(&self, parent: RunId) -> Result<Vec<RunRow>, ToolFailure> {
        let filter =
            RunFilter { parent: Some(parent), limit: CHILDREN_SHOWN_MAX, ..RunFilter::default() };
        let mut rows = self.services.store.list_runs(filter).await.map_err(to_tool_failure)?;
        rows.retain(|row| row.agent.as_str() != GRADER);
        Ok(rows)
    }

    /// Describes a child run in one line: its state and the progress that it has reported.
    async fn describe_child(&self, child: &RunRow) -> Result<String> {
        let (id, agent, status) = (child.id, &child.agent, child.status.as_str());
        let (run, _) = replay_run_state(&self.services, id).await?;
        let message = explain_run_state(&run).message;
        let progress = match self.last_progress_of_child(child).await? {
            Some(ProgressReported { percent, message }) if !child.status.is_terminal() => {
                format!(" Progress: {percent} %, {message}")
            }
            Some(_) | None => String::new(),
        };
        let turns = match child.turns {
            1 => "1 turn".to_owned(),
            turns => format!("{turns} turns"),
        };
        Ok(format!("{id} of agent `{agent}`, {status}, {turns}: {message}{progress}"))
    }

    async fn last_progress_of_child(&self, row: &RunRow) -> Result<Option<ProgressReported>> {
        let after = Seq(row.last_seq.0.saturating_sub(PROGRESS_EVENTS));
        let limit = PROGRESS_EVENTS as usize;
        let request = JournalReadRequest { run: row.id, after, limit };
        let page = self.services.store.read_journal(request).await?;
        let progress = page.entries.into_iter().rev().find_map(|entry| {
            let Event::ProgressReported(progress) = entry.event else { return None };
            Some(progress)
        });
        Ok(progress)
    }

    /// Sends a message to a child run. If the call is repeated after a crash, the message is sent
    /// only once.
    async fn steer_child(
        &self,
        row: &RunRow,
        text: String,
        ctx: &ToolContext,
    ) -> Result<String, ToolFailure> {
        let steer = SteerId::derive(row.id.bits(), &ctx.idempotency_key, Timestamp::default());
        let (delivery, by) = (SteerDelivery::AfterBatch, calling_run_principal(ctx));
        let message = SteerMessage { steer, text, delivery, by, is_task: false };
        let longhaul = Longhaul::handle_from_services(&self.services);
        let sent = longhaul.steer_idempotently(row.id, message).await;
        sent.map_err(to_tool_failure)?;
        Ok(format!("the message to {} is queued", row.id))
    }

    /// Cancels a child run. If it has already ended, only returns its status.
    async fn cancel_child(
        &self,
        row: &RunRow,
        reason: String,
        ctx: &ToolContext,
    ) -> Result<String, ToolFailure> {
        if row.status.is_terminal() {
            return Ok(format!("{} has ended: {}", row.id, row.status.as_str()));
        }
        let cancel = RunCommand::Cancel { by: calling_run_principal(ctx), reason };
        let longhaul = Longhaul::handle_from_services(&self.services);
        let sent = longhaul.send_command(row.id, cancel).await;
        sent.map_err(to_tool_failure)?;
        Ok(format!("{} is being cancelled", row.id))
    }
}

/// Returns the name of the calling run, which is recorded as the author of the commands that it
/// sends to its child runs.
fn calling_run_principal(ctx: &ToolContext) -> String {
    format!("run:{}", ctx.run)
}

fn to_tool_failure(error: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(error.to_string())
}
