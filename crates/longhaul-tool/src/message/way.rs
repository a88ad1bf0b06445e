//! Lets a message leave, on the way that the owner chose.
//!
//! Never: tells a model whom a message was for, or takes a polite page for a yes.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use url::Url;

use longhaul_core::port::outbound::{Reach, Request};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::{Clock, Millis};

use crate::ask::aside;
use crate::command::{Command, CommandError, Ended, Exit};
use crate::jsonl::Jsonl;
use crate::message::deliver::Deliver;
use crate::message::parcel::{Parcel, refusal};
use crate::outbound::{Guarded, TIME_MAX};

/// So much of an answer is kept in the record.
const ANSWER_BYTES_MAX: usize = 1_000;
/// So much of what a program says is told.
const WORDS_BYTES_MAX: usize = 300;
/// How long a program may take.
const COMMAND_TIME: Millis = Millis::from_secs(30);

/// The way on which messages leave.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) deliver: Deliver,
    pub(super) root: PathBuf,
    pub(super) reach: Reach,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) out: Arc<Guarded>,
}

/// A message that did not leave, as far as is known.
#[derive(Debug)]
pub(super) struct Undelivered {
    pub(super) why: String,
    /// Nothing arrived.
    pub(super) sure: bool,
}

impl Way {
    /// Lets the message leave; says what the other side answered.
    pub(super) async fn send(&self, parcel: &Parcel) -> Result<String, Undelivered> {
        match &self.deliver {
            Deliver::File(path) => put(path.clone(), parcel.line()).await,
            Deliver::Command(argv) => self.run(argv.clone(), parcel).await,
            Deliver::Webhook(url) => self.post(url, parcel).await,
        }
    }

    async fn run(&self, argv: Vec<String>, parcel: &Parcel) -> Result<String, Undelivered> {
        let command = Command {
            stdin: format!("{}\n", parcel.line()).into_bytes(),
            timeout: COMMAND_TIME,
            ..Command::new(argv, &self.root)
        };
        match command.run(&*self.clock).await {
            Ok(ended) if ended.exit.is_good() => Ok(ended.stdout.last(ANSWER_BYTES_MAX)),
            Ok(ended) => Err(Undelivered {
                why: last_words(&ended, &parcel.recipient),
                // A program that ends by itself says that it failed.
                sure: matches!(ended.exit, Exit::Code(_)),
            }),
            Err(why) => Err(Undelivered {
                sure: !matches!(why, CommandError::Lost(_)),
                why: why.to_string(),
            }),
        }
    }

    async fn post(&self, url: &Url, parcel: &Parcel) -> Result<String, Undelivered> {
        let request = Request {
            method: "POST".into(),
            url: url.to_string(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("idempotency-key".into(), parcel.key.clone()),
            ],
            body: parcel.line().to_string().into_bytes(),
            timeout: TIME_MAX,
            bytes_max: 64 * 1024,
            reach: self.reach,
        };
        let landed = self.out.land(&request).await.map_err(|lost| Undelivered {
            why: lost.why.to_string(),
            sure: !lost.sent,
        })?;
        let status = landed.response.status;
        if landed.method != request.method {
            // A page that it was led to may say yes to everything.
            let why = "the webhook leads elsewhere instead of taking the message".into();
            return Err(Undelivered { why, sure: false });
        }
        if !(200..300).contains(&status) {
            return Err(Undelivered {
                why: format!("the webhook answered {status}"),
                sure: (400..500).contains(&status),
            });
        }
        let answer = String::from_utf8_lossy(&landed.response.body).into_owned();
        let end = answer.floor_char_boundary(ANSWER_BYTES_MAX);
        Ok(format!("{status} {}", &answer[..end]).trim().to_owned())
    }
}

/// How a program failed. Whom the message was for stays untold.
fn last_words(ended: &Ended, recipient: &str) -> String {
    let words = ended.stderr.last(WORDS_BYTES_MAX);
    let words = words.replace(recipient, "[recipient]");
    match words.is_empty() {
        true => format!("its program {}", ended.exit),
        false => format!("its program {}: {words}", ended.exit),
    }
}

/// Puts a message into the outbox.
async fn put(path: PathBuf, line: Value) -> Result<String, Undelivered> {
    let said = path.display().to_string();
    let added = aside(move || {
        let lines = Jsonl::new(path);
        // Who can't open it has written nothing; who can't write may have.
        let held = lines.hold().map_err(|why| (why, true));
        Ok(held.and_then(|held| held.add(&line).map_err(|why| (why, false))))
    });
    match added.await {
        Ok(Ok(())) => Ok(String::new()),
        Ok(Err((why, sure))) => Err(Undelivered {
            why: format!("the outbox `{said}` {why}"),
            sure,
        }),
        Err(why) => Err(Undelivered {
            why: why.to_string(),
            sure: false,
        }),
    }
}

impl Undelivered {
    /// What the model reads of it.
    pub(super) fn failure(&self) -> ToolFailure {
        let why = &self.why;
        match self.sure {
            true => refusal(why.clone()),
            false => ToolFailure::unknown(&format!(
                "The message may not have been delivered: {why}. It may also have arrived: don't \
                 send it again before you know."
            )),
        }
    }
}
