//! The older part of a conversation in fewer words: how it is asked for, and what
//! stands in its place.
//!
//! Never: throws words away. The journal keeps all of them; only what the model
//! is shown gets shorter. What people said is kept word for word, and identifiers
//! that a summary lost are added to it by us.

use std::collections::HashSet;
use std::sync::Arc;

use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::StoredText;

use crate::identifiers::{TextKind, find_identifiers, truncate_str};
use crate::prompt::WORLD_UPDATE_HEADING;

/// So many of the newest messages are kept as they are.
const KEPT_MESSAGES: usize = 6;
/// So much of a result is shown to whoever sums up.
const RESULT_BYTES_MAX: usize = 8 * 1_024;
/// So much of what people said is kept word for word, the newest of it.
const USER_TEXT_BYTES_MAX: usize = 32 * 1_024;
/// So many bytes of lost identifiers are added.
const IDENTIFIERS_BYTES_MAX: usize = 2 * 1_024;
/// A summary that is shorter than this is never too long.
const SUMMARY_BYTES_FREE: u64 = 4 * 1_024;

/// The tool whose results are a person's words.
const ASK_HUMAN: &str = "ask_human";

const SUMMARY_INSTRUCTION: &str = "[longhaul] The conversation no longer fits the model's window. Sum up all \
    of it so far, so that the work can go on from your summary alone. Keep word for word: the \
    goal, every rule and limit that was given, every identifier, name, path, number and link that \
    may still be needed, every question that is open. Say what is done, what was found and what \
    is left. Do not use a tool.";

const USER_TEXT_HEADING: &str = "[longhaul] What people said on the way, word for word:";
const SUMMARY_HEADING: &str = "[longhaul] A summary of what was said and done since:\n\n";
const IDENTIFIERS_HEADING: &str = "[longhaul] Also mentioned, word for word:";

/// What begins a message of the runtime's own. The mark alone says little: a person
/// may quote it.
const RUNTIME_PREFIXES: [&str; 9] = [
    USER_TEXT_HEADING,
    SUMMARY_HEADING,
    IDENTIFIERS_HEADING,
    SUMMARY_INSTRUCTION,
    WORLD_UPDATE_HEADING,
    "[longhaul] You were cut off. Go on.",
    "[longhaul] Little is left of the budget of ",
    "[longhaul] This does not end the run: ",
    "[longhaul] You have made the same call ",
];

/// What begins each thing that somebody said.
const BULLET: &str = "- ";

/// A conversation, and where it is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SummarySplit<'a> {
    /// What the run was asked.
    pub(crate) task: Option<&'a Message>,
    /// What is summed up.
    pub(crate) summarized: &'a [Arc<Message>],
    /// What is kept as it is.
    pub(crate) kept_messages: &'a [Arc<Message>],
}

/// The question for a summary of this conversation.
pub(crate) fn summary_request(ask: ModelRequest) -> ModelRequest {
    let older = &ask.messages[..summarized_count(&ask.messages)];
    let mut shown: Vec<Arc<Message>> = older.iter().map(truncate_results).collect();
    shown.push(Arc::new(Message::user(SUMMARY_INSTRUCTION)));
    ModelRequest { messages: Arc::new(shown), tools: StoredText::inline("[]"), ..ask }
}

/// A message with long results cut in their middle: whoever sums up must be able
/// to read the whole conversation.
fn truncate_results(message: &Arc<Message>) -> Arc<Message> {
    let Message::Results(results) = &**message else {
        return Arc::clone(message);
    };
    let is_long = |part: &Part| matches!(part, Part::Text(text) if text.len() > RESULT_BYTES_MAX);
    let mut results = results.clone();
    for result in &mut results {
        for part in result.content.iter_mut().filter(|part| is_long(part)) {
            if let Part::Text(text) = part {
                *text = truncate_middle(text).into();
            }
        }
    }
    Arc::new(Message::Results(results))
}

fn truncate_middle(text: &str) -> String {
    let head = truncate_str(text, RESULT_BYTES_MAX * 3 / 4);
    let from = text.ceil_char_boundary(text.len() - RESULT_BYTES_MAX / 4);
    let left = from - head.len();
    format!("{head}\n[... {left} bytes are left out here ...]\n{}", &text[from..])
}

/// The words of the model that a summary was made of.
pub(crate) fn summary_text(summary: &[Message]) -> String {
    let Some(Message::User(parts)) = summary.first() else {
        return String::new();
    };
    let told = part_texts(parts).find_map(|text| text.strip_prefix(SUMMARY_HEADING));
    told.unwrap_or_default().to_owned()
}

/// How many messages are summed up: all but the newest, and never between a
/// call and its result.
pub(crate) fn summarized_count(messages: &[Arc<Message>]) -> usize {
    let count = messages.len();
    let mut until = count.saturating_sub(KEPT_MESSAGES).max(count.min(1));
    let bytes =
        |some: &[Arc<Message>]| some.iter().map(|message| message.estimated_bytes()).sum::<u64>();
    let all = bytes(messages);
    let mut tail = bytes(&messages[until..]);
    // If most of it is the newest, keeping that would leave little gained.
    while until < count && tail * 5 > all * 3 {
        tail -= messages[until].estimated_bytes();
        until += 1;
    }
    while until < count && matches!(*messages[until], Message::Results(_)) {
        until += 1;
    }
    until
}

/// One message that stands for all that was summed up, the task first; none: it
/// would be no gain.
pub(crate) fn build_summary(cut: SummarySplit<'_>, text: &str) -> Result<Message, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the summary is empty");
    }
    let mut parts = task_parts(cut);
    if let Some(said) = user_texts(cut) {
        parts.push(Part::Text(said.into()));
    }
    parts.push(Part::Text(format!("{SUMMARY_HEADING}{text}").into()));
    if let Some(lost) = lost_identifiers(cut, &parts) {
        parts.push(Part::Text(lost.into()));
    }
    let summary = Message::User(parts);
    let before: u64 = cut.summarized.iter().map(|message| message.estimated_bytes()).sum();
    if summary.estimated_bytes() >= before && summary.estimated_bytes() > SUMMARY_BYTES_FREE {
        return Err("the summary is longer than what it stands for");
    }
    Ok(summary)
}

/// What the run was asked, if that was summed up.
fn task_parts(cut: SummarySplit<'_>) -> Vec<Part> {
    let Some((place, first)) = find_task_message(cut) else {
        return Vec::new();
    };
    let Message::User(parts) = &**first else {
        return Vec::new();
    };
    let is_goal = |part: &&Part| place > 0 || !is_runtime_part(part);
    parts.iter().take_while(is_goal).cloned().collect()
}

/// The message that says what the run was asked, and its place. After a summary
/// that is the summary itself.
fn find_task_message(cut: SummarySplit<'_>) -> Option<(usize, &Arc<Message>)> {
    let first = cut.summarized.first()?;
    if is_summary(first) {
        return Some((0, first));
    }
    let mut places = cut.summarized.iter().enumerate();
    let asked = cut.task;
    let named = places.find(|(_, message)| asked.is_some_and(|asked| ***message == *asked));
    named.or_else(|| match asked {
        // It is among what is kept.
        Some(asked) if cut.kept_messages.iter().any(|message| **message == *asked) => None,
        Some(_) | None => Some((0, first)),
    })
}

fn is_summary(message: &Message) -> bool {
    matches!(message, Message::User(parts) if part_texts(parts).any(|text| text.starts_with(SUMMARY_HEADING)))
}

fn is_runtime_part(part: &Part) -> bool {
    matches!(part, Part::Text(text) if is_runtime_text(text))
}

fn is_runtime_text(text: &str) -> bool {
    RUNTIME_PREFIXES.iter().any(|head| text.starts_with(head))
}

/// What people said after the task: messages on the way, and answers to questions.
fn user_texts(cut: SummarySplit<'_>) -> Option<String> {
    let (place, first) = match find_task_message(cut) {
        Some((place, first)) => (place + 1, Some(first)),
        None => (0, None),
    };
    let mut said: Vec<String> = Vec::new();
    // What an earlier summary kept is kept again.
    if let Some(Message::User(parts)) = first.map(|first| &**first) {
        let before = part_texts(parts).filter_map(|text| text.strip_prefix(USER_TEXT_HEADING));
        said.extend(before.flat_map(split_bullets));
    }
    let rest = cut.summarized.get(place..).unwrap_or_default();
    for (at, message) in rest.iter().enumerate() {
        match &**message {
            Message::User(parts) => {
                let words = part_texts(parts).filter(|text| !is_runtime_text(text));
                said.extend(words.map(|text| format!("{BULLET}{text}")));
            }
            Message::Assistant(reply) => {
                if let Some(Message::Results(results)) = rest.get(at + 1).map(|next| &**next) {
                    said.extend(answered_questions(reply, results));
                }
            }
            Message::Results(_) => {}
        }
    }
    let mut bytes = 0;
    let fits = said.iter().rev().take_while(|text| {
        bytes += text.len() + 1;
        bytes <= USER_TEXT_BYTES_MAX
    });
    let from = said.len() - fits.count();
    let kept = said.get(from..).filter(|kept| !kept.is_empty())?;
    Some(format!("{USER_TEXT_HEADING}\n\n{}", kept.join("\n")))
}

/// What an earlier summary kept, piece by piece, so that not all of it goes when
/// there is no room for all of it. A list that somebody wrote is several pieces.
fn split_bullets(kept: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in kept.trim().split('\n') {
        match pieces.last_mut() {
            Some(piece) if !line.starts_with(BULLET) => {
                piece.push('\n');
                piece.push_str(line);
            }
            Some(_) | None => pieces.push(line.to_owned()),
        }
    }
    pieces
}

/// The questions of a reply to a person, each with its answer.
fn answered_questions(reply: &Reply, results: &[ToolResult]) -> Vec<String> {
    let pairs = reply.calls().zip(results);
    let asked = pairs.filter(|(call, _)| call.name == ASK_HUMAN);
    let told = asked.map(|(call, result)| {
        let input = call.input.to_value();
        let question = input["question"].as_str().unwrap_or_default();
        let answer: Vec<&str> = part_texts(&result.content).collect();
        format!("{BULLET}asked {question:?}: {}", answer.join("\n"))
    });
    told.collect()
}

/// The identifiers that stand nowhere any more, the newest first: those that were
/// talked about before those that only stood in results.
fn lost_identifiers(cut: SummarySplit<'_>, parts: &[Part]) -> Option<String> {
    let shown: Vec<&str> = part_texts(parts).collect();
    let mut known: HashSet<String> = HashSet::new();
    for message in cut.kept_messages {
        for kind in [IdentifierSource::Conversation, IdentifierSource::Results] {
            known.extend(message_identifiers(message, kind));
        }
    }
    let mut list = String::new();
    for source in [IdentifierSource::Conversation, IdentifierSource::Results] {
        for message in cut.summarized.iter().rev() {
            for mention in message_identifiers(message, source) {
                let stands = shown.iter().any(|text| text.contains(&mention));
                if stands || !known.insert(mention.clone()) {
                    continue;
                }
                if list.len() + mention.len() + 3 > IDENTIFIERS_BYTES_MAX {
                    return Some(format!("{IDENTIFIERS_HEADING}\n{list}"));
                }
                list.push_str("\n- ");
                list.push_str(&mention);
            }
        }
    }
    (!list.is_empty()).then(|| format!("{IDENTIFIERS_HEADING}\n{list}"))
}

/// Where in a message identifiers are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdentifierSource {
    Conversation,
    Results,
}

fn message_identifiers(message: &Message, source: IdentifierSource) -> Vec<String> {
    match (message, source) {
        (Message::User(parts), IdentifierSource::Conversation) => {
            let texts = part_texts(parts);
            texts.flat_map(|text| find_identifiers(text, TextKind::Prose)).collect()
        }
        (Message::Assistant(reply), IdentifierSource::Conversation) => {
            let blocks = reply.blocks.iter();
            blocks.flat_map(block_identifiers).collect()
        }
        (Message::Results(results), IdentifierSource::Results) => {
            let texts = results.iter().flat_map(|result| part_texts(&result.content));
            texts.flat_map(|text| find_identifiers(text, TextKind::Data)).collect()
        }
        (Message::Results(_), IdentifierSource::Conversation)
        | (Message::User(_) | Message::Assistant(_), IdentifierSource::Results) => Vec::new(),
    }
}

fn block_identifiers(block: &Block) -> Vec<String> {
    match block {
        Block::Text(words) => find_identifiers(&words.text, TextKind::Prose),
        Block::ToolCall(call) => find_identifiers(call.input.as_str(), TextKind::Data),
        Block::Thinking(_) | Block::Other(_) => Vec::new(),
    }
}

fn part_texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(Part::text)
}

#[cfg(test)]
mod tests;
