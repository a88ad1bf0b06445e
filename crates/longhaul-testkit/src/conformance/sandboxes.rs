//! Conformance suite for providers of sandboxes: a list of checks, and a macro that turns each into
//! a test.
//!
//! ```no_run
//! use longhaul_testkit::conformance::sandboxes::fixture::SandboxHarness;
//!
//! longhaul_testkit::sandbox_conformance!(local, fresh);
//!
//! async fn fresh() -> SandboxHarness {
//!     unimplemented!("create the provider and an empty directory of this machine")
//! }
//! ```
//!
//! The commands of the checks need a POSIX shell and the programs of busybox. The checks never
//! sleep: they observe through a FIFO in the work folder whether processes have ended.

use std::future::Future;

use futures_util::future::BoxFuture;

use crate::conformance::sandboxes::fixture::{SandboxFixture, SandboxHarness};

pub mod exec;
pub mod files;
pub mod fixture;
pub mod kill;
pub mod lifecycle;
pub mod tree;

/// A check with its name.
pub type Check = (&'static str, fn(SandboxFixture) -> BoxFuture<'static, ()>);

/// The list of all checks, used for every provider.
#[doc(hidden)]
#[macro_export]
macro_rules! each_sandbox_check {
    ($then:ident $given:tt) => {
        $crate::$then! { $given
            lifecycle {
                a_sandbox_is_created_once
                concurrent_creates_return_one_sandbox
                a_stopped_sandbox_keeps_its_files
                create_starts_a_stopped_sandbox
                a_stopped_sandbox_runs_no_command
                a_deleted_sandbox_is_gone
                an_unknown_handle_is_not_found
                sandboxes_are_listed_by_labels
                a_volume_outlives_its_sandboxes
                a_name_is_checked
                weaker_isolation_than_requested_is_refused
            }
            exec {
                output_streams_are_separate
                output_arrives_while_the_command_runs
                exit_codes_are_returned
                a_signal_is_reported
                a_missing_program_fails
                input_reaches_the_command
                input_may_be_left_unread
                a_command_runs_in_its_working_directory
                a_missing_working_directory_is_an_error
                commands_see_their_environment
                arguments_are_passed_unchanged
                commands_run_concurrently
                long_output_does_not_fill_memory
                an_argument_with_a_nul_byte_is_refused
            }
            kill {
                a_timeout_kills_all_processes
                a_dropped_command_leaves_no_process
                a_command_can_be_dropped_at_any_time
                a_command_does_not_wait_for_its_background_processes
                a_stop_kills_running_commands
                a_delete_kills_running_commands
                commands_of_earlier_claims_are_killed
            }
            files {
                a_written_file_is_read_back
                a_written_file_is_visible_to_commands
                a_file_over_the_size_limit_is_not_read
                a_missing_file_is_an_error
                a_folder_is_not_a_file
                folders_are_listed_by_name
                names_that_are_not_text_do_not_break_a_list
                dots_do_not_lead_out
                links_do_not_lead_to_the_host
                writes_do_not_follow_links_to_the_host
                a_fifo_is_not_read
            }
            tree {
                a_tree_round_trips
                an_upload_replaces_files
                a_download_needs_a_new_target
                links_are_copied_as_links
                special_files_are_not_downloaded
                an_upload_does_not_follow_links_to_the_host
            }
        }
    };
}

/// Creates a test for every check of this provider, in a module called `$name`. `$fresh` is an
/// async function that returns a [`SandboxHarness`], or an `Option` of it: without a harness the
/// checks do nothing, because the machine lacks what the provider needs.
#[macro_export]
macro_rules! sandbox_conformance {
    ($name:ident, $fresh:path) => {
        mod $name {
            #[allow(unused_imports, reason = "`fresh` may be given as a full path")]
            use super::*;

            $crate::each_sandbox_check! { sandbox_checks_as_tests ($fresh) }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! sandbox_checks_as_tests {
    (($fresh:path) $($group:ident { $($check:ident)* })*) => {
        $(mod $group {
            #[allow(unused_imports, reason = "`fresh` may be given as a full path")]
            use super::*;

            $(#[test]
            fn $check() {
                $crate::conformance::sandboxes::run_named(
                    $fresh,
                    concat!(stringify!($group), "::", stringify!($check)),
                );
            })*
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! sandbox_checks_as_list {
    (() $($group:ident { $($check:ident)* })*) => {
        &[$($((
            concat!(stringify!($group), "::", stringify!($check)),
            |fixture| Box::pin($group::$check(fixture)),
        ),)*)*]
    };
}

/// All checks by name, for other test runners.
pub const CHECKS: &[Check] = crate::each_sandbox_check! { sandbox_checks_as_list () };

/// Runs the check with this name on a provider, and deletes its sandboxes afterwards.
pub fn run_named<H, O>(new_harness: impl FnOnce() -> H, name: &str)
where
    H: Future<Output = O> + Send + 'static,
    O: Into<Option<SandboxHarness>>,
{
    let check = CHECKS.iter().find(|(check_name, _)| *check_name == name);
    let (_, check) = check.unwrap_or_else(|| panic!("there is no check named {name}"));
    let new_harness = new_harness();
    run_boxed(Box::pin(async move { new_harness.await.into() }), *check);
}

/// Takes boxed futures, so that the checks are compiled once and not again for every provider.
fn run_boxed(
    new_harness: BoxFuture<'static, Option<SandboxHarness>>,
    check: fn(SandboxFixture) -> BoxFuture<'static, ()>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .expect("create a runtime");
    runtime.block_on(async {
        if let Some(harness) = new_harness.await {
            let fixture = SandboxFixture::new(harness);
            check(fixture.clone()).await;
            fixture.delete_all().await;
        }
    });
}
