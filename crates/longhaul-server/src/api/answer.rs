//! Answers at gates.
//!
//! Never: a yes to anything but what was shown. An approval names its digest.

use axum::response::Response;
use longhaul_api::gate::{AnswerBody, Answered, DecisionKind, Verdict};
use longhaul_core::policy::gate::{Answer, Decision};
use longhaul_core::raw::RawJson;
use longhaul_core::request::Effect;
use longhaul_engine::handle;
use longhaul_engine::view::gate_view;

use crate::body::Json;
use crate::caller::Approver;
use crate::once::RequestHandle;
use crate::params::GatePath;
use crate::problem::Problem;
use crate::reply::ok;
use crate::spelled::GateWord;
use crate::trouble::after_commit;

fn answer_of(body: AnswerBody, by: &str) -> Result<Answer, Problem> {
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
            let words = payload.take().map(text).transpose()?;
            let words = words.or_else(|| note.take());
            Decision::Answer(words.ok_or_else(|| {
                Problem::invalid("`answer` needs its words, as a text in `payload`")
            })?)
        }
    };
    if body.edited.is_some() && !matches!(decision, Decision::Edit(_)) {
        return Err(Problem::invalid(
            "`edited` goes with the decision `edit` only",
        ));
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

fn text(payload: RawJson) -> Result<String, Problem> {
    match payload.value() {
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
        ("id" = inline(GateWord), Path, description = "The gate's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Send it again under the same key, and it counts once", min_length = 1, max_length = 255, pattern = "^[\\t -~]*[!-~][\\t -~]*$"),
    ),
    request_body = AnswerBody,
    responses((status = 200, description = "What came of it", body = Answered)),
)]
pub(crate) async fn answer(
    RequestHandle {
        longhaul, effect, ..
    }: RequestHandle,
    caller: Approver,
    GatePath(gate): GatePath,
    Json(body): Json<AnswerBody>,
) -> Result<Response, Problem> {
    let answer = answer_of(body, caller.name())?;
    let decision = answer.decision.as_str();
    let verdict = match effect {
        Some(Effect::Events { run, seq }) => longhaul.verdict_at(run, seq).await?,
        Some(Effect::Key(_)) | None => longhaul.answer(gate, answer).await?,
    };
    let gate = gate_view(&longhaul.gate(gate).await.map_err(after_commit)?);
    tracing::info!(run = %gate.run, gate = %gate.id, decision, caller = caller.name(), "answered");
    let (verdict, seq) = match verdict {
        handle::Verdict::Closed(seq) => (Verdict::Closed, seq),
        handle::Verdict::Counted(seq) => (Verdict::Counted, seq),
    };
    ok(&Answered { verdict, seq, gate })
}
