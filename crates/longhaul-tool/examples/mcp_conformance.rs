//! The client that the official conformance suite of MCP judges: it lists what a
//! server has and calls all of it. `scripts/conformance` hands it to the suite.
//!
//! Never: part of what ships.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::port::tool::{Stay, Tool, ToolContext};
use longhaul_core::time::{Clock, Timestamp};
use longhaul_tool::mcp::{Elicitation, ServerSpec, Servers, Way};
use serde_json::{Value, json};

/// Time that stands, and waits that are waited.
#[derive(Debug)]
struct Waits;

#[async_trait]
impl Clock for Waits {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(Duration::from(at.since(self.now()))).await;
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let run = RunId::from_bits(1);
    let spec = ServerSpec {
        name: "judge".into(),
        way: Way::Http {
            url: std::env::args().next_back().unwrap_or_default(),
            headers: BTreeMap::new(),
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
        elicitation: Elicitation::Defaults,
    };
    let servers = Servers::new(vec![spec], Arc::new(Waits));
    let Ok(tools) = servers
        .tools(
            "judge",
            None,
            Stay {
                run,
                epoch: Epoch(1),
            },
        )
        .await
    else {
        return ExitCode::FAILURE;
    };
    let around = ToolContext::new(run, CallId { turn: 1, index: 1 }, Epoch(1));
    // What comes of a call is the suite's to judge, which sees both sides of it.
    join_all(
        wanted(&tools)
            .iter()
            .map(|(tool, input)| tool.call(input.clone(), &around)),
    )
    .await;
    servers.close().await;
    ExitCode::SUCCESS
}

/// The calls that the suite wants made; where it says nothing, one of each tool.
fn wanted(tools: &[Arc<dyn Tool>]) -> Vec<(&Arc<dyn Tool>, Value)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let Some(calls) = context["toolCalls"].as_array() else {
        let filled = |tool| (tool, input(tool, &tools[0].card().schema));
        return tools.iter().map(filled).collect();
    };
    let called = |call: &Value| {
        let name = format!("mcp:judge/{}", call["name"].as_str()?);
        let tool = tools
            .iter()
            .find(|tool| tool.card().name.as_str() == name)?;
        Some((tool, call["arguments"].clone()))
    };
    calls.iter().filter_map(called).collect()
}

/// An input that fits the schema of a tool, where that is simple. Who asks for a
/// schema wants to see what we made of that of the first tool.
fn input(tool: &Arc<dyn Tool>, first: &Value) -> Value {
    let fields = tool.card().schema["properties"].as_object();
    let fields = fields.into_iter().flatten().map(|(name, schema)| {
        let value = match schema["type"].as_str() {
            Some("object") if name == "schema" => first.clone(),
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            Some(_) | None => json!("some text"),
        };
        (name.clone(), value)
    });
    Value::Object(fields.collect())
}
