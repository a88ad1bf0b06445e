//! A model that says what a test wrote down, and tools that give back what they
//! were given.
//!
//! Never: clever. Beyond its lines the model says `done`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::{Block, Reply, StopReason, ToolCall, Words};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{Hold, Tariff, Usage};
use longhaul_engine::ports::{Found, Models, NoModel};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use longhaul_testkit::door::Door;

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Line {
    /// It says this and is done.
    Text(&'static str),
    /// It wants a tool used.
    Call(&'static str, Value),
    /// It speaks these words, then goes on with the next line.
    Speak(&'static str, Box<Self>),
    /// It waits at a door, then goes on with the next line.
    At(Door, Box<Self>),
    /// It waits for somebody to let one through, then goes on.
    Gate(Arc<Semaphore>, Box<Self>),
}

impl Line {
    /// The same, behind a door.
    pub(crate) fn behind(self, door: &Door) -> Self {
        Self::At(door.clone(), Box::new(self))
    }

    /// The same, after these words.
    pub(crate) fn after(self, words: &'static str) -> Self {
        Self::Speak(words, Box::new(self))
    }

    /// The same, when somebody lets one through.
    pub(crate) fn let_through(self, gate: &Arc<Semaphore>) -> Self {
        Self::Gate(Arc::clone(gate), Box::new(self))
    }
}

/// A model in the hands of a test. Each run hears the lines from the first on.
#[derive(Debug)]
pub(crate) struct Actor {
    lines: Vec<Line>,
    spoken: Mutex<BTreeMap<RunId, usize>>,
}

impl Actor {
    fn next_line(&self, run: RunId) -> Line {
        let mut spoken = self.spoken.lock().unwrap();
        let count = spoken.entry(run).or_default();
        *count += 1;
        let line = self.lines.get(*count - 1).cloned();
        line.unwrap_or(Line::Text("done"))
    }
}

#[async_trait]
impl Model for Actor {
    fn quote(&self, _ask: &Ask) -> Quote {
        Quote {
            hold: Hold::default(),
            tariff: Tariff::default(),
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let mut line = self.next_line(ask.run);
        loop {
            line = match line {
                Line::Text(text) => {
                    ear.words(text);
                    let (text, extra) = (text.into(), None);
                    let block = Block::Text(Words { text, extra });
                    return Ok(answered(block, StopReason::EndTurn));
                }
                Line::Call(tool, input) => {
                    let block = Block::ToolCall(ToolCall {
                        id: "call_0".to_owned(),
                        name: tool.to_owned(),
                        input: RawJson::of(&input),
                        extra: None,
                    });
                    return Ok(answered(block, StopReason::ToolUse));
                }
                Line::Speak(text, then) => {
                    ear.words(text);
                    *then
                }
                Line::At(door, then) => {
                    door.pass().await;
                    *then
                }
                Line::Gate(gate, then) => {
                    gate.acquire().await.unwrap().forget();
                    *then
                }
            };
        }
    }
}

fn answered(block: Block, stop: StopReason) -> Answered {
    Answered {
        reply: Arc::new(Reply {
            dialect: "scripted".into(),
            blocks: vec![block],
        }),
        stop,
        usage: Usage {
            input_tokens: 10,
            output_tokens: 5,
            ..Usage::default()
        },
        cost: None,
        model: "scripted/actor".into(),
    }
}

/// The one model there is; on order, whoever looks for it breaks.
#[derive(Debug)]
pub(crate) struct Shelf {
    actor: Arc<Actor>,
    breaks: AtomicBool,
}

impl Shelf {
    pub(crate) fn new(lines: Vec<Line>) -> Self {
        let spoken = Mutex::default();
        Self {
            actor: Arc::new(Actor { lines, spoken }),
            breaks: AtomicBool::new(false),
        }
    }

    /// From now on looking for a model panics, or no longer.
    pub(crate) fn breaks(&self, breaks: bool) {
        self.breaks.store(breaks, Ordering::SeqCst);
    }
}

impl Models for Shelf {
    fn find(&self, name: Option<&str>) -> Result<Found, NoModel> {
        assert!(
            !self.breaks.load(Ordering::SeqCst),
            "a shelf with a mistake"
        );
        if name == Some("scripted/torn") {
            return Err(NoModel::BrokenScript(
                "torn.yaml:1:1: it is torn".to_owned(),
            ));
        }
        if name == Some("nobody/none") {
            return Err(NoModel::Unset("nobody sells it".to_owned()));
        }
        let name = "scripted/actor".to_owned();
        let model = self.actor.clone();
        Ok(Found { name, model })
    }
}

/// A tool that gives its input back.
#[derive(Debug)]
pub(crate) struct Hand {
    card: ToolCard,
    class: EffectClass,
}

impl Hand {
    pub(crate) fn new(name: &str, class: EffectClass) -> Self {
        let card = ToolCard {
            name: ToolName::new(name).unwrap(),
            description: "made by a test".into(),
            schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "additionalProperties": false,
            }),
            verifies: false,
            in_doubt: None,
            timeout: None,
        };
        Self { card, class }
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

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(input.to_string()))
    }
}
