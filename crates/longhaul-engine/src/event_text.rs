//! What happened, in words for the agent: by the templates of its file, or by
//! sentences that say the same of every agent.
//!
//! Never: takes what came with an event for a template. It is a value in one.

use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::template;

/// An agent that has nothing else to do.
pub(crate) const IDLE_TICK: &str = "idle_tick";
const PLAYER_ACTION: &str = "player_action";
const PLAYER_PROXIMITY: &str = "player_proximity";

/// A run that an event made takes so many turns, unless its agent says otherwise:
/// five rounds of tools, and the last word.
pub(crate) const EVENT_TURNS_MAX: u32 = 6;

/// Whether a task of this kind is an event for this agent.
pub(crate) fn is_event(agent: &Agent, kind: Option<&str>, said_so: bool) -> bool {
    let known = |kind: &str| [IDLE_TICK, PLAYER_ACTION, PLAYER_PROXIMITY].contains(&kind);
    said_so || kind.is_some_and(|kind| !agent.events.is_empty() || known(kind))
}

/// The kind of event that made a run; none: a task like any other.
pub(crate) fn event_kind<'a>(agent: &Agent, task: &'a TaskSpec) -> Option<&'a str> {
    let kind = task.kind.as_deref();
    is_event(agent, kind, task.event).then(|| kind.unwrap_or("event"))
}

/// What the agent reads: of an event the words for it, of a task its input.
pub(crate) fn task_text(agent: &Agent, task: &TaskSpec, values: &Value) -> Result<String, String> {
    let Some(kind) = event_kind(agent, task) else {
        return Ok(input_text(&task.input));
    };
    let actor = task.actor.as_ref().map(RawJson::to_value);
    let Some(written) = agent.events.get(kind) else {
        return Ok(default_text(kind, &task.input.to_value(), actor.as_ref()));
    };
    let mut values = values.clone();
    values["kind"] = kind.into();
    if let Some(actor) = actor {
        values["actor"] = actor;
    }
    template::render_template(written, &values)
}

/// What the model is asked: a text as it is, anything else as JSON.
fn input_text(input: &RawJson) -> String {
    match input.to_value() {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            input.as_str().to_owned()
        }
    }
}

/// An event that the agent's file has no words for.
fn default_text(kind: &str, input: &Value, actor: Option<&Value>) -> String {
    let opening = match kind {
        IDLE_TICK => "You have a moment to yourself. What do you do?".to_owned(),
        PLAYER_ACTION => format!("{} is talking to you.", player_name(input, actor)),
        PLAYER_PROXIMITY => format!("{} has approached.", player_name(input, actor)),
        other => format!("Something has happened: `{other}`."),
    };
    let mut words = vec![opening];
    match input {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::String(text) if kind == PLAYER_ACTION => words.push(format!("They say: {text}")),
        Value::String(text) => words.push(text.clone()),
        Value::Object(fields) => words.extend(details(fields)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => words.push(input.to_string()),
    }
    words.join("\n\n")
}

/// Whoever an event is about.
fn player_name(input: &Value, actor: Option<&Value>) -> String {
    let named = |value: &Value| value.get("name")?.as_str().map(str::to_owned);
    let plain = |name: &str| input.get(name)?.as_str().map(str::to_owned);
    let name = actor
        .and_then(named)
        .or_else(|| input.get("player").and_then(named))
        .or_else(|| plain("playerName"))
        .or_else(|| plain("player"));
    name.map_or_else(|| "A player".to_owned(), |name| format!("A player named {name}"))
}

/// What came with an event: the words in it, and whatever else there is.
fn details(fields: &Map<String, Value>) -> Vec<String> {
    const TEXT_KEYS: [&str; 2] = ["message", "text"];
    let spoken = TEXT_KEYS.iter().find_map(|name| Some((*name, fields.get(*name)?.as_str()?)));
    let said = spoken.map(|(_, text)| format!("They say: {text}"));
    let told = |name: &str| {
        ["player", "playerName"].contains(&name) || spoken.is_some_and(|(said, _)| said == name)
    };
    let rest: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| !told(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let rest = (!rest.is_empty()).then(|| Value::Object(rest).to_string());
    said.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{AgentName, InboxName, RunId};
    use serde_json::json;

    use super::*;

    fn check(kind: Option<&str>, input: Value, expect: Result<&str, &str>) {
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
            (Ok(words), Ok(expect)) => assert_eq!(words, expect),
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (got, _) => panic!("{kind:?}: {got:?}"),
        }
    }

    #[test]
    fn an_event_is_rendered_as_text() {
        check(None, json!("Do it."), Ok("Do it."));
        check(None, json!({ "a": 1 }), Ok(r#"{"a":1}"#));
        check(Some("idle_tick"), Value::Null, Ok("You have a moment to yourself. What do you do?"));
        check(Some("player_proximity"), json!({}), Ok("A player named Ada has approached."));
        check(
            Some("player_action"),
            json!("Hello"),
            Ok("A player named Ada is talking to you.\n\nThey say: Hello"),
        );
        check(
            Some("player_action"),
            json!({ "message": "Hi", "item": "sword" }),
            Ok("A player named Ada is talking to you.\n\nThey say: Hi\n\n{\"item\":\"sword\"}"),
        );
        check(
            Some("trade"),
            json!({ "item": "{{ nothing }}" }),
            Ok("Ada (trade) buys {{ nothing }}."),
        );
        check(Some("trade"), json!({}), Err("`input.item` is missing"));
        check(
            Some("quake"),
            json!({ "strength": 6 }),
            Ok("Something has happened: `quake`.\n\n{\"strength\":6}"),
        );
    }

    #[test]
    fn a_type_field_alone_is_not_an_event() {
        let agent = Agent::new(AgentName::new("plain").unwrap());
        assert!(!is_event(&agent, Some("report"), false));
        assert!(is_event(&agent, Some("report"), true));
        assert!(is_event(&agent, Some("idle_tick"), false));
        assert!(!is_event(&agent, None, false));
    }
}
