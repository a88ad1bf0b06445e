//! The integration test binary of this crate. Each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod crash;
    mod embedded_program;
    mod ephemeral;
    mod events_and_schedules;
    mod features;
    mod folder_inbox;
    mod handler;
    mod handler_retry;
    mod inbox;
    mod lanes;
    mod open;
    mod runtime;
    mod serve;
    mod standalone_build;
    mod worker;
}
