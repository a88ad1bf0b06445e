//! API handlers for gates: listing, answering, and links with which people without a key answer a
//! single gate. An approval contains the digest of the input that was shown. A link is shown once;
//! the server stores only its hash.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::gate::{
    AnswerBody, AnswerOutcomeKind, AnswerResponse, DecisionKind, GateLinkBody, GateLinkView,
    GateView, SignalGateBody,
};
use longhaul_api::list::List;
use longhaul_core::access::Role;
use longhaul_core::duration::{DURATION_EXAMPLES, format_duration, parse_duration};
use longhaul_core::id::GateId;
use longhaul_core::policy::gate::{
    Answer, GATE_TIMEOUT_MAX, GateDecision, GateStatus, GateTimeout,
};
use longhaul_core::port::store::GateFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_engine::Longhaul;
use longhaul_engine::handle::{self, CallerIdentity, CreateGateLinkRequest, NewSignalGate};
use longhaul_engine::view::gate_view;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Approver, Operator, Viewer, require_role};
use crate::error_mapping::result_read_problem_after_commit;
use crate::idempotency::EngineHandleForRequest;
use crate::openapi_types::{GateIdSchema, GateStatusSchema, RunIdSchema};
use crate::params::{GatePath, Query};
use crate::peer::request_base_url;
use crate::problem::Problem;
use crate::response::{created_response, created_secret_response, ok_response, paginate};

/// Default and maximum number of gates per page.
const GATES_DEFAULT: usize = 100;
const GATES_MAX: usize = 1_000;

/// Lists gates, newest first.
#[utoipa::path(
    get, path = "/v1/gates", tag = "gates", operation_id = "list_gates",
    params(
        ("status" = inline(Option<GateStatusSchema>), Query, description = "open, answered, expired or withdrawn"),
        ("run" = inline(Option<RunIdSchema>), Query, description = "Only gates of this run"),
        ("tag" = Option<String>, Query, description = "Only gates with this tag"),
        ("after" = inline(Option<GateIdSchema>), Query, description = "The `next` of the previous page"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page of gates", body = List<GateView>)),
)]
pub(crate) async fn list_gates(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["status", "run", "tag", "after", "limit"])?;
    let limit = query.page_limit_param(GATES_DEFAULT, 1..=GATES_MAX)?;
    let filter = GateFilter {
        gate: None,
        run: query.parse_param("run")?,
        status: query.param_value("status")?.map(parse_gate_status).transpose()?,
        tag: query.param_value("tag")?.map(str::to_owned),
        after: query.parse_param("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().list_gates(filter).await?;
    let views: Vec<GateView> = rows.iter().map(gate_view).collect();
    ok_response(&paginate(views, limit, |gate| gate.id.to_string()))
}

fn parse_gate_status(text: &str) -> Result<GateStatus, Problem> {
    match text {
        "open" => Ok(GateStatus::Open),
        "answered" => Ok(GateStatus::Answered),
        "expired" => Ok(GateStatus::Expired),
        "withdrawn" => Ok(GateStatus::Withdrawn),
        _ => Err(Problem::unprocessable(
            "`status` must be one of open, answered, expired, withdrawn",
        )),
    }
}

/// Raises a gate for an event that a program will report. The run can't end before the gate is
/// answered.
#[utoipa::path(
    post, path = "/v1/gates", tag = "gates", operation_id = "raise_gate",
    request_body = SignalGateBody,
    responses(
        (status = 201, description = "The new gate", body = GateView),
        (status = 200, description = "The gate that was raised with this key before", body = GateView),
    ),
)]
pub(crate) async fn raise_gate(
    State(app): State<App>,
    caller: Operator,
    Json(body): Json<SignalGateBody>,
) -> Result<Response, Problem> {
    let timeout = match body.timeout.as_deref() {
        None => GateTimeout::default(),
        Some("never") => GateTimeout::Never,
        Some(text) => parse_duration(text)
            .filter(|timeout| timeout.0 > 0 && *timeout <= GATE_TIMEOUT_MAX)
            .map(GateTimeout::After)
            .ok_or_else(|| {
                let max = format_duration(GATE_TIMEOUT_MAX);
                Problem::unprocessable(format!(
                    "`timeout` must be `never`, or a time such as {DURATION_EXAMPLES}, at most {max}"
                ))
            })?,
    };
    let new = NewSignalGate {
        run: body.run,
        ask: body.ask,
        tags: body.tags,
        idempotency_key: body.idempotency_key,
        timeout,
        by: caller.name().to_owned(),
    };
    let (gate, is_new) = app.longhaul().raise_signal_gate(new).await?;
    let view = gate_view(&gate);
    if !is_new {
        return ok_response(&view);
    }
    tracing::info!(run = %view.run, gate = %view.id, caller = caller.name(), "gate created");
    created_response(&format!("/v1/gates/{}", view.id), &view)
}

/// Shows a gate with the call input or output that it asks about.
#[utoipa::path(
    get, path = "/v1/gates/{id}", tag = "gates", operation_id = "show_gate",
    params(("id" = inline(GateIdSchema), Path, description = "The gate's id")),
    responses((status = 200, description = "The gate", body = GateView)),
)]
pub(crate) async fn show_gate(
    State(app): State<App>,
    _: Viewer,
    GatePath(gate): GatePath,
) -> Result<Response, Problem> {
    ok_response(&gate_view(&app.longhaul().get_gate(gate).await?))
}

fn answer_from_body(body: AnswerBody, answered_by: &str) -> Result<Answer, Problem> {
    let mut note = body.note;
    let mut payload = body.payload;
    let decision = match body.decision {
        DecisionKind::Approve => GateDecision::Approve,
        DecisionKind::Reject => GateDecision::Reject,
        DecisionKind::Complete => GateDecision::Complete,
        DecisionKind::Edit => {
            let edited = body.edited.clone();
            GateDecision::Edit(edited.ok_or_else(|| {
                Problem::unprocessable("`edit` needs `edited`: the complete new input")
            })?)
        }
        DecisionKind::Answer => {
            let text = payload.take().and_then(|payload| answer_payload_text(&payload));
            let text = text.or_else(|| note.take());
            GateDecision::Answer(text.ok_or_else(|| {
                Problem::unprocessable("`answer` needs a text or the fields of a form in `payload`")
            })?)
        }
    };
    if body.edited.is_some() && !matches!(decision, GateDecision::Edit(_)) {
        return Err(Problem::unprocessable("`edited` is allowed only with the decision `edit`"));
    }
    Ok(Answer {
        decision,
        by: answered_by.to_owned(),
        scope: body.scope,
        note,
        payload,
        digest: body.digest,
    })
}

/// Returns the text of an answer: a JSON string, or other JSON as text, such as the fields of a
/// form. `None` means that the payload is `null`.
fn answer_payload_text(payload: &RawJson) -> Option<String> {
    match payload.to_value() {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Null => None,
        serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => Some(payload.as_str().to_owned()),
    }
}

/// Returns an error unless the caller may give this answer. An approver may answer every gate. An
/// operator may only complete, answer or reject a gate that a program raised.
async fn check_answer_role(
    longhaul: &Longhaul,
    caller: &CallerIdentity,
    (gate, decision): (GateId, &GateDecision),
) -> Result<(), Problem> {
    let Err(forbidden) = require_role(caller, Role::Approver) else {
        return Ok(());
    };
    let reports_event = match decision {
        GateDecision::Complete | GateDecision::Answer(_) | GateDecision::Reject => true,
        GateDecision::Approve | GateDecision::Edit(_) => false,
    };
    let is_signal = match longhaul.get_gate(gate).await {
        Ok(row) => row.spec.is_signal_gate_without_tool_call(),
        Err(longhaul_engine::Error::GateNotFound(_)) => false,
        Err(error) => return Err(error.into()),
    };
    if reports_event && is_signal { Ok(()) } else { Err(forbidden) }
}

/// Answers a gate. The first valid answer wins. An operator may complete, answer or reject a gate
/// that a program raised; other answers require the role approver.
#[utoipa::path(
    post, path = "/v1/gates/{id}/answer", tag = "gates", operation_id = "answer_gate",
    params(("id" = inline(GateIdSchema), Path, description = "The gate's id")),
    request_body = AnswerBody,
    responses((status = 200, description = "The outcome of the answer", body = AnswerResponse)),
)]
pub(crate) async fn answer_gate(
    EngineHandleForRequest { longhaul, effect, .. }: EngineHandleForRequest,
    caller: Operator,
    GatePath(gate): GatePath,
    Json(body): Json<AnswerBody>,
) -> Result<Response, Problem> {
    let answer = answer_from_body(body, caller.name())?;
    check_answer_role(&longhaul, &caller.0, (gate, &answer.decision)).await?;
    let decision = answer.decision.as_str();
    let outcome = match effect {
        Some(IdempotentRequestEffect::Events { run, seq }) => {
            longhaul.find_recorded_answer_outcome(run, seq).await?
        }
        Some(IdempotentRequestEffect::Key(_) | IdempotentRequestEffect::Thread) | None => {
            longhaul.answer_gate(gate, answer).await?
        }
    };
    let gate = gate_view(&longhaul.get_gate(gate).await.map_err(result_read_problem_after_commit)?);
    tracing::info!(run = %gate.run, gate = %gate.id, decision, caller = caller.name(), "gate answered");
    let (outcome, seq) = match outcome {
        handle::GateAnswerOutcome::Closed(seq) => (AnswerOutcomeKind::Closed, seq),
        handle::GateAnswerOutcome::Voted(seq) => (AnswerOutcomeKind::Voted, seq),
    };
    ok_response(&AnswerResponse { outcome, seq, gate })
}

/// Creates a link with which a person without a key can answer an open gate.
#[utoipa::path(
    post, path = "/v1/gates/{id}/links", tag = "gates", operation_id = "create_link",
    params(("id" = inline(GateIdSchema), Path, description = "The gate's id")),
    request_body = GateLinkBody,
    responses((status = 201, description = "The link, shown only once", body = GateLinkView)),
)]
pub(crate) async fn create_gate_link(
    State(app): State<App>,
    caller: Approver,
    (GatePath(gate), headers): (GatePath, HeaderMap),
    Json(body): Json<GateLinkBody>,
) -> Result<Response, Problem> {
    // If a gate needs several approvers or excludes the submitter, a link is equivalent to a
    // new key for another person. Only an admin may create such a link.
    let approvers = app.longhaul().get_gate(gate).await?.spec.approvers;
    if approvers.count > 1 || approvers.not_submitter {
        require_role(&caller.0, Role::Admin)?;
    }
    let request =
        CreateGateLinkRequest { gate, recipient: body.recipient, by: caller.name().to_owned() };
    let recipient = request.recipient.trim().to_owned();
    let secret = app.longhaul().create_gate_link(request).await?;
    let url = format!("{}/a/{}", request_base_url(&headers), secret.reveal());
    let view = GateLinkView { url, gate, recipient };
    created_secret_response(&format!("/v1/gates/{gate}"), &view)
}
