//! OAuth logins at HTTP servers: the user logs in once in a browser, the login is stored, and all
//! runs use it.
//!
//! Invariant: this module never opens a browser. The caller gets the authorization URL and passes
//! back the URL of the redirect.

pub(super) mod address_policy;
pub(super) mod callback_server;
pub(super) mod context;
pub(super) mod credential_file;
pub(super) mod error;
pub(super) mod login_flow;
pub(super) mod oauth_http;
pub(super) mod redaction;
pub(super) mod server_login;
