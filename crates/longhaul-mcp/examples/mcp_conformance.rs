//! The client that the official MCP conformance suite tests: it lists a server's tools and calls
//! all of them. `scripts/conformance` passes it to the suite. It is not part of any release.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::port::tool::{RunClaimId, Tool, ToolContext};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{
    CallbackServer, LoginContext, LoginRequest, McpError, McpServers, OAuthConfig, ServerSpec,
    ServerTransport,
};
use serde_json::{Value, json};

/// A clock with a fixed time and real sleeps.
#[derive(Debug)]
struct RealClock;

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep(&self, duration: Millis) {
        tokio::time::sleep(duration.into()).await;
    }
}

/// Maximum number of logins. A rejection after that is final.
const LOGINS_MAX: usize = 3;

/// URL of our client metadata document, as the suite expects it.
const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

const RUN: RunClaimId = RunClaimId { run: RunId::from_bits(1), epoch: Epoch(1) };

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
    let servers = McpServers::new(vec![spec], clock);
    let mut logins = 0;
    let exit_code = loop {
        match use_tools(&servers).await {
            Ok(()) => break ExitCode::SUCCESS,
            Err(needs_login) if needs_login && logins < LOGINS_MAX => {}
            Err(_) => break ExitCode::FAILURE,
        }
        logins += 1;
        if let Err(error) = log_in(&servers).await {
            log_line(&error);
            break ExitCode::FAILURE;
        }
    };
    servers.close_all_servers().await;
    servers.finish_token_refreshes().await;
    exit_code
}

/// Lists the server's tools and calls all of them. The error says whether a login is required.
async fn use_tools(servers: &McpServers) -> Result<(), bool> {
    let tools = servers.server_tools("conformance", None, RUN).await;
    let tools = tools.map_err(|error| {
        log_line(&error.to_string());
        matches!(error, McpError::LoginRequired { .. })
    })?;
    let ctx = ToolContext::new(RUN.run, CallId { turn: 1, index: 1 }, RUN.epoch);
    // Other results of the calls are checked by the suite, which sees both sides.
    let planned_calls = tool_calls(&tools);
    let calls = planned_calls.iter().map(|(tool, input)| tool.call(input.clone(), &ctx));
    let messages = join_all(calls).await.into_iter().filter_map(Result::err);
    let mut messages = messages.map(|failure| failure.into_message());
    match messages.any(|message| message.contains("longhaul mcp login")) {
        true => Err(true),
        false => Ok(()),
    }
}

/// Returns the OAuth settings that the suite passes.
fn oauth_config() -> OAuthConfig {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let field = |key: &str| context[key].as_str().map(str::to_owned);
    OAuthConfig {
        client_id: field("client_id"),
        client_secret: field("client_secret"),
        client_metadata_url: Some(CLIENT_METADATA_URL.to_owned()),
        ..OAuthConfig::default()
    }
}

/// Logs in like a user with a browser.
async fn log_in(servers: &McpServers) -> Result<(), String> {
    let server = CallbackServer::bind(None).await.map_err(|error| error.to_string())?;
    let request = LoginRequest { redirect_uri: server.redirect_uri(), ..LoginRequest::default() };
    let login = servers.login("conformance").map_err(|error| error.to_string())?;
    let pending = login.start(&request).await.map_err(|error| error.to_string())?;
    let (callback_url, page_result) = tokio::join!(
        server.wait_for_callback(pending.oauth_state()),
        open_in_browser(pending.authorization_url())
    );
    page_result?;
    let login = pending.finish_login(&callback_url).await;
    login.map(|_| ()).map_err(|error| error.to_string())
}

/// A browser that accepts everything and follows all redirects.
async fn open_in_browser(address: &str) -> Result<(), String> {
    let browser = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    let browser = browser.build().map_err(|error| error.to_string())?;
    let page = browser.get(address).send().await;
    page.map(|_| ()).map_err(|error| error.to_string())
}

#[expect(clippy::print_stderr, reason = "the suite shows the output of its client")]
fn log_line(line: &str) {
    eprintln!("{line}");
}

/// Returns the calls that the suite asks for, or else one call of each tool.
fn tool_calls(tools: &[Arc<dyn Tool>]) -> Vec<(&Arc<dyn Tool>, Value)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let Some(calls) = context["toolCalls"].as_array() else {
        let with_sample_input = |tool| (tool, sample_input(tool, &tools[0].spec().schema));
        return tools.iter().map(with_sample_input).collect();
    };
    let planned_call = |call: &Value| {
        let name = format!("mcp:conformance/{}", call["name"].as_str()?);
        let tool = tools.iter().find(|tool| tool.spec().name.as_str() == name)?;
        Some((tool, call["arguments"].clone()))
    };
    calls.iter().filter_map(planned_call).collect()
}

/// Returns an input that fits the schema of a tool, for simple schemas. A tool with a `schema`
/// field gets the schema of the first tool as we received it.
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
