//! Bounds on what agents, models and tools supply: redaction of secrets, limits of templates and of
//! JSON Schemas.

pub mod redaction;
pub(crate) mod template;
pub mod validation;
