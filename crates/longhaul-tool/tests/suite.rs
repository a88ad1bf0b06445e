//! The integration test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod command;
    mod context;
    mod files;
    mod git;
    mod harness;
    mod http_fetch;
    mod interaction;
    mod memory;
    mod message;
    mod outbound;
    mod predictions;
    mod shell;
    mod skill;
    mod typed;
    mod vault;
}
