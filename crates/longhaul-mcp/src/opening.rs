//! The first words to a server over pipes: the newer greeting, and beside it the
//! older one when that is not answered soon.
//!
//! An older server knows no `server/discover`. Most say so; some keep silent, and
//! the protocol then has a client take a while of silence for an answer. But one
//! that is slow to start is as silent: `npx` may install it for half a minute. So
//! silence decides nothing here. After a short while the older greeting is sent as
//! well, the newer one stays asked, and the first answer that says something counts.
//! A server reads its input in order: one that knows the newer manner answers that
//! before it sees the older greeting, however late it starts.
//!
//! Never: greets twice in one manner, or lets the SDK see an answer that it did not
//! ask for.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, InitializeRequest,
    JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::time::{Sleep, sleep};

/// A server that has begun to read has answered by then. Many need a second to
/// start, and those that know the newer manner need not see the older one.
const SOON: Duration = Duration::from_secs(2);

/// Our own older greeting goes by this number, which the SDK does not come to.
const OURS: RequestId = RequestId::Number(i32::MAX as i64);

/// A way to a server that is not greeted yet.
pub(super) struct Opening<T> {
    way: T,
    words: Words,
    /// When it is over, the older greeting is sent as well.
    soon: Option<Pin<Box<Sleep>>>,
}

impl<T> Opening<T> {
    /// Over this way, as this client.
    pub(super) const fn new(way: T, us: ClientConfig) -> Self {
        let words = Words {
            us,
            newer: Newer::Unsaid,
            older: Older::Unsaid,
            ready: VecDeque::new(),
        };
        let soon = None;
        Self { way, words, soon }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Opening<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let passes = self.words.out(&message);
        if self.soon.is_none() && self.words.is_patient() {
            self.soon = Some(Box::pin(sleep(SOON)));
        }
        let sent = passes.then(|| self.way.send(message));
        async move {
            match sent {
                Some(sent) => sent.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.words.ready.pop_front() {
                return Some(message);
            }
            let soon = self.soon.as_mut().filter(|_| self.words.is_patient());
            let Some(soon) = soon else {
                let message = self.way.receive().await?;
                self.words.comes(message);
                continue;
            };
            tokio::select! {
                biased;
                message = self.way.receive() => self.words.comes(message?),
                () = soon => {
                    let greeting = self.words.greet();
                    // What can't be sent shows when nothing comes.
                    _ = self.way.send(greeting).await;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.way.close().await
    }
}

/// What was said and heard so far.
struct Words {
    us: ClientConfig,
    newer: Newer,
    older: Older,
    /// What the SDK hears next.
    ready: VecDeque<ServerJsonRpcMessage>,
}

/// The SDK's newer greeting.
#[derive(Debug)]
enum Newer {
    Unsaid,
    /// It has no answer yet.
    Asked(RequestId),
    /// The SDK waits for its answer no more.
    Past(RequestId),
    Answered,
}

/// Our own older greeting.
#[derive(Debug)]
enum Older {
    Unsaid,
    Asked,
    /// The SDK wants its answer under this number.
    Wanted(RequestId),
    /// It was answered before the SDK wanted that.
    Known(Box<ServerJsonRpcMessage>),
    /// It is over, or the SDK did it itself.
    Over,
}

impl Words {
    /// Whether the newer greeting is the only one so far, and has no answer.
    const fn is_patient(&self) -> bool {
        matches!((&self.newer, &self.older), (Newer::Asked(_), Older::Unsaid))
    }

    /// The older greeting.
    fn greet(&mut self) -> ClientJsonRpcMessage {
        self.older = Older::Asked;
        let greeting = InitializeRequest::new(self.us.clone());
        ClientJsonRpcMessage::request(ClientRequest::InitializeRequest(greeting), OURS)
    }

    /// What the SDK says, and whether it goes out.
    fn out(&mut self, message: &ClientJsonRpcMessage) -> bool {
        let JsonRpcMessage::Request(asked) = message else {
            return true;
        };
        if let ClientRequest::DiscoverRequest(_) = &asked.request {
            self.newer = Newer::Asked(asked.id.clone());
            return true;
        }
        if let ClientRequest::InitializeRequest(_) = &asked.request {
            return self.falls_back(&asked.id);
        }
        true
    }

    /// The SDK greets in the older manner. Where that is done, it has the answer.
    fn falls_back(&mut self, id: &RequestId) -> bool {
        if let Newer::Asked(id) = &self.newer {
            self.newer = Newer::Past(id.clone());
        }
        match std::mem::replace(&mut self.older, Older::Over) {
            Older::Unsaid | Older::Over => true,
            Older::Asked | Older::Wanted(_) => {
                self.older = Older::Wanted(id.clone());
                false
            }
            Older::Known(answer) => {
                self.ready.push_back(renamed(*answer, id));
                false
            }
        }
    }

    /// What the server says, and what of it the SDK hears.
    fn comes(&mut self, message: ServerJsonRpcMessage) {
        let id = match &message {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(answer) => answer.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let is = |other: &RequestId| id.is_some_and(|id| same(id, other));
        match &self.newer {
            Newer::Asked(newer) if is(newer) => self.newer = Newer::Answered,
            Newer::Past(newer) if is(newer) => return,
            Newer::Asked(_) | Newer::Past(_) | Newer::Unsaid | Newer::Answered => {}
        }
        if !is(&OURS) {
            self.ready.push_back(message);
            return;
        }
        match std::mem::replace(&mut self.older, Older::Over) {
            Older::Asked => self.answered(message),
            Older::Wanted(wanted) => self.ready.push_back(renamed(message, &wanted)),
            // Nobody asked, or it has said so before.
            Older::Unsaid | Older::Known(_) | Older::Over => {}
        }
    }

    /// The older greeting was answered, and the SDK has not asked for that yet.
    fn answered(&mut self, answer: ServerJsonRpcMessage) {
        let is_welcome = matches!(answer, JsonRpcMessage::Response(_));
        self.older = Older::Known(Box::new(answer));
        match &self.newer {
            // It passed over the newer greeting, so it is an older one.
            Newer::Asked(id) if is_welcome => {
                let words = "it answers only the older greeting";
                let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None);
                let id = id.clone();
                self.newer = Newer::Past(id.clone());
                self.ready
                    .push_back(ServerJsonRpcMessage::error(unknown, Some(id)));
            }
            // To be refused in the older manner says nothing about the newer.
            Newer::Asked(_) | Newer::Unsaid | Newer::Past(_) | Newer::Answered => {}
        }
    }
}

/// An answer under another number.
fn renamed(mut answer: ServerJsonRpcMessage, id: &RequestId) -> ServerJsonRpcMessage {
    match &mut answer {
        JsonRpcMessage::Response(answer) => answer.id = id.clone(),
        JsonRpcMessage::Error(answer) => answer.id = Some(id.clone()),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
    }
    answer
}

/// Some servers give a number back as text.
fn same(one: &RequestId, other: &RequestId) -> bool {
    one == other || one.to_string() == other.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::greet::about_us;
    use crate::spec::Elicitation;
    use serde_json::{Value, json};

    fn words() -> Words {
        let us = about_us(Elicitation::Decline);
        Opening::new((), us).words
    }

    fn greeting(method: &str, id: u32) -> ClientJsonRpcMessage {
        let us = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "us", "version": "0" },
        });
        let params = if method == "initialize" {
            us
        } else {
            json!({})
        };
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        serde_json::from_value(asked).unwrap()
    }

    fn newer(id: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {},
            "serverInfo": { "name": "it", "version": "0" },
        } })
    }

    fn older(id: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "serverInfo": { "name": "it", "version": "0" },
        } })
    }

    fn refusal(id: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } })
    }

    /// What the SDK hears when the server says this: numbers, and whether it is good.
    fn hears(words: &mut Words, said: Value) -> Vec<(String, bool)> {
        words.comes(serde_json::from_value(said).unwrap());
        heard(words)
    }

    fn heard(words: &mut Words) -> Vec<(String, bool)> {
        let heard = words.ready.drain(..).map(|message| match message {
            JsonRpcMessage::Response(answer) => (answer.id.to_string(), true),
            JsonRpcMessage::Error(answer) => (answer.id.unwrap().to_string(), false),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => panic!("no answer"),
        });
        heard.collect()
    }

    fn is(id: &str, good: bool) -> Vec<(String, bool)> {
        vec![(id.to_owned(), good)]
    }

    const OUR: i32 = i32::MAX;

    /// The newer greeting is out, and after a while the older one beside it.
    fn both() -> Words {
        let mut words = words();
        assert!(words.out(&greeting("server/discover", 0)));
        assert!(words.is_patient());
        let JsonRpcMessage::Request(sent) = words.greet() else {
            panic!("no request");
        };
        assert_eq!(sent.id, OURS);
        assert!(!words.is_patient());
        words
    }

    #[test]
    fn who_answers_at_once_hears_no_second_greeting() {
        let mut words = words();
        assert!(words.out(&greeting("server/discover", 0)));
        assert_eq!(hears(&mut words, newer(json!(0))), is("0", true));
        assert!(!words.is_patient());
        // An older one says so, and the SDK greets it itself.
        let mut words = self::words();
        assert!(words.out(&greeting("server/discover", 0)));
        assert_eq!(hears(&mut words, refusal(json!(0))), is("0", false));
        assert!(words.out(&greeting("initialize", 1)));
        assert_eq!(hears(&mut words, older(json!(1))), is("1", true));
    }

    #[test]
    fn one_that_passes_over_the_newer_greeting_is_an_older_one() {
        let mut words = both();
        assert_eq!(hears(&mut words, older(json!(OUR))), is("0", false));
        assert!(!words.out(&greeting("initialize", 1)), "it was greeted");
        assert_eq!(heard(&mut words), is("1", true));
        // What comes much later is nobody's.
        assert_eq!(hears(&mut words, refusal(json!(0))), []);
        assert_eq!(hears(&mut words, refusal(json!(2))), is("2", false));
    }

    #[test]
    fn a_slow_one_that_knows_the_newer_manner_is_a_newer_one() {
        for late in [older(json!(OUR)), refusal(json!(OUR))] {
            let mut words = both();
            assert_eq!(hears(&mut words, newer(json!(0))), is("0", true));
            assert_eq!(hears(&mut words, late), []);
            assert_eq!(hears(&mut words, older(json!(1))), is("1", true));
        }
    }

    #[test]
    fn a_slow_one_that_refuses_the_newer_manner_is_greeted_once() {
        // Some give numbers back as text.
        let mut words = both();
        assert_eq!(hears(&mut words, refusal(json!("0"))), is("0", false));
        assert!(!words.out(&greeting("initialize", 1)), "it was greeted");
        let text = json!(OUR.to_string());
        assert_eq!(hears(&mut words, older(text)), is("1", true));
    }

    #[test]
    fn one_that_is_slower_than_the_sdk_waits_is_not_mistaken_either() {
        let mut words = both();
        assert!(!words.out(&greeting("initialize", 1)), "it was greeted");
        assert_eq!(hears(&mut words, refusal(json!(0))), []);
        assert_eq!(hears(&mut words, older(json!(OUR))), is("1", true));
        // To be refused in the older manner is no answer to the newer greeting.
        let mut words = both();
        assert_eq!(hears(&mut words, refusal(json!(OUR))), []);
        assert_eq!(hears(&mut words, newer(json!(0))), is("0", true));
    }
}
