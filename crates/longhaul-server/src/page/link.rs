//! The page of one link: shows one gate to one person, and takes their word.
//!
//! Never: decides on GET, and never by a POST that was not made from the page
//! that showed this very thing.

use askama::Template;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;
use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::{
    Answer, Decision, GateKind, GateStatus, OnTimeout, Scope, is_unanswerable,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_engine::Error;
use longhaul_engine::handle::{GateAnswerOutcome, ResolvedLink};
use longhaul_engine::secret::Secret;
use longhaul_engine::view::gate_view;
use serde_json::Value;

use crate::app::App;
use crate::body;
use crate::page::{message_page, render_page};
use crate::params::TokenPath;
use crate::problem::Problem;

/// The page of a link.
#[derive(Debug, Template)]
#[template(path = "link.html")]
struct LinkPage {
    title: &'static str,
    kind: &'static str,
    recipient: String,
    ask: String,
    tool: Option<String>,
    input: String,
    /// What the runtime says of the call, and not the model.
    injected_subjects: Vec<String>,
    edited_by: Option<String>,
    agent: String,
    run: String,
    deadline: Option<String>,
    /// The same for people, to the minute.
    deadline_text: String,
    on_timeout: &'static str,
    approvers: u16,
    answers_count: usize,
    digest: Option<String>,
    digest_short: String,
    is_question: bool,
    options: Vec<String>,
    nonce: String,
    /// What was decided; none: it is open.
    outcome: Option<String>,
}

/// Shows the gate.
pub(crate) async fn show(State(app): State<App>, token: TokenPath) -> Result<Response, Problem> {
    let secret = Secret::from_text(token.0);
    match app.longhaul().resolve_link(&secret).await? {
        Some(link) => render_link(&app, &secret, &link, None).await,
        None => link_not_found(&app),
    }
}

/// Takes the person's word.
pub(crate) async fn decide(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let token = TokenPath::from_request_parts(&mut parts, &app).await?;
    let secret = Secret::from_text(token.0);
    let Some(link) = app.longhaul().resolve_link(&secret).await? else {
        return link_not_found(&app);
    };
    let form = Form::from_body(parts, body, &app).await?;
    if link.gate.status != GateStatus::Open {
        return render_link(&app, &secret, &link, None).await;
    }
    // What was shown is what the link was made for, or nothing is decided.
    if link.digest_changed() || form.nonce != nonce(&secret, &link) {
        let lines = ["What is asked has changed since this page was shown, or the page is \
                      another one. Nothing was decided."
            .to_owned()];
        return message_page(&app, StatusCode::CONFLICT, "Please look again", &lines);
    }
    let decision = form.decision()?;
    let answer = Answer {
        note: match decision {
            Decision::Answer(_) => None,
            Decision::Approve | Decision::Edit(_) | Decision::Reject | Decision::Complete => {
                Some(form.note.trim().to_owned()).filter(|note| !note.is_empty())
            }
        },
        decision,
        by: format!("link:{}", link.recipient),
        scope: Scope::Once,
        payload: None,
        digest: link.digest,
    };
    let id = link.gate.spec.id;
    let (run, decision, caller) = (link.gate.run, answer.decision.as_str(), answer.by.clone());
    let came = match app.longhaul().answer(id, answer).await {
        Ok(GateAnswerOutcome::Closed(_)) => {
            tracing::info!(%run, gate = %id, decision, caller, "answered");
            None
        }
        Ok(GateAnswerOutcome::Voted(_)) => Some("Your word counts; others must agree.".to_owned()),
        // Whoever comes second is told who was first.
        Err(Error::Rejected(no)) => Some(format!("Nothing was decided now: {no}.")),
        Err(error) => return Err(error.into()),
    };
    match app.longhaul().resolve_link(&secret).await? {
        Some(link) => render_link(&app, &secret, &link, came).await,
        None => link_not_found(&app),
    }
}

fn link_not_found(app: &App) -> Result<Response, Problem> {
    let lines = ["It was mistyped, or what it led to is no longer kept.".to_owned()];
    message_page(app, StatusCode::NOT_FOUND, "This link leads nowhere", &lines)
}

async fn render_link(
    app: &App,
    secret: &Secret,
    link: &ResolvedLink,
    came: Option<String>,
) -> Result<Response, Problem> {
    let view = gate_view(&link.gate);
    let row = app.longhaul().run_row(view.run).await?;
    let deadline = view.deadline.map(|at| at.to_string());
    let digest = view.digest.map(|digest| digest.to_string());
    let outcome = came.or_else(|| outcome_text(link, &view));
    let is_question = matches!(view.kind, GateKind::Question | GateKind::Blocked);
    let sheet = LinkPage {
        title: if is_question { "A question" } else { "An approval" },
        kind: kind_text(&view.kind),
        recipient: link.recipient.clone(),
        ask: view.ask.clone(),
        tool: view.tool.clone(),
        input: view.input.as_ref().map(input_text).unwrap_or_default(),
        injected_subjects: view.injected_subjects.clone(),
        edited_by: view.edited_by.clone(),
        agent: row.agent.to_string(),
        run: view.run.to_string(),
        deadline_text: deadline.as_deref().map(format_minute).unwrap_or_default(),
        deadline,
        on_timeout: on_timeout_text(view.on_timeout),
        approvers: view.approvers,
        answers_count: view.answers.len(),
        digest_short: digest.iter().flat_map(|all| all.chars().take(12)).collect(),
        digest,
        is_question,
        options: view.options.clone(),
        nonce: nonce(secret, link),
        outcome,
    };
    render_page(StatusCode::OK, &sheet)
}

/// A time to the minute, as people read it.
fn format_minute(at: &str) -> String {
    let minute: String = at.chars().take(16).collect();
    format!("{} UTC", minute.replace('T', " "))
}

/// What binds a form to the page that showed it: nobody can make it without the
/// link, and it is another one as soon as something else is asked.
fn nonce(secret: &Secret, link: &ResolvedLink) -> String {
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
        GateKind::Blocked => "The agent can't go on",
        GateKind::InDoubt => "Nobody knows what came of a call. May it be made again?",
        GateKind::Signal => "A signal is waited for",
    }
}

const fn on_timeout_text(silence: OnTimeout) -> &'static str {
    match silence {
        OnTimeout::Reject => "it counts as rejected",
        OnTimeout::Approve => "it counts as approved",
        OnTimeout::Fail => "the run fails",
        OnTimeout::Pause => "the run is paused",
    }
}

/// What is frozen, as a person reads it.
fn input_text(input: &RawJson) -> String {
    match input.to_value() {
        Value::String(text) => text,
        value @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => serde_json::to_string_pretty(&value).unwrap_or_default(),
    }
}

/// How a gate that is not open was closed; also why an open one can't be
/// answered from here.
fn outcome_text(link: &ResolvedLink, view: &GateView) -> Option<String> {
    match view.status {
        GateStatus::Open if is_unanswerable(&view.tags) => Some(
            "No answer helps here: the run is to be cancelled, and the task submitted again."
                .to_owned(),
        ),
        GateStatus::Open => {
            let own = format!("link:{}", link.recipient);
            let said = view.answers.iter().any(|answer| answer.by == own);
            match (said, link.digest_changed()) {
                (true, _) => Some("Your word counts; others must agree.".to_owned()),
                (false, true) => Some(
                    "Somebody changed what is asked. Ask for a new link to decide that.".to_owned(),
                ),
                (false, false) => None,
            }
        }
        GateStatus::Answered => Some(match view.answers.last() {
            Some(answer) => {
                format!("Decided: {} by {} at {}.", answer.decision, answer.by, answer.at)
            }
            None => "Decided.".to_owned(),
        }),
        GateStatus::Expired => Some("Nobody answered in time.".to_owned()),
        GateStatus::Withdrawn => Some("It is no longer asked.".to_owned()),
    }
}

/// What the page's form sends.
#[derive(Debug, Default)]
struct Form {
    nonce: String,
    decision: String,
    choice: String,
    note: String,
}

impl Form {
    async fn from_body(parts: Parts, body: Body, app: &App) -> Result<Self, Problem> {
        let kind = parts.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/x-www-form-urlencoded") {
            let words = "only this page's own form decides";
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                words,
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
                _ => return Err(Problem::invalid("the form has another field")),
            }
        }
        Ok(form)
    }

    fn decision(&self) -> Result<Decision, Problem> {
        match self.decision.as_str() {
            "approve" => Ok(Decision::Approve),
            "reject" => Ok(Decision::Reject),
            "answer" => {
                let said = match self.note.trim() {
                    "" => self.choice.trim(),
                    note => note,
                };
                match said {
                    "" => Err(Problem::invalid("an answer needs words")),
                    said => Ok(Decision::Answer(said.to_owned())),
                }
            }
            _ => Err(Problem::invalid("the form decides nothing")),
        }
    }
}
