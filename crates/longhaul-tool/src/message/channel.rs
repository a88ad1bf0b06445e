//! Delivers a message through the configured channel.
//!
//! Invariant: the model does not learn the recipient, and a redirect to a page does not count as
//! delivery.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use url::Url;

use longhaul_core::port::outbound::{NetworkScope, OutboundRequest};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError, CommandOutput, ProgramExit};
use crate::disk_tool::run_on_blocking_thread;
use crate::jsonl::JsonLinesFile;
use crate::message::delivery_log::{DeliveryLog, DeliveryState};
use crate::message::envelope::{MessageEnvelope, not_delivered_failure};
use crate::message::target::DeliveryTarget;
use crate::outbound::{FOLLOW_ALL, GuardedHttpClient, REQUEST_TIMEOUT_MAX};
use crate::safe_dir::FsError;

/// Maximum number of bytes of a receiver's response that are logged.
const RESPONSE_BYTES_MAX: usize = 1_000;
/// Maximum number of stderr bytes in an error message.
const STDERR_BYTES_MAX: usize = 300;
/// Timeout of the program that delivers a message.
const COMMAND_TIMEOUT: Millis = Millis::from_secs(30);

/// Reason why a message is not sent: another worker has claimed the run in the meantime.
pub(super) const TAKEN_OVER: &str = "another worker has taken this run over";

/// The channel through which messages are delivered.
#[derive(Debug)]
pub(super) struct DeliveryChannel {
    pub(super) target: DeliveryTarget,
    pub(super) root: PathBuf,
    pub(super) reach: NetworkScope,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) client: Arc<GuardedHttpClient>,
}

/// Why a message was not delivered, or why it is unknown whether it was delivered.
#[derive(Debug)]
pub(super) struct DeliveryError {
    pub(super) reason: String,
    /// Whether it is certain that nothing was delivered.
    pub(super) is_certain: bool,
}

impl DeliveryChannel {
    /// Delivers the message through the configured channel. Returns the response of the receiver.
    pub(super) async fn deliver(
        &self,
        envelope: &MessageEnvelope,
        log: &DeliveryLog,
    ) -> Result<String, DeliveryError> {
        match &self.target {
            DeliveryTarget::File(path) => {
                let outbox = JsonLinesFile::new(path.clone());
                let (envelope, log) = (envelope.clone(), log.clone());
                let append = move || Ok(append_unless_present(&outbox, &envelope, &log));
                run_on_blocking_thread(append).await.unwrap_or_else(|failure| {
                    Err(DeliveryError { reason: failure.to_string(), is_certain: false })
                })
            }
            DeliveryTarget::Command(argv) => self.deliver_by_command(argv.clone(), envelope).await,
            DeliveryTarget::Webhook(url) => self.post_webhook(url, envelope).await,
        }
    }

    async fn deliver_by_command(
        &self,
        argv: Vec<String>,
        envelope: &MessageEnvelope,
    ) -> Result<String, DeliveryError> {
        let command = Command {
            stdin: format!("{}\n", json!(envelope)).into_bytes(),
            timeout: COMMAND_TIMEOUT,
            ..Command::new(argv, &self.root)
        };
        match command.run(&*self.clock).await {
            Ok(output) if output.exit.is_success() => {
                Ok(output.stdout.tail_text(RESPONSE_BYTES_MAX))
            }
            Ok(output) => Err(DeliveryError {
                reason: program_failure_message(&output, &envelope.recipient),
                // A program that exits by itself reports that it failed.
                is_certain: matches!(output.exit, ProgramExit::Code(_)),
            }),
            Err(error) => Err(DeliveryError {
                is_certain: !matches!(error, CommandError::WaitFailed(_)),
                reason: error.to_string(),
            }),
        }
    }

    async fn post_webhook(
        &self,
        url: &Url,
        envelope: &MessageEnvelope,
    ) -> Result<String, DeliveryError> {
        let request = OutboundRequest {
            method: "POST".into(),
            url: url.to_string(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("idempotency-key".into(), envelope.key.clone()),
            ],
            body: json!(envelope).to_string().into_bytes(),
            timeout: REQUEST_TIMEOUT_MAX,
            bytes_max: 64 * 1024,
            network_scope: self.reach,
        };
        let final_response =
            self.client.send_request(&request, FOLLOW_ALL).await.map_err(|error| {
                DeliveryError {
                    reason: error.error.to_string(),
                    is_certain: !error.may_have_been_sent,
                }
            })?;
        let status = final_response.response.status;
        if final_response.method != request.method {
            // A page that the webhook redirects to may answer 200 to everything.
            let reason = "the webhook redirects instead of accepting the message".into();
            return Err(DeliveryError { reason, is_certain: false });
        }
        if !(200..300).contains(&status) {
            return Err(DeliveryError {
                reason: format!("the webhook answered {status}"),
                is_certain: (400..500).contains(&status),
            });
        }
        let text = String::from_utf8_lossy(&final_response.response.body).into_owned();
        let end = text.floor_char_boundary(RESPONSE_BYTES_MAX);
        Ok(format!("{status} {}", &text[..end]).trim().to_owned())
    }
}

/// Returns a message about a failed delivery program, with the recipient redacted.
fn program_failure_message(output: &CommandOutput, recipient: &str) -> String {
    let stderr = output.stderr.tail_text(STDERR_BYTES_MAX);
    let stderr = stderr.replace(recipient, "[recipient]");
    let exit = &output.exit;
    match stderr.is_empty() {
        true => format!("the delivery program {exit}"),
        false => format!("the delivery program {exit}: {stderr}"),
    }
}

/// Appends the message to the outbox (the JSON lines file of messages), unless the message is
/// already there or a worker that has claimed the run since is sending it. The file is locked, so no
/// other process can append the message in between.
fn append_unless_present(
    outbox: &JsonLinesFile,
    envelope: &MessageEnvelope,
    log: &DeliveryLog,
) -> Result<String, DeliveryError> {
    let error = |error: FsError, is_certain| {
        let reason = format!("the outbox `{}`: {error}", outbox.display_path());
        DeliveryError { reason, is_certain }
    };
    // If reading failed, nothing was written; if writing failed, something may have been.
    let read_error = |reason| error(reason, true);
    let locked_outbox = outbox.lock_or_create().map_err(read_error)?;
    if !locked_outbox.lines_with_key(&envelope.key).map_err(read_error)?.is_empty() {
        return Ok("already in the outbox".into());
    }
    let state = log.state(&envelope.key).map_err(read_error)?;
    if state == DeliveryState::Delivered {
        return Ok("already delivered by another worker".into());
    }
    if state.is_started_after(envelope.epoch) {
        return Err(DeliveryError { reason: TAKEN_OVER.to_owned(), is_certain: true });
    }
    let result = locked_outbox.append(&json!(envelope));
    result.map(|()| String::new()).map_err(|reason| error(reason, false))
}

impl DeliveryError {
    /// Converts the delivery error into a failure for the model.
    pub(super) fn to_tool_failure(&self) -> ToolFailure {
        let reason = &self.reason;
        match self.is_certain {
            true => not_delivered_failure(reason.clone()),
            false => ToolFailure::outcome_unknown(format!(
                "The message may not have been delivered: {reason}. It may also have arrived: \
                 don't send it again before you know."
            )),
        }
    }
}
