//! The integration test binary of this crate. Each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod active_time;
    mod approvers;
    mod batches;
    mod cancel_and_pause;
    mod chains;
    mod checkpoints;
    mod children;
    mod claims;
    mod clock_steps;
    mod control;
    mod cost;
    mod deferred_tools;
    mod dispatch;
    mod effect_facts;
    mod effect_keys;
    mod events;
    mod external_tools;
    mod filters;
    mod gates;
    mod harness;
    mod in_doubt;
    mod kill;
    mod lane_busy;
    mod late_results;
    mod memory;
    mod model_calls;
    mod outbox;
    mod outcomes;
    mod output;
    mod output_references;
    mod output_schema;
    mod perception;
    mod progress;
    mod recover;
    mod retention;
    mod retry;
    mod sandboxes;
    mod schedules;
    mod secrets;
    mod sessions;
    mod sim;
    mod simulation;
    mod spend_caps;
    mod stalled;
    mod stats;
    mod steer;
    mod store_faults;
    mod submit;
    mod suspended_calls;
    mod timeouts;
    mod tool_traits;
    mod untrusted_secrets;
    mod worker;
}
