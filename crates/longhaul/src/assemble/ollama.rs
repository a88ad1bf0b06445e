//! Ollama on this machine or a near one: which models it has.
//!
//! Never: holds a command up for longer than a moment. Who is not there at once
//! is not there.

use std::sync::mpsc;
use std::time::Duration;

use longhaul_core::time::{Millis, Timestamp};
use longhaul_model::http::{Http, Limits};
use longhaul_model::model_list::{self, ListApi, ListRequest};

use crate::assemble::providers::Provider;

/// So long is waited for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// So long is waited for an answer. It is a list that it has at hand.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// So long is waited for the whole.
const TOTAL_TIMEOUT: Duration = Duration::from_millis(700);

/// So long an answer is believed: who pulls another model wants to see it.
const FOUND_TTL: Millis = Millis::from_secs(5);

/// So long it is believed that there is none. Whoever asks waits for it each time.
const ABSENT_TTL: Millis = Millis::from_secs(30);

/// So long this answer is believed.
pub(crate) fn cache_ttl(answer: Option<&str>) -> Millis {
    match answer {
        Some(_) => FOUND_TTL,
        None => ABSENT_TTL,
    }
}

/// The first model that it lists; none: it does not answer, or has none. It is
/// asked on a thread of its own, because whoever wants to know may not wait.
pub(crate) fn first_model(provider: &Provider, now: Timestamp) -> Option<String> {
    let limits = Limits {
        connect: CONNECT_TIMEOUT,
        first_byte: RESPONSE_TIMEOUT,
        idle: RESPONSE_TIMEOUT,
        ..provider.limits
    };
    let http = Http::new(&provider.base_url, limits).ok()?;
    let (name, headers) = (provider.name.clone(), provider.headers());
    let (tell, told) = mpsc::channel();
    let ask = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let Ok(runtime) = { runtime }.enable_all().build() else {
            return;
        };
        let asker = ListRequest {
            provider: &name,
            api: ListApi::OpenAi,
            key: None,
            headers: &headers,
            now,
        };
        let models = runtime.block_on(model_list::fetch(&http, &asker));
        // Who has stopped waiting does not want to know.
        _ = tell.send(models.ok());
    };
    let thread = std::thread::Builder::new().name("longhaul-ollama".to_owned());
    thread.spawn(ask).ok()?;
    told.recv_timeout(TOTAL_TIMEOUT).ok()??.into_iter().next()
}
