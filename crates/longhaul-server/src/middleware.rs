//! Middleware that every request passes before its handler.

pub(crate) mod auth;
pub(crate) mod host;
pub(crate) mod origin;
pub(crate) mod request_id;
pub(crate) mod timeout;
