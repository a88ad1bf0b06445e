//! The one integration binary of this crate: each module is a file in `suite/`.
//!
//! What they lean on is pinned in `tests/judges` and made ready by `scripts/judges`.

#[cfg(test)]
mod suite {
    mod before;
    mod guard;
    mod hostile;
    mod http;
    mod kit;
    mod login;
    mod login_faults;
    mod login_kit;
    mod logout;
    mod real;
    mod turned_away;
}
