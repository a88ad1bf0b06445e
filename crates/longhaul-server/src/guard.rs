//! The guards that a request passes before anybody acts on it, outermost first.
//!
//! Never: an exception that is not written down here.

pub(crate) mod finish;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod origin;
pub(crate) mod patience;
