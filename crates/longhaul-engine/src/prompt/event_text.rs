//! The text that an agent reads about an event: a rendered template of the agent file, or a default
//! sentence.
//!
//! Invariant: the data of an event is only a value in templates, never a template itself.

use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::guard::template;

/// Kind of the event that is sent to an agent when it has nothing else to do.
pub(crate) const IDLE_TICK: &str = "idle_tick";
const PLAYER_ACTION: &str = "player_action";
const PLAYER_PROXIMITY: &str = "player_proximity";

/// Default maximum number of turns of a run that an event started: five turns with tool calls and a
/// final answer.
pub(crate) const EVENT_TURNS_MAX: u32 = 6;

/// Whether a task is an event for the agent and not an ordinary task: it is marked as an event, its
/// kind is a built-in kind of event, or it has any kind and the agent has templates for events.
pub(crate) fn is_event_task(agent: &Agent, kind: Option<&str>, is_marked_event: bool) -> bool {
    let is_known = |kind: &str| [IDLE_TICK, PLAYER_ACTION, PLAYER_PROXIMITY].contains(&kind);
    is_marked_event || kind.is_some_and(|kind| !agent.events.is_empty() || is_known(kind))
}

/// Returns the kind of the event that started a run. `None` if an ordinary task started it.
pub(crate) fn event_kind<'a>(agent: &Agent, task: &'a TaskSpec) -> Option<&'a str> {
    let kind = task.kind.as_deref();
    is_event_task(agent, kind, task.event).then(|| kind.unwrap_or("event"))
}

/// Returns the text of a task as the agent reads it: the text for an event, or the input of an
/// ordinary task.
pub(crate) fn task_text(agent: &Agent, task: &TaskSpec, values: &Value) -> Result<String, String> {
    let Some(kind) = event_kind(agent, task) else { return Ok(task_input_text(&task.input)) };
    let actor = task.actor.as_ref().map(RawJson::to_value);
    let Some(template) = agent.events.get(kind) else {
        return Ok(default_event_text(kind, &task.input.to_value(), actor.as_ref()));
    };
    let mut values = values.clone();
    values["kind"] = kind.into();
    if let Some(actor) = actor {
        values["actor"] = actor;
    }
    template::render_template(template, &values)
}

/// Returns the input of a task as text: a string as it is, anything else as JSON.
fn task_input_text(input: &RawJson) -> String {
    input.to_value().as_str().map_or_else(|| input.as_str().to_owned(), str::to_owned)
}

/// Returns the text for an event for which the agent file has no template.
fn default_event_text(kind: &str, input: &Value, actor: Option<&Value>) -> String {
    let first = match kind {
        IDLE_TICK => "You have a moment to yourself. What do you do?".to_owned(),
        PLAYER_ACTION => format!("{} is talking to you.", describe_game_player(input, actor)),
        PLAYER_PROXIMITY => format!("{} has approached.", describe_game_player(input, actor)),
        other_kind => format!("Something has happened: `{other_kind}`."),
    };
    let mut sentences = vec![first];
    match input {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::String(text) if kind == PLAYER_ACTION => sentences.push(format!("They say: {text}")),
        Value::String(text) => sentences.push(text.clone()),
        Value::Object(fields) => sentences.extend(event_data_sentences(fields)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => sentences.push(input.to_string()),
    }
    sentences.join("\n\n")
}

/// Returns a phrase for the player of a game whom an event is about, such as `A player named Anna`.
fn describe_game_player(input: &Value, actor: Option<&Value>) -> String {
    let name_of = |value: &Value| value.get("name")?.as_str().map(str::to_owned);
    let text_field = |name: &str| input.get(name)?.as_str().map(str::to_owned);
    let name = actor
        .and_then(name_of)
        .or_else(|| input.get("player").and_then(name_of))
        .or_else(|| text_field("playerName"))
        .or_else(|| text_field("player"));
    name.map_or_else(|| "A player".to_owned(), |name| format!("A player named {name}"))
}

/// Returns sentences about the data of an event: the text in its field `message` or `text`, and the
/// other fields as JSON.
fn event_data_sentences(fields: &Map<String, Value>) -> Vec<String> {
    const TEXT_KEYS: [&str; 2] = ["message", "text"];
    let quoted_field =
        TEXT_KEYS.iter().find_map(|name| Some((*name, fields.get(*name)?.as_str()?)));
    let quote = quoted_field.map(|(_, text)| format!("They say: {text}"));
    let is_rendered = |name: &str| {
        ["player", "playerName"].contains(&name)
            || quoted_field.is_some_and(|(quote, _)| quote == name)
    };
    let rest: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| !is_rendered(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let rest = (!rest.is_empty()).then(|| Value::Object(rest).to_string());
    quote.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{AgentName, InboxName, RunId};
    use serde_json::json;

    use super::*;

    fn assert_task_text(kind: Option<&str>, input: Value, expect: Result<&str, &str>) {
        let mut agent = Agent::new(AgentName::new("smith").unwrap());
        let template = "{{ actor.name }} ({{ kind }}) buys {{ input.item }}.";
        agent.events.insert("trade".into(), template.into());
        let inbox = InboxName::new("default").unwrap();
        let mut task = TaskSpec::new(
            RunId::from_bits(1),
            agent.name.clone(),
            RawJson::from_serialize(&input),
            inbox,
        );
        task.kind = kind.map(str::to_owned);
        task.actor = Some(RawJson::from_serialize(&json!({ "name": "Ada" })));
        let values = template::template_values(&task.input, &task.context);
        match (task_text(&agent, &task, &values), expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(reason), Err(expect)) => assert!(reason.contains(expect), "{reason}"),
            (got, _) => panic!("{kind:?}: {got:?}"),
        }
    }

    #[test]
    fn an_event_is_rendered_as_text() {
        assert_task_text(None, json!("Do it."), Ok("Do it."));
        assert_task_text(None, json!({ "a": 1 }), Ok(r#"{"a":1}"#));
        assert_task_text(
            Some("idle_tick"),
            Value::Null,
            Ok("You have a moment to yourself. What do you do?"),
        );
        assert_task_text(
            Some("player_proximity"),
            json!({}),
            Ok("A player named Ada has approached."),
        );
        assert_task_text(
            Some("player_action"),
            json!("Hello"),
            Ok("A player named Ada is talking to you.\n\nThey say: Hello"),
        );
        assert_task_text(
            Some("player_action"),
            json!({ "message": "Hi", "item": "sword" }),
            Ok("A player named Ada is talking to you.\n\nThey say: Hi\n\n{\"item\":\"sword\"}"),
        );
        assert_task_text(
            Some("trade"),
            json!({ "item": "{{ nothing }}" }),
            Ok("Ada (trade) buys {{ nothing }}."),
        );
        assert_task_text(Some("trade"), json!({}), Err("`input.item` is missing"));
        assert_task_text(
            Some("quake"),
            json!({ "strength": 6 }),
            Ok("Something has happened: `quake`.\n\n{\"strength\":6}"),
        );
    }

    #[test]
    fn a_task_with_an_unknown_type_is_not_an_event() {
        let agent = Agent::new(AgentName::new("plain").unwrap());
        assert!(!is_event_task(&agent, Some("report"), false));
        assert!(is_event_task(&agent, Some("report"), true));
        assert!(is_event_task(&agent, Some("idle_tick"), false));
        assert!(!is_event_task(&agent, None, false));
    }
}
