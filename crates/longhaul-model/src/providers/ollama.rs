//! Asks an Ollama server for its models. The timeouts are short, so that a missing server does not
//! delay a command.

use std::sync::mpsc;
use std::time::Duration;

use longhaul_core::time::{Millis, Timestamp};

use crate::http::{HttpClient, HttpLimits};
use crate::model_list::{self, ModelListRequest};
use crate::providers::Provider;
use crate::providers::built_in::ApiFormat;

/// Timeout for connecting to the Ollama server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// Timeout for the response of the Ollama server.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Timeout for the whole request to the Ollama server.
const TOTAL_TIMEOUT: Duration = Duration::from_millis(700);

/// How long the name of Ollama's first model is cached. Short, so that a newly pulled model is
/// found soon.
pub(crate) const FOUND_MODEL_TTL: Millis = Millis::from_secs(5);

/// How long it is cached that Ollama has no model or does not respond. Longer than for a found
/// model, since each query waits for the timeout.
pub(crate) const NO_MODEL_TTL: Millis = Millis::from_secs(30);

/// Returns the first model that the Ollama server lists. `None` means that the server does not
/// respond or has no model. The request runs on its own thread, because the caller is synchronous.
pub(crate) fn fetch_first_ollama_model(provider: &Provider, now: Timestamp) -> Option<String> {
    let limits = HttpLimits {
        connect: CONNECT_TIMEOUT,
        first_byte: RESPONSE_TIMEOUT,
        idle: RESPONSE_TIMEOUT,
        ..provider.limits
    };
    let http = HttpClient::new(&provider.base_url, limits).ok()?;
    let (name, headers) = (provider.name.clone(), provider.unredacted_headers().to_vec());
    let (sender, receiver) = mpsc::channel();
    let request_models = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let Ok(runtime) = { runtime }.enable_all().build() else {
            return;
        };
        let request = ModelListRequest {
            provider: &name,
            api: ApiFormat::Chat,
            key: None,
            headers: &headers,
            now,
        };
        let models = runtime.block_on(model_list::fetch_model_names(&http, &request));
        // Fails if the caller has stopped waiting.
        _ = sender.send(models.ok());
    };
    let thread = std::thread::Builder::new().name("longhaul-ollama".to_owned());
    thread.spawn(request_models).ok()?;
    receiver.recv_timeout(TOTAL_TIMEOUT).ok()??.into_iter().next()
}
