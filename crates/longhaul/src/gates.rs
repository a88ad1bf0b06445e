//! Gates (questions and approvals that wait for a person), the answers that programs give to them,
//! and the approvals that are remembered.
//!
//! The engine validates answers. The first valid answer to a gate wins.

use longhaul_api::gate::{GateView, RuleView};
use longhaul_core::id::{GateId, RuleId};
use longhaul_core::policy::gate::{Answer as GateAnswer, AnswerScope, GateDecision, GateStatus};
use longhaul_core::policy::rule::{RULES_MAX, RememberedApprovalFilter};
use longhaul_core::port::store::GateFilter;
use longhaul_core::raw::Hash;
use longhaul_engine::Longhaul;
use longhaul_engine::view::rule_view;
use serde::Serialize;

use crate::error::{Draft, Error, to_json};

/// Name that is recorded as the author of an answer if the program does not set one.
pub(crate) const DEFAULT_ACTOR: &str = "program";

/// Maximum number of gates that a list returns.
const GATES_MAX: usize = 1_000;

/// The gates of a runtime: questions and approvals that wait for a person.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// for gate in runtime.gates().open().await? {
///     println!("{} asks since {}: {}", gate.run, gate.raised_at, gate.ask);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gates<'a>(pub(crate) &'a Longhaul);

impl Gates<'_> {
    /// Returns the open gates, newest first, at most 1,000 of them.
    ///
    /// # Errors
    /// The store failed.
    pub async fn open(&self) -> Result<Vec<GateView>, Error> {
        let filter = GateFilter {
            status: Some(GateStatus::Open),
            limit: GATES_MAX,
            ..GateFilter::default()
        };
        let rows = self.0.list_gates(filter).await?;
        let open = rows.iter().filter(|gate| gate.status == GateStatus::Open);
        Ok(self.0.describe_gates(&open.cloned().collect::<Vec<_>>()).await?)
    }

    /// Returns the gate with this id, open or closed.
    ///
    /// # Errors
    /// There is no such gate, or the store failed.
    pub async fn get(&self, gate: GateId) -> Result<GateView, Error> {
        Ok(self.0.describe_gate(&self.0.get_gate(gate).await?).await?)
    }
}

/// Access to rules: remembered approvals, each for all similar calls of a run, an agent or the
/// project.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// for rule in runtime.rules().active().await? {
///     println!("{} allows {}, used {} times", rule.by, rule.pattern.tool, rule.used);
///     if rule.used == 0 {
///         runtime.rules().revoke(rule.id, "shop:anna").await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Rules<'a>(pub(crate) &'a Longhaul);

impl Rules<'_> {
    /// Returns the active rules (remembered approvals), newest first, at most 1,000 of them.
    ///
    /// # Errors
    /// The store failed.
    pub async fn active(&self) -> Result<Vec<RuleView>, Error> {
        let filter =
            RememberedApprovalFilter { limit: RULES_MAX, ..RememberedApprovalFilter::default() };
        Ok(self.0.list_rules(filter).await?.into_iter().map(rule_view).collect())
    }

    /// Returns the rule (the remembered approval) with this id, active or revoked.
    ///
    /// # Errors
    /// There is no such rule, or the store failed.
    pub async fn get(&self, rule: RuleId) -> Result<RuleView, Error> {
        Ok(rule_view(self.0.get_rule(rule).await?))
    }

    /// Revokes a rule (a remembered approval) in the name of a person or program. Later calls that
    /// it covered need an approval again.
    ///
    /// # Errors
    /// There is no such rule, it was revoked before, its run has ended, or the store failed.
    pub async fn revoke(&self, rule: RuleId, revoked_by: &str) -> Result<RuleView, Error> {
        Ok(rule_view(self.0.revoke_rule(rule, revoked_by).await?))
    }
}

/// An answer to a gate.
///
/// ```
/// use longhaul::Answer;
///
/// let no = Answer::reject().by("shop:anna").note("That train is full.");
/// let words = Answer::text("Platform 4");
/// ```
#[must_use = "an answer has no effect until it is given to `Runtime::answer`"]
#[derive(Debug, Clone)]
pub struct Answer(pub(crate) Draft<GateAnswer>);

impl Answer {
    /// Creates an answer that approves the call or the result that waits at the gate. Pass the
    /// gate's digest (hash of the content that the person saw), or `None` if the gate has none.
    pub fn approve(gate_digest: impl Into<Option<Hash>>) -> Self {
        let digest = gate_digest.into();
        Self(Self::from_decision(GateDecision::Approve).0.with(|answer| answer.digest = digest))
    }

    /// Creates an answer that approves the call with a new input. Pass the gate's digest (hash of
    /// the content that the person saw), or `None` if the gate has none.
    pub fn edit(gate_digest: impl Into<Option<Hash>>, edited_input: impl Serialize) -> Self {
        let input = to_json("the edited input", &edited_input);
        Self(Self::approve(gate_digest).0.set(input, |answer, input| {
            answer.decision = GateDecision::Edit(input);
        }))
    }

    /// Creates an answer that rejects what the gate asks to approve.
    pub fn reject() -> Self {
        Self::from_decision(GateDecision::Reject)
    }

    /// Creates an answer to a question, with this text.
    pub fn text(answer_text: impl Into<String>) -> Self {
        Self::from_decision(GateDecision::Answer(answer_text.into()))
    }

    /// Creates an answer to a question with a form, with these fields.
    pub fn form(form_fields: impl Serialize) -> Self {
        let fields = to_json("the fields of the form", &form_fields);
        Self(Self::text("").0.set(fields, |answer, json| {
            answer.decision = GateDecision::Answer(json.as_str().to_owned());
        }))
    }

    /// Creates an answer which reports that something has happened: the external event that a gate
    /// waits for, or the effect of a call whose outcome is unknown.
    pub fn complete() -> Self {
        Self::from_decision(GateDecision::Complete)
    }

    fn from_decision(decision: GateDecision) -> Self {
        Self(Draft(Ok(GateAnswer {
            decision,
            by: DEFAULT_ACTOR.to_owned(),
            scope: AnswerScope::default(),
            note: None,
            payload: None,
            digest: None,
        })))
    }

    /// Sets the name of the person or program that answers, such as `shop:anna`. Default:
    /// `program`.
    pub fn by(self, actor_name: impl Into<String>) -> Self {
        Self(self.0.with(|answer| answer.by = actor_name.into()))
    }

    /// Adds a note to the answer, which the model reads.
    pub fn note(self, note: impl Into<String>) -> Self {
        Self(self.0.with(|answer| answer.note = Some(note.into())))
    }

    /// Adds data to the answer, which the model and templates can read.
    pub fn payload(self, payload: impl Serialize) -> Self {
        let payload = to_json("the payload", &payload);
        Self(self.0.set(payload, |answer, json| answer.payload = Some(json)))
    }

    /// Extends the approval to all later calls of this run that match the pattern of the gate, such
    /// as all calls of the same tool.
    pub fn for_this_run(self) -> Self {
        self.scope(AnswerScope::Run)
    }

    /// Sets whether the approval covers only this call, or all calls of the run, the agent or the
    /// project that match the gate's pattern. The gate lists the scopes that it offers. [`Rules`]
    /// lists and revokes approvals of later calls.
    pub fn scope(self, scope: AnswerScope) -> Self {
        Self(self.0.with(|answer| answer.scope = scope))
    }
}
