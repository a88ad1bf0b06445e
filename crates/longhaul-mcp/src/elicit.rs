//! What a server is answered that asks something in the middle of a call.
//!
//! Never: an answer that is not the server's own, an address that is opened, or a
//! question that nobody can read about afterwards.

use rmcp::ErrorData;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientConfig, ConstString as _, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCreateRequestMethod, ErrorCode,
};
use rmcp::service::RequestContext;
use rmcp::{RoleClient, model};
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::spec::Elicitation;
use crate::tap::Heard;

/// So many fields a form may have.
const FIELDS_MAX: usize = 64;

/// So long an answer may be.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// So much of a question, and so much of an answer, is told to people.
const TOLD_CHARS_MAX: usize = 200;

/// Who speaks with a server: us, and what we answer.
#[derive(Debug)]
pub(super) struct Host {
    us: ClientConfig,
    elicitation: Elicitation,
    heard: Arc<Heard>,
}

impl Host {
    pub(super) const fn new(us: ClientConfig, elicitation: Elicitation, heard: Arc<Heard>) -> Self {
        Self {
            us,
            elicitation,
            heard,
        }
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        self.us.clone()
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answered = answer(self.elicitation, &asked);
        self.heard.tell(&answered.words, answered.how());
        Ok(answered.result())
    }

    /// A form that the SDK can't read comes here: it is a question all the same.
    async fn on_custom_request(
        &self,
        asked: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if asked.method != ElicitationCreateRequestMethod::VALUE {
            let code = ErrorCode::METHOD_NOT_FOUND;
            return Err(ErrorData::new(code, asked.method, None));
        }
        let answered = unread(asked.params.as_ref());
        self.heard.tell(&answered.words, answered.how());
        let result = serde_json::to_value(answered.result());
        Ok(CustomResult::new(result.unwrap_or_default()))
    }
}

/// What a question is answered.
#[derive(Debug, PartialEq)]
pub(super) struct Answered {
    /// The fields of the form; none: it is declined.
    content: Option<Value>,
    /// What was asked and answered, for people.
    pub(super) words: String,
}

impl Answered {
    /// How it was answered, without a word of the server's.
    const fn how(&self) -> &'static str {
        match self.content {
            Some(_) => "has its own defaults",
            None => "was declined",
        }
    }

    /// As the protocol says it.
    pub(super) fn result(self) -> ElicitResult {
        match self.content {
            Some(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            None => ElicitResult::new(ElicitationAction::Decline),
        }
    }
}

/// Answers a question.
pub(super) fn answer(elicitation: Elicitation, asked: &ElicitRequestParams) -> Answered {
    use model::ElicitRequestParams::{FormElicitationParams, UrlElicitationParams};
    let (message, content) = match asked {
        FormElicitationParams {
            message,
            requested_schema,
            ..
        } => {
            let form = serde_json::to_value(requested_schema).unwrap_or_default();
            let content = match elicitation {
                Elicitation::Decline => Err("nothing is answered to this server".to_owned()),
                Elicitation::Defaults => defaults(&form),
            };
            (message.as_str(), content)
        }
        UrlElicitationParams { message, .. } => {
            (message.as_str(), Err("no address is opened".to_owned()))
        }
        _ => ("", Err("it is of an unknown kind".to_owned())),
    };
    let asked = told(message);
    let (content, words) = match content {
        Ok(content) => {
            let said = told(&content.to_string());
            let words = format!("it asked \"{asked}\" and has its own defaults: {said}");
            (Some(content), words)
        }
        Err(why) => {
            let words = format!("it asked \"{asked}\" and was declined: {why}");
            (None, words)
        }
    };
    Answered { content, words }
}

/// What a question is answered that can't be read.
fn unread(asked: Option<&Value>) -> Answered {
    let message = asked.and_then(|asked| asked["message"].as_str());
    let asked = told(message.unwrap_or_default());
    Answered {
        content: None,
        words: format!("it asked \"{asked}\" and was declined: its form can't be read"),
    }
}

/// Words as people can be told them.
fn told(words: &str) -> String {
    let plain = words.chars().filter(|letter| !letter.is_control());
    let mut short: String = plain.clone().take(TOLD_CHARS_MAX).collect();
    if plain.count() > TOLD_CHARS_MAX {
        short.push('…');
    }
    short
}

/// The defaults of a form; the error says why it has none that will do.
fn defaults(form: &Value) -> Result<Value, String> {
    let fields = form["properties"].as_object();
    let fields = fields.ok_or_else(|| "it is no form".to_owned())?;
    if fields.len() > FIELDS_MAX {
        return Err(format!("it has more than {FIELDS_MAX} fields"));
    }
    let needed = form["required"].as_array().map(Vec::as_slice);
    let needed = needed.unwrap_or_default().iter().filter_map(Value::as_str);
    for name in needed {
        if fields
            .get(name)
            .is_none_or(|field| field["default"].is_null())
        {
            return Err(format!("`{}` has no default", told(name)));
        }
    }
    let mut content = Map::new();
    for (name, field) in fields {
        let default = &field["default"];
        if default.is_null() {
            continue;
        }
        if !fits(field, default) {
            return Err(format!("the default of `{}` does not fit", told(name)));
        }
        content.insert(name.clone(), default.clone());
    }
    // To agree is an answer too, and one that nobody gave.
    if content.is_empty() {
        return Err("nothing in it has a default".to_owned());
    }
    let content = Value::Object(content);
    match content.to_string().len() > ANSWER_BYTES_MAX {
        true => Err("its defaults are too long".to_owned()),
        false => Ok(content),
    }
}

/// Whether a default is what its own field asks for.
fn fits(field: &Value, default: &Value) -> bool {
    match field["type"].as_str() {
        Some("boolean") => default.is_boolean(),
        Some("number") => default.is_number() && is_between(field, default),
        Some("integer") => {
            let whole = default.as_f64().is_some_and(|number| number.fract() == 0.0);
            whole && is_between(field, default)
        }
        Some("string") => {
            let long = default.as_str().map(|text| text.chars().count());
            long.is_some_and(|long| is_long(field, long, ("minLength", "maxLength")))
                && is_offered(field, default)
        }
        Some("array") => default.as_array().is_some_and(|picked| {
            is_long(field, picked.len(), ("minItems", "maxItems"))
                && picked.iter().all(|one| is_offered(&field["items"], one))
        }),
        Some(_) | None => false,
    }
}

fn is_between(field: &Value, number: &Value) -> bool {
    let number = number.as_f64().unwrap_or(f64::NAN);
    let low = field["minimum"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let high = field["maximum"].as_f64().unwrap_or(f64::INFINITY);
    (low..=high).contains(&number)
}

fn is_long(field: &Value, long: usize, (min, max): (&str, &str)) -> bool {
    let long = long as u64;
    let low = field[min].as_u64().unwrap_or(0);
    let high = field[max].as_u64().unwrap_or(u64::MAX);
    (low..=high).contains(&long)
}

/// Whether a text is one of those to choose from, where there are some: plain ones
/// stand in `enum`, those with a title in `oneOf` or `anyOf`.
fn is_offered(field: &Value, text: &Value) -> bool {
    let plain = field["enum"].as_array();
    let titled = field["oneOf"].as_array().or(field["anyOf"].as_array());
    match (plain, titled) {
        (Some(plain), _) => text.is_string() && plain.contains(text),
        (None, Some(titled)) => titled
            .iter()
            .any(|one| text.is_string() && one["const"] == *text),
        (None, None) => text.is_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(message: &str, schema: Value) -> ElicitRequestParams {
        let asked = json!({ "mode": "form", "message": message, "requestedSchema": schema });
        serde_json::from_value(asked).unwrap()
    }

    fn check(fields: Value, required: &[&str], expect: Result<Value, &str>) {
        let schema = json!({ "type": "object", "properties": fields, "required": required });
        let answered = answer(Elicitation::Defaults, &form("who?", schema));
        match expect {
            Ok(content) => {
                let words = format!("it asked \"who?\" and has its own defaults: {content}");
                assert_eq!(answered.words, words);
                assert_eq!(answered.content, Some(content));
            }
            Err(why) => {
                let words = format!("it asked \"who?\" and was declined: {why}");
                assert_eq!(answered.words, words);
                assert_eq!(answered.content, None);
            }
        }
    }

    #[test]
    fn every_kind_of_field_has_its_default() {
        let titled = |name: &str| json!({ "const": name, "title": name.to_uppercase() });
        let both = json!([titled("a"), titled("b")]);
        check(
            json!({
                "text": { "type": "string", "default": "x", "minLength": 1, "maxLength": 1 },
                "number": { "type": "number", "default": 95.5, "minimum": 0, "maximum": 100 },
                "whole": { "type": "integer", "default": 30 },
                "yes": { "type": "boolean", "default": true },
                "one": { "type": "string", "enum": ["a", "b"], "default": "b" },
                "named": { "type": "string", "enum": ["a"], "enumNames": ["A"], "default": "a" },
                "titled": { "type": "string", "oneOf": both, "default": "a" },
                "some": {
                    "type": "array", "items": { "type": "string", "enum": ["a", "b"] },
                    "default": ["a", "b"],
                },
                "somes": { "type": "array", "items": { "anyOf": both }, "default": ["b"] },
                "left_out": { "type": "string" },
            }),
            &["text", "yes"],
            Ok(json!({
                "text": "x", "number": 95.5, "whole": 30, "yes": true, "one": "b",
                "named": "a", "titled": "a", "some": ["a", "b"], "somes": ["b"],
            })),
        );
    }

    #[test]
    fn what_has_no_default_that_will_do_is_declined() {
        let text = json!({ "type": "string" });
        let has = json!({ "type": "string", "default": "x" });
        check(
            json!({ "a": text, "b": has }),
            &["a"],
            Err("`a` has no default"),
        );
        check(json!({ "b": has }), &["a"], Err("`a` has no default"));
        check(
            json!({ "a": text }),
            &[],
            Err("nothing in it has a default"),
        );
        check(json!({}), &[], Err("nothing in it has a default"));
        for field in [
            json!({ "type": "string", "default": "xy", "maxLength": 1 }),
            json!({ "type": "string", "default": "x", "minLength": 2 }),
            json!({ "type": "string", "enum": ["a"], "default": "b" }),
            json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }], "default": "b" }),
            json!({ "type": "number", "default": 5, "maximum": 4 }),
            json!({ "type": "integer", "default": 5, "minimum": 6 }),
            json!({ "type": "array", "items": { "type": "string", "enum": ["a"] }, "default": ["b"] }),
            json!({
                "type": "array", "items": { "type": "string", "enum": ["a"] },
                "default": ["a"], "minItems": 2,
            }),
        ] {
            check(
                json!({ "a": field }),
                &[],
                Err("the default of `a` does not fit"),
            );
        }
        let many: Map<String, Value> = (0..65).map(|at| (at.to_string(), has.clone())).collect();
        check(many.into(), &[], Err("it has more than 64 fields"));
        let long = json!({ "type": "string", "default": "x".repeat(20_000) });
        check(json!({ "a": long }), &[], Err("its defaults are too long"));
    }

    #[test]
    fn addresses_and_those_who_want_nothing_answered_are_declined() {
        let address = json!({
            "mode": "url", "message": "go\u{1b} there", "url": "https://a.example",
            "elicitationId": "1",
        });
        let address: ElicitRequestParams = serde_json::from_value(address).unwrap();
        for elicitation in [Elicitation::Decline, Elicitation::Defaults] {
            let answered = answer(elicitation, &address);
            let words = "it asked \"go there\" and was declined: no address is opened";
            assert_eq!(answered.words, words);
            assert_eq!(answered.content, None);
        }
        let has = json!({ "type": "string", "default": "x" });
        let schema = json!({ "type": "object", "properties": { "a": has } });
        let asked = form(&"long ".repeat(1_000), schema);
        let answered = answer(Elicitation::Decline, &asked);
        assert_eq!(answered.content, None);
        assert!(answered.words.chars().count() < 300, "{}", answered.words);
        assert!(
            answered
                .words
                .contains("…\" and was declined: nothing is answered")
        );
    }
}
