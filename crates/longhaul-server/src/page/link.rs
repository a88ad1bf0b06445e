//! The page behind a link: shows one gate to one person and accepts the answer.
//!
//! Invariant: a GET never answers the gate. A POST answers it only with the nonce of the page that
//! showed the current input.

use std::collections::BTreeMap;

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;
use longhaul_api::gate::GateView;
use longhaul_core::form::{Form, FormField, FormFieldKind, TextFormat};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateStatus, GateTimeoutAction,
    has_submit_again_tag,
};
use longhaul_core::raw::Hash;
use longhaul_core::sanitize::{sanitize_line, sanitize_text};
use longhaul_core::time::Timestamp;
use longhaul_engine::Error;
use longhaul_engine::handle::{GateAnswerOutcome, ResolvedGateLink};
use longhaul_engine::secret::Secret;
use longhaul_engine::view::gate_view;
use serde_json::Value;

use crate::app::App;
use crate::body;
use crate::page::{render_message_page, render_page};
use crate::params::link_secret;
use crate::problem::Problem;

/// Template of the page behind a link, which shows one gate.
#[derive(Debug, Template)]
#[template(path = "link.html")]
struct GateLinkPage<'a> {
    gate: &'a GateView,
    recipient: &'a str,
    agent: &'a str,
    /// Fields of the form that the answer fills in. Empty if the answer is a text.
    fields: Vec<FormInputElement<'a>>,
    /// Messages about invalid fields in the form that the person has just submitted.
    problems: &'a [String],
    nonce: String,
    /// Sentence that says how the gate ended or why it can't be answered here. `None` means that
    /// the person can answer.
    outcome: Option<String>,
}

impl GateLinkPage<'_> {
    const fn is_question(&self) -> bool {
        matches!(self.gate.kind, GateKind::Question | GateKind::Blocked)
    }

    /// Returns whether the gate waits for an external event. The person then answers that the event
    /// has happened or will not happen.
    fn is_signal(&self) -> bool {
        self.gate.kind == GateKind::Signal
    }

    /// Returns the input of the call, or the text to answer. `None` if the gate has none.
    fn input(&self) -> Option<String> {
        let text = match self.gate.input.as_ref()?.to_value() {
            Value::String(text) => text,
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns the lines of the file changes that are to be approved, each with its CSS class.
    fn diff(&self) -> Vec<(&'static str, &str)> {
        let lines = self.gate.diff.iter().flat_map(|diff| diff.lines()).enumerate();
        let styled_lines = lines.map(|(index, line)| {
            // Only the first two lines are surely names of files: a removed line may be `-- a`.
            let style = match line.as_bytes() {
                [b'@', ..] => "mute",
                _ if index < 2 => "mute",
                [b'+', ..] => "added",
                [b'-', ..] => "removed",
                _ => "same",
            };
            (style, line)
        });
        styled_lines.collect()
    }
}

/// Serves the page that shows the gate behind a link.
pub(crate) async fn show(State(app): State<App>, mut parts: Parts) -> Result<Response, Problem> {
    let secret = link_secret(&mut parts, &app).await?;
    render_link(&app, &secret, FormState::default()).await
}

/// Answers the gate behind a link with the decision in the submitted form.
pub(crate) async fn answer(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let secret = link_secret(&mut parts, &app).await?;
    let Some(link) = app.longhaul().resolve_gate_link(&secret).await? else {
        return link_not_found_page(&app);
    };
    let form = AnswerForm::read_answer_form(parts, body, &app).await?;
    if link.gate.status != GateStatus::Open {
        return render_link(&app, &secret, FormState::default()).await;
    }
    // The decision counts only for the input that the page showed.
    if link.has_gate_input_changed() || form.nonce != answer_form_nonce(&secret, &link) {
        let lines = ["The request has changed since this page was shown, or the form belongs to \
                      another page. Nothing was decided."
            .to_owned()];
        return render_message_page(&app, StatusCode::CONFLICT, "Please review again", &lines);
    }
    let view = gate_view(&link.gate);
    let decision = match form.decision_or_field_problems(view.form().as_ref())? {
        Ok(decision) => decision,
        Err(problems) => {
            let state = FormState { problems, typed: form.fields, outcome: None };
            return render_link(&app, &secret, state).await;
        }
    };
    let answer = Answer {
        note: match decision {
            GateDecision::Answer(_) => None,
            GateDecision::Approve
            | GateDecision::Edit(_)
            | GateDecision::Reject
            | GateDecision::Complete => {
                Some(form.note.trim().to_owned()).filter(|note| !note.is_empty())
            }
        },
        decision,
        by: format!("link:{}", link.recipient),
        scope: AnswerScope::Once,
        payload: None,
        digest: link.digest,
    };
    let id = link.gate.spec.id;
    let (run, decision, caller) = (link.gate.run, answer.decision.as_str(), answer.by.clone());
    let outcome = match app.longhaul().answer_gate(id, answer).await {
        Ok(GateAnswerOutcome::Closed(_)) => {
            tracing::info!(%run, gate = %id, decision, caller, "gate answered");
            None
        }
        Ok(GateAnswerOutcome::Voted(_)) => {
            Some("Your vote is recorded; others must agree.".to_owned())
        }
        // If another answer was first, the message says whose.
        Err(Error::Rejected(rejection)) => {
            Some(format!("Your answer was not accepted: {rejection}."))
        }
        Err(error) => return Err(error.into()),
    };
    let state = FormState { outcome, ..FormState::default() };
    render_link(&app, &secret, state).await
}

fn link_not_found_page(app: &App) -> Result<Response, Problem> {
    let lines = ["The link is misspelled, or its gate has been deleted.".to_owned()];
    render_message_page(app, StatusCode::NOT_FOUND, "Unknown link", &lines)
}

/// What the page shows after a person has submitted its form.
#[derive(Debug, Default)]
struct FormState {
    /// Sentence about the result of the submitted answer. `None` means that the page shows a
    /// sentence about the gate's current status instead.
    outcome: Option<String>,
    /// Messages about invalid fields in the submitted form.
    problems: Vec<String>,
    /// Texts that the person typed into the fields of the form, by name.
    typed: BTreeMap<String, String>,
}

async fn render_link(app: &App, secret: &Secret, state: FormState) -> Result<Response, Problem> {
    let Some(link) = app.longhaul().resolve_gate_link(secret).await? else {
        return link_not_found_page(app);
    };
    let gate = app.longhaul().describe_gate(&link.gate).await?;
    let row = app.longhaul().run_row(gate.run).await?;
    let form = gate.form();
    let page = GateLinkPage {
        recipient: &link.recipient,
        agent: row.agent.as_str(),
        fields: form.iter().flat_map(|form| form_input_elements(form, &state.typed)).collect(),
        problems: &state.problems,
        nonce: answer_form_nonce(secret, &link),
        outcome: state.outcome.or_else(|| reason_gate_cannot_be_answered(&link, &gate)),
        gate: &gate,
    };
    let status = match page.problems.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    render_page(status, &page)
}

/// Formats a time to the minute.
fn time_to_minute(time: &Timestamp) -> String {
    let minute: String = time.to_string().chars().take(16).collect();
    format!("{} UTC", minute.replace('T', " "))
}

fn short_digest(digest: &Hash) -> String {
    digest.to_string().chars().take(12).collect()
}

/// Returns the nonce that binds a form to the page that showed it. It can't be computed without the
/// link, and it changes when the input of the gate changes.
fn answer_form_nonce(secret: &Secret, link: &ResolvedGateLink) -> String {
    let digest = link.digest.map(|digest| digest.to_string());
    let text = format!(
        "form of {} for {} over {}",
        secret.reveal(),
        link.gate.spec.id,
        digest.unwrap_or_default()
    );
    Hash::digest(text.as_bytes()).to_string()
}

const fn kind_text(kind: &GateKind) -> &'static str {
    match kind {
        GateKind::Approval => "May this call be made?",
        GateKind::Result => "Is this result good?",
        GateKind::Question => "A question",
        GateKind::Blocked => "The agent is blocked",
        GateKind::InDoubt => "The outcome of a call is unknown. May it be repeated?",
        GateKind::Signal => "Waiting for a signal",
    }
}

const fn on_timeout_text(action: &GateTimeoutAction) -> &'static str {
    match action {
        GateTimeoutAction::Reject => "it counts as rejected",
        GateTimeoutAction::Approve => "it counts as approved",
        GateTimeoutAction::Fail => "the run fails",
        GateTimeoutAction::Pause => "the run is paused",
    }
}

/// Returns how a closed gate ended, or why an open gate can't be answered on this page. `None`
/// means that the gate can be answered.
fn reason_gate_cannot_be_answered(link: &ResolvedGateLink, view: &GateView) -> Option<String> {
    match view.status {
        GateStatus::Open if has_submit_again_tag(&view.tags) => Some(
            "An answer does not help here: cancel the run and submit the task again.".to_owned(),
        ),
        GateStatus::Open => {
            let own_name = format!("link:{}", link.recipient);
            let has_voted = view.answers.iter().any(|answer| answer.by == own_name);
            match (has_voted, link.has_gate_input_changed()) {
                (true, _) => Some("Your vote is recorded; others must agree.".to_owned()),
                (false, true) => {
                    Some("The request was changed. Ask for a new link to answer it.".to_owned())
                }
                (false, false) => None,
            }
        }
        GateStatus::Answered => Some(match view.answers.last() {
            Some(answer) => {
                format!(
                    "This request was decided: {} by {} at {}.",
                    answer.decision, answer.by, answer.at
                )
            }
            None => "This request was decided.".to_owned(),
        }),
        GateStatus::Expired => Some("Nobody answered in time.".to_owned()),
        GateStatus::Withdrawn => Some("The request was withdrawn.".to_owned()),
    }
}

/// One field of a question's form on the page.
#[derive(Debug)]
struct FormInputElement<'a> {
    field: &'a FormField,
    /// Type of the HTML input element.
    input_type: &'static str,
    /// Values and titles to choose from. Empty if the field is no choice.
    choices: Vec<(&'a str, &'a str)>,
    /// Text in the field: what the person typed before, or the default.
    value: String,
}

fn form_input_elements<'a>(
    form: &'a Form,
    typed: &BTreeMap<String, String>,
) -> impl Iterator<Item = FormInputElement<'a>> {
    form.fields.iter().map(|field| FormInputElement {
        field,
        input_type: match field.kind {
            FormFieldKind::Text { format: Some(TextFormat::Email), .. } => "email",
            FormFieldKind::Text { format: Some(TextFormat::Uri), .. } => "url",
            FormFieldKind::Text { format: Some(TextFormat::Date), .. } => "date",
            FormFieldKind::Text { .. }
            | FormFieldKind::Number { .. }
            | FormFieldKind::Boolean
            | FormFieldKind::Choice(_) => "text",
        },
        choices: match &field.kind {
            FormFieldKind::Boolean => vec![("true", "yes"), ("false", "no")],
            FormFieldKind::Choice(choices) => {
                choices.iter().map(|choice| (&*choice.value, &*choice.title)).collect()
            }
            FormFieldKind::Text { .. } | FormFieldKind::Number { .. } => Vec::new(),
        },
        value: match (typed.get(&field.name), &field.default) {
            (Some(text), _) => text.clone(),
            (None, Some(Value::String(text))) if matches!(field.kind, FormFieldKind::Choice(_)) => {
                text.clone()
            }
            (None, Some(Value::String(text))) => sanitize_line(text),
            (None, Some(value)) => value.to_string(),
            (None, None) => String::new(),
        },
    })
}

/// Fields of the submitted answer form.
#[derive(Debug, Default)]
struct AnswerForm {
    nonce: String,
    decision: String,
    choice: String,
    note: String,
    /// Texts of the fields of the question's form, by field name.
    fields: BTreeMap<String, String>,
}

/// Prefix of the HTML names of the fields of a question's form on the page.
const FIELD_PREFIX: &str = "field.";

impl AnswerForm {
    async fn read_answer_form(parts: Parts, body: Body, app: &App) -> Result<Self, Problem> {
        let kind = parts.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/x-www-form-urlencoded") {
            let message = "only the form of this page is accepted";
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                message,
            ));
        }
        let bytes = body::read_body(Request::from_parts(parts, body), app).await?;
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(&bytes) {
            match &*name {
                "nonce" => form.nonce = value.into_owned(),
                "decision" => form.decision = value.into_owned(),
                "choice" => form.choice = value.into_owned(),
                "note" => form.note = value.into_owned(),
                other => match other.strip_prefix(FIELD_PREFIX) {
                    Some(field) => _ = form.fields.insert(field.to_owned(), value.into_owned()),
                    None => return Err(Problem::unprocessable("the form has an unknown field")),
                },
            }
        }
        Ok(form)
    }

    /// Returns the submitted decision. The inner error lists the problems with the fields of the
    /// question's form, to be shown on the page; the outer error means that the request is invalid.
    fn decision_or_field_problems(
        &self,
        form: Option<&Form>,
    ) -> Result<Result<GateDecision, Vec<String>>, Problem> {
        match (self.decision.as_str(), form) {
            ("approve", _) => Ok(Ok(GateDecision::Approve)),
            ("reject", _) => Ok(Ok(GateDecision::Reject)),
            ("complete", _) => Ok(Ok(GateDecision::Complete)),
            ("answer", Some(form)) => {
                Ok(self.answer_json_or_field_problems(form).map(GateDecision::Answer))
            }
            ("answer", None) => {
                let text = match self.note.trim() {
                    "" => self.choice.trim(),
                    note => note,
                };
                match text {
                    "" => Err(Problem::unprocessable("the answer must not be empty")),
                    text => Ok(Ok(GateDecision::Answer(text.to_owned()))),
                }
            }
            _ => Err(Problem::unprocessable("the form has no valid decision")),
        }
    }

    /// Returns the answer to a form as JSON, or a problem for each invalid field.
    fn answer_json_or_field_problems(&self, form: &Form) -> Result<String, Vec<String>> {
        let mut problems = Vec::new();
        let mut answer = serde_json::Map::new();
        for field in &form.fields {
            let text = self.fields.get(&field.name).map_or("", String::as_str);
            match field.parse_input(text) {
                Ok(Some(value)) => _ = answer.insert(field.name.clone(), value),
                Ok(None) => {}
                Err(error) => problems.push(format!("{} {error}.", field.title)),
            }
        }
        match problems.is_empty() {
            true => Ok(Value::Object(answer).to_string()),
            false => Err(problems),
        }
    }
}
