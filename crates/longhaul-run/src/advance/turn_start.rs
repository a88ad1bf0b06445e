//! Starts a turn within all budget caps and spend caps.
//!
//! Invariant: no model call starts before the budget for its worst-case cost is reserved. If the
//! remaining budget is too small, the store refuses the whole batch of events.

use longhaul_core::change::{BudgetHold, RowChange, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{BudgetReached, BudgetWarned};
use longhaul_core::event::run::CompactionModel;
use longhaul_core::event::turn::{ModelCallPurpose, TurnStarted};
use longhaul_core::policy::budget::{BudgetAccount, BudgetCap};
use longhaul_core::policy::spend_cap::CapReservation;
use longhaul_core::status::RunError;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, ModelPricing, RemainingBudget};
use longhaul_core::wait::WaitReason;

use crate::advance::call_events::add_active_time;
use crate::advance::park::park_run;
use crate::advance::runtime_message::{needs_perception_refresh, runtime_messages_for_turn};
use crate::advance::{finish, spend_caps};
use crate::decision::{AdvanceResult, BREAK, CONTINUE, Decision};
use crate::spend_caps::{SpendCappedModelCall, reservations_for_call};
use crate::state::budget::BudgetState;
use crate::state::control::ControlState;
use crate::state::stage::{PendingModelCall, RunStage};

/// Minimum reply length in tokens for which a model call is worthwhile.
const REPLY_TOKENS_MIN: u64 = 1_024;

/// Reply length in tokens for which a run whose budget is nearly used up waits until other runs
/// release what they have reserved. If each such run waited for all that is left, they would run
/// one by one.
const AWAITED_REPLY_TOKENS: u64 = 2_048;

/// Maximum length of a compaction's summary in tokens.
const SUMMARY_TOKENS_MAX: u64 = 16_384;

pub(super) fn start_turn(decision: &mut Decision<'_>, purpose: ModelCallPurpose) -> AdvanceResult {
    if let Some(error) = turn_limit_error(&decision.control) {
        return finish::fail_run(decision, error);
    }
    let perception = decision.perception_refresh.as_ref();
    let perception_active = perception.map_or(Millis::ZERO, |refresh| refresh.active);
    if let Some(cap) = exhausted_own_cap(&decision.control, perception_active) {
        decision.record_event(Event::BudgetReached(BudgetReached::of_run(cap)))?;
        return CONTINUE;
    }
    let cap = own_cap_to_warn(decision).or_else(|| shared_cap_to_warn(decision));
    if let Some(cap) = cap {
        return warn_about_cap(decision, cap);
    }
    let RunStage::ModelPending(pending) = &decision.control.stage else { return CONTINUE };
    let is_turn = purpose == ModelCallPurpose::Turn;
    // The engine fetches the perception first; then the turn starts.
    if is_turn
        && decision.perception_refresh.is_none()
        && needs_perception_refresh(&decision.control, pending)
    {
        return BREAK;
    }
    let attempt = pending.attempts + 1;
    let (pricing, model) = called_model_pricing(&decision.control, pending, purpose);
    let messages = if is_turn { runtime_messages_for_turn(decision) } else { Vec::new() };
    let message_bytes = messages.iter().map(|runtime_message| runtime_message.text.len() as u64);
    let bytes = decision.control.transcript_bytes + message_bytes.sum::<u64>();
    let size = match fit_budget(decision, &pricing, bytes) {
        CallBudgetCoverage::Fits(size) => size,
        CallBudgetCoverage::Warn(cap) => return warn_about_cap(decision, cap),
        CallBudgetCoverage::Held(needed) => return park_until_hold_is_released(decision, needed),
        CallBudgetCoverage::Exhausted(exhausted) => {
            decision.record_event(Event::BudgetReached(exhausted))?;
            return CONTINUE;
        }
    };
    let (size, caps) = match fit_spend_caps(decision, (&pricing, bytes), model.as_deref(), size) {
        Ok(size_and_caps) => size_and_caps,
        Err(over_cap) => return spend_caps::park_at_spend_cap(decision, &over_cap),
    };
    cancel_skipped_timer(decision);
    let ModelCallSize { max_tokens, hold, reserve } = size;
    let budget_hold = new_budget_hold(&decision.control, (hold, reserve));
    let refresh = decision.perception_refresh.take().filter(|_| is_turn);
    decision.record_event(Event::TurnStarted(TurnStarted {
        turn: decision.control.turn + 1,
        attempt,
        purpose,
        hold,
        caps: caps.iter().map(|reservation| reservation.hold.clone()).collect(),
        max_tokens,
        model,
        runtime_messages: messages,
        perception: refresh.and_then(|refresh| refresh.update),
        perception_active,
    }))?;
    add_active_time(decision, perception_active);
    decision.add_row_change(RowChange::Hold(budget_hold));
    if !caps.is_empty() {
        decision.add_row_change(RowChange::HoldCaps(caps));
    }
    BREAK
}

/// Deletes the timer of a wait that a person has cut short, so that it does not wake the run from a
/// later wait.
fn cancel_skipped_timer(decision: &mut Decision<'_>) {
    let pending = decision.control.pending_call();
    if let Some(timer) = pending.and_then(|pending| pending.skipped_timer) {
        decision.add_row_change(RowChange::SetTimer(TimerUpdate::Cancel(timer)));
    }
}

/// Parks the run until other runs with the same budget have released so much of what they have
/// reserved that the amount `needed` is free.
fn park_until_hold_is_released(decision: &mut Decision<'_>, needed: BudgetAmount) -> AdvanceResult {
    let flow = park_run(decision, WaitReason::BudgetHeld)?;
    decision.add_row_change(RowChange::WaitForHolds(needed));
    Ok(flow)
}

/// Returns a hold (reservation) of this amount of the budget. The hold also says at which usage the
/// store refuses it, so that the model is first warned about a nearly exhausted cap. It is computed
/// before the turn starts, because that event forgets the warnings about a raised cap.
fn new_budget_hold(
    control: &ControlState,
    (amount, reserve): (BudgetAmount, BudgetAmount),
) -> BudgetHold {
    let warn_at = |cap| {
        Some(control.budget.caps.warn_percent).filter(|_| !control.budget.warned.contains(&cap))
    };
    let (warn_money_at, warn_tokens_at) = (warn_at(BudgetCap::Money), warn_at(BudgetCap::Tokens));
    BudgetHold { amount, reserve, warn_money_at, warn_tokens_at }
}

/// Size of a model call: the maximum reply length, the worst-case cost of the call, and the
/// worst-case cost of one more call with a short reply, in which the model can finish its work.
#[derive(Debug, Clone, Copy)]
struct ModelCallSize {
    max_tokens: u64,
    hold: BudgetAmount,
    reserve: BudgetAmount,
}

impl ModelCallSize {
    fn new(pricing: &ModelPricing, bytes: u64, max_tokens: u64) -> Self {
        let hold = pricing.worst_case_hold(bytes, max_tokens);
        let reserve = pricing.worst_case_hold(bytes, REPLY_TOKENS_MIN);
        Self { max_tokens, hold, reserve }
    }
}

/// Whether the remaining budget covers a model call.
enum CallBudgetCoverage {
    /// The budget covers a call of this size.
    Fits(ModelCallSize),
    /// The budget covers this amount only after other runs have released what they have reserved.
    Held(BudgetAmount),
    /// The budget covers only a shorter reply or no call after this one, and the model was not warned
    /// about this cap yet.
    Warn(BudgetCap),
    /// The budget covers no useful reply, because of this cap.
    Exhausted(BudgetReached),
}

/// Limits the reply of a model call with this many bytes of conversation to what the remaining
/// budget covers. If the budget is too small only because other runs have reserved a part of it,
/// the reply is not limited: the run waits for that part.
fn fit_budget(decision: &Decision<'_>, pricing: &ModelPricing, bytes: u64) -> CallBudgetCoverage {
    // Providers reject a request whose maximum reply does not fit into the context window.
    let available = pricing.window_tokens.saturating_sub(pricing.estimate_input_tokens(bytes));
    let max_tokens = pricing.max_output_tokens.min(available.max(REPLY_TOKENS_MIN));
    let size = ModelCallSize::new(pricing, bytes, max_tokens);
    let account = decision.ctx.budget_account.unwrap_or_default();
    let own_budget_account = own_budget_account(decision);
    let own = own_budget_account.unreserved_budget();
    let unspent_budget = account.unspent_budget().min_of_each(own);
    let outcome_of_size = |size: ModelCallSize| {
        let hold = new_budget_hold(&decision.control, (size.hold, size.reserve));
        let mut accounts = [account, own_budget_account].into_iter();
        match accounts.find_map(|account| hold.cap_to_warn_about(&account)) {
            Some(cap) => CallBudgetCoverage::Warn(cap),
            None if account.unreserved_budget().covers(size.hold) => CallBudgetCoverage::Fits(size),
            None => CallBudgetCoverage::Held(size.hold),
        }
    };
    if unspent_budget.covers(size.hold) {
        return outcome_of_size(size);
    }
    let short_cap = if unspent_budget.micro_usd.is_some_and(|left| size.hold.micro_usd > left) {
        BudgetCap::Money
    } else {
        BudgetCap::Tokens
    };
    match max_reply_tokens(pricing, bytes, unspent_budget) {
        Some(_) if !decision.control.budget.warned.contains(&short_cap) => {
            CallBudgetCoverage::Warn(short_cap)
        }
        Some(tokens) => {
            let unreserved_tokens =
                max_reply_tokens(pricing, bytes, account.unreserved_budget().min_of_each(own));
            let needed =
                tokens.min(AWAITED_REPLY_TOKENS).max(unreserved_tokens.unwrap_or_default());
            outcome_of_size(ModelCallSize::new(pricing, bytes, needed))
        }
        None => {
            let needed =
                pricing.worst_case_hold(bytes, REPLY_TOKENS_MIN.min(pricing.max_output_tokens));
            CallBudgetCoverage::Exhausted(exhausted_budget_cap(needed, own, &account))
        }
    }
}

/// Returns the budget cap that prevents the next model call even if the messages that wait to be
/// delivered are left out of it. Either the turns or the active time of the run are used up, or the
/// money or tokens that are left don't pay for the conversation so far and a minimal reply. `None`
/// if no cap prevents the call, or if the run has reached its turn limit, because it then fails
/// instead of waiting for a higher cap. A cap on money or tokens of the run's tree (root run and
/// descendants) is known only after the store has refused a reservation.
pub(super) fn exhausted_cap_without_messages(decision: &Decision<'_>) -> Option<BudgetReached> {
    let control = &decision.control;
    if turn_limit_error(control).is_some() {
        return None;
    }
    if let Some(cap) = exhausted_own_cap(control, Millis::ZERO) {
        return Some(BudgetReached::of_run(cap));
    }
    let account = decision.ctx.budget_account.unwrap_or_default();
    let own = own_budget_account(decision).unreserved_budget();
    let reply_tokens = REPLY_TOKENS_MIN.min(control.pricing.max_output_tokens);
    let needed = |bytes| control.pricing.worst_case_hold(bytes, reply_tokens);
    let unspent_budget = account.unspent_budget().min_of_each(own);
    if unspent_budget.covers(needed(control.transcript_bytes)) {
        return None;
    }
    // The messages are part of the next call, so a raise must cover them too.
    let message_bytes: u64 =
        control.people.steers.iter().map(|steer| steer.text.len() as u64).sum();
    let needed = needed(control.transcript_bytes.saturating_add(message_bytes));
    Some(exhausted_budget_cap(needed, own, &account))
}

/// Returns the cap that does not cover the amount `needed`: a cap of the run alone, of which `own`
/// is left, or else a cap of the budget account that its tree (root run and descendants) shares.
fn exhausted_budget_cap(
    needed: BudgetAmount,
    own: RemainingBudget,
    account: &BudgetAccount,
) -> BudgetReached {
    let short_cap = |left: RemainingBudget| {
        let is_money_short = left.micro_usd.is_some_and(|left| needed.micro_usd > left);
        let is_tokens_short = left.tokens.is_some_and(|left| needed.tokens > left);
        let money = is_money_short.then_some(BudgetCap::Money);
        money.or_else(|| is_tokens_short.then_some(BudgetCap::Tokens))
    };
    let missing = |cap: BudgetCap, left: RemainingBudget| match cap {
        BudgetCap::Money => needed.micro_usd.minus(left.micro_usd.unwrap_or_default()).0,
        BudgetCap::Tokens => needed.tokens.saturating_sub(left.tokens.unwrap_or_default()),
        BudgetCap::Turns | BudgetCap::ActiveTime => 0,
    };
    match short_cap(own) {
        Some(cap) => BudgetReached { cap, tree_cap: None, missing: missing(cap, own) },
        None => {
            let left = account.unspent_budget();
            let cap = short_cap(left).unwrap_or(BudgetCap::Tokens);
            let tree_cap = account.limit_of_cap(cap);
            BudgetReached { cap, tree_cap, missing: missing(cap, left) }
        }
    }
}

/// Returns the account of a child run for the budget caps in its own agent file. For a root run the
/// account has no caps, because its caps are those of its whole tree of runs, which the store
/// checks.
fn own_budget_account(decision: &Decision<'_>) -> BudgetAccount {
    if !decision.run.task.is_child() {
        return BudgetAccount::default();
    }
    let ControlState { budget, totals, .. } = &decision.control;
    let spent = BudgetAmount { micro_usd: totals.cost, tokens: totals.usage.total_tokens() };
    BudgetAccount {
        cap_micro_usd: budget.caps.micro_usd,
        cap_tokens: budget.caps.tokens,
        spent,
        lost: totals.lost,
        held: BudgetAmount::default(),
    }
}

/// Returns the size of a call, with a shorter reply if necessary, and the amounts that it reserves
/// in spend caps. `bytes` is the length of the conversation; `None` for the model means the run's own.
/// The error is the first amount that its cap does not cover.
fn fit_spend_caps(
    decision: &Decision<'_>,
    (pricing, bytes): (&ModelPricing, u64),
    model: Option<&str>,
    mut size: ModelCallSize,
) -> Result<(ModelCallSize, Vec<CapReservation>), CapReservation> {
    let is_root = decision.run.task.root == decision.run.id;
    let has_called = decision.control.pending_call().is_some_and(|call| call.attempts > 0);
    let reserve = |size: ModelCallSize| {
        let call = SpendCappedModelCall {
            model: model.unwrap_or_else(|| spend_caps::model_name_of_run(decision)),
            hold: size.hold,
            starts_run: !has_called && decision.control.turn == 0,
            is_root,
        };
        reservations_for_call(&decision.ctx.caps, &decision.run.task, call)
    };
    let mut caps = reserve(size);
    let remaining = spend_caps::left_in_too_low_caps(decision, &caps);
    if !remaining.covers(size.hold)
        && let Some(tokens) = max_reply_tokens(pricing, bytes, remaining)
    {
        size = ModelCallSize::new(pricing, bytes, tokens.min(size.max_tokens));
        caps = reserve(size);
    }
    match spend_caps::first_over_cap(decision, &caps).cloned() {
        Some(reservation_over_cap) => Err(reservation_over_cap),
        None => Ok((size, caps)),
    }
}

/// Returns the error that ends a run that has used all its turns. `None` means that a turn is left.
fn turn_limit_error(control: &ControlState) -> Option<RunError> {
    let max = control.policy.max_turns.filter(|_| control.has_used_all_turns())?;
    let message = match max {
        1 => "the run has reached its limit of 1 turn".to_owned(),
        max => format!("the run has reached its limit of {max} turns"),
    };
    let hint =
        "raise max_turns in the agent file, then submit the task again: a retry keeps the count";
    Some(RunError::new("turn_limit", message, hint))
}

/// Returns the pricing of the model to call and the name of the model. `None` instead of the name
/// means the run's own model.
fn called_model_pricing(
    control: &ControlState,
    pending: &PendingModelCall,
    purpose: ModelCallPurpose,
) -> (ModelPricing, Option<String>) {
    match purpose {
        ModelCallPurpose::Turn => (control.pricing, None),
        ModelCallPurpose::Compact => {
            let compactor = usable_compactor(control, pending);
            let mut pricing = compactor.map_or(control.pricing, |compactor| compactor.pricing);
            pricing.max_output_tokens = pricing.max_output_tokens.min(SUMMARY_TOKENS_MAX);
            (pricing, compactor.map(|compactor| compactor.model.clone()))
        }
    }
}

/// Returns the compactor (the model that summarizes conversations). `None` if there is none, it has
/// failed, or the conversation does not fit into its context window.
fn usable_compactor<'a>(
    control: &'a ControlState,
    pending: &PendingModelCall,
) -> Option<&'a CompactionModel> {
    let compactor = control.compaction.compactor.as_deref();
    compactor.filter(|compactor| {
        let input_tokens = compactor.pricing.estimate_input_tokens(control.transcript_bytes);
        !pending.turn.compactor_failed
            && input_tokens.saturating_add(SUMMARY_TOKENS_MAX) <= compactor.pricing.window_tokens
    })
}

/// Returns the budget cap of this run that is exhausted: turns, or else active time. `None` if
/// neither is. `perception_active` is the time that the context provider needed in this turn, which
/// the totals don't include yet.
fn exhausted_own_cap(control: &ControlState, perception_active: Millis) -> Option<BudgetCap> {
    let turns = control.budget.caps.turns.filter(|cap| control.turns >= *cap);
    let used = control.totals.active.plus(perception_active);
    let active = control.budget.caps.active.filter(|cap| used >= *cap);
    turns.map(|_| BudgetCap::Turns).or_else(|| active.map(|_| BudgetCap::ActiveTime))
}

/// Returns a nearly exhausted budget cap of the run's tree (root run and descendants) that the
/// model was not warned about yet. `None` if there is none, or if the account of the tree is not
/// known, because the store has not refused a reservation.
fn shared_cap_to_warn(decision: &Decision<'_>) -> Option<BudgetCap> {
    let account = decision.ctx.budget_account?;
    let BudgetState { caps, warned, .. } = &decision.control.budget;
    let is_due = |cap: &BudgetCap| {
        account.has_used_percent(*cap, caps.warn_percent) && !warned.contains(cap)
    };
    [BudgetCap::Money, BudgetCap::Tokens].into_iter().find(is_due)
}

/// Returns a budget cap that is nearly exhausted by this run alone and that the model was not
/// warned about yet. `None` if there is none. The caps on money and tokens of a run that is no
/// child are those of the budget that it shares with its descendants, which the store checks.
fn own_cap_to_warn(decision: &Decision<'_>) -> Option<BudgetCap> {
    let control = &decision.control;
    let caps = &control.budget.caps;
    let own_caps = Some(caps).filter(|_| decision.run.task.is_child());
    let totals = &control.totals;
    let money = totals.cost.plus(totals.lost.micro_usd).0;
    let tokens = totals.usage.total_tokens().saturating_add(totals.lost.tokens);
    let usages = [
        (BudgetCap::Turns, u64::from(control.turns), caps.turns.map(u64::from)),
        (BudgetCap::Turns, u64::from(control.turns), control.policy.max_turns.map(u64::from)),
        (BudgetCap::ActiveTime, totals.active.0, caps.active.map(|cap| cap.0)),
        (BudgetCap::Money, money, own_caps.and_then(|caps| caps.micro_usd).map(|cap| cap.0)),
        (BudgetCap::Tokens, tokens, own_caps.and_then(|caps| caps.tokens)),
    ];
    let warn_at = u128::from(caps.warn_percent);
    usages.into_iter().find_map(|(cap, used, max)| {
        let is_above_threshold = u128::from(used) * 100 >= u128::from(max?) * warn_at;
        // With few turns, the threshold is only reached when no turn is left for the warning.
        let is_last_turn = cap == BudgetCap::Turns && used + 1 == max?;
        let is_due = used > 0 && (is_above_threshold || is_last_turn);
        (is_due && !control.budget.warned.contains(&cap)).then_some(cap)
    })
}

fn warn_about_cap(decision: &mut Decision<'_>, cap: BudgetCap) -> AdvanceResult {
    let message = format!(
        "[longhaul] Little is left of the budget of {}. Wrap up your work now: finish what you \
         started, and list what remains to be done.",
        cap.name()
    );
    decision.record_event(Event::BudgetWarned(BudgetWarned { cap, message }))?;
    CONTINUE
}

/// Returns the maximum reply length in tokens that the remaining budget covers, or `None` if the
/// budget is too small for a useful reply.
fn max_reply_tokens(pricing: &ModelPricing, bytes: u64, remaining: RemainingBudget) -> Option<u64> {
    let is_affordable = |tokens: &u64| remaining.covers(pricing.worst_case_hold(bytes, *tokens));
    let mut high = pricing.max_output_tokens;
    let mut low = REPLY_TOKENS_MIN.min(high);
    if !is_affordable(&low) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if is_affordable(&middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}
