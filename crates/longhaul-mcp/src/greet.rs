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

use crate::error::McpError;
use crate::fate::Fate;
use crate::host::Host;
use crate::request_error::{RequestError, Wants};
use crate::sent::HttpError;
use crate::spec::{ServerSpec, Way, shown};
use crate::tap::Heard;

/// A server has so long to start and to greet. One that is downloaded first may be
/// too late for that, and is there when it is started again.
const GREETS: Duration = Duration::from_secs(30);

/// The status of a server that wants to be asked later.
const TOO_MANY: u16 = 429;

/// How a server is greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// In the newer manner first, and in the older if it does not know that.
    Either,
    /// In the older manner: some end at what they don't know.
    Older,
}

/// Whether a server is known to be an older one, so that it is not asked again for
/// as long as we live. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<AtomicBool>);

impl Known {
    /// How it is best greeted, as far as that is known.
    pub(super) fn manner(&self) -> Option<Manner> {
        let is_older = self.0.load(Ordering::Acquire);
        is_older.then_some(Manner::Older)
    }

    /// It was greeted in this manner, or in none: it may be another one by now.
    pub(super) fn learn(&self, manner: Option<Manner>) {
        self.0
            .store(manner == Some(Manner::Older), Ordering::Release);
    }
}

/// Who a server says it is.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) version: String,
    pub(super) protocol: String,
}

/// Who a server says it is, in words that can be shown.
pub(super) fn who(peer: &Peer<RoleClient>, fate: &Fate) -> Who {
    let info = peer.peer_info();
    let server = info.as_ref().and_then(|info| info.server_info.as_ref());
    let said = |words: Option<&str>| words.map(|words| fate.clean(words));
    Who {
        name: said(server.map(|server| server.name.as_str())).unwrap_or_default(),
        title: said(server.and_then(|server| server.title.as_deref())),
        version: said(server.map(|server| server.version.as_str())).unwrap_or_default(),
        protocol: said(info.as_ref().map(|info| info.protocol_version.as_str()))
            .unwrap_or_default(),
    }
}

/// Greets a server.
pub(super) async fn greet<T: Transport<RoleClient> + 'static>(
    way: T,
    manner: Manner,
    heard: &Arc<Heard>,
) -> Result<RunningService<RoleClient, Host>, RequestError> {
    let manner = match manner {
        Manner::Either => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        Manner::Older => ClientLifecycleMode::Initialize,
    };
    // On the heap: it is long, and it is part of every call that may start a server.
    let host = Host::new(Arc::clone(heard));
    let greeted = Box::pin(serve_client_with_lifecycle(host, way, manner));
    match timeout(GREETS, greeted).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(error)) => Err(greeting_error(&error)),
        Err(_) => {
            let why = format!("it did not greet within {} s", GREETS.as_secs());
            Err(RequestError::plain(why))
        }
    }
}

/// What went wrong when a server was greeted.
fn greeting_error(error: &ClientInitializeError) -> RequestError {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return greeting_error(fallback);
    }
    if let ClientInitializeError::TransportError { error, .. } = error {
        let http = error.error.downcast_ref::<HttpError>();
        return http.map_or_else(|| RequestError::plain(error.error.to_string()), on_the_way);
    }
    if let ClientInitializeError::ConnectionClosed(_) = error {
        let why = "it closed the connection before it had greeted";
        return RequestError::plain(why.to_owned());
    }
    if let ClientInitializeError::JsonRpcError(said) = error {
        let (words, code) = (&said.message, said.code.0);
        return RequestError::plain(format!("it refused to begin: {words} (code {code})"));
    }
    RequestError::plain(format!("it did not greet as the protocol says: {error}"))
}

/// What went wrong over HTTP.
pub(super) fn on_the_way(error: &HttpError) -> RequestError {
    if let HttpError::Client(error) = error {
        return error.clone();
    }
    if let HttpError::AuthRequired(_) | HttpError::InsufficientScope(_) = error {
        return RequestError {
            why: UNKNOWN_CALLER.to_owned(),
            sent: false,
            wants: Wants::Key,
        };
    }
    let (why, sent) = if let HttpError::HttpStatus(status) = error {
        let why = format!("it answered with HTTP {}", status.status);
        (why, status.status >= 500)
    } else {
        let expired = matches!(error, HttpError::SessionExpired);
        (error.to_string(), !expired)
    };
    RequestError {
        why,
        sent,
        wants: Wants::Nothing,
    }
}

/// A request that a server turned away with a status and said nothing else: it is there,
/// and whatever others do with it goes on.
pub(super) struct TurnedAway {
    pub(super) why: String,
    /// It may be that it no longer knows our session.
    pub(super) may_be_session: bool,
}

/// How a server turned away a request, if it did.
pub(super) fn turned_away(error: &ServiceError) -> Option<TurnedAway> {
    let ServiceError::TransportSend(error) = error else {
        return None;
    };
    let error = error.error.downcast_ref::<HttpError>()?;
    let status = if let HttpError::HttpStatus(said) = error {
        Some(said.status)
    } else {
        None
    };
    let RequestError { why, wants, .. } = on_the_way(error);
    let is_it = wants == Wants::Key || status.is_some_and(|status| (400..500).contains(&status));
    is_it.then(|| TurnedAway {
        why,
        may_be_session: status != Some(TOO_MANY),
    })
}

const UNKNOWN_CALLER: &str = "it does not let us in without a key it knows";

/// The error that says why a server could not be started, and what helps.
pub(super) fn failed(spec: &ServerSpec, fate: &Fate, error: &RequestError) -> McpError {
    let server = spec.name.clone();
    if let Wants::Login { passes } = error.wants {
        let why = fate.clean(&error.why);
        return McpError::Login {
            server,
            why,
            passes,
        };
    }
    let why = match fate.end() {
        Some(end) => end.why,
        None => fate.with_last_words(&error.why),
    };
    let helps = match (&spec.way, error.wants) {
        (Way::Stdio { .. }, _) => {
            "Run its command in a terminal to see what it says; of our environment it sees only \
             PATH and what `env` in .mcp.json gives it."
                .to_owned()
        }
        (Way::Http { .. }, Wants::Key) => {
            "Give it an Authorization header in .mcp.json.".to_owned()
        }
        (Way::Http { url, .. }, Wants::Nothing | Wants::Login { .. }) => {
            format!("Is it running at {}?", shown(url))
        }
    };
    McpError::Start { server, why, helps }
}
