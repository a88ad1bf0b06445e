//! Servers of tools: those of others, those that misbehave, over pipes and HTTP.
//!
//! What they lean on is pinned in `tests/judges` and made ready by `scripts/judges`.

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
