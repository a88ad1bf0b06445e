//! The one integration binary of this crate: each module is a file in `suite/`.
//!
//! What they lean on is pinned in `tests/interop` and made ready by `scripts/interop`.

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
    mod logout;
    mod real_servers;
    mod setup_timeouts;
}
