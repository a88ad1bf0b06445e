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

pub mod claim;
pub mod fence;
pub mod kit;
pub mod open;

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
                $crate::conformance::store::look($fresh, $crate::conformance::store::$room::$check);
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

/// Runs one check against one fresh store, on threads of its own. Afterwards
/// nothing may be left to mend.
pub fn look<H, C>(fresh: impl FnOnce() -> H, check: impl FnOnce(World) -> C)
where
    H: Future<Output = Harness>,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let world = World::new(fresh().await);
        check(world.clone()).await;
        world.is_in_order().await;
    });
}
