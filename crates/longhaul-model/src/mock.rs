//! A pretended provider: scripts that answer over the wires of Anthropic and
//! OpenAI, so that adapters and SDKs can be tried without a key.
//!
//! Never: opens a socket, waits, or reads a clock. It says what is to be sent
//! and how slowly; whoever holds the connection does it.

mod answer;
mod dialect;
mod event;
mod fault;
mod hear;
mod heard;
mod models;
mod refusal;
mod scripts;
mod speech;
mod tell;
mod tries;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longhaul_core::id::RunId;
use longhaul_core::port::model::Ask;
use longhaul_core::raw::{Body, Hash};
use longhaul_core::time::{Millis, Timestamp};

use crate::mock::fault::Fault;
use crate::mock::heard::Heard;
use crate::mock::refusal::Refusal;
use crate::mock::speech::{Seal, Speech};
use crate::mock::tries::Tries;
use crate::scripted::render::Renderer;
use crate::scripted::reply;
use crate::scripted::script::{Line, Script};

pub use crate::mock::answer::{Answer, Content, Ending};
pub use crate::mock::dialect::Dialect;
pub use crate::mock::fault::{Faults, Regular};
pub use crate::mock::scripts::{Missing, Scripts, is_plain};

/// The longest request that is read.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// The header that says which turn is asked for, from 1.
pub const TURN_HEADER: &str = "x-longhaul-turn";

/// The header that asks for something to go wrong.
pub const FAULT_HEADER: &str = "x-longhaul-fault";

/// A request to a provider that isn't there.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Whose words it is written in.
    pub dialect: Dialect,
    /// What `TURN_HEADER` says.
    pub turn: Option<&'a str>,
    /// What `FAULT_HEADER` says.
    pub fault: Option<&'a str>,
    /// The JSON.
    pub body: &'a [u8],
    /// When it came.
    pub now: Timestamp,
}

/// Plays scripts as providers would speak them.
#[derive(Debug)]
pub struct Mock {
    scripts: Arc<dyn Scripts>,
    faults: Faults,
    renderer: Renderer,
    /// Requests of every kind: they are named by it.
    requests: AtomicU64,
    /// Questions for a reply: faults come back by it.
    questions: AtomicU64,
    streams: AtomicU64,
    tries: Tries,
}

impl Mock {
    /// A mock of these scripts, with these faults for every request.
    pub fn new(scripts: Arc<dyn Scripts>, faults: Faults) -> Self {
        Self {
            scripts,
            faults,
            renderer: Renderer::new(),
            requests: AtomicU64::new(0),
            questions: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            tries: Tries::default(),
        }
    }

    /// Answers a question for a reply.
    pub fn answer(&self, asked: &Asked<'_>) -> Answer {
        let id = self.request_id();
        let mut delay = Millis::ZERO;
        let answer = self.try_answer(asked, &id, &mut delay);
        let mut answer = answer.unwrap_or_else(|refusal| refusal.answer(asked.dialect, &id));
        answer.before = self.faults.latency.plus(delay);
        answer.between = self.faults.token_delay;
        answer
    }

    /// Lists the scripts as this provider lists its models.
    pub fn models(&self, dialect: Dialect) -> Answer {
        models::answer(dialect, &self.scripts.names(), &self.request_id())
    }

    /// Says no in this provider's words: for what is wrong before there is a question.
    pub fn refuse(&self, dialect: Dialect, status: u16, message: &str) -> Answer {
        Refusal::new(status, message).answer(dialect, &self.request_id())
    }

    fn request_id(&self) -> String {
        format!("req_{:024}", next(&self.requests))
    }

    fn try_answer(
        &self,
        asked: &Asked<'_>,
        id: &str,
        delay: &mut Millis,
    ) -> Result<Answer, Refusal> {
        let number = next(&self.questions);
        let fault = asked.fault.map(Fault::read).transpose();
        let fault = fault.map_err(|bad| Refusal::new(400, bad))?;
        let status = match fault {
            Some(Fault::Status(status)) => Some(status),
            Some(Fault::Cut | Fault::Stall | Fault::Garbage | Fault::Error) | None => None,
        };
        if let Some(status) = status.or_else(|| self.faults.status_of(number)) {
            let message = format!("this failure with status {status} was asked for");
            return Err(Refusal::new(status, message));
        }
        if asked.body.len() > BODY_BYTES_MAX {
            let message = format!("a request has at most {BODY_BYTES_MAX} bytes");
            return Err(Refusal::new(413, message));
        }
        let heard = hear::hear(asked.dialect, asked.body)?;
        let turn = match asked.turn {
            None => heard.said.saturating_add(1),
            Some(said) => turn(said)?,
        };
        let hash = Hash::of(asked.body);
        let (mut ask, name) = question(&heard, turn);
        let script = self.find(&heard.model, name, asked.now)?;
        let place = script.place(turn);
        let broken = |fault: &str| {
            let message = format!("{}: replies[{place}]: {fault}", ask.model);
            Refusal::new(400, message)
        };
        let line = script.replies.get(place);
        let line = line.ok_or_else(|| broken("there is no such reply"))?;
        *delay = line.delay;
        let said = reply::reply(line, &ask, &self.renderer).map_err(|fault| broken(&fault))?;
        ask.attempt = self.attempt(line, name, hash);
        if let Some(failure) = line
            .outage
            .and_then(|outage| reply::failure(outage, ask.attempt))
        {
            let status = failure.status.unwrap_or(500);
            return Err(Refusal::new(status, failure.message));
        }
        let said = Arc::new(said);
        let speech = Speech {
            heard: &heard,
            stop: reply::stop(&said),
            usage: line.usage.unwrap_or_else(|| reply::guess(&ask, &said)),
            seal: Seal::new(hash, turn),
            now: asked.now,
            reply: &said,
        };
        self.told(asked.dialect, &speech, (fault, id))
    }

    fn find(&self, model: &str, name: &str, now: Timestamp) -> Result<Arc<Script>, Refusal> {
        let found = match is_plain(name) {
            true => self.scripts.find(name, now),
            false => Err(Missing::Unknown),
        };
        found.map_err(|missing| match missing {
            Missing::Unknown => Refusal::unknown_model(model, &self.scripts.names()),
            Missing::Broken(why) => Refusal::new(400, why),
        })
    }

    /// Which try this is, counted only where a script fails some.
    fn attempt(&self, line: &Line, name: &str, hash: Hash) -> u32 {
        match line.outage {
            None => 1,
            Some(outage) => self.tries.next(name, hash, outage.times),
        }
    }

    /// The reply on the wire, with what is to go wrong with it.
    fn told(
        &self,
        dialect: Dialect,
        speech: &Speech<'_>,
        (fault, id): (Option<Fault>, &str),
    ) -> Result<Answer, Refusal> {
        if speech.heard.stream {
            let stream = next(&self.streams);
            let answer = Answer::stream(tell::stream(dialect, speech)).named(dialect, id);
            let regular = self.faults.cuts(stream).then_some(Fault::Cut);
            let trouble = || tell::trouble(dialect, id);
            return Ok(fault::spoil(answer, fault.or(regular), trouble));
        }
        if fault == Some(Fault::Error) {
            return Err(Refusal::new(tell::OVERLOADED, tell::TROUBLE));
        }
        let answer = Answer::whole(200, tell::whole(dialect, speech)).named(dialect, id);
        Ok(fault::spoil(answer, fault, Bytes::new))
    }
}

fn next(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

fn turn(said: &str) -> Result<u32, Refusal> {
    let turn = said.trim().parse().ok().filter(|turn| *turn > 0);
    turn.ok_or_else(|| {
        let message = format!("{TURN_HEADER}: a turn is a whole number from 1");
        Refusal::new(400, message)
    })
}

/// The question as a scripted model is asked it, and the name of its script.
fn question<'a>(heard: &'a Heard<'_>, turn: u32) -> (Ask, &'a str) {
    let name = heard.model.strip_prefix("scripted/");
    let name = name.unwrap_or(&heard.model);
    let ask = Ask {
        run: RunId::from_bits(0),
        turn,
        attempt: 1,
        model: format!("{}/{name}", reply::DIALECT),
        system: Body::inline(heard.system.as_str()),
        tools: Body::inline(heard.tools),
        messages: Arc::clone(&heard.messages),
        max_tokens: 0,
    };
    (ask, name)
}
