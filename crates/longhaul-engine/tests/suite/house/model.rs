//! A model that says what a test wrote down, and keeps what it was told.
//!
//! Never: clever. Beyond its lines it says `done`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::RunId;
use longhaul_core::message::{
    Block, Message, Part, Reply, StopReason, ToolCall, ToolResult, Words,
};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{Hold, Tariff, Usage};
use longhaul_run::next::check_conversation;
use serde_json::Value;

use longhaul_testkit::door::Door;

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Line {
    /// It says this and is done.
    Text(&'static str),
    /// It says this and has no room for more.
    CutShort(&'static str),
    /// It wants tools used, all in one reply.
    Calls(Vec<(&'static str, Value)>),
    /// It fails.
    Fail(FailureClass),
    /// It fails in these words.
    FailSaying(FailureClass, &'static str),
    /// Its adapter panics.
    Panic,
    /// It speaks these words, then goes on with the next line.
    Speak(&'static str, Box<Self>),
    /// It waits at a door, then goes on with the next line.
    At(Door, Box<Self>),
}

impl Line {
    /// One call.
    pub(crate) fn call(tool: &'static str, input: Value) -> Self {
        Self::Calls(vec![(tool, input)])
    }

    /// The same, behind a door.
    pub(crate) fn behind(self, door: &Door) -> Self {
        Self::At(door.clone(), Box::new(self))
    }
}

/// A model in the hands of a test. Each run hears the lines from the first on.
#[derive(Debug, Default)]
pub(crate) struct Actor {
    lines: Mutex<Vec<Line>>,
    spoken: Mutex<BTreeMap<RunId, usize>>,
    asked: Mutex<Vec<Ask>>,
    wrong: Mutex<Vec<String>>,
    tariff: Mutex<Tariff>,
}

impl Actor {
    pub(crate) fn learn(&self, lines: Vec<Line>) {
        *self.lines.lock().unwrap() = lines;
    }

    /// So many tokens fit into its window from now on.
    pub(crate) fn narrow(&self, tokens: u64) {
        self.tariff.lock().unwrap().window_tokens = tokens;
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.asked.lock().unwrap().clone()
    }

    /// What was wrong with conversations: every provider would have refused them.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }

    fn next_line(&self, run: RunId) -> Line {
        let mut spoken = self.spoken.lock().unwrap();
        let count = spoken.entry(run).or_default();
        *count += 1;
        let lines = self.lines.lock().unwrap();
        lines.get(*count - 1).cloned().unwrap_or(Line::Text("done"))
    }
}

#[async_trait]
impl Model for Actor {
    fn quote(&self, _ask: &Ask) -> Quote {
        Quote {
            hold: Hold::default(),
            tariff: *self.tariff.lock().unwrap(),
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        if let Err(bad) = check_conversation(&ask.messages) {
            self.wrong.lock().unwrap().push(bad.to_string());
        }
        self.asked.lock().unwrap().push(ask.clone());
        let mut line = self.next_line(ask.run);
        loop {
            line = match line {
                Line::Text(text) => {
                    ear.words(text);
                    return Ok(answered(vec![words(text)], StopReason::EndTurn));
                }
                Line::CutShort(text) => {
                    return Ok(answered(vec![words(text)], StopReason::MaxTokens));
                }
                Line::Calls(calls) => {
                    let calls = calls.into_iter().enumerate();
                    let blocks = calls.map(|(place, (tool, input))| called(place, tool, &input));
                    return Ok(answered(blocks.collect(), StopReason::ToolUse));
                }
                Line::Fail(class) => return Err(Failure::new(class, "the provider said no")),
                Line::FailSaying(class, words) => return Err(Failure::new(class, words)),
                Line::Panic => panic!("an adapter with a mistake"),
                Line::Speak(text, then) => {
                    ear.words(text);
                    *then
                }
                Line::At(door, then) => {
                    door.pass().await;
                    *then
                }
            };
        }
    }
}

fn words(text: &str) -> Block {
    Block::Text(Words {
        text: text.into(),
        extra: None,
    })
}

fn called(place: usize, tool: &str, input: &Value) -> Block {
    Block::ToolCall(ToolCall {
        id: format!("call_{place}"),
        name: tool.to_owned(),
        input: RawJson::of(input),
        extra: None,
    })
}

fn answered(blocks: Vec<Block>, stop: StopReason) -> Answered {
    Answered {
        reply: Arc::new(Reply {
            dialect: "scripted".into(),
            blocks,
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

/// The words of some parts.
pub(crate) fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(_) => "(a picture)".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The newest results that a model was shown: words, and whether they are a failure.
pub(crate) fn results(ask: &Ask) -> Vec<(String, bool)> {
    let newest = ask
        .messages
        .iter()
        .rev()
        .find_map(|message| match &**message {
            Message::Results(results) => Some(results.clone()),
            Message::User(_) | Message::Assistant(_) => None,
        });
    let shown = |result: &ToolResult| (texts(&result.content), result.is_error);
    newest.unwrap_or_default().iter().map(shown).collect()
}

/// Everything that users said to a model, in order.
pub(crate) fn heard(ask: &Ask) -> Vec<String> {
    let said = ask.messages.iter().filter_map(|message| match &**message {
        Message::User(parts) => Some(texts(parts)),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    said.collect()
}
