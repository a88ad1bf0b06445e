//! The integration test binary of this crate; each module is a file in `suite/`.
//!
//! The external programs that the tests need are pinned in `tests/interop` and installed by
//! `scripts/interop`.

#[cfg(test)]
mod suite {
    mod guard;
    mod harness;
    mod hostile;
    mod http;
    mod http_rejections;
    mod login;
    mod login_faults;
    mod login_harness;
    mod real_servers;
    mod restart;
    mod setup_timeouts;
    mod suspended;
}
