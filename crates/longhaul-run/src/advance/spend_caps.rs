//! Parks a run at a spend cap that does not cover its next model call.

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::policy::spend_cap::{CapHold, CapRefusal, CapReservation, CapUnit, CapWaitRow};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, RemainingBudget};
use longhaul_core::wait::{SpendCapShortage, SpendCapWait, WaitReason};

use crate::advance::park::park_run;
use crate::decision::{AdvanceResult, Decision};

/// Time over which the wake-ups of runs that wait for the end of a cap's window are spread, so that
/// they do not all call the provider at once.
const WAKE_SPREAD: Millis = Millis::from_secs(60);

/// Returns the name of the run's model, which may have changed in this decision.
pub(super) fn model_name_of_run<'a>(decision: &'a Decision<'_>) -> &'a str {
    let mut events = decision.batch.events.iter().rev();
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not change the model")]
    let changed_model = events.find_map(|event| match event {
        Event::RunPrepared(prepared) => Some(prepared.model.as_str()),
        Event::TurnFailed(failed) => failed.fallback_model.as_deref(),
        _ => None,
    });
    changed_model.unwrap_or_else(|| decision.run.transcript.current_model())
}

/// Returns the amounts that are left of the spend caps whose whole limit is too low for this call.
/// Waiting for the next window would not help, so the reply is limited to these amounts instead.
pub(super) fn left_in_too_low_caps(
    decision: &Decision<'_>,
    reservations: &[CapReservation],
) -> RemainingBudget {
    let mut remaining = RemainingBudget::default();
    for CapReservation { hold, .. } in reservations {
        let refusals = decision.ctx.cap_refusals.iter();
        let too_low =
            refusals.filter(|refusal| refusal.key == hold.key && hold.amount > refusal.limit);
        let left = too_low.map(|refusal| refusal.left).min();
        remaining = remaining.min_of_each(match hold.unit {
            CapUnit::Usd => RemainingBudget { micro_usd: left.map(MicroUsd), tokens: None },
            CapUnit::Tokens => RemainingBudget { micro_usd: None, tokens: left },
            CapUnit::Runs => RemainingBudget::default(),
        });
    }
    remaining
}

/// Returns the first reservation that is larger than what is left of its spend cap, as far as is
/// known. `None` means that no spend cap is known to be too low.
pub(super) fn first_over_cap<'a>(
    decision: &Decision<'_>,
    reservations: &'a [CapReservation],
) -> Option<&'a CapReservation> {
    let refusals = &decision.ctx.cap_refusals;
    reservations.iter().find(|reservation| {
        refusals.iter().any(|refusal| {
            refusal.key == reservation.hold.key && reservation.hold.amount > refusal.left
        })
    })
}

/// Parks the run until the spend cap covers the refused amount or the window of the cap ends.
pub(super) fn park_at_spend_cap(
    decision: &mut Decision<'_>,
    reservation: &CapReservation,
) -> AdvanceResult {
    let until = reservation.window_end;
    let spread = u128::from(WAKE_SPREAD.0);
    let jitter = Millis(u64::try_from(decision.run.id.bits() % spread).unwrap_or_default());
    let timer = decision.new_timer_id("cap");
    decision.set_wake_timer_at(timer, until.plus(jitter));
    let CapHold { key, amount: needed, .. } = &reservation.hold;
    let mut refusals = decision.ctx.cap_refusals.iter().filter(|refusal| refusal.key == *key);
    let shortage = refusals.next().map(|CapRefusal { left, limit, .. }| SpendCapShortage {
        needed: *needed,
        left: *left,
        limit: *limit,
    });
    let (cap, subject) = (key.cap.clone(), key.subject.clone());
    let wait = SpendCapWait { cap, subject, until, shortage };
    let row = CapWaitRow { reservation: reservation.clone(), timer };
    decision.add_row_change(RowChange::WaitAtCap(row));
    park_run(decision, WaitReason::Cap(wait))
}
