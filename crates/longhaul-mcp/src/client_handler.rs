//! The client side of an MCP connection: client information and answers to requests of the server.
//! Every question (elicitation) that the server sends as a request of its own, as in older revisions
//! of the protocol, is declined, and the call's progress records it.

use std::sync::Arc;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ConstString as _, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ElicitationCreateRequestMethod, ErrorCode, Implementation, JsonObject, ProtocolVersion,
    TASKS_EXTENSION_ID,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleClient};
use serde_json::Value;

use crate::exit::truncated;
use crate::observe::Observations;

/// Maximum number of characters that are recorded of a server's question.
const QUESTION_CHARS_MAX: usize = 200;

/// Answers the requests of an MCP server.
#[derive(Debug)]
pub(super) struct McpClientHandler(pub(super) Arc<Observations>);

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("longhaul", env!("CARGO_PKG_VERSION"));
        // The older handshake leaves these capabilities out, see `observe.rs`.
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default());
        let extension = (TASKS_EXTENSION_ID.to_owned(), JsonObject::default());
        capabilities.extensions = Some([extension].into_iter().collect());
        ClientConfig::new(capabilities, implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.0.report_question_to_calls(&declined_elicitation_message(&params));
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    /// Declines elicitation requests (questions of the server) that the SDK can't parse. Other
    /// unknown requests get the error "method not found".
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != ElicitationCreateRequestMethod::VALUE {
            let code = ErrorCode::METHOD_NOT_FOUND;
            return Err(ErrorData::new(code, request.method, None));
        }
        let message = request.params.as_ref().and_then(|request| request["message"].as_str());
        self.0.report_question_to_calls(&declined_question_text(message.unwrap_or_default()));
        Ok(CustomResult::new(decline_elicitation_response()))
    }
}

/// Returns the response that declines an elicitation (a question of the server).
pub(super) fn decline_elicitation_response() -> Value {
    serde_json::json!({ "action": "decline" })
}

/// Returns the text that is recorded about a declined elicitation (a question of the server).
fn declined_elicitation_message(params: &ElicitRequestParams) -> String {
    let params = serde_json::to_value(params).unwrap_or_default();
    declined_question_text(params["message"].as_str().unwrap_or_default())
}

/// Returns the text that is recorded about a declined question of the server.
pub(super) fn declined_question_text(question: &str) -> String {
    let printable = question.chars().filter(|c| !c.is_control());
    let question = truncated(printable, QUESTION_CHARS_MAX);
    format!("declined the server's question \"{question}\": a person can't be asked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn declined_questions_are_reported_short_and_printable() {
        let address = json!({
            "mode": "url", "message": "go\u{1b} there", "url": "https://a.example",
            "elicitationId": "1",
        });
        let long = json!({
            "mode": "form", "message": "long ".repeat(1_000),
            "requestedSchema": { "type": "object", "properties": {} },
        });
        for (params, start) in [
            (address, "declined the server's question \"go there\":"),
            (long, "declined the server's question \"long "),
        ] {
            let params: ElicitRequestParams = serde_json::from_value(params).unwrap();
            let message = declined_elicitation_message(&params);
            assert!(message.starts_with(start), "{message}");
            assert!(message.chars().count() < 300, "{message}");
        }
    }
}
