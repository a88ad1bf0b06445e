//! API handlers for gates: listing, answering, and links with which people without a key answer a
//! single gate; and for remembered approvals, which a person gives for the rest of the run, for the
//! agent or for the project. An approval contains the digest of the input that was shown. A link is
//! shown once; the server stores only its hash.

use longhaul_api::gate::{
    AnswerBody, AnswerOutcomeKind, AnswerResponse, DecisionKind, GateLinkBody, GateLinkView,
    GateView, RuleView, SignalBody, SignalGateBody,
};
use longhaul_api::list::List;
use longhaul_api::query::{GatesQuery, PagedQuery as _, RulesQuery};
use longhaul_core::access::Role;
use longhaul_core::duration::{DURATION_EXAMPLES, format_duration, parse_duration};
use longhaul_core::id::{GateId, RuleId};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GATE_TIMEOUT_MAX, GateDecision, GateKind, GateStatus, GateTimeout,
};
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_core::port::store::GateFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_engine::handle::{self, CreateGateLinkRequest, NewSignalGate};
use longhaul_engine::view::{gate_view, rule_view};

use crate::call::{Call, Context, Replied, Reply, paginate};
use crate::error_mapping::result_read_problem_after_commit;
use crate::params::page_limit;
use crate::problem::Problem;

/// Default number of gates or remembered approvals per page.
const PAGE_DEFAULT: usize = 100;

pub(crate) async fn list_gates(
    Call { ctx, query, .. }: Call<(), (), GatesQuery>,
) -> Replied<List<GateView>> {
    let limit = page_limit(query.limit, PAGE_DEFAULT, query.limit_max())?;
    let filter = GateFilter {
        gate: None,
        run: query.run,
        status: query.status,
        tag: query.tag,
        after: query.after,
        limit: limit + 1,
    };
    let rows = ctx.longhaul().list_gates(filter).await?;
    let views = ctx.longhaul().describe_gates(&rows).await?;
    Ok(Reply::ok(paginate(views, limit, |gate| gate.id.to_string())))
}

pub(crate) async fn raise_gate(
    Call { ctx, body, .. }: Call<(), SignalGateBody>,
) -> Replied<GateView> {
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
        by: ctx.by().to_owned(),
    };
    let (gate, is_new) = ctx.longhaul().raise_signal_gate(new).await?;
    let view = gate_view(&gate);
    if !is_new {
        return Ok(Reply::ok(view));
    }
    tracing::info!(run = %view.run, gate = %view.id, caller = ctx.by(), "gate created");
    Ok(Reply::created(format!("/v1/gates/{}", view.id), view))
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
async fn check_role(ctx: &Context, gate: GateId, decision: &GateDecision) -> Result<(), Problem> {
    let Err(forbidden) = ctx.require_role(Role::Approver) else {
        return Ok(());
    };
    let reports_event = match decision {
        GateDecision::Complete | GateDecision::Answer(_) | GateDecision::Reject => true,
        GateDecision::Approve | GateDecision::Edit(_) => false,
    };
    let is_signal = match ctx.longhaul().get_gate(gate).await {
        Ok(row) => row.spec.is_signal_gate_without_tool_call(),
        Err(longhaul_engine::Error::GateNotFound(_)) => false,
        Err(error) => return Err(error.into()),
    };
    if reports_event && is_signal { Ok(()) } else { Err(forbidden) }
}

pub(crate) async fn answer_gate(
    Call { ctx, path: gate, body, .. }: Call<GateId, AnswerBody>,
) -> Replied<AnswerResponse> {
    let answer = answer_from_body(body, ctx.by())?;
    check_role(&ctx, gate, &answer.decision).await?;
    let decision = answer.decision.as_str();
    let (longhaul, effect) = ctx.longhaul_of_request();
    let outcome = match effect {
        Some(IdempotentRequestEffect::Events { run, seq }) => {
            longhaul.recorded_answer_outcome(run, seq).await?
        }
        Some(IdempotentRequestEffect::Key(_) | IdempotentRequestEffect::Thread) | None => {
            longhaul.answer_gate(gate, answer).await?
        }
    };
    let gate = gate_view(&longhaul.get_gate(gate).await.map_err(result_read_problem_after_commit)?);
    tracing::info!(run = %gate.run, gate = %gate.id, decision, caller = ctx.by(), "gate answered");
    let (outcome, seq) = match outcome {
        handle::GateAnswerOutcome::Closed(seq) => (AnswerOutcomeKind::Closed, seq),
        handle::GateAnswerOutcome::Voted(seq) => (AnswerOutcomeKind::Voted, seq),
    };
    Ok(Reply::ok(AnswerResponse { outcome, seq, gate }))
}

/// Maximum number of gates that one signal completes.
const SIGNALLED_GATES_MAX: usize = 1_000;

/// Codes of errors about a gate that no longer waits.
const CLOSED_GATE_CODES: [&str; 3] = ["already_answered", "gate_expired", "run_ended"];

/// Completes every open gate that waits for a signal with this name.
pub(crate) async fn send_signal(
    Call { ctx, body, .. }: Call<(), SignalBody>,
) -> Replied<List<GateView>> {
    let filter = GateFilter {
        gate: None,
        run: body.run,
        status: Some(GateStatus::Open),
        tag: Some(body.name.clone()),
        after: None,
        limit: SIGNALLED_GATES_MAX,
    };
    let gates = ctx.longhaul().list_gates(filter).await?;
    let waiting: Vec<_> = gates
        .into_iter()
        .filter(|gate| gate.spec.kind == GateKind::Signal && gate.status == GateStatus::Open)
        .collect();
    if waiting.is_empty() {
        let message = format!("no run waits for the signal `{}`", body.name);
        return Err(Problem::not_found("signal_not_awaited", message)
            .with_hint("send it again when a run waits for it: GET /v1/gates?tag=NAME"));
    }
    if waiting.iter().any(|gate| !gate.spec.is_signal_gate_without_tool_call()) {
        ctx.require_role(Role::Approver)?;
    }
    let mut completed = Vec::with_capacity(waiting.len());
    for gate in waiting {
        let answer = Answer {
            decision: GateDecision::Complete,
            by: ctx.by().to_owned(),
            scope: AnswerScope::Once,
            note: body.note.clone(),
            payload: body.payload.clone(),
            digest: None,
        };
        let id = gate.spec.id;
        match ctx.longhaul().answer_gate(id, answer).await {
            Ok(_) => completed.push(gate_view(&ctx.longhaul().get_gate(id).await?)),
            // Somebody else was faster, or the gate has just expired or ended with its run.
            Err(error) if CLOSED_GATE_CODES.contains(&error.code()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    tracing::info!(gates = completed.len(), caller = ctx.by(), "signal sent");
    Ok(Reply::ok(List { data: completed, next: None }))
}

pub(crate) async fn create_gate_link(
    Call { ctx, path: gate, body, .. }: Call<GateId, GateLinkBody>,
) -> Replied<GateLinkView> {
    // If a gate needs several approvers or excludes the submitter, a link is equivalent to a
    // new key for another person. Only an admin may create such a link.
    let approvers = ctx.longhaul().get_gate(gate).await?.spec.approvers;
    if approvers.count > 1 || approvers.not_submitter {
        ctx.require_role(Role::Admin)?;
    }
    let request =
        CreateGateLinkRequest { gate, recipient: body.recipient, by: ctx.by().to_owned() };
    let recipient = request.recipient.trim().to_owned();
    let secret = ctx.longhaul().create_gate_link(request).await?;
    let url = format!("{}/a/{}", ctx.base_url(), secret.reveal());
    let view = GateLinkView { url, gate, recipient };
    Ok(Reply::created(format!("/v1/gates/{gate}"), view).with_secret())
}

pub(crate) async fn list_rules(
    Call { ctx, query, .. }: Call<(), (), RulesQuery>,
) -> Replied<List<RuleView>> {
    let limit = page_limit(query.limit, PAGE_DEFAULT, query.limit_max())?;
    let filter = RememberedApprovalFilter {
        rule: None,
        include_inactive: query.all,
        after: query.after,
        limit: limit + 1,
    };
    let rows = ctx.longhaul().list_rules(filter).await?;
    let views: Vec<RuleView> = rows.into_iter().map(rule_view).collect();
    Ok(Reply::ok(paginate(views, limit, |rule| rule.id.to_string())))
}

pub(crate) async fn revoke_rule(Call { ctx, path: rule, .. }: Call<RuleId>) -> Replied<RuleView> {
    let revoked = ctx.longhaul().revoke_rule(rule, ctx.by()).await?;
    tracing::info!(%rule, caller = ctx.by(), "remembered approval revoked");
    Ok(Reply::ok(rule_view(revoked)))
}
