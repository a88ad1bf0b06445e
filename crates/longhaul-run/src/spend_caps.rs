//! Finds the spend caps that apply to a task or to a model call, and the amount that the task or
//! call reserves in each cap.

use longhaul_core::glob;
use longhaul_core::policy::spend_cap::{
    CapCounterKey, CapHold, CapReachedAction, CapReservation, CapUnit, CapUsageGrouping,
    CapWithWindow, SpendCap,
};
use longhaul_core::raw::{Hash, canonical_json};
use longhaul_core::task::TaskSpec;
use longhaul_core::usage::BudgetAmount;

/// Maximum length in bytes of a spend cap's subject, such as the name of an actor. A longer subject
/// is replaced by its hash.
pub const SUBJECT_BYTES_MAX: usize = 200;

/// A model call that is about to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpendCappedModelCall<'a> {
    /// Full name of the called model.
    pub(crate) model: &'a str,
    /// Worst-case cost of the call.
    pub(crate) hold: BudgetAmount,
    /// Whether the call is the first one of its run. Caps that limit the number of runs count the
    /// run with this call.
    pub(crate) starts_run: bool,
    /// Whether the run of this call is a root run: it was submitted, not started by another run.
    pub(crate) is_root: bool,
}

/// Returns the amounts that a model call reserves in spend caps, ordered by cap and subject.
pub(crate) fn reservations_for_call(
    caps: &[CapWithWindow],
    task: &TaskSpec,
    call: SpendCappedModelCall<'_>,
) -> Vec<CapReservation> {
    let reservations = caps.iter().filter_map(|current| {
        let amount = match (current.cap.unit, current.cap.at_cap) {
            (CapUnit::Usd | CapUnit::Tokens, _) => current.cap.unit.part_of(call.hold),
            (CapUnit::Runs, CapReachedAction::Wait) => u64::from(call.starts_run),
            // Such a cap counted a root when its task was submitted.
            (CapUnit::Runs, CapReachedAction::Refuse) => {
                u64::from(call.starts_run && !call.is_root)
            }
        };
        let subject =
            subject_counted_by_cap(&current.cap, task, call.model).filter(|_| amount > 0)?;
        Some(new_cap_reservation(current, subject, amount))
    });
    let mut reservations: Vec<CapReservation> = reservations.collect();
    reservations.sort_by(|first, second| first.hold.key.cmp(&second.hold.key));
    reservations
}

/// Returns the reservations of a new task in the spend caps that refuse tasks when they are
/// reached: 1 in a cap that counts runs, 0 in a cap on money or tokens. Caps per model never refuse
/// a task, because the model of its run is not known yet.
pub fn reservations_for_task(caps: &[CapWithWindow], task: &TaskSpec) -> Vec<CapReservation> {
    let refusing_caps = caps.iter().filter(|current| {
        current.cap.at_cap == CapReachedAction::Refuse && current.cap.per != CapUsageGrouping::Model
    });
    let reservations = refusing_caps.filter_map(|current| {
        let subject = subject_counted_by_cap(&current.cap, task, "")?;
        let amount = u64::from(current.cap.unit == CapUnit::Runs);
        Some(new_cap_reservation(current, subject, amount))
    });
    reservations.collect()
}

/// Whether a spend cap in dollars counts calls of this model for this task.
pub fn counts_call_in_dollars(cap: &SpendCap, task: &TaskSpec, model: &str) -> bool {
    cap.unit == CapUnit::Usd && subject_counted_by_cap(cap, task, model).is_some()
}

fn new_cap_reservation(current: &CapWithWindow, subject: String, amount: u64) -> CapReservation {
    let CapWithWindow { cap, period } = current;
    let key = CapCounterKey { cap: cap.cap_id(), subject, window_start: period.start };
    let hold = CapHold { key, unit: cap.unit, amount };
    CapReservation { hold, window_end: period.end, limit: cap.limit }
}

/// Returns the subject under which a spend cap counts a call of this model for this task. `None`
/// means that the cap does not apply.
fn subject_counted_by_cap(cap: &SpendCap, task: &TaskSpec, model: &str) -> Option<String> {
    let subject = match cap.per {
        CapUsageGrouping::All => String::new(),
        CapUsageGrouping::Key => {
            task.charged_to.as_ref().or(task.submitter.as_ref()).cloned().unwrap_or_default()
        }
        CapUsageGrouping::Actor => cap_subject_of_actor(task),
        CapUsageGrouping::Agent => task.agent.to_string(),
        CapUsageGrouping::Model => model.to_owned(),
    };
    // A subject that is too long to be matched must not escape the cap.
    let applies =
        cap.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, &subject).unwrap_or(true));
    applies.then(|| match subject.len() <= SUBJECT_BYTES_MAX {
        true => subject,
        false => Hash::digest(subject.as_bytes()).to_string(),
    })
}

/// Returns the subject of caps per actor: the id of the task's actor, else the name, else the whole
/// actor. Tasks without an actor count together.
fn cap_subject_of_actor(task: &TaskSpec) -> String {
    let Some(actor) = task.actor.as_ref().map(longhaul_core::raw::RawJson::to_value) else {
        return String::new();
    };
    let subject = ["id", "name"].iter().find_map(|field| actor.get(field));
    let subject = subject.unwrap_or(&actor);
    subject.as_str().map_or_else(|| canonical_json(subject), str::to_owned)
}

#[cfg(test)]
mod tests {
    use longhaul_core::glob;
    use longhaul_core::id::{AgentName, InboxName, RunId};
    use longhaul_core::policy::spend_cap::{CapWindowLength, CapWindowRange};
    use longhaul_core::raw::RawJson;
    use longhaul_core::time::Timestamp;
    use longhaul_core::usage::MicroUsd;

    use super::*;

    fn test_task(submitter: &str, actor: &str) -> TaskSpec {
        let agent = AgentName::new("research_web").unwrap();
        let inbox = InboxName::new("default").unwrap();
        TaskSpec {
            submitter: Some(submitter.to_owned()),
            actor: Some(RawJson::parse(actor).unwrap()),
            ..TaskSpec::new(RunId::from_bits(1), agent, RawJson::null(), inbox)
        }
    }

    fn test_cap(per: CapUsageGrouping, pattern: Option<&str>, unit: CapUnit) -> CapWithWindow {
        let cap = SpendCap {
            window: CapWindowLength::Day,
            tz: "UTC".to_owned(),
            per,
            pattern: pattern.map(str::to_owned),
            unit,
            limit: 100,
            at_cap: CapReachedAction::Wait,
        };
        let period = CapWindowRange { start: Timestamp::default(), end: Timestamp::default() };
        CapWithWindow { cap, period }
    }

    #[test]
    fn the_subject_of_a_cap_depends_on_its_scope() {
        use CapUsageGrouping::{Actor, Agent, All, Key, Model};
        let long = format!("\"{}\"", "x".repeat(SUBJECT_BYTES_MAX + 1));
        for (per, pattern, actor, subject) in [
            (All, None, "null", Some("")),
            (Key, None, "null", Some("key:ops")),
            (Key, Some("key:o*"), "null", Some("key:ops")),
            (Key, Some("key:p*"), "null", None),
            (Agent, Some("research_*"), "null", Some("research_web")),
            (Agent, Some("writer"), "null", None),
            (Model, Some("anthropic/*"), "null", Some("anthropic/opus")),
            (Model, Some("openai/*"), "null", None),
            (Actor, None, r#"{"id": 7, "name": "Anna"}"#, Some("7")),
            (Actor, None, r#"{"name": "Anna"}"#, Some("Anna")),
            (Actor, None, r#"{"b": 1, "a": [2]}"#, Some(r#"{"a":[2],"b":1}"#)),
            (Actor, None, "\"anna\"", Some("anna")),
        ] {
            let counted_subject = subject_counted_by_cap(
                &test_cap(per, pattern, CapUnit::Usd).cap,
                &test_task("key:ops", actor),
                "anthropic/opus",
            );
            assert_eq!(counted_subject.as_deref(), subject, "{per:?} {pattern:?} {actor}");
        }
        let actor_cap = test_cap(Actor, None, CapUnit::Usd).cap;
        let too_long_to_match = format!("\"{}\"", "x".repeat(glob::TEXT_BYTES_MAX + 1));
        let other_actors_cap = test_cap(Actor, Some("anna"), CapUnit::Usd).cap;
        for (cap, actor) in [(actor_cap, long), (other_actors_cap, too_long_to_match)] {
            let hashed = subject_counted_by_cap(&cap, &test_task("", &actor), "m");
            assert_eq!(hashed.map(|subject| subject.len()), Some(64));
        }
    }

    #[test]
    fn a_call_holds_its_amount_in_the_unit_of_each_cap() {
        use CapUnit::{Runs, Tokens, Usd};
        let caps = [Usd, Tokens, Runs].map(|unit| test_cap(CapUsageGrouping::All, None, unit));
        let hold = BudgetAmount { micro_usd: MicroUsd(5), tokens: 70 };
        let amounts = |starts_run| {
            let call = SpendCappedModelCall { model: "m", hold, starts_run, is_root: true };
            let reservations = reservations_for_call(&caps, &test_task("", "null"), call);
            reservations
                .into_iter()
                .map(|reservation| (reservation.hold.key.cap, reservation.hold.amount))
                .collect::<Vec<_>>()
        };
        let to_owned_amounts = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(cap, amount)| ((*cap).to_owned(), *amount)).collect()
        };
        let first = [("day-runs-all", 1), ("day-tokens-all", 70), ("day-usd-all", 5)];
        assert_eq!(amounts(true), to_owned_amounts(&first));
        assert_eq!(amounts(false), to_owned_amounts(&first[1..]));
    }

    #[test]
    fn a_new_task_is_counted_only_in_caps_that_refuse_tasks() {
        let with_refusal = |mut current: CapWithWindow| {
            current.cap.at_cap = CapReachedAction::Refuse;
            current
        };
        let caps = [
            test_cap(CapUsageGrouping::All, None, CapUnit::Runs),
            with_refusal(test_cap(CapUsageGrouping::Agent, None, CapUnit::Runs)),
            with_refusal(test_cap(CapUsageGrouping::Key, None, CapUnit::Usd)),
            with_refusal(test_cap(CapUsageGrouping::Model, None, CapUnit::Usd)),
            with_refusal(test_cap(CapUsageGrouping::Key, Some("key:dev"), CapUnit::Usd)),
        ];
        let reservations = reservations_for_task(&caps, &test_task("key:ops", "null"));
        let reservations: Vec<_> = reservations
            .iter()
            .map(|reservation| (reservation.hold.key.subject.as_str(), reservation.hold.amount))
            .collect();
        assert_eq!(reservations, [("research_web", 1), ("key:ops", 0)]);
    }
}
