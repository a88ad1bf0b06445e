//! What a server is told of us, and what it is answered when it asks something in the
//! middle of a call: every question is declined, and people can read about it.

use std::sync::Arc;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ConstString as _, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCreateRequestMethod,
    ErrorCode, Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleClient};
use serde_json::Value;

use crate::observe::Observations;

/// Maximum letters of a question that people are told.
const QUESTION_CHARS_MAX: usize = 200;

/// Our side of a connection.
#[derive(Debug)]
pub(super) struct McpClientHandler {
    observations: Arc<Observations>,
}

impl McpClientHandler {
    pub(super) const fn new(heard: Arc<Observations>) -> Self {
        Self { observations: heard }
    }
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("longhaul", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.observations.record_for_calls(&declined_message(&asked));
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    /// A form that the SDK can't read comes here: it is a question all the same.
    async fn on_custom_request(
        &self,
        asked: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if asked.method != ElicitationCreateRequestMethod::VALUE {
            let code = ErrorCode::METHOD_NOT_FOUND;
            return Err(ErrorData::new(code, asked.method, None));
        }
        let message = asked.params.as_ref().and_then(|asked| asked["message"].as_str());
        self.observations.record_for_calls(&declined_text(message.unwrap_or_default()));
        Ok(CustomResult::new(decline_response()))
    }
}

/// The answer to every question.
pub(super) fn decline_response() -> Value {
    serde_json::json!({ "action": "decline" })
}

/// What people are told about a question.
pub(super) fn declined_message(asked: &ElicitRequestParams) -> String {
    let asked = serde_json::to_value(asked).unwrap_or_default();
    declined_text(asked["message"].as_str().unwrap_or_default())
}

fn declined_text(question: &str) -> String {
    let plain = question.chars().filter(|letter| !letter.is_control());
    let mut short: String = plain.clone().take(QUESTION_CHARS_MAX).collect();
    if plain.count() > QUESTION_CHARS_MAX {
        short.push('…');
    }
    format!("it asked \"{short}\" and was declined: nothing is answered to this server")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_elicitation_is_reported_within_limits() {
        let address = json!({
            "mode": "url", "message": "go\u{1b} there", "url": "https://a.example",
            "elicitationId": "1",
        });
        let long = json!({
            "mode": "form", "message": "long ".repeat(1_000),
            "requestedSchema": { "type": "object", "properties": {} },
        });
        for (asked, start) in
            [(address, "it asked \"go there\" and was"), (long, "it asked \"long ")]
        {
            let asked: ElicitRequestParams = serde_json::from_value(asked).unwrap();
            let words = declined_message(&asked);
            assert!(words.starts_with(start), "{words}");
            assert!(words.chars().count() < 300, "{words}");
        }
    }
}
