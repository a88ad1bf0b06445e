//! Answers at gates.
//!
//! Never: a yes to anything but what was shown. An approval names its digest.

use axum::response::Response;
use longhaul_core::policy::gate::{Answer, Decision, Scope};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::request::Effect;
use longhaul_engine::gate_view::GateView;
use longhaul_engine::handle::Verdict;
use longhaul_engine::schema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::Json;
use crate::caller::Approver;
use crate::once::RequestHandle;
use crate::params::GatePath;
use crate::problem::Problem;
use crate::reply::ok;
use crate::spelled::GateWord;
use crate::trouble::after_commit;

/// An answer to be given.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub(crate) struct AnswerBody {
    /// What is decided. The gate's `decisions` lists what it takes.
    decision: Word,
    /// How far an approval reaches.
    #[serde(default)]
    scope: Reach,
    /// Words for the model.
    #[serde(default)]
    note: Option<String>,
    /// For `edit`: the input instead.
    #[serde(default)]
    #[schema(schema_with = schema::any)]
    edited: Option<RawJson>,
    /// For `answer`: the words, as a text. Else data for the model and for templates.
    #[serde(default)]
    #[schema(schema_with = schema::any)]
    payload: Option<RawJson>,
    /// The digest of what was shown. Needed for `approve` and `edit`.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    digest: Option<Hash>,
}

/// What can be decided.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Decision)]
pub(crate) enum Word {
    /// Yes.
    Approve,
    /// Yes, but with another input.
    Edit,
    /// No.
    Reject,
    /// The words to a question.
    Answer,
    /// What was waited for has happened.
    Complete,
}

/// How far an approval reaches.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Scope)]
pub(crate) enum Reach {
    /// This call.
    #[default]
    Once,
    /// Every call of this run that the same rule stops.
    Run,
}

/// What came of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answered {
    /// `closed`: the gate is closed by it. `counted`: others must agree.
    verdict: Came,
    /// Where it stands in the journal.
    seq: u64,
    /// The gate as it stands now.
    gate: GateView,
}

/// What an answer did.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Verdict)]
pub(crate) enum Came {
    /// It closed the gate.
    Closed,
    /// It counts, and others must agree.
    Counted,
}

impl AnswerBody {
    fn read(self, by: &str) -> Result<Answer, Problem> {
        let mut note = self.note;
        let mut payload = self.payload;
        let decision = match self.decision {
            Word::Approve => Decision::Approve,
            Word::Reject => Decision::Reject,
            Word::Complete => Decision::Complete,
            Word::Edit => {
                let edited = self.edited.clone();
                Decision::Edit(edited.ok_or_else(|| {
                    Problem::invalid("`edit` needs `edited`: the whole input instead")
                })?)
            }
            Word::Answer => {
                let words = payload.take().map(text).transpose()?;
                let words = words.or_else(|| note.take());
                Decision::Answer(words.ok_or_else(|| {
                    Problem::invalid("`answer` needs its words, as a text in `payload`")
                })?)
            }
        };
        if self.edited.is_some() && !matches!(decision, Decision::Edit(_)) {
            return Err(Problem::invalid(
                "`edited` goes with the decision `edit` only",
            ));
        }
        let scope = match self.scope {
            Reach::Once => Scope::Once,
            Reach::Run => Scope::Run,
        };
        Ok(Answer {
            decision,
            by: by.to_owned(),
            scope,
            note,
            payload,
            digest: self.digest,
        })
    }
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
    let answer = body.read(caller.name())?;
    let decision = answer.decision.as_str();
    let verdict = match effect {
        Some(Effect::Events { run, seq }) => longhaul.verdict_at(run, seq).await?,
        Some(Effect::Key(_)) | None => longhaul.answer(gate, answer).await?,
    };
    let gate = GateView::from(&longhaul.gate(gate).await.map_err(after_commit)?);
    tracing::info!(run = %gate.run, gate = %gate.id, decision, caller = caller.name(), "answered");
    let (verdict, seq) = match verdict {
        Verdict::Closed(seq) => (Came::Closed, seq.0),
        Verdict::Counted(seq) => (Came::Counted, seq.0),
    };
    ok(&Answered { verdict, seq, gate })
}
