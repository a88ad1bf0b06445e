//! Lets a message leave, on the way that the owner chose.
//!
//! Never: tells a model whom a message was for, or takes a polite page for a yes.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use longhaul_core::id::Epoch;
use longhaul_core::port::outbound::{Reach, Request};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::{Clock, Millis};

use crate::ask::aside;
use crate::command::{Command, CommandError, Ended, Exit};
use crate::jsonl::Jsonl;
use crate::message::deliver::Deliver;
use crate::message::parcel::{Parcel, refusal};
use crate::message::record::{Record, State};
use crate::outbound::{Guarded, TIME_MAX};
use crate::place::Trouble;

/// So much of an answer is kept in the record.
const ANSWER_BYTES_MAX: usize = 1_000;
/// So much of what a program says is told.
const WORDS_BYTES_MAX: usize = 300;
/// How long a program may take.
const COMMAND_TIME: Millis = Millis::from_secs(30);

/// Why a worker that was too slow sends nothing.
pub(super) const TAKEN_OVER: &str = "another worker has taken this run over";

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
    pub(super) async fn send(
        &self,
        parcel: &Parcel,
        record: &Record,
        epoch: Epoch,
    ) -> Result<String, Undelivered> {
        match &self.deliver {
            Deliver::File(path) => {
                let outbox = Outbox(Jsonl::new(path.clone()));
                outbox.put(parcel.clone(), record.clone(), epoch).await
            }
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

/// The file that messages are put into.
#[derive(Debug, Clone)]
struct Outbox(Jsonl);

impl Outbox {
    /// Puts a message into it.
    async fn put(
        self,
        parcel: Parcel,
        record: Record,
        epoch: Epoch,
    ) -> Result<String, Undelivered> {
        let said = self.0.path();
        let added = aside(move || Ok(self.add(&parcel, &record, epoch)));
        let (why, sure) = match added.await {
            Ok(Ok(answer)) => return Ok(answer.to_owned()),
            Ok(Err(Unput::Late)) => (TAKEN_OVER.to_owned(), true),
            Ok(Err(Unput::Trouble(why, sure))) => (format!("the outbox `{said}` {why}"), sure),
            Err(why) => (why.to_string(), false),
        };
        Err(Undelivered { why, sure })
    }

    /// Adds it, unless it stands there or a later driver is at it: while the file
    /// is held nobody else can find it missing.
    fn add(&self, parcel: &Parcel, record: &Record, epoch: Epoch) -> Result<&'static str, Unput> {
        // Who can't read it has written nothing; who can't write may have.
        let unread = |why| Unput::Trouble(why, true);
        let held = self.0.hold().map_err(unread)?;
        let found = held.find(&parcel.key).map_err(unread)?;
        if !found.lines.is_empty() {
            return Ok("it stood in the outbox");
        }
        match record.state(&parcel.key).map_err(unread)? {
            State::Begun { epoch: its, .. } if its > epoch.0 => return Err(Unput::Late),
            State::Delivered => return Ok("it was delivered meanwhile"),
            State::Nothing | State::Elsewhere | State::Begun { .. } | State::Failed => {}
        }
        let added = held.add(&parcel.line());
        added.map(|()| "").map_err(|why| Unput::Trouble(why, false))
    }
}

/// A message that was not put into the outbox.
#[derive(Debug)]
enum Unput {
    /// A later driver is at it.
    Late,
    /// It could not be; true: surely nothing was written.
    Trouble(Trouble, bool),
}

impl Undelivered {
    /// What the model reads of it.
    pub(super) fn failure(&self) -> ToolFailure {
        let why = &self.why;
        match self.sure {
            true => refusal(why.clone()),
            false => ToolFailure::unknown(format!(
                "The message may not have been delivered: {why}. It may also have arrived: don't \
                 send it again before you know."
            )),
        }
    }
}
