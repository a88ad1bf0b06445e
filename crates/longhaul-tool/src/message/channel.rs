//! Lets a message leave, on the way that the owner chose.
//!
//! Never: tells a model whom a message was for, or takes a polite page for a yes.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use longhaul_core::id::Epoch;
use longhaul_core::port::outbound::{NetworkScope, Request};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError, CommandOutput, Exit};
use crate::jsonl::JsonLinesFile;
use crate::message::delivery_log::{DeliveryLog, DeliveryState};
use crate::message::envelope::{Envelope, failure};
use crate::message::target::DeliveryTarget;
use crate::outbound::{GuardedClient, REQUEST_TIMEOUT_MAX};
use crate::safe_dir::FsError;
use crate::tool_support::run_blocking;

/// So much of an answer is kept in the record.
const RESPONSE_BYTES_MAX: usize = 1_000;
/// So much of what a program says is told.
const STDERR_BYTES_MAX: usize = 300;
/// How long a program may take.
const COMMAND_TIMEOUT: Millis = Millis::from_secs(30);

/// Why a worker that was too slow sends nothing.
pub(super) const TAKEN_OVER: &str = "another worker has taken this run over";

/// The way on which messages leave.
#[derive(Debug)]
pub(super) struct DeliveryChannel {
    pub(super) target: DeliveryTarget,
    pub(super) root: PathBuf,
    pub(super) reach: NetworkScope,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) client: Arc<GuardedClient>,
}

/// A message that did not leave, as far as is known.
#[derive(Debug)]
pub(super) struct DeliveryError {
    pub(super) reason: String,
    /// Nothing arrived.
    pub(super) is_certain: bool,
}

impl DeliveryChannel {
    /// Lets the message leave; says what the other side answered.
    pub(super) async fn send(
        &self,
        parcel: &Envelope,
        record: &DeliveryLog,
        epoch: Epoch,
    ) -> Result<String, DeliveryError> {
        match &self.target {
            DeliveryTarget::File(path) => {
                let outbox = Outbox(JsonLinesFile::new(path.clone()));
                outbox.deliver(parcel.clone(), record.clone(), epoch).await
            }
            DeliveryTarget::Command(argv) => self.run_command(argv.clone(), parcel).await,
            DeliveryTarget::Webhook(url) => self.post_webhook(url, parcel).await,
        }
    }

    async fn run_command(
        &self,
        argv: Vec<String>,
        parcel: &Envelope,
    ) -> Result<String, DeliveryError> {
        let command = Command {
            stdin: format!("{}\n", parcel.to_json()).into_bytes(),
            timeout: COMMAND_TIMEOUT,
            ..Command::new(argv, &self.root)
        };
        match command.run(&*self.clock).await {
            Ok(ended) if ended.exit.is_success() => Ok(ended.stdout.last_text(RESPONSE_BYTES_MAX)),
            Ok(ended) => Err(DeliveryError {
                reason: failure_message(&ended, &parcel.recipient),
                // A program that ends by itself says that it failed.
                is_certain: matches!(ended.exit, Exit::Code(_)),
            }),
            Err(why) => Err(DeliveryError {
                is_certain: !matches!(why, CommandError::WaitFailed(_)),
                reason: why.to_string(),
            }),
        }
    }

    async fn post_webhook(&self, url: &Url, parcel: &Envelope) -> Result<String, DeliveryError> {
        let request = Request {
            method: "POST".into(),
            url: url.to_string(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("idempotency-key".into(), parcel.key.clone()),
            ],
            body: parcel.to_json().to_string().into_bytes(),
            timeout: REQUEST_TIMEOUT_MAX,
            bytes_max: 64 * 1024,
            network_scope: self.reach,
        };
        let landed = self.client.send_request(&request).await.map_err(|lost| DeliveryError {
            reason: lost.error.to_string(),
            is_certain: !lost.may_have_been_sent,
        })?;
        let status = landed.response.status;
        if landed.method != request.method {
            // A page that it was led to may say yes to everything.
            let why = "the webhook leads elsewhere instead of taking the message".into();
            return Err(DeliveryError { reason: why, is_certain: false });
        }
        if !(200..300).contains(&status) {
            return Err(DeliveryError {
                reason: format!("the webhook answered {status}"),
                is_certain: (400..500).contains(&status),
            });
        }
        let answer = String::from_utf8_lossy(&landed.response.body).into_owned();
        let end = answer.floor_char_boundary(RESPONSE_BYTES_MAX);
        Ok(format!("{status} {}", &answer[..end]).trim().to_owned())
    }
}

/// How a program failed. Whom the message was for stays untold.
fn failure_message(ended: &CommandOutput, recipient: &str) -> String {
    let words = ended.stderr.last_text(STDERR_BYTES_MAX);
    let words = words.replace(recipient, "[recipient]");
    match words.is_empty() {
        true => format!("its program {}", ended.exit),
        false => format!("its program {}: {words}", ended.exit),
    }
}

/// The file that messages are put into.
#[derive(Debug, Clone)]
struct Outbox(JsonLinesFile);

impl Outbox {
    /// Puts a message into it.
    async fn deliver(
        self,
        parcel: Envelope,
        record: DeliveryLog,
        epoch: Epoch,
    ) -> Result<String, DeliveryError> {
        let said = self.0.path();
        let added = run_blocking(move || Ok(self.append(&parcel, &record, epoch)));
        let (why, sure) = match added.await {
            Ok(Ok(answer)) => return Ok(answer.to_owned()),
            Ok(Err(OutboxError::Superseded)) => (TAKEN_OVER.to_owned(), true),
            Ok(Err(OutboxError::Fs(why, sure))) => (format!("the outbox `{said}` {why}"), sure),
            Err(why) => (why.to_string(), false),
        };
        Err(DeliveryError { reason: why, is_certain: sure })
    }

    /// Adds it, unless it stands there or a later driver is at it: while the file
    /// is held nobody else can find it missing.
    fn append(
        &self,
        parcel: &Envelope,
        record: &DeliveryLog,
        epoch: Epoch,
    ) -> Result<&'static str, OutboxError> {
        // Who can't read it has written nothing; who can't write may have.
        let unread = |why| OutboxError::Fs(why, true);
        let held = self.0.lock().map_err(unread)?;
        let found = held.find_key(&parcel.key).map_err(unread)?;
        if !found.lines.is_empty() {
            return Ok("it stood in the outbox");
        }
        match record.state(&parcel.key).map_err(unread)? {
            DeliveryState::Started { epoch: its, .. } if its > epoch.0 => {
                return Err(OutboxError::Superseded);
            }
            DeliveryState::Delivered => return Ok("it was delivered meanwhile"),
            DeliveryState::NotStarted
            | DeliveryState::NoRecord
            | DeliveryState::Started { .. }
            | DeliveryState::Failed => {}
        }
        let added = held.append(&parcel.to_json());
        added.map(|()| "").map_err(|why| OutboxError::Fs(why, false))
    }
}

/// A message that was not put into the outbox.
#[derive(Debug)]
enum OutboxError {
    /// A later driver is at it.
    Superseded,
    /// It could not be; true: surely nothing was written.
    Fs(FsError, bool),
}

impl DeliveryError {
    /// What the model reads of it.
    pub(super) fn failure(&self) -> ToolFailure {
        let why = &self.reason;
        match self.is_certain {
            true => failure(why.clone()),
            false => ToolFailure::outcome_unknown(format!(
                "The message may not have been delivered: {why}. It may also have arrived: don't \
                 send it again before you know."
            )),
        }
    }
}
