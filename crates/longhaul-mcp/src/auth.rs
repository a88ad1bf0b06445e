//! Logins at servers over HTTP: OAuth, in a browser once, and kept for all runs.
//!
//! Never: opens a browser by itself, at a run or elsewhere. Who has one is told
//! which address to open, and hands back where it led.

pub(super) mod address_policy;
pub(super) mod callback_server;
pub(super) mod config;
pub(super) mod credential_file;
pub(super) mod error;
pub(super) mod issuer;
pub(super) mod login_flow;
pub(super) mod oauth_http;
pub(super) mod redaction;
pub(super) mod refresh;
pub(super) mod rejection;
pub(super) mod revoke;
pub(super) mod token_provider;
pub(super) mod unsaved;
