//! Tools in the hands of a test: what they do is a closure, and what was done
//! with them is written down.
//!
//! Never: more than the test said.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use longhaul_testkit::door::Door;

type Given = Result<ToolOutput, ToolFailure>;
type Act = Arc<dyn Fn(Value, ToolContext) -> BoxFuture<'static, Given> + Send + Sync>;

/// What was done, in order. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deeds(Arc<Mutex<Vec<String>>>);

impl Deeds {
    fn note(&self, deed: String) {
        self.0.lock().unwrap().push(deed);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// How often something was done.
    pub(crate) fn count(&self, deed: &str) -> usize {
        self.all()
            .iter()
            .filter(|done| done.starts_with(deed))
            .count()
    }
}

/// What is special about a tool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    pub(crate) opaque: bool,
    pub(crate) stops_cleanly: bool,
    pub(crate) unwalled: bool,
}

/// A tool that a test made.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) card: ToolCard,
    class: EffectClass,
    finding: Finding,
    looks_at: Option<Door>,
    ways: Ways,
    act: Act,
    deeds: Deeds,
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

impl Hand {
    /// A tool that gives its input back.
    pub(crate) fn new(name: &str, class: EffectClass, deeds: &Deeds) -> Self {
        let card = ToolCard {
            name: ToolName::new(name).unwrap(),
            description: "made by a test".into(),
            schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" }, "count": { "type": "integer" } },
                "additionalProperties": false,
            }),
            verifies: false,
            in_doubt: None,
            timeout: None,
        };
        Self {
            card,
            class,
            finding: Finding::Unknown,
            looks_at: None,
            ways: Ways::default(),
            act: Arc::new(|input, _| {
                async move { Ok(ToolOutput::text(input.to_string())) }.boxed()
            }),
            deeds: deeds.clone(),
        }
    }

    /// The same, doing this.
    pub(crate) fn doing(
        mut self,
        act: impl Fn(Value, ToolContext) -> BoxFuture<'static, Given> + Send + Sync + 'static,
    ) -> Self {
        self.act = Arc::new(act);
        self
    }

    /// The same, waiting at a door first.
    pub(crate) fn behind(self, door: &Door) -> Self {
        let (door, then) = (door.clone(), Arc::clone(&self.act));
        self.doing(move |input, around| {
            let (door, then) = (door.clone(), Arc::clone(&then));
            async move {
                door.pass().await;
                then(input, around).await
            }
            .boxed()
        })
    }

    /// The same, with so much time.
    pub(crate) fn within(mut self, timeout: Millis) -> Self {
        self.card.timeout = Some(timeout);
        self
    }

    /// The same, special in this.
    pub(crate) fn special(mut self, ways: Ways) -> Self {
        self.ways = ways;
        self
    }

    /// The same, with a word about doubt.
    pub(crate) fn in_doubt(mut self, then: InDoubt) -> Self {
        self.card.in_doubt = Some(then);
        self
    }

    /// The same, able to look whether a call has happened.
    pub(crate) fn finding(mut self, finding: Finding) -> Self {
        self.card.verifies = true;
        self.finding = finding;
        self
    }

    /// The same, looking behind a door.
    pub(crate) fn looking_behind(mut self, door: &Door) -> Self {
        self.looks_at = Some(door.clone());
        self
    }
}

#[async_trait]
impl Tool for Hand {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn is_opaque(&self, _input: &Value) -> bool {
        self.ways.opaque
    }

    fn stops_cleanly(&self) -> bool {
        self.ways.stops_cleanly
    }

    fn is_unwalled(&self) -> bool {
        self.ways.unwalled
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        let text = input["text"].as_str().unwrap_or_default();
        assert!(
            text != "unspeakable",
            "a tool with a mistake in its reading"
        );
        vec![text.to_owned()]
    }

    fn subjects_in(&self, input: &Value, context: &BTreeMap<String, RawJson>) -> Vec<String> {
        let recipient = context.get("recipient").map(RawJson::value);
        let recipient = recipient.as_ref().and_then(Value::as_str);
        let mut subjects = self.subjects(input);
        subjects.extend(recipient.map(str::to_owned));
        subjects
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Given {
        let name = &self.card.name;
        self.deeds.note(format!("{name} begins {input}"));
        let given = (self.act)(input.clone(), around.clone()).await;
        self.deeds.note(format!("{name} ends {input}"));
        given
    }

    async fn verify(&self, input: Value, _around: &ToolContext) -> Finding {
        self.deeds.note(format!("{} looks {input}", self.card.name));
        if let Some(door) = &self.looks_at {
            door.pass().await;
        }
        self.finding.clone()
    }
}
