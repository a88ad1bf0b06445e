//! Middleware that every request passes before its handler.

pub(crate) mod auth;
pub(crate) mod guards;
pub(crate) mod request_id;
