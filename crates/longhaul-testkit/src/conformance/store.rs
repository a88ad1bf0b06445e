//! Conformance suite for stores: a list of checks, and a macro that turns each into a test.
//!
//! ```
//! use longhaul_testkit::clock::SimClock;
//! use longhaul_testkit::conformance::harness::Harness;
//! use longhaul_testkit::mem_store::MemStore;
//!
//! longhaul_testkit::store_conformance!(in_memory, fresh);
//!
//! async fn fresh() -> Harness {
//!     let clock = SimClock::new();
//!     Harness::new(MemStore::new(clock.clone()), clock)
//! }
//! ```
//!
//! The checks never sleep and never wait without a bound: a store that loses a wake-up fails a
//! check instead of blocking it.

use std::future::Future;

use futures_util::future::BoxFuture;

use crate::conformance::harness::Harness;
use crate::conformance::store::fixture::StoreFixture;

pub mod auth;
pub mod batches;
pub mod budget;
pub mod budget_queue;
pub mod chain;
pub mod children;
pub mod claim;
pub mod copied_journal;
pub mod delete_run;
pub mod effect_key;
pub mod fence;
pub mod fixture;
pub mod gate;
pub mod global_log;
pub mod lane;
pub mod lane_entry;
pub mod lane_race;
pub mod list;
pub mod list_filter;
pub mod note;
pub mod open;
pub mod outsider;
pub mod prune;
pub mod race;
pub mod reap;
pub mod records;
pub mod repair;
pub mod request_effect;
mod rounds;
pub mod rule;
pub mod sandbox_queue;
pub mod sandbox_slot;
pub mod sandbox_slot_race;
pub mod schedule;
pub mod spend;
pub mod steer;
pub mod timer;

/// A check with its name.
pub type Check = (&'static str, fn(StoreFixture) -> BoxFuture<'static, ()>);

/// The list of all checks, used for every store.
#[doc(hidden)]
#[macro_export]
macro_rules! each_store_check {
    ($then:ident $given:tt) => {
        $crate::$then! { $given
            open {
                an_opened_run_exists
                the_same_request_opens_once
                another_body_under_the_same_key_is_reported
                another_principal_has_keys_of_its_own
                an_idempotency_key_expires
                a_key_without_a_ttl_lives_as_long_as_its_run
                a_key_is_looked_up_before_the_lane_is_full
                all_runs_of_a_request_are_opened_or_none
                concurrent_requests_with_one_key_open_once
                an_unknown_journal_is_empty
                a_journal_is_read_in_pages
                events_round_trip
            }
            children {
                a_child_starts_and_ends_with_its_events
                the_open_runs_of_a_tree_are_limited
            }
            claim {
                a_claim_is_journaled
                claims_go_by_priority_then_by_age
                claims_go_through_the_inboxes_in_order
                a_claim_is_shared_evenly_by_the_inboxes
                several_types_are_claimed_in_queue_order
                a_peek_lists_ready_runs_in_pages
                given_runs_are_claimed_if_they_are_ready
                a_tree_is_claimed_without_other_runs
                claims_filter_by_type
                claims_filter_by_format
                workers_that_are_not_live_claim_nothing
                a_run_is_claimed_by_one_worker_only
            }
            copied_journal {
                a_retry_starts_with_a_copied_journal
                an_incomplete_journal_is_not_copied
                retries_share_the_account_of_the_first_run
                a_retry_does_not_wait_for_kept_children
            }
            fence {
                a_driver_that_lost_its_run_is_fenced
                the_epoch_fences_not_the_worker_id
                a_driver_append_needs_the_last_seq
                an_append_can_be_repeated
                a_park_can_be_repeated
                an_end_can_be_repeated
                a_retry_with_other_events_conflicts
                a_closer_appends_only_to_undriven_runs
                a_close_can_be_retried
                a_refused_batch_leaves_no_trace
                no_event_follows_the_end_of_a_run
                an_unknown_run_is_reported
            }
            outsider {
                outsiders_append_only_allowed_events
                events_wake_the_right_states
                events_do_not_move_driven_or_ready_runs
                the_strongest_wake_of_a_batch_counts
                changes_without_events_do_not_move_the_head
            }
            gate {
                a_gate_is_answered_once
                a_quorum_gathers_votes
                a_gate_closes_at_its_deadline
                a_message_answers_a_gate_after_its_deadline
                a_gate_without_a_deadline_is_answerable_for_ever
                an_answer_to_an_ended_run_is_rolled_back
                an_answered_gate_leaves_its_timer_to_fire
                a_gate_timer_carries_its_gate
                an_answer_is_refused_after_another_answer
                an_outsider_raises_a_signal_gate_once
                only_open_gates_can_be_answered
                gates_are_listed_newest_first
            }
            timer {
                timers_come_due_in_order
                a_timer_fires_once
                a_timer_can_be_cancelled
                a_delay_is_shortened_after_the_clock_was_set_back
                a_timer_set_again_moves
                automatic_approvals_can_be_stopped
                a_timer_of_an_ended_run_says_so
                a_run_with_a_start_time_waits_for_it
                a_run_of_a_batch_waits_for_its_turn
            }
            reap {
                runs_of_a_silent_worker_are_released
                a_dead_worker_learns_that_it_is_dead
                a_late_claim_of_a_reaped_worker_leaves_no_stuck_run
                draining_workers_send_heartbeats_too
                a_reaper_that_was_silent_waits_one_ttl
                a_new_worker_waits_one_ttl_before_it_reaps
                a_heartbeat_from_the_future_is_stale
                a_clock_set_forward_reaps_no_live_worker
                workers_are_listed_with_their_runs
            }
            lane {
                a_lane_runs_serially_and_in_order
                a_lane_has_a_depth
                a_parked_run_keeps_its_lane
                a_run_can_release_its_lane_while_it_waits
                a_run_that_released_its_lane_promotes_nobody_at_its_end
                a_paused_run_keeps_its_lane_position
                a_run_resumed_out_of_turn_waits
                a_queued_run_can_leave_its_lane
                a_start_time_comes_before_the_lane
                a_chain_keeps_its_lane_to_the_end
                a_tree_keeps_its_lane_until_its_last_run_ends
                lanes_are_listed_while_used
                a_paused_lane_starts_no_run
                a_paused_lane_lets_its_started_run_go_on
                a_paused_lane_does_not_start_a_resumed_run
            }
            chain {
                the_runs_of_a_chain_name_the_newest_one
                a_retry_is_the_newest_run_of_its_chain
            }
            lane_entry {
                a_run_enters_an_empty_lane_only
                a_waiting_run_collects_messages
                a_claimed_run_keeps_its_timers
                a_run_interrupts_its_lane
                an_added_task_has_a_key
            }
            budget {
                a_hold_is_settled
                a_hold_that_does_not_fit_is_refused
                a_budget_without_a_cap_is_unlimited
                caps_can_be_raised
                a_raise_lowers_no_cap
                a_raise_before_the_park_wakes_the_run
                the_caps_of_a_tree_can_be_raised_through_a_child
                a_tree_has_one_account
                a_hold_is_refused_until_the_model_is_warned
                a_hold_leaves_a_reserve_until_the_model_is_warned
                a_raise_of_the_root_reaches_its_tree
                usage_adds_up
                usage_is_summed_by_day_agent_and_model
            }
            budget_queue {
                runs_hold_budget_in_the_order_of_their_waits
                a_run_that_needs_no_budget_leaves_the_queue
                a_smaller_hold_wakes_the_next_run
                a_woken_run_keeps_its_place
                a_spent_budget_and_a_raise_wake_the_first_run
                a_run_that_waits_for_holds_too_late_is_woken
            }
            spend {
                amounts_are_held_and_settled_by_window
                a_hold_that_does_not_fit_holds_nothing
                a_hold_is_bound_to_the_current_window
                a_settlement_wakes_runs_whose_amounts_fit
                a_run_that_waits_too_late_is_woken
                a_forgotten_run_is_woken
                a_run_waits_where_nothing_was_counted
                a_higher_limit_wakes_runs
                new_runs_are_counted_and_refused
                counts_are_pruned
                holds_of_parallel_runs_never_pass_a_cap
            }
            effect_key {
                a_key_has_one_holder
                a_key_with_an_unknown_outcome_is_replaced
                a_settled_key_wakes_the_waiting_runs
                a_key_outlives_its_run
                a_key_in_doubt_is_freed
            }
            sandbox_slot {
                slots_are_limited
                a_released_slot_wakes_the_first_waiter
                acquiring_a_slot_leaves_the_queue
                a_released_slot_skips_ended_runs
                queueing_twice_keeps_the_queue_position
            }
            sandbox_queue {
                a_slot_is_kept_for_a_woken_run
                a_woken_run_that_needs_no_slot_passes_it_on
                a_waiting_run_leaves_the_queue
                a_run_waits_for_one_provider
                agents_share_the_slots
                free_slots_are_offered
                the_queue_position_is_known
                the_sandbox_of_an_ended_run_is_updated
            }
            steer {
                messages_wait_in_order
                waiting_messages_are_limited
                a_message_is_settled_once
            }
            records {
                thread_messages_keep_their_order
                blobs_are_found_by_hash
                sandboxes_are_stored
                sandboxes_are_listed
                late_results_are_stored
                a_worker_lists_its_claimed_runs
                outbox_items_are_delivered_once
                providers_are_blocked_until_a_time
                checkpoints_belong_to_a_build
                the_store_has_its_own_time
            }
            rule {
                a_rule_is_added_once_per_scope_and_pattern
                a_rule_is_used_and_revoked
                a_revoked_key_ends_its_links_and_rules
                active_rules_are_listed_in_pages
                shared_rules_are_bounded
                shared_rules_outlive_their_run
            }
            schedule {
                a_schedule_is_stored_once
                a_schedule_is_updated
                a_schedule_is_deleted
                due_schedules_are_listed_in_order
                a_firing_creates_its_run_and_moves_the_due_time
                a_skipped_firing_keeps_the_last_run
                a_firing_into_a_full_lane_changes_nothing
                a_firing_with_a_used_key_changes_nothing
                a_firing_happens_once
            }
            note {
                a_note_is_added_once_per_key
                notes_are_listed_newest_first
                notes_are_searched_by_words
                better_matches_come_first
                equal_matches_come_newest_first
                a_query_has_no_syntax
                search_ignores_accents
                unspaced_scripts_are_searchable
                notes_are_found_by_their_tags
                a_resource_sees_its_own_notes_only
                a_deleted_note_is_not_found
                notes_outlive_the_run_that_wrote_them
                notes_are_limited
            }
            global_log {
                the_global_log_is_in_write_order
                the_global_log_is_read_in_pages
                refused_appends_are_not_in_the_global_log
                changed_runs_are_listed_once
                a_global_seq_is_never_reused
                a_reader_misses_nothing_under_concurrent_writers
            }
            auth {
                a_key_is_found_by_its_hash
                a_name_is_free_when_its_key_is_revoked
                a_key_hash_is_unique
                the_last_use_of_a_key_is_recorded_within_minutes
                a_token_is_valid_until_it_expires
                a_token_is_consumed_once
                tokens_end_with_their_key
                a_link_is_pruned_with_its_run
                a_request_counts_once
                a_request_of_a_dead_server_is_taken_over
                a_stored_response_is_final
                stored_responses_expire
                one_of_many_consumes_a_token
                one_of_many_begins_a_request
            }
            request_effect {
                an_attempt_may_crash_anywhere
                two_attempts_have_one_effect
                a_refused_batch_has_no_effect
                a_repeated_request_replaces_its_own_key
            }
            list {
                rows_have_the_status_of_a_run
                rows_are_filtered
                retried_runs_can_be_left_out
                runs_are_counted_by_inbox
                a_list_shows_the_rows
                pages_are_stable_while_rows_are_added
                a_change_is_signalled
                runs_of_one_request_are_listed
            }
            list_filter {
                tasks_are_filtered_and_searched
                submitted_runs_are_listed_without_children
                runs_that_need_a_person_are_listed_and_counted
                sorted_lists_are_read_in_pages
                the_last_progress_is_in_the_row
            }
            delete_run {
                an_ended_tree_is_deleted
                a_tree_in_use_is_kept
            }
            prune {
                long_bodies_are_shared_and_round_trip
                ended_runs_are_pruned_after_retention
                a_tree_is_pruned_when_all_its_runs_have_ended
                a_run_is_kept_while_its_sandbox_exists
                pruning_is_batched
                unreferenced_blobs_are_pruned
                long_bodies_are_pruned_with_their_journals
                expired_keys_and_empty_lanes_are_pruned
                a_run_with_undelivered_messages_is_kept
                dead_workers_are_pruned
            }
            repair {
                runs_without_a_wake_up_are_repaired
                valid_waits_are_not_repaired
                a_repair_respects_lanes
                leaked_slots_are_released
                open_gates_of_ended_runs_are_withdrawn
            }
            race {
                a_park_racing_an_answer_loses_no_wake_up
                one_of_many_answers_closes_a_gate
                a_claim_racing_a_cancel_leaves_no_stuck_run
                an_event_racing_a_claim_is_not_lost
                concurrent_reapers_release_each_run_once
                a_timer_is_fired_by_one_of_many_sweeps
                holds_of_a_tree_never_pass_its_cap
                a_journal_has_no_gap_under_concurrent_writers
            }
            sandbox_slot_race {
                every_run_gets_a_slot_in_turn
            }
            lane_race {
                lanes_stay_serial_and_in_order
                released_lanes_lose_no_run
            }
        }
    };
}

/// Creates a test for every check of this store, in a module called `$name`. `$fresh` is an
/// async function that returns a [`Harness`] with an empty store.
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $fresh:path) => {
        mod $name {
            #[allow(unused_imports, reason = "`fresh` may be given as a full path")]
            use super::*;

            $crate::each_store_check! { store_checks_as_tests ($fresh) }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_checks_as_tests {
    (($fresh:path) $($group:ident { $($check:ident)* })*) => {
        $(mod $group {
            #[allow(unused_imports, reason = "`fresh` may be given as a full path")]
            use super::*;

            $(#[test]
            fn $check() {
                $crate::conformance::store::run_named(
                    $fresh,
                    concat!(stringify!($group), "::", stringify!($check)),
                );
            })*
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_checks_as_list {
    (() $($group:ident { $($check:ident)* })*) => {
        &[$($((
            concat!(stringify!($group), "::", stringify!($check)),
            |fixture| Box::pin($group::$check(fixture)),
        ),)*)*]
    };
}

/// All checks by name, for other test runners.
pub const CHECKS: &[Check] = crate::each_store_check! { store_checks_as_list () };

/// Runs the check with this name on a new store.
pub fn run_named<H>(new_harness: impl FnOnce() -> H + Send + 'static, name: &str)
where
    H: Future<Output = Harness> + Send + 'static,
{
    let check = CHECKS.iter().find(|(check_name, _)| *check_name == name);
    let (_, check) = check.unwrap_or_else(|| panic!("there is no check named {name}"));
    run_check(new_harness, *check);
}

/// Runs one check on a new store, in a runtime of its own. Afterwards a repair must find
/// nothing.
pub fn run_check<H>(
    new_harness: impl FnOnce() -> H,
    check: fn(StoreFixture) -> BoxFuture<'static, ()>,
) where
    H: Future<Output = Harness> + Send + 'static,
{
    run_boxed(Box::pin(new_harness()), check);
}

/// Takes boxed futures, so that the checks are compiled once and not again for every store.
fn run_boxed(
    new_harness: BoxFuture<'static, Harness>,
    check: fn(StoreFixture) -> BoxFuture<'static, ()>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .expect("create a runtime");
    runtime.block_on(async {
        let fixture = StoreFixture::new(new_harness.await);
        check(fixture.clone()).await;
        fixture.assert_consistent().await;
    });
}
