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
use longhaul_core::port::tool::{ClaimId, Tool, ToolContext};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{
    CallbackServer, LoginContext, LoginRequest, McpError, OAuthConfig, ServerSpec, ServerTransport,
    Servers,
};
use serde_json::{Value, json};

/// Time that stands, and waits that are waited.
#[derive(Debug)]
struct RealClock;

#[async_trait]
impl Clock for RealClock {
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
const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

const RUN: ClaimId = ClaimId { run: RunId::from_bits(1), epoch: Epoch(1) };

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(folder) = tempfile::tempdir() else {
        return ExitCode::FAILURE;
    };
    let clock = Arc::new(RealClock);
    let spec = ServerSpec {
        name: "conformance".into(),
        transport: ServerTransport::Http {
            url: std::env::args().next_back().unwrap_or_default(),
            headers: BTreeMap::new(),
            login: Some(LoginContext::new(
                folder.path().join("logins"),
                oauth_config(),
                clock.clone(),
            )),
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    };
    let servers = Servers::new(vec![spec], clock);
    let mut logins = 0;
    let ended = loop {
        match use_tools(&servers).await {
            Ok(()) => break ExitCode::SUCCESS,
            Err(wants_login) if wants_login && logins < LOGINS_MAX => {}
            Err(_) => break ExitCode::FAILURE,
        }
        logins += 1;
        if let Err(why) = log_in(&servers).await {
            log_line(&why);
            break ExitCode::FAILURE;
        }
    };
    servers.close().await;
    servers.finish_refreshes().await;
    ended
}

/// Lists what the server has and calls all of it. The error says whether somebody
/// has to log in first.
async fn use_tools(servers: &Servers) -> Result<(), bool> {
    let tools = servers.tools("conformance", None, RUN).await;
    let tools = tools.map_err(|why| {
        log_line(&why.to_string());
        matches!(why, McpError::LoginRequired { .. })
    })?;
    let around = ToolContext::new(RUN.run, CallId { turn: 1, index: 1 }, RUN.epoch);
    // What else comes of a call is the suite's to judge, which sees both sides of it.
    let wanted = tool_calls(&tools);
    let calls = wanted.iter().map(|(tool, input)| tool.call(input.clone(), &around));
    let refused = join_all(calls).await.into_iter().filter_map(Result::err);
    let mut refused = refused.map(|failure| failure.into_message());
    match refused.any(|why| why.contains("longhaul mcp login")) {
        true => Err(true),
        false => Ok(()),
    }
}

/// Who the suite says we are.
fn oauth_config() -> OAuthConfig {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let said = |key: &str| context[key].as_str().map(str::to_owned);
    OAuthConfig {
        client_id: said("client_id"),
        client_secret: said("client_secret"),
        client_metadata_url: Some(CLIENT_METADATA_URL.to_owned()),
        ..OAuthConfig::default()
    }
}

/// Logs in as a person with a browser would.
async fn log_in(servers: &Servers) -> Result<(), String> {
    let door = CallbackServer::bind(None).await.map_err(|why| why.to_string())?;
    let visit = LoginRequest { redirect_uri: door.redirect_uri(), ..LoginRequest::default() };
    let began = servers.login("conformance", &visit).await;
    let began = began.map_err(|why| why.to_string())?;
    let (led_to, browsed) = tokio::join!(
        door.wait_for_callback(began.state()),
        open_in_browser(began.authorization_url())
    );
    browsed?;
    let login = began.finish(&led_to).await;
    login.map(|_| ()).map_err(|why| why.to_string())
}

/// A browser in which everything is agreed to: it goes where it is sent.
async fn open_in_browser(address: &str) -> Result<(), String> {
    let browser = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    let browser = browser.build().map_err(|why| why.to_string())?;
    let page = browser.get(address).send().await;
    page.map(|_| ()).map_err(|why| why.to_string())
}

#[expect(clippy::print_stderr, reason = "the suite shows what its client says")]
fn log_line(words: &str) {
    eprintln!("{words}");
}

/// The calls that the suite wants made; where it says nothing, one of each tool.
fn tool_calls(tools: &[Arc<dyn Tool>]) -> Vec<(&Arc<dyn Tool>, Value)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let Some(calls) = context["toolCalls"].as_array() else {
        let filled = |tool| (tool, sample_input(tool, &tools[0].spec().schema));
        return tools.iter().map(filled).collect();
    };
    let called = |call: &Value| {
        let name = format!("mcp:conformance/{}", call["name"].as_str()?);
        let tool = tools.iter().find(|tool| tool.spec().name.as_str() == name)?;
        Some((tool, call["arguments"].clone()))
    };
    calls.iter().filter_map(called).collect()
}

/// An input that fits the schema of a tool, where that is simple. Who asks for a
/// schema wants to see what we made of that of the first tool.
fn sample_input(tool: &Arc<dyn Tool>, first: &Value) -> Value {
    let fields = tool.spec().schema["properties"].as_object();
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
