//! Compaction: requests and builds a summary of the older part of a conversation.
//!
//! Nothing is lost: the journal keeps the whole conversation, and only what the model sees becomes
//! shorter. What people said is kept verbatim, and identifiers that the summary dropped are
//! appended to it.

use std::collections::HashSet;
use std::sync::Arc;

use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::StoredText;

use crate::prompt::WORLD_UPDATE_HEADING;
use crate::prompt::identifiers::{SearchedTextKind, find_identifiers, truncate_str};

/// Number of the newest messages that are not summarized.
const KEPT_MESSAGES: usize = 6;
/// Maximum size in bytes of a tool result in the request for a summary.
const RESULT_BYTES_MAX: usize = 8 * 1_024;
/// Maximum size in bytes of the messages of people that are kept verbatim. The newest are kept.
const USER_TEXT_BYTES_MAX: usize = 32 * 1_024;
/// Maximum size in bytes of the list of identifiers that the summary dropped.
const IDENTIFIERS_BYTES_MAX: usize = 2 * 1_024;
/// Size in bytes up to which a summary is never rejected as too long.
const SUMMARY_BYTES_FREE: u64 = 4 * 1_024;

/// Name of the tool whose results are answers of a person.
const ASK_HUMAN: &str = "ask_human";

const SUMMARY_INSTRUCTION: &str = "[longhaul] The conversation no longer fits the model's window. Sum up all \
    of it so far, so that the work can continue from your summary alone. Keep word for word: the \
    goal, every rule and limit that was given, every identifier, name, path, number and link that \
    may still be needed, every question that is open. Say what is done, what was found and what \
    is left. Do not use a tool.";

const USER_TEXT_HEADING: &str = "[longhaul] What people said on the way, word for word:";
const SUMMARY_HEADING: &str = "[longhaul] A summary of what was said and done since:\n\n";
const IDENTIFIERS_HEADING: &str = "[longhaul] Also mentioned, word for word:";

/// Beginnings of messages that the runtime itself wrote. The prefix `[longhaul]` alone does not
/// identify them, because a person may quote it.
const RUNTIME_PREFIXES: [&str; 13] = [
    USER_TEXT_HEADING,
    SUMMARY_HEADING,
    IDENTIFIERS_HEADING,
    SUMMARY_INSTRUCTION,
    WORLD_UPDATE_HEADING,
    "[longhaul] You were interrupted. Continue.",
    "[longhaul] Little is left of the budget of ",
    "[longhaul] This does not end the run: ",
    "[longhaul] You have made the same call ",
    "[longhaul] In the last ",
    "[longhaul] Your last ",
    "[longhaul] Your reply was empty. ",
    "[longhaul] The conversation was summarized again and again: ",
];

/// List marker before each message of a person in a summary.
const BULLET: &str = "- ";

/// A conversation, split into messages that are summarized and messages that are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConversationSplit<'a> {
    /// Message with the task of the run. `None` if that message is not known.
    pub(crate) task: Option<&'a Message>,
    pub(crate) summarized: &'a [Arc<Message>],
    /// Messages that are kept unchanged.
    pub(crate) kept_messages: &'a [Arc<Message>],
}

/// Builds the request for a summary from the model request whose conversation is too long.
/// `keep_text` is the agent's own text about what the summary has to keep.
pub(crate) fn to_summary_request(request: ModelRequest, keep_text: Option<&str>) -> ModelRequest {
    let older = &request.messages[..messages_to_summarize(&request.messages)];
    let mut messages: Vec<Arc<Message>> = older.iter().map(truncate_tool_results).collect();
    let instruction = match keep_text {
        Some(keep_text) => format!("{SUMMARY_INSTRUCTION} Also keep: {keep_text}"),
        None => SUMMARY_INSTRUCTION.to_owned(),
    };
    messages.push(Arc::new(Message::user(instruction)));
    ModelRequest { messages: Arc::new(messages), tools: StoredText::new_inline("[]"), ..request }
}

/// Truncates long tool results in a message, so that the whole conversation fits into the request
/// for a summary.
fn truncate_tool_results(message: &Arc<Message>) -> Arc<Message> {
    let Message::Results(results) = &**message else { return Arc::clone(message) };
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
    let beginning = truncate_str(text, RESULT_BYTES_MAX * 3 / 4);
    let from = text.ceil_char_boundary(text.len() - RESULT_BYTES_MAX / 4);
    let omitted = from - beginning.len();
    format!("{beginning}\n[... {omitted} bytes are left out here ...]\n{}", &text[from..])
}

/// Returns the text that the model wrote in a summary message. Empty if the first message is not a
/// summary.
pub(crate) fn summary_text(summary: &[Message]) -> String {
    let Some(Message::User(parts)) = summary.first() else { return String::new() };
    let body = part_texts(parts).find_map(|text| text.strip_prefix(SUMMARY_HEADING));
    body.unwrap_or_default().to_owned()
}

/// Returns the number of messages to summarize: all but the newest, never separating a call from
/// its result.
pub(crate) fn messages_to_summarize(messages: &[Arc<Message>]) -> usize {
    let count = messages.len();
    let mut until = count.saturating_sub(KEPT_MESSAGES).max(count.min(1));
    let bytes = |messages: &[Arc<Message>]| {
        messages.iter().map(|message| message.estimated_bytes()).sum::<u64>()
    };
    let all = bytes(messages);
    let mut tail = bytes(&messages[until..]);
    // If the newest messages are most of the conversation, keeping them all would gain little.
    while until < count && tail * 5 > all * 3 {
        tail -= messages[until].estimated_bytes();
        until += 1;
    }
    while until < count && matches!(*messages[until], Message::Results(_)) {
        until += 1;
    }
    until
}

/// Builds the message that replaces the summarized messages, starting with the task. The error says
/// why the summary is not used.
pub(crate) fn summarize(split: ConversationSplit<'_>, text: &str) -> Result<Message, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the summary is empty");
    }
    let mut parts = summarized_task_parts(split);
    if let Some(texts) = format_user_texts(split) {
        parts.push(Part::Text(texts.into()));
    }
    parts.push(Part::Text(format!("{SUMMARY_HEADING}{text}").into()));
    if let Some(identifiers) = format_lost_identifiers(split, &parts) {
        parts.push(Part::Text(identifiers.into()));
    }
    let summary = Message::User(parts);
    let before: u64 = split.summarized.iter().map(|message| message.estimated_bytes()).sum();
    if summary.estimated_bytes() >= before && summary.estimated_bytes() > SUMMARY_BYTES_FREE {
        return Err("the summary is longer than what it replaces");
    }
    Ok(summary)
}

/// Returns the parts of the task message, if that message is among those that are summarized.
/// Otherwise returns an empty list.
fn summarized_task_parts(split: ConversationSplit<'_>) -> Vec<Part> {
    let Some((index, first)) = find_task_message(split) else { return Vec::new() };
    let Message::User(parts) = &**first else { return Vec::new() };
    let is_goal = |part: &&Part| index > 0 || !part.text().is_some_and(is_runtime_message);
    parts.iter().take_while(is_goal).cloned().collect()
}

/// Returns the message with the task, and the index of that message. After an earlier summary, the
/// summary message contains the task.
fn find_task_message(split: ConversationSplit<'_>) -> Option<(usize, &Arc<Message>)> {
    let first = split.summarized.first()?;
    let is_summary = |text: &str| text.starts_with(SUMMARY_HEADING);
    if matches!(&**first, Message::User(parts) if part_texts(parts).any(is_summary)) {
        return Some((0, first));
    }
    let mut messages = split.summarized.iter().enumerate();
    let task = split.task;
    let task_message = messages.find(|(_, message)| task.is_some_and(|task| ***message == *task));
    task_message.or_else(|| match task {
        // The task is among the messages that are kept.
        Some(task) if split.kept_messages.iter().any(|message| **message == *task) => None,
        Some(_) | None => Some((0, first)),
    })
}

fn is_runtime_message(text: &str) -> bool {
    RUNTIME_PREFIXES.iter().any(|head| text.starts_with(head))
}

/// Formats what people said after the task: their messages and their answers to questions.
fn format_user_texts(split: ConversationSplit<'_>) -> Option<String> {
    let (index, first) = match find_task_message(split) {
        Some((index, first)) => (index + 1, Some(first)),
        None => (0, None),
    };
    let mut bullets: Vec<String> = Vec::new();
    // What an earlier summary kept is kept again.
    if let Some(Message::User(parts)) = first.map(|first| &**first) {
        let before = part_texts(parts).filter_map(|text| text.strip_prefix(USER_TEXT_HEADING));
        bullets.extend(before.flat_map(split_bullet_list));
    }
    let rest = split.summarized.get(index..).unwrap_or_default();
    for (at, message) in rest.iter().enumerate() {
        match &**message {
            Message::User(parts) => {
                let texts = part_texts(parts).filter(|text| !is_runtime_message(text));
                bullets.extend(texts.map(|text| format!("{BULLET}{text}")));
            }
            Message::Assistant(reply) => {
                if let Some(Message::Results(results)) = rest.get(at + 1).map(|next| &**next) {
                    bullets.extend(format_answered_questions(reply, results));
                }
            }
            Message::Results(_) => {}
        }
    }
    let mut bytes = 0;
    let fitting = bullets.iter().rev().take_while(|text| {
        bytes += text.len() + 1;
        bytes <= USER_TEXT_BYTES_MAX
    });
    let from = bullets.len() - fitting.count();
    let newest = bullets.get(from..).filter(|newest| !newest.is_empty())?;
    Some(format!("{USER_TEXT_HEADING}\n\n{}", newest.join("\n")))
}

/// Splits the list of people's messages in an earlier summary into single messages, so that not all
/// of them are dropped when the size limit is reached. A list within a message is split, too.
fn split_bullet_list(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.trim().split('\n') {
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

/// Returns the questions that a reply asks a person, each with its answer.
fn format_answered_questions(reply: &Reply, results: &[ToolResult]) -> Vec<String> {
    let pairs = reply.tool_calls().zip(results);
    let questions = pairs.filter(|(call, _)| call.name == ASK_HUMAN);
    let answers = questions.map(|(call, result)| {
        let input = call.input.to_value();
        let question = input["question"].as_str().unwrap_or_default();
        let answer: Vec<&str> = part_texts(&result.content).collect();
        format!("{BULLET}asked {question:?}: {}", answer.join("\n"))
    });
    answers.collect()
}

/// Formats the list of identifiers that the summary would lose: the newest first, and those in the
/// conversation before those in tool results.
fn format_lost_identifiers(split: ConversationSplit<'_>, parts: &[Part]) -> Option<String> {
    let texts: Vec<&str> = part_texts(parts).collect();
    let mut seen: HashSet<String> = HashSet::new();
    seen.extend(split.kept_messages.iter().flat_map(|message| message_identifiers(message)));
    let mut list = String::new();
    let newest_first = split.summarized.iter().rev();
    let (results, conversation): (Vec<_>, Vec<_>) =
        newest_first.partition(|message| matches!(***message, Message::Results(_)));
    for mention in
        conversation.into_iter().chain(results).flat_map(|message| message_identifiers(message))
    {
        let is_present = texts.iter().any(|text| text.contains(&mention));
        if is_present || !seen.insert(mention.clone()) {
            continue;
        }
        if list.len() + mention.len() + 3 > IDENTIFIERS_BYTES_MAX {
            break;
        }
        list.push_str("\n- ");
        list.push_str(&mention);
    }
    (!list.is_empty()).then(|| format!("{IDENTIFIERS_HEADING}\n{list}"))
}

fn message_identifiers(message: &Message) -> Vec<String> {
    match message {
        Message::User(parts) => {
            let texts = part_texts(parts);
            texts.flat_map(|text| find_identifiers(text, SearchedTextKind::Prose)).collect()
        }
        Message::Assistant(reply) => reply.blocks.iter().flat_map(block_identifiers).collect(),
        Message::Results(results) => {
            let texts = results.iter().flat_map(|result| part_texts(&result.content));
            texts.flat_map(|text| find_identifiers(text, SearchedTextKind::Data)).collect()
        }
    }
}

fn block_identifiers(block: &Block) -> Vec<String> {
    match block {
        Block::Text(text_block) => find_identifiers(&text_block.text, SearchedTextKind::Prose),
        Block::ToolCall(call) => find_identifiers(call.input.as_str(), SearchedTextKind::Data),
        Block::Thinking(_) | Block::Other(_) => Vec::new(),
    }
}

fn part_texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(Part::text)
}

#[cfg(test)]
mod tests;
