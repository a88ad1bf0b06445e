//! Logins at servers over HTTP: OAuth, in a browser once, and kept for all runs.
//!
//! Never: opens a browser by itself, at a run or elsewhere. Who has one is told
//! which address to open, and hands back where it led.

pub(super) mod asks;
pub(super) mod book;
pub(super) mod door;
pub(super) mod error;
pub(super) mod flow;
pub(super) mod issuer;
pub(super) mod keeper;
pub(super) mod means;
pub(super) mod near;
pub(super) mod pass;
pub(super) mod refusal;
pub(super) mod revoke;
pub(super) mod tokens;
pub(super) mod unkept;
