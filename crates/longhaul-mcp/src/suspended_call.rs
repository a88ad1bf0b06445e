//! State of an MCP tool call that waits: for a person's answers to the server's questions, or for a
//! task of the server. The runtime stores the state and continues the call with it.
//!
//! Invariant: everything that a server sends is bounded before it becomes part of the state.

use std::collections::BTreeSet;

use longhaul_core::event::tool::{ToolQuestion, ToolSuspension};
use longhaul_core::form::Form;
use longhaul_core::port::tool::{
    Progress, SuspendedCallWait, SuspendedToolCall, ToolFailure, ToolQuestionAnswer, ToolReply,
    ToolResumption,
};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use rmcp::model::{CallToolRequestParams, InputResponses};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_handler::{decline_elicitation_response, declined_question_text};

/// Maximum number of times that a server may ask for input during one call. Each question in a
/// request counts.
const ROUNDS_MAX: u32 = 8;

/// Maximum length in bytes of `requestState`, which a server sends to get it back unchanged.
const REQUEST_STATE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length in bytes of the id of a server's task, and of the key of an input request.
const ID_BYTES_MAX: usize = 1_024;

/// Maximum length in bytes of a server's question to a person.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// Delay before the server is asked for the status of a task, if the server specifies no interval.
const POLL_INTERVAL: Millis = Millis::from_secs(5);

/// Delay after the first failed request about a server's task. Each further delay is twice as long.
const RETRY_INTERVAL: Millis = Millis::from_secs(10);

/// Maximum number of consecutive failed requests about a server's task.
const FAILURES_MAX: u32 = 10;

/// State of a call that waits for its server or for a person.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CallState {
    /// Id of the server's task that produces the result of the call. `None` means that there is no
    /// task: to continue the call, the call itself is sent again.
    pub(super) task: Option<String>,
    /// Value of `requestState` that the server has sent and expects back unchanged with the next
    /// request.
    request_state: Option<String>,
    /// Number of times that the server has asked for input during this call. Each question to a
    /// person counts.
    rounds: u32,
    /// Responses to the server's input requests that were not sent yet, by the key of the request.
    pub(super) responses: InputResponses,
    /// Questions of the server that a person has not answered yet. The first one is being asked.
    /// The runtime redacts them: the name of this field is `SuspendedToolCall::QUESTIONS_KEY`.
    questions: Vec<OpenQuestion>,
    /// Keys of the task's input requests to which responses were sent. The server may still list
    /// these requests for a while.
    answered: BTreeSet<String>,
    /// Number of consecutive failed requests about the server's task.
    failures: u32,
}

/// A question of the server that a person has not answered yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OpenQuestion {
    key: String,
    message: String,
    schema: Value,
}

impl CallState {
    /// Restores the stored state of a suspended call, to continue the call. If the first question
    /// was answered, declined or left unanswered, adds the response for the server.
    pub(super) fn from_resumption(resumption: ToolResumption) -> Result<Self, ToolFailure> {
        let state = serde_json::from_str(resumption.state.as_str());
        let mut state: Self = state.map_err(|_| {
            ToolFailure::new("the stored state of the call can't be read by this build")
        })?;
        if let (Some(answer), false) = (resumption.answer, state.questions.is_empty()) {
            let question = state.questions.remove(0);
            let response = match answer {
                ToolQuestionAnswer::Answered(content) => {
                    json!({ "action": "accept", "content": content.to_value() })
                }
                ToolQuestionAnswer::Declined => decline_elicitation_response(),
                ToolQuestionAnswer::Unanswered => json!({ "action": "cancel" }),
            };
            state.responses.insert(question.key, response);
        }
        Ok(state)
    }

    /// Returns whether a person must answer before the server is contacted again.
    pub(super) const fn has_question(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Adds the responses to the server's input requests and the server's `requestState` to the
    /// parameters of a call.
    pub(super) fn add_responses_to_call(&self, params: &mut CallToolRequestParams) {
        params.request_state.clone_from(&self.request_state);
        params.input_responses = (!self.responses.is_empty()).then(|| self.responses.clone());
    }

    /// Records that the server has received the responses to its input requests.
    pub(super) fn record_sent_responses(&mut self) {
        let sent = std::mem::take(&mut self.responses);
        self.answered.extend(sent.into_keys());
    }

    /// Records that the server needs input before it continues the call.
    pub(super) fn record_input_required(
        &mut self,
        answer: &Value,
        progress: &dyn Progress,
    ) -> Result<(), String> {
        let request_state = &answer["requestState"];
        let text = request_state.as_str().map(str::to_owned);
        if text.is_none() && !request_state.is_null() {
            return Err("its state of the request is not a text".to_owned());
        }
        if text.as_ref().is_some_and(|text| text.len() > REQUEST_STATE_BYTES_MAX) {
            return Err(format!(
                "its state of the request is longer than {REQUEST_STATE_BYTES_MAX} bytes"
            ));
        }
        self.request_state = text;
        self.responses.clear();
        self.add_inputs(&answer["inputRequests"], progress)?;
        self.add_and_check_input_rounds(1)
    }

    /// Records the input requests of a server's task to which no response was sent yet. Returns
    /// whether there are any.
    pub(super) fn record_task_input_requests(
        &mut self,
        task: &Value,
        progress: &dyn Progress,
    ) -> Result<bool, String> {
        let requests = task["inputRequests"].as_object().cloned().unwrap_or_default();
        let new: serde_json::Map<String, Value> =
            requests.into_iter().filter(|(key, _)| !self.answered.contains(key)).collect();
        if new.is_empty() {
            return Ok(false);
        }
        self.add_inputs(&Value::Object(new), progress)?;
        self.add_and_check_input_rounds(1)?;
        Ok(true)
    }

    /// Adds to the number of times that the server has asked for input: once per open question to a
    /// person, but at least `min_rounds`. Returns an error if the number exceeds `ROUNDS_MAX`.
    fn add_and_check_input_rounds(&mut self, min_rounds: u32) -> Result<(), String> {
        let questions = u32::try_from(self.questions.len()).unwrap_or(u32::MAX);
        self.rounds = self.rounds.saturating_add(questions.max(min_rounds));
        match self.rounds > ROUNDS_MAX {
            true => Err(format!(
                "the server asked for input more than {ROUNDS_MAX} times without a result"
            )),
            false => Ok(()),
        }
    }

    /// Adds the input requests that a person can answer to the questions, and declines other
    /// questions. The list of roots is always empty, and a request for model sampling is an error.
    fn add_inputs(&mut self, requests: &Value, progress: &dyn Progress) -> Result<(), String> {
        let requests = match requests.as_object() {
            Some(requests) => requests,
            None if requests.is_null() => return Ok(()),
            None => return Err("its requests for input are invalid".to_owned()),
        };
        for (key, request) in requests {
            if key.len() > ID_BYTES_MAX {
                return Err("the key of a request for input is too long".to_owned());
            }
            let params = &request["params"];
            let response = match request["method"].as_str() {
                Some("elicitation/create") => {
                    let message = params["message"].as_str().unwrap_or_default();
                    if let Some(question) = parse_question(key, message, params) {
                        self.questions.push(question);
                        continue;
                    }
                    progress.report_to_journal(&declined_question_text(message));
                    decline_elicitation_response()
                }
                Some("roots/list") => json!({ "roots": [] }),
                Some("sampling/createMessage") => {
                    return Err(
                        "it asked for a model response, which is not offered to servers".to_owned()
                    );
                }
                _ => return Err("it asked for input of an unknown kind".to_owned()),
            };
            self.responses.insert(key.clone(), response);
        }
        Ok(())
    }

    /// Records that the server has answered with a task instead of a result, so that the call waits
    /// for that task.
    pub(super) fn record_server_task(&mut self, answer: &Value) -> Result<(), String> {
        let id = answer["taskId"].as_str().unwrap_or_default();
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err("the id of its task is invalid".to_owned());
        }
        *self = Self { task: Some(id.to_owned()), rounds: self.rounds, ..Self::default() };
        Ok(())
    }

    /// Returns the reply that suspends a call until its task, on which the server still works, is
    /// polled again. `task` is the server's description of the task, and `message` is its status
    /// for people.
    pub(super) fn suspend_for_task(mut self, task: &Value, message: Option<String>) -> ToolReply {
        self.failures = 0;
        let after = match task["pollIntervalMs"].as_u64() {
            // The task may have ended before it was ever asked about.
            _ if task["resultType"] == "task" && task["status"] != "working" => Millis::ZERO,
            Some(millis) => Millis(millis),
            None => POLL_INTERVAL,
        };
        let ttl = task["ttlMs"].as_u64().map(Millis);
        self.suspend(SuspendedCallWait::Poll { after, ttl, message }, true)
    }

    /// Returns the reply that suspends a call until a failed request about its task is repeated.
    /// `None` means that more than `FAILURES_MAX` requests have failed in a row.
    pub(super) fn suspend_after_failed_request(mut self, reason: &str) -> Option<ToolReply> {
        let after = Millis(RETRY_INTERVAL.0 << self.failures.min(FAILURES_MAX));
        self.failures += 1;
        let message = Some(format!("a request to the server about its task failed: {reason}"));
        let wait = SuspendedCallWait::Poll { after, ttl: None, message };
        (self.failures <= FAILURES_MAX).then(|| self.suspend(wait, true))
    }

    /// Returns the reply that suspends a call until a person has answered its first question.
    /// `None` if there is no question.
    pub(super) fn suspend_for_question(self, server: &str, may_repeat: bool) -> Option<ToolReply> {
        let OpenQuestion { message, schema, .. } = self.questions.first()?;
        let question = ToolQuestion {
            asker: format!("The MCP server `{server}`"),
            message: message.clone(),
            schema: RawJson::from_serialize(schema),
        };
        Some(self.suspend(SuspendedCallWait::Answer(question), may_repeat))
    }

    fn suspend(self, wait: SuspendedCallWait, may_repeat: bool) -> ToolReply {
        let is_task = self.task.is_some();
        let suspension = ToolSuspension {
            state: RawJson::from_serialize(&self),
            may_repeat: may_repeat || is_task,
            must_cancel: is_task,
        };
        ToolReply::Suspended(Box::new(SuspendedToolCall { suspension, wait }))
    }
}

/// Returns the question of an elicitation. `None` means that it can't be shown as a form.
fn parse_question(key: &str, message: &str, params: &Value) -> Option<OpenQuestion> {
    let is_form = params["mode"].as_str().is_none_or(|mode| mode == "form");
    let schema = &params["requestedSchema"];
    let can_be_shown = is_form
        && !message.trim().is_empty()
        && message.len() <= MESSAGE_BYTES_MAX
        && Form::from_schema(schema).is_ok();
    can_be_shown.then(|| OpenQuestion {
        key: key.to_owned(),
        message: message.to_owned(),
        schema: schema.clone(),
    })
}

#[cfg(test)]
mod tests {
    use longhaul_core::port::tool::NoopProgress;

    use super::*;

    fn question_json(key: &str) -> Value {
        json!({ key: {
            "method": "elicitation/create",
            "params": {
                "message": "Who?",
                "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } },
            },
        } })
    }

    fn expect_suspended_call(reply: Option<ToolReply>) -> SuspendedToolCall {
        match reply {
            Some(ToolReply::Suspended(suspended)) => *suspended,
            reply => panic!("not suspended: {reply:?}"),
        }
    }

    #[test]
    fn the_answer_and_the_state_of_the_request_go_back_to_the_server() {
        for (answer, response) in [
            (
                ToolQuestionAnswer::Answered(RawJson::parse(r#"{"a":"x"}"#).unwrap()),
                json!({ "action": "accept", "content": { "a": "x" } }),
            ),
            (ToolQuestionAnswer::Declined, json!({ "action": "decline" })),
            (ToolQuestionAnswer::Unanswered, json!({ "action": "cancel" })),
        ] {
            let mut state = CallState::default();
            let result_json =
                json!({ "requestState": "\u{0}opaque", "inputRequests": question_json("q") });
            state.record_input_required(&result_json, &NoopProgress).unwrap();
            let stored = expect_suspended_call(state.suspend_for_question("billing", false));
            assert!(!stored.suspension.may_repeat && !stored.suspension.must_cancel);
            let state = stored.suspension.state;
            let state =
                CallState::from_resumption(ToolResumption { state, answer: Some(answer) }).unwrap();
            assert!(!state.has_question());
            let mut params = CallToolRequestParams::new("pay".to_owned());
            state.add_responses_to_call(&mut params);
            assert_eq!(params.request_state.as_deref(), Some("\u{0}opaque"));
            let responses = params.input_responses.unwrap();
            assert_eq!(responses, InputResponses::from([("q".to_owned(), response)]));
        }
    }

    #[test]
    fn input_requests_beyond_the_limits_are_refused() {
        let too_long = "x".repeat(REQUEST_STATE_BYTES_MAX + 1);
        let questions: Vec<Value> =
            (0..9).map(|index| question_json(&format!("q{index}"))).collect();
        let too_many: serde_json::Map<String, Value> =
            questions.into_iter().filter_map(|one| one.as_object().cloned()).flatten().collect();
        for (result_json, problem) in [
            (json!({ "requestState": too_long }), "longer than 65536 bytes"),
            (json!({ "requestState": 7 }), "not a text"),
            (json!({ "inputRequests": [] }), "invalid"),
            (json!({ "inputRequests": question_json(&"k".repeat(2_000)) }), "too long"),
            (json!({ "inputRequests": { "q": { "method": "x" } } }), "unknown kind"),
            (
                json!({ "inputRequests": { "q": { "method": "sampling/createMessage" } } }),
                "model response",
            ),
            (json!({ "inputRequests": too_many }), "more than 8 times"),
        ] {
            let result = CallState::default().record_input_required(&result_json, &NoopProgress);
            assert!(result.clone().unwrap_err().contains(problem), "{result:?}");
        }
        let mut state = CallState::default();
        let repeated = json!({ "requestState": "s" });
        for _ in 0..8 {
            state.record_input_required(&repeated, &NoopProgress).unwrap();
        }
        state.record_input_required(&repeated, &NoopProgress).unwrap_err();
        for id in [json!(""), json!(7), json!("i".repeat(2_000)), Value::Null] {
            CallState::default().record_server_task(&json!({ "taskId": id })).unwrap_err();
        }
    }

    #[test]
    fn a_question_that_is_no_form_is_declined() {
        let url = json!({ "mode": "url", "message": "go", "url": "https://a.example" });
        let nested = json!({
            "message": "who?",
            "requestedSchema": { "properties": { "a": { "type": "object" } } },
        });
        let mut state = CallState::default();
        for params in [url, nested, json!({})] {
            let request = json!({ "q": { "method": "elicitation/create", "params": params } });
            let result_json = json!({ "inputRequests": request });
            state.record_input_required(&result_json, &NoopProgress).unwrap();
            assert!(!state.has_question());
            assert_eq!(state.responses["q"], json!({ "action": "decline" }));
        }
    }

    #[test]
    fn a_task_asks_each_question_once() {
        let mut state = CallState::default();
        state.record_server_task(&json!({ "taskId": "7" })).unwrap();
        let task = json!({ "inputRequests": question_json("q") });
        assert_eq!(state.record_task_input_requests(&task, &NoopProgress), Ok(true));
        let stored = expect_suspended_call(state.suspend_for_question("billing", false));
        assert!(stored.suspension.may_repeat && stored.suspension.must_cancel);
        let resumption = ToolResumption {
            state: stored.suspension.state,
            answer: Some(ToolQuestionAnswer::Declined),
        };
        let mut state = CallState::from_resumption(resumption).unwrap();
        state.record_sent_responses();
        assert_eq!(state.record_task_input_requests(&task, &NoopProgress), Ok(false));
    }

    #[test]
    fn failed_requests_about_a_task_are_repeated_with_growing_delays() {
        let mut state = CallState { task: Some("7".to_owned()), ..CallState::default() };
        for expected in [10_000, 20_000, 40_000] {
            let stored = expect_suspended_call(state.suspend_after_failed_request("down"));
            let SuspendedCallWait::Poll { after, .. } = stored.wait else { panic!("no poll") };
            assert_eq!(after, Millis(expected));
            let state_json = stored.suspension.state;
            state = CallState::from_resumption(ToolResumption { state: state_json, answer: None })
                .unwrap();
        }
        state.failures = FAILURES_MAX;
        assert_eq!(state.suspend_after_failed_request("down"), None);
    }
}
