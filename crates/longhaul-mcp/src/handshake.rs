//! How a server is greeted, who it says it is, and why a greeting or a request fails.
//!
//! Never: waits for a greeting without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::Transport;
use rmcp::{ClientLifecycleMode, Peer, RoleClient, ServiceError, serve_client_with_lifecycle};
use tokio::time::timeout;

use crate::client_handler::McpClientHandler;
use crate::error::McpError;
use crate::exit::ServerExit;
use crate::http_auth::HttpError;
use crate::observe::Observations;
use crate::request_error::{AuthNeed, RequestError};
use crate::spec::{ServerSpec, ServerTransport, redacted_url};

/// A server has so long to start and to greet. One that is downloaded first may be
/// too late for that, and is there when it is started again.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The status of a server that wants to be asked later.
const TOO_MANY_REQUESTS: u16 = 429;

/// How a server is greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeMode {
    /// In the newer manner first, and in the older if it does not know that.
    Auto,
    /// In the older manner: some end at what they don't know.
    Legacy,
}

/// Whether a server is known to be an older one, so that it is not asked again for
/// as long as we live. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownMode(Arc<AtomicBool>);

impl KnownMode {
    /// How it is best greeted, as far as that is known.
    pub(super) fn get(&self) -> Option<HandshakeMode> {
        let is_older = self.0.load(Ordering::Acquire);
        is_older.then_some(HandshakeMode::Legacy)
    }

    /// It was greeted in this manner, or in none: it may be another one by now.
    pub(super) fn set(&self, manner: Option<HandshakeMode>) {
        self.0.store(manner == Some(HandshakeMode::Legacy), Ordering::Release);
    }
}

/// Who a server says it is.
#[derive(Debug, Clone)]
pub(super) struct ServerInfo {
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) version: String,
    pub(super) protocol: String,
}

/// Who a server says it is, in words that can be shown.
pub(super) fn server_info(peer: &Peer<RoleClient>, fate: &ServerExit) -> ServerInfo {
    let info = peer.peer_info();
    let server = info.as_ref().and_then(|info| info.server_info.as_ref());
    let said = |words: Option<&str>| words.map(|words| fate.sanitize(words));
    ServerInfo {
        name: said(server.map(|server| server.name.as_str())).unwrap_or_default(),
        title: said(server.and_then(|server| server.title.as_deref())),
        version: said(server.map(|server| server.version.as_str())).unwrap_or_default(),
        protocol: said(info.as_ref().map(|info| info.protocol_version.as_str()))
            .unwrap_or_default(),
    }
}

/// Greets a server.
pub(super) async fn connect<T: Transport<RoleClient> + 'static>(
    way: T,
    manner: HandshakeMode,
    heard: &Arc<Observations>,
) -> Result<RunningService<RoleClient, McpClientHandler>, RequestError> {
    let manner = match manner {
        HandshakeMode::Auto => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        HandshakeMode::Legacy => ClientLifecycleMode::Initialize,
    };
    // On the heap: it is long, and it is part of every call that may start a server.
    let host = McpClientHandler::new(Arc::clone(heard));
    let greeted = Box::pin(serve_client_with_lifecycle(host, way, manner));
    match timeout(HANDSHAKE_TIMEOUT, greeted).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(error)) => Err(handshake_error(&error)),
        Err(_) => {
            let why = format!("it did not greet within {} s", HANDSHAKE_TIMEOUT.as_secs());
            Err(RequestError::new(why))
        }
    }
}

/// What went wrong when a server was greeted.
fn handshake_error(error: &ClientInitializeError) -> RequestError {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return handshake_error(fallback);
    }
    if let ClientInitializeError::TransportError { error, .. } = error {
        let http = error.error.downcast_ref::<HttpError>();
        return http.map_or_else(|| RequestError::new(error.error.to_string()), http_request_error);
    }
    if let ClientInitializeError::ConnectionClosed(_) = error {
        let why = "it closed the connection before it had greeted";
        return RequestError::new(why.to_owned());
    }
    if let ClientInitializeError::JsonRpcError(said) = error {
        let (words, code) = (&said.message, said.code.0);
        return RequestError::new(format!("it refused to begin: {words} (code {code})"));
    }
    RequestError::new(format!("it did not greet as the protocol says: {error}"))
}

/// What went wrong over HTTP.
pub(super) fn http_request_error(error: &HttpError) -> RequestError {
    if let HttpError::Client(error) = error {
        return error.clone();
    }
    if let HttpError::AuthRequired(_) | HttpError::InsufficientScope(_) = error {
        return RequestError {
            reason: KEY_REQUIRED.to_owned(),
            may_have_been_sent: false,
            auth_need: AuthNeed::Key,
        };
    }
    let (why, sent) = if let HttpError::HttpStatus(status) = error {
        let why = format!("it answered with HTTP {}", status.status);
        (why, status.status >= 500)
    } else {
        let expired = matches!(error, HttpError::SessionExpired);
        (error.to_string(), !expired)
    };
    RequestError { reason: why, may_have_been_sent: sent, auth_need: AuthNeed::None }
}

/// A request that a server turned away with a status and said nothing else: it is there,
/// and whatever others do with it goes on.
pub(super) struct HttpRejection {
    pub(super) reason: String,
    /// It may be that it no longer knows our session.
    pub(super) may_be_lost_session: bool,
}

/// How a server turned away a request, if it did.
pub(super) fn http_rejection(error: &ServiceError) -> Option<HttpRejection> {
    let ServiceError::TransportSend(error) = error else {
        return None;
    };
    let error = error.error.downcast_ref::<HttpError>()?;
    let status = if let HttpError::HttpStatus(said) = error { Some(said.status) } else { None };
    let RequestError { reason: why, auth_need: wants, .. } = http_request_error(error);
    let is_it = wants == AuthNeed::Key || status.is_some_and(|status| (400..500).contains(&status));
    is_it.then(|| HttpRejection {
        reason: why,
        may_be_lost_session: status != Some(TOO_MANY_REQUESTS),
    })
}

const KEY_REQUIRED: &str = "it does not let us in without a key it knows";

/// The error that says why a server could not be started, and what helps.
pub(super) fn start_error(spec: &ServerSpec, fate: &ServerExit, error: &RequestError) -> McpError {
    let server = spec.name.clone();
    if let AuthNeed::Login { is_transient: passes } = error.auth_need {
        let why = fate.sanitize(&error.reason);
        return McpError::LoginRequired { server, reason: why, is_transient: passes };
    }
    let reason = match fate.reason() {
        Some(end) => end.reason,
        None => fate.with_stderr(&error.reason),
    };
    let hint = match (&spec.transport, error.auth_need) {
        (ServerTransport::Stdio { .. }, _) => {
            "Run its command in a terminal to see what it says; of our environment it sees only \
             PATH and what `env` in .mcp.json gives it."
                .to_owned()
        }
        (ServerTransport::Http { .. }, AuthNeed::Key) => {
            "Give it an Authorization header in .mcp.json.".to_owned()
        }
        (ServerTransport::Http { url, .. }, AuthNeed::None | AuthNeed::Login { .. }) => {
            format!("Is it running at {}?", redacted_url(url))
        }
    };
    McpError::Start { server, reason, hint }
}
