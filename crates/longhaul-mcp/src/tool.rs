//! A server's tool as one of ours.
//!
//! Never: calls twice what must not be repeated, or says that nothing happened
//! when nobody knows.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::time::Millis;
use serde_json::Value;
use tokio::time::timeout;

use crate::link::{Link, Lost};
use crate::listing::Offered;
use crate::output;
use crate::promise::{broken, is_long};
use crate::slot::Slot;
use crate::spec::{Way, tool_name};

/// A server's tool.
#[derive(Debug)]
pub(super) struct McpTool {
    offered: Offered,
    /// As the server calls it.
    name: String,
    slot: Arc<Slot>,
}

impl McpTool {
    pub(super) fn new(offered: Offered, slot: Arc<Slot>) -> Self {
        let lead = tool_name(&slot.spec().name, "");
        let name = offered.card.name.as_str();
        let name = name.strip_prefix(&lead).unwrap_or(name).to_owned();
        Self {
            offered,
            name,
            slot,
        }
    }

    /// The connection. Nothing has been asked yet, so nothing has happened; and that is
    /// said before the time of the call is over, when nobody could know it any more.
    async fn link(&self) -> Result<Arc<Link>, ToolFailure> {
        let spec = self.slot.spec();
        let patience = spec.patience();
        match timeout(patience, self.slot.link()).await {
            Ok(link) => link.map_err(|error| ToolFailure::new(error.to_string())),
            Err(_) => {
                let (server, secs) = (&spec.name, patience.as_secs_f32());
                Err(ToolFailure::new(format!(
                    "the server `{server}` was not ready in {secs} s; nothing was asked of it"
                )))
            }
        }
    }

    /// What came of a call. An answer without form is no result, and its words are
    /// told with what is wrong: the model can still make something of them.
    async fn read(&self, answer: &Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let read = output::read(answer, &around.pictures);
        let promise = self.offered.promise.as_ref();
        let why = if is_long(answer, promise) {
            let (answer, promise) = (answer.clone(), promise.cloned());
            let check = move || broken(&answer, promise.as_ref());
            let checked = tokio::task::spawn_blocking(check).await;
            checked.map_err(|_| ToolFailure::new("the check of the answer stopped"))?
        } else {
            broken(answer, promise)
        };
        let Some(why) = why else {
            return read;
        };
        let server = &self.slot.spec().name;
        let came = output::shown(answer);
        Err(ToolFailure::new(format!(
            "the server `{server}` was called and has answered, but {why}. What came: {came}"
        )))
    }

    /// What a call that is lost says to the model.
    fn failure(&self, lost: Lost) -> ToolFailure {
        let server = &self.slot.spec().name;
        match lost {
            Lost::Refused(words) | Lost::Login { why: words, .. } => {
                ToolFailure::new(format!("the server `{server}` refused: {words}"))
            }
            Lost::Gone { why, sent, .. } => {
                let words = format!("the server `{server}` broke off: {why}");
                match sent && !self.offered.class.may_repeat() {
                    true => ToolFailure::unknown(words),
                    false => ToolFailure::new(words),
                }
            }
        }
    }
}

/// Sees whether a call is let go of because its time is over.
struct Watch<'a> {
    slot: &'a Slot,
    link: &'a Link,
    /// By the monotonic clock.
    begun: Millis,
    is_answered: bool,
}

impl<'a> Watch<'a> {
    fn new(slot: &'a Slot, link: &'a Link) -> Self {
        Self {
            slot,
            link,
            begun: slot.monotonic(),
            is_answered: false,
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let took = self.slot.monotonic().minus(self.begun);
        // Whoever called has counted from a little earlier.
        let most = Millis(self.slot.spec().timeout.0 / 10 * 9);
        if self.is_answered {
            self.link.answered();
        } else if took >= most {
            self.link.ran_out();
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn card(&self) -> &ToolCard {
        &self.offered.card
    }

    fn class(&self, _: &Value) -> EffectClass {
        self.offered.class
    }

    /// A server over pipes that is busy does not see that its worker is gone.
    fn outlives(&self) -> bool {
        matches!(self.slot.spec().way, Way::Stdio { .. })
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input = match input {
            Value::Object(fields) => fields,
            Value::Null => serde_json::Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let name = &self.offered.card.name;
                return Err(ToolFailure::new(format!(
                    "{name} takes a JSON object. Call it again with one."
                )));
            }
        };
        let mut again = self.offered.class.may_repeat();
        loop {
            let link = self.link().await?;
            let mut watch = Watch::new(&self.slot, &link);
            let called = link.call(&self.name, input.clone(), &around.progress).await;
            watch.is_answered = true;
            match called {
                Ok(answer) => return self.read(&answer, around).await,
                Err(Lost::Gone { again: true, .. }) if again => again = false,
                Err(lost) => return Err(self.failure(lost)),
            }
        }
    }
}
