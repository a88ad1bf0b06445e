//! Delivers a message through the configured channel.
//!
//! Invariant: the model does not learn the recipient, and a redirect to a page does not count as
//! delivery.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use longhaul_core::id::Epoch;
use longhaul_core::port::outbound::{NetworkScope, OutboundRequest};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError, CommandOutput, ProgramExit};
use crate::jsonl::JsonLinesFile;
use crate::message::delivery_log::{DeliveryLog, DeliveryState};
use crate::message::envelope::{MessageEnvelope, not_delivered_failure};
use crate::message::target::DeliveryTarget;
use crate::outbound::{GuardedHttpClient, REQUEST_TIMEOUT_MAX};
use crate::safe_dir::FsError;
use crate::tool_support::run_on_blocking_thread;

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
    pub(super) async fn deliver_message(
        &self,
        envelope: &MessageEnvelope,
        log: &DeliveryLog,
        epoch: Epoch,
    ) -> Result<String, DeliveryError> {
        match &self.target {
            DeliveryTarget::File(path) => {
                let outbox = OutboxFile(JsonLinesFile::new(path.clone()));
                outbox.append_on_blocking_thread(envelope.clone(), log.clone(), epoch).await
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
            stdin: format!("{}\n", envelope.to_json()).into_bytes(),
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
            body: envelope.to_json().to_string().into_bytes(),
            timeout: REQUEST_TIMEOUT_MAX,
            bytes_max: 64 * 1024,
            network_scope: self.reach,
        };
        let final_response = self.client.send_request(&request).await.map_err(|error| {
            DeliveryError { reason: error.error.to_string(), is_certain: !error.may_have_been_sent }
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

/// The JSON lines file that messages are appended to.
#[derive(Debug, Clone)]
struct OutboxFile(JsonLinesFile);

impl OutboxFile {
    /// Appends a message to the outbox (the JSON lines file of messages) on a blocking thread.
    async fn append_on_blocking_thread(
        self,
        envelope: MessageEnvelope,
        log: DeliveryLog,
        epoch: Epoch,
    ) -> Result<String, DeliveryError> {
        let path = self.0.display_path();
        let result = run_on_blocking_thread(move || {
            Ok(self.append_message_unless_present(&envelope, &log, epoch))
        });
        let (reason, is_certain) = match result.await {
            Ok(Ok(answer)) => return Ok(answer.to_owned()),
            Ok(Err(OutboxError::Superseded)) => (TAKEN_OVER.to_owned(), true),
            Ok(Err(OutboxError::Fs(error, is_certain))) => {
                (format!("the outbox `{path}`: {error}"), is_certain)
            }
            Err(error) => (error.to_string(), false),
        };
        Err(DeliveryError { reason, is_certain })
    }

    /// Appends the message to the outbox (the JSON lines file of messages), unless the message is
    /// already there or a worker that has claimed the run since is sending it. The file is locked,
    /// so no other process can append the message in between.
    fn append_message_unless_present(
        &self,
        envelope: &MessageEnvelope,
        log: &DeliveryLog,
        epoch: Epoch,
    ) -> Result<&'static str, OutboxError> {
        // If reading failed, nothing was written; if writing failed, something may have been.
        let read_error = |error| OutboxError::Fs(error, true);
        let outbox = self.0.lock_or_create_file().map_err(read_error)?;
        let matches = outbox.find_lines_by_key(&envelope.key).map_err(read_error)?;
        if !matches.lines.is_empty() {
            return Ok("already in the outbox");
        }
        match log.read_delivery_state(&envelope.key).map_err(read_error)? {
            DeliveryState::Started { epoch: logged_epoch, .. } if logged_epoch > epoch.0 => {
                return Err(OutboxError::Superseded);
            }
            DeliveryState::Delivered => return Ok("already delivered by another worker"),
            DeliveryState::NotStarted
            | DeliveryState::NoRecord
            | DeliveryState::Started { .. }
            | DeliveryState::Failed => {}
        }
        let result = outbox.append_json_line(&envelope.to_json());
        result.map(|()| "").map_err(|error| OutboxError::Fs(error, false))
    }
}

/// Why a message was not appended to the outbox (the JSON lines file of messages).
#[derive(Debug)]
enum OutboxError {
    /// A worker that has claimed the run later is sending the message.
    Superseded,
    /// The outbox file could not be used. `true` means that certainly nothing was written.
    Fs(FsError, bool),
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
