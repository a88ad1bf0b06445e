//! The guards that a request passes before anybody acts on it, outermost first.
//!
//! Never: an exception that is not written down here.

pub(crate) mod auth;
pub(crate) mod host;
pub(crate) mod origin;
pub(crate) mod request_id;
pub(crate) mod timeout;
