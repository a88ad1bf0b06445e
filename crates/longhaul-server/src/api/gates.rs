//! Gates: what waits for an answer, answers, and links to single gates for people without a key. An
//! approval names the digest of what was shown; a link is shown once, and the server keeps a hash.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::gate::{
    AnswerBody, AnswerOutcome, AnswerResponse, DecisionKind, GateView, LinkBody, LinkView,
};
use longhaul_api::list::List;
use longhaul_core::access::Role;
use longhaul_core::policy::gate::{Answer, Decision, GateStatus};
use longhaul_core::port::store::GateFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::request::RequestEffect;
use longhaul_engine::handle::{self, CreateLink};
use longhaul_engine::view::gate_view;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Approver, Viewer, require_role};
use crate::error_mapping::after_commit;
use crate::idempotency::RequestHandle;
use crate::openapi_types::{GateIdSchema, GateStatusSchema, RunIdSchema};
use crate::params::{GatePath, Query};
use crate::peer::base_url;
use crate::problem::Problem;
use crate::response::{created_secret, ok, paginate};

/// So many gates come unless it is said otherwise, and at most.
const GATES_DEFAULT: usize = 100;
const GATES_MAX: usize = 1_000;

/// Lists gates, newest first.
#[utoipa::path(
    get, path = "/v1/gates", tag = "gates", operation_id = "list_gates",
    params(
        ("status" = inline(Option<GateStatusSchema>), Query, description = "open, answered, expired or withdrawn"),
        ("run" = inline(Option<RunIdSchema>), Query, description = "Only this run's"),
        ("after" = inline(Option<GateIdSchema>), Query, description = "The `next` of the part before"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A part of the list", body = List<GateView>)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only(&["status", "run", "after", "limit"])?;
    let limit = query.limit(GATES_DEFAULT, 1..=GATES_MAX)?;
    let ask = GateFilter {
        gate: None,
        run: query.parse_value("run")?,
        status: query.value("status")?.map(parse_status).transpose()?,
        after: query.parse_value("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().gates(ask).await?;
    let views: Vec<GateView> = rows.iter().map(gate_view).collect();
    ok(&paginate(views, limit, |gate| gate.id.to_string()))
}

fn parse_status(said: &str) -> Result<GateStatus, Problem> {
    match said {
        "open" => Ok(GateStatus::Open),
        "answered" => Ok(GateStatus::Answered),
        "expired" => Ok(GateStatus::Expired),
        "withdrawn" => Ok(GateStatus::Withdrawn),
        _ => Err(Problem::invalid("`status` is one of open, answered, expired, withdrawn")),
    }
}

/// Shows a gate with all that is frozen.
#[utoipa::path(
    get, path = "/v1/gates/{id}", tag = "gates", operation_id = "show_gate",
    params(("id" = inline(GateIdSchema), Path, description = "The gate's id")),
    responses((status = 200, description = "The gate", body = GateView)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Viewer,
    GatePath(gate): GatePath,
) -> Result<Response, Problem> {
    ok(&gate_view(&app.longhaul().gate(gate).await?))
}

fn to_answer(body: AnswerBody, by: &str) -> Result<Answer, Problem> {
    let mut note = body.note;
    let mut payload = body.payload;
    let decision = match body.decision {
        DecisionKind::Approve => Decision::Approve,
        DecisionKind::Reject => Decision::Reject,
        DecisionKind::Complete => Decision::Complete,
        DecisionKind::Edit => {
            let edited = body.edited.clone();
            Decision::Edit(edited.ok_or_else(|| {
                Problem::invalid("`edit` needs `edited`: the whole input instead")
            })?)
        }
        DecisionKind::Answer => {
            let words = payload.take().map(payload_text).transpose()?;
            let words = words.or_else(|| note.take());
            Decision::Answer(words.ok_or_else(|| {
                Problem::invalid("`answer` needs its words, as a text in `payload`")
            })?)
        }
    };
    if body.edited.is_some() && !matches!(decision, Decision::Edit(_)) {
        return Err(Problem::invalid("`edited` goes with the decision `edit` only"));
    }
    Ok(Answer {
        decision,
        by: by.to_owned(),
        scope: body.scope,
        note,
        payload,
        digest: body.digest,
    })
}

fn payload_text(payload: RawJson) -> Result<String, Problem> {
    match payload.to_value() {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => {
            Err(Problem::invalid("the words of an `answer` are a text"))
        }
    }
}

/// Answers a gate. The first valid answer wins.
#[utoipa::path(
    post, path = "/v1/gates/{id}/answer", tag = "gates", operation_id = "answer_gate",
    params(
        ("id" = inline(GateIdSchema), Path, description = "The gate's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Send it again under the same key, and it counts once", min_length = 1, max_length = 255, pattern = "^[\\t -~]*[!-~][\\t -~]*$"),
    ),
    request_body = AnswerBody,
    responses((status = 200, description = "What came of it", body = AnswerResponse)),
)]
pub(crate) async fn answer(
    RequestHandle { longhaul, effect, .. }: RequestHandle,
    caller: Approver,
    GatePath(gate): GatePath,
    Json(body): Json<AnswerBody>,
) -> Result<Response, Problem> {
    let answer = to_answer(body, caller.name())?;
    let decision = answer.decision.as_str();
    let verdict = match effect {
        Some(RequestEffect::Events { run, seq }) => longhaul.answer_outcome_at(run, seq).await?,
        Some(RequestEffect::Key(_)) | None => longhaul.answer(gate, answer).await?,
    };
    let gate = gate_view(&longhaul.gate(gate).await.map_err(after_commit)?);
    tracing::info!(run = %gate.run, gate = %gate.id, decision, caller = caller.name(), "answered");
    let (verdict, seq) = match verdict {
        handle::GateAnswerOutcome::Closed(seq) => (AnswerOutcome::Closed, seq),
        handle::GateAnswerOutcome::Voted(seq) => (AnswerOutcome::Voted, seq),
    };
    ok(&AnswerResponse { outcome: verdict, seq, gate })
}

/// Makes a link to an open gate.
#[utoipa::path(
    post, path = "/v1/gates/{id}/links", tag = "gates", operation_id = "create_link",
    params(("id" = inline(GateIdSchema), Path, description = "The gate's id")),
    request_body = LinkBody,
    responses((status = 201, description = "The link, shown this once", body = LinkView)),
)]
pub(crate) async fn create_link(
    State(app): State<App>,
    caller: Approver,
    (GatePath(gate), headers): (GatePath, HeaderMap),
    Json(body): Json<LinkBody>,
) -> Result<Response, Problem> {
    // Where it counts who decides, a link is as good as a key for somebody else,
    // and only who may make those may make it.
    let asked = app.longhaul().gate(gate).await?.spec.approvers;
    if asked.count > 1 || asked.not_submitter {
        require_role(&caller.0, Role::Admin)?;
    }
    let ask = CreateLink { gate, recipient: body.recipient, by: caller.name().to_owned() };
    let recipient = ask.recipient.trim().to_owned();
    let secret = app.longhaul().create_link(ask).await?;
    let url = format!("{}/a/{}", base_url(&headers), secret.reveal());
    let view = LinkView { url, gate, recipient };
    created_secret(&format!("/v1/gates/{gate}"), &view)
}
