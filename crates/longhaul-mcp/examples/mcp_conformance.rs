//! The client that the official conformance suite of MCP judges: it lists what a
//! server has and calls all of it. `scripts/conformance` hands it to the suite.
//!
//! Never: part of what ships.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::port::tool::{Stay, Tool, ToolContext};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{Door, Login, McpError, OAuth, ServerSpec, Servers, Visit, Way};
use serde_json::{Value, json};

/// Time that stands, and waits that are waited.
#[derive(Debug)]
struct Waits;

#[async_trait]
impl Clock for Waits {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep(&self, span: Millis) {
        tokio::time::sleep(span.into()).await;
    }
}

/// So often is logged in: whoever is refused after that is refused.
const LOGINS_MAX: usize = 3;

/// The document that says who we are, as the suite expects it.
const ABOUT_US: &str = "https://conformance-test.local/client-metadata.json";

const RUN: Stay = Stay {
    run: RunId::from_bits(1),
    epoch: Epoch(1),
};

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(folder) = tempfile::tempdir() else {
        return ExitCode::FAILURE;
    };
    let clock = Arc::new(Waits);
    let spec = ServerSpec {
        name: "judge".into(),
        way: Way::Http {
            url: std::env::args().next_back().unwrap_or_default(),
            headers: BTreeMap::new(),
            login: Some(Login::new(
                folder.path().join("logins"),
                known_as(),
                clock.clone(),
            )),
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    };
    let servers = Servers::new(vec![spec], clock);
    let mut logins = 0;
    let ended = loop {
        match used(&servers).await {
            Ok(()) => break ExitCode::SUCCESS,
            Err(wants_login) if wants_login && logins < LOGINS_MAX => {}
            Err(_) => break ExitCode::FAILURE,
        }
        logins += 1;
        if let Err(why) = logged_in(&servers).await {
            told(&why);
            break ExitCode::FAILURE;
        }
    };
    servers.close().await;
    servers.settle().await;
    ended
}

/// Lists what the server has and calls all of it. The error says whether somebody
/// has to log in first.
async fn used(servers: &Servers) -> Result<(), bool> {
    let tools = servers.tools("judge", None, RUN).await;
    let tools = tools.map_err(|why| {
        told(&why.to_string());
        matches!(why, McpError::Login { .. })
    })?;
    let around = ToolContext::new(RUN.run, CallId { turn: 1, index: 1 }, RUN.epoch);
    // What else comes of a call is the suite's to judge, which sees both sides of it.
    let wanted = wanted(&tools);
    let calls = wanted
        .iter()
        .map(|(tool, input)| tool.call(input.clone(), &around));
    let refused = join_all(calls).await.into_iter().filter_map(Result::err);
    let mut refused = refused.map(|failure| failure.into_words());
    match refused.any(|why| why.contains("longhaul mcp login")) {
        true => Err(true),
        false => Ok(()),
    }
}

/// Who the suite says we are.
fn known_as() -> OAuth {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let said = |key: &str| context[key].as_str().map(str::to_owned);
    OAuth {
        client_id: said("client_id"),
        client_secret: said("client_secret"),
        client_metadata_url: Some(ABOUT_US.to_owned()),
        ..OAuth::default()
    }
}

/// Logs in as a person with a browser would.
async fn logged_in(servers: &Servers) -> Result<(), String> {
    let door = Door::open(None).await.map_err(|why| why.to_string())?;
    let visit = Visit {
        redirect: door.address(),
        ..Visit::default()
    };
    let began = servers.login("judge", &visit).await;
    let began = began.map_err(|why| why.to_string())?;
    let (led_to, browsed) = tokio::join!(door.wait(began.state()), browse(began.address()));
    browsed?;
    let login = began.finish(&led_to).await;
    login.map(|_| ()).map_err(|why| why.to_string())
}

/// A browser in which everything is agreed to: it goes where it is sent.
async fn browse(address: &str) -> Result<(), String> {
    let browser = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    let browser = browser.build().map_err(|why| why.to_string())?;
    let page = browser.get(address).send().await;
    page.map(|_| ()).map_err(|why| why.to_string())
}

#[expect(clippy::print_stderr, reason = "the suite shows what its client says")]
fn told(words: &str) {
    eprintln!("{words}");
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
