//! The only integration test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod bad_input;
    mod chains;
    mod finding;
    mod firehose;
    mod forks;
    mod harness;
    mod idempotency;
    mod inboxes;
    mod keys;
    mod links;
    mod load;
    mod log;
    mod many_clients;
    mod openapi;
    mod pagination;
    mod problems;
    mod routes;
    mod rules;
    mod schedules;
    mod sessions;
    mod spend;
    mod streams;
    mod threads;
}
