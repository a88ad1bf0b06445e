//! What every store must do: one list of checks, and the macro that makes each
//! of them a test.
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
//! Never: sleeps, and never waits for what may not come: a store that loses a
//! wake-up fails a check, it does not hang it.

use std::future::Future;

use futures_util::future::BoxFuture;

use crate::conformance::harness::Harness;
use crate::conformance::store::kit::World;

pub mod budget;
pub mod claim;
pub mod facts;
pub mod fence;
pub mod gate;
pub mod keyring;
pub mod kit;
pub mod lane;
pub mod lane_race;
pub mod list;
pub mod note;
pub mod open;
pub mod outside;
pub mod prune;
pub mod race;
pub mod reap;
pub mod repair;
pub mod reply_effect;
mod rounds;
pub mod seat;
pub mod seat_race;
pub mod shelf;
pub mod steer;
pub mod tail;
pub mod timer;

/// A check of the list, by name.
pub type Check = (&'static str, fn(World) -> BoxFuture<'static, ()>);

/// The checks, in one place, so that no store forgets one.
#[doc(hidden)]
#[macro_export]
macro_rules! each_store_check {
    ($then:ident $given:tt) => {
        $crate::$then! { $given
            open {
                a_run_that_is_opened_is_there
                the_same_request_opens_once
                another_body_under_the_same_key_is_told
                another_principal_has_keys_of_its_own
                a_key_is_forgotten_after_its_keep
                a_key_is_looked_up_before_the_lane_is_full
                all_runs_of_a_request_are_opened_or_none
                one_key_from_many_sides_opens_once
                an_unknown_journal_is_empty
                a_journal_is_read_in_pages
                facts_come_back_as_they_went_in
            }
            claim {
                a_claim_is_a_fact
                claims_go_by_priority_then_by_age
                claims_go_through_the_inboxes_in_order
                claims_heed_types
                claims_heed_the_format
                workers_that_are_not_live_claim_nothing
                a_run_is_claimed_by_one_worker_only
            }
            fence {
                a_driver_that_lost_its_run_is_fenced
                a_worker_s_name_is_no_fence
                a_driver_must_have_read_everything
                an_append_can_be_repeated
                a_park_can_be_repeated
                an_end_can_be_repeated
                a_repeat_with_other_facts_is_none
                a_closer_writes_only_where_nobody_drives
                a_closing_can_be_repeated
                a_refused_batch_leaves_no_trace
                nothing_follows_the_end
                a_run_that_is_not_there_is_told
            }
            outside {
                only_facts_of_the_list_come_from_outside
                facts_wake_whom_they_should
                facts_leave_driven_and_ready_runs_alone
                the_strongest_fact_of_a_batch_counts
                changes_without_facts_leave_the_head_alone
            }
            gate {
                a_gate_is_answered_once
                a_quorum_gathers_votes
                a_gate_closes_at_its_deadline
                a_gate_without_a_deadline_is_answerable_for_ever
                an_answer_to_an_ended_run_is_rolled_back
                an_answered_gate_leaves_its_timer_to_fire
                a_gate_s_timer_says_what_silence_means
                only_open_gates_can_be_answered
                gates_are_listed_newest_first
            }
            timer {
                timers_come_due_in_order
                a_timer_is_told_once
                a_timer_set_again_moves
                a_timer_for_nobody_says_so
                a_run_with_a_start_time_waits_for_it
                a_run_of_a_batch_waits_for_its_turn
            }
            reap {
                the_runs_of_a_silent_worker_are_freed
                a_dead_worker_learns_it
                a_late_claim_of_a_reaped_worker_strands_nothing
                draining_workers_beat_too
                a_reaper_that_was_silent_waits_one_ttl
                a_new_worker_waits_one_ttl_before_it_reaps
                a_heartbeat_from_the_future_is_stale
                a_clock_set_forward_costs_no_worker_its_runs
                workers_are_listed_with_their_runs
            }
            lane {
                a_lane_goes_one_by_one_and_in_order
                a_lane_has_a_depth
                a_parked_run_keeps_its_lane
                a_run_can_release_its_lane_while_it_waits
                a_run_that_ends_outside_its_lane_frees_nothing
                a_paused_run_keeps_its_place
                a_run_resumed_out_of_turn_waits
                a_queued_run_can_leave
                a_start_time_comes_before_the_lane
                a_chain_keeps_its_lane_to_the_end
                lanes_are_listed_while_used
            }
            budget {
                a_hold_is_settled
                a_hold_that_does_not_fit_is_refused
                what_has_no_cap_is_not_bound
                caps_can_be_raised
                a_tree_has_one_account
                usage_adds_up
                spend_is_summed_by_model
            }
            seat {
                there_are_so_many_seats
                a_freed_seat_wakes_the_first_in_the_queue
                whoever_sits_waits_no_more
                a_freed_seat_passes_over_the_ended
                queueing_twice_keeps_the_place
            }
            steer {
                messages_wait_in_order
                so_many_messages_may_wait
                a_message_is_settled_once
            }
            shelf {
                threads_remember_in_order
                contents_are_found_by_their_hash
                rules_are_remembered
                sandboxes_have_rows
                late_results_are_kept
                a_worker_sees_its_heads_with_one_look
                letters_leave_once
                buckets_are_blocked_for_a_while
                checkpoints_belong_to_a_build
                time_is_the_store_s
            }
            note {
                a_note_is_kept_once_under_its_key
                notes_are_listed_newest_first
                notes_are_recalled_by_their_words
                what_fits_better_comes_first
                what_fits_alike_comes_newest_first
                a_query_has_no_syntax
                words_are_found_however_they_are_accented
                scripts_without_blanks_are_found
                notes_are_found_by_their_tags
                a_resource_sees_its_own_notes_only
                a_forgotten_note_is_not_found
                notes_outlive_the_run_that_wrote_them
                so_many_notes_are_kept
            }
            tail {
                the_tail_is_in_the_order_of_writing
                the_tail_is_read_in_pages
                what_was_refused_stands_in_no_tail
                journals_that_have_grown_are_named_once
                a_place_is_never_given_away_again
                a_reader_misses_nothing_under_many_pens
            }
            keyring {
                a_key_is_found_by_its_hash
                a_name_is_free_when_its_key_is_revoked
                a_hash_is_one_key_s
                the_use_of_a_key_is_noted_to_a_few_minutes
                a_pass_counts_until_its_time_is_over
                a_pass_is_spent_once
                passes_end_with_their_key
                a_link_is_forgotten_with_its_run
                a_request_counts_once
                a_request_of_the_dead_is_taken_over
                an_answer_that_is_kept_stands
                kept_answers_are_forgotten_in_time
                one_of_many_spends_a_pass
                one_of_many_begins_a_request
            }
            reply_effect {
                an_attempt_may_end_anywhere
                two_attempts_have_one_effect
                a_refused_batch_has_no_effect
                a_repeated_request_replaces_its_own_key
            }
            list {
                rows_say_how_a_run_stands
                rows_are_filtered
                a_list_shows_the_rows
                pages_stand_still_while_rows_are_added
                a_change_is_signalled
                runs_of_one_request_are_listed
            }
            prune {
                long_bodies_are_shared_and_come_back
                ended_runs_are_forgotten_in_time
                a_tree_is_forgotten_when_all_of_it_has_ended
                pruning_goes_in_bites
                contents_without_a_name_are_forgotten
                long_bodies_go_with_their_journals
                keys_and_empty_lanes_are_forgotten
            }
            repair {
                runs_that_nothing_can_wake_are_found
                runs_that_wait_rightly_are_left_alone
                a_repair_heeds_lanes
                leaked_seats_are_freed
                open_gates_of_ended_runs_are_withdrawn
            }
            race {
                a_park_that_races_an_answer_never_sleeps
                a_gate_hears_one_of_many_voices
                a_claim_that_races_a_cancel_strands_nothing
                a_fact_that_races_a_claim_is_not_lost
                many_reapers_free_each_run_once
                a_timer_is_told_by_one_of_many_sweeps
                holds_of_a_tree_never_pass_its_cap
                a_journal_has_no_gap_under_many_pens
            }
            seat_race {
                seats_are_enough_for_everybody_in_turn
            }
            lane_race {
                lanes_stay_serial_and_in_order
                lanes_that_are_released_lose_nobody
            }
        }
    };
}

/// Makes every check a test of this store, in a module called `$name`.
/// `$fresh` is an async function that makes a [`Harness`] around an empty store.
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $fresh:path) => {
        mod $name {
            #[allow(unused_imports, reason = "`fresh` may be given by its whole path")]
            use super::*;

            $crate::each_store_check! { store_checks_as_tests ($fresh) }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_checks_as_tests {
    (($fresh:path) $($room:ident { $($check:ident)* })*) => {
        $(mod $room {
            #[allow(unused_imports, reason = "`fresh` may be given by its whole path")]
            use super::*;

            $(#[test]
            fn $check() {
                $crate::conformance::store::look_named(
                    $fresh,
                    concat!(stringify!($room), "::", stringify!($check)),
                );
            })*
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_checks_as_list {
    (() $($room:ident { $($check:ident)* })*) => {
        &[$($((
            concat!(stringify!($room), "::", stringify!($check)),
            |world| Box::pin($room::$check(world)),
        ),)*)*]
    };
}

/// Every check by name, for whoever wants to run them otherwise.
pub const CHECKS: &[Check] = crate::each_store_check! { store_checks_as_list () };

/// Runs the check of this name against one fresh store.
pub fn look_named<H>(fresh: impl FnOnce() -> H + Send + 'static, name: &str)
where
    H: Future<Output = Harness> + Send + 'static,
{
    let check = CHECKS.iter().find(|(known, _)| *known == name);
    let (_, check) = check.unwrap_or_else(|| panic!("there is no check called {name}"));
    look(fresh, *check);
}

/// Runs one check against one fresh store, on threads of its own. Afterwards
/// nothing may be left to mend.
pub fn look<H>(fresh: impl FnOnce() -> H, check: fn(World) -> BoxFuture<'static, ()>)
where
    H: Future<Output = Harness> + Send + 'static,
{
    look_boxed(Box::pin(fresh()), check);
}

/// The checks are compiled once, here, and not again for every store: they come
/// in boxes.
fn look_boxed(fresh: BoxFuture<'static, Harness>, check: fn(World) -> BoxFuture<'static, ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let world = World::new(fresh.await);
        check(world.clone()).await;
        world.is_in_order().await;
    });
}
