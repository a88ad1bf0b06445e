//! The handshake with a server, the server's identity, and errors of handshakes and requests.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::Transport;
use rmcp::{ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use tokio::time::timeout;

use crate::client_handler::McpClientHandler;
use crate::error::McpError;
use crate::exit::ExitRecord;
use crate::http_auth::HttpTransportError;
use crate::http_client::{RequestError, RequiredCredentials};
use crate::observe::{Observations, ObservedTransport};
use crate::spec::{ServerSpec, ServerTransport, redacted_url};

/// Timeout for starting a server and for its handshake. A server that has to be downloaded first
/// may exceed the timeout, and is then ready when it is started again.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Which handshake requests are sent to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeMode {
    /// Try `server/discover` of the newer protocol first and fall back to `initialize`.
    Auto,
    /// Send `initialize` only, because some servers exit on an unknown request.
    Legacy,
}

/// The SDK's client of one server.
pub(super) type McpService = RunningService<RoleClient, McpClientHandler>;

/// Performs the handshake with a server.
pub(super) async fn perform_handshake<T: Transport<RoleClient> + 'static>(
    transport: T,
    mode: HandshakeMode,
    (observations, exit): (&Arc<Observations>, &Arc<ExitRecord>),
) -> Result<McpService, RequestError> {
    let mode = match mode {
        HandshakeMode::Auto => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        HandshakeMode::Legacy => ClientLifecycleMode::Initialize,
    };
    let handler = McpClientHandler(Arc::clone(observations));
    let (observations, exit) = (Arc::clone(observations), Arc::clone(exit));
    let transport = ObservedTransport { inner: transport, observations, exit };
    // Boxed because the future is large and is part of every call that may start a server.
    let handshake = Box::pin(serve_client_with_lifecycle(handler, transport, mode));
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(service) => service.map_err(|error| handshake_to_request_error(&error)),
        Err(_) => {
            let secs = HANDSHAKE_TIMEOUT.as_secs();
            Err(RequestError::new(format!("the handshake took longer than {secs} s")))
        }
    }
}

/// Converts an SDK error of the handshake into a [`RequestError`].
fn handshake_to_request_error(error: &ClientInitializeError) -> RequestError {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return handshake_to_request_error(fallback);
    }
    if let ClientInitializeError::TransportError { error, .. } = error {
        let http = error.error.downcast_ref::<HttpTransportError>();
        return http
            .map_or_else(|| RequestError::new(error.error.to_string()), http_to_request_error);
    }
    if let ClientInitializeError::ConnectionClosed(_) = error {
        let reason = "the server closed the connection during the handshake";
        return RequestError::new(reason.to_owned());
    }
    if let ClientInitializeError::JsonRpcError(rpc_error) = error {
        let (message, code) = (&rpc_error.message, rpc_error.code.0);
        return RequestError::new(format!("the handshake was rejected: {message} (code {code})"));
    }
    RequestError::new(format!("the handshake is invalid: {error}"))
}

/// Converts an error of the HTTP transport into a [`RequestError`].
pub(super) fn http_to_request_error(error: &HttpTransportError) -> RequestError {
    if let HttpTransportError::Client(error) = error {
        return error.clone();
    }
    if let HttpTransportError::AuthRequired(_) | HttpTransportError::InsufficientScope(_) = error {
        return RequestError {
            may_have_been_sent: false,
            required_credentials: RequiredCredentials::Key,
            ..RequestError::new(KEY_REQUIRED)
        };
    }
    if let HttpTransportError::HttpStatus(status) = error {
        let reason = format!("the server answered with HTTP {}", status.status);
        return RequestError {
            may_have_been_sent: status.status >= 500,
            ..RequestError::new(reason)
        };
    }
    let is_expired = matches!(error, HttpTransportError::SessionExpired);
    RequestError { may_have_been_sent: !is_expired, ..RequestError::new(error.to_string()) }
}

const KEY_REQUIRED: &str = "the server requires a valid key";

/// Creates the error for a server that could not be started, with a hint for the user.
pub(super) fn start_error(spec: &ServerSpec, exit: &ExitRecord, error: &RequestError) -> McpError {
    let server = spec.name.clone();
    if let RequiredCredentials::Login { is_transient } = error.required_credentials {
        let reason = exit.sanitize_server_text(&error.reason);
        return McpError::LoginRequired { server, reason, is_transient };
    }
    let reason = match exit.reason() {
        Some(end) => end.reason,
        None => exit.reason_with_last_stderr_line(&error.reason),
    };
    let needs_key = error.required_credentials == RequiredCredentials::Key;
    let hint = match needs_key {
        true => "Set an Authorization header for the server in .mcp.json.".to_owned(),
        false => start_hint(&spec.transport),
    };
    McpError::Start { server, reason, hint }
}

/// Returns what the user can do about a server that could not be started or reached in time.
pub(super) fn start_hint(transport: &ServerTransport) -> String {
    match transport {
        ServerTransport::Stdio { .. } => {
            "Run the server's command in a terminal to see its output; of our environment it gets \
             only PATH and the variables in `env` of .mcp.json."
                .to_owned()
        }
        ServerTransport::Http { url, .. } => {
            format!("Check that the server is running at {}.", redacted_url(url))
        }
    }
}
