//! API handlers, one module per resource. They parse the request, call the engine and write the
//! response.

pub(crate) mod agents;
pub(crate) mod create_run;
pub(crate) mod events;
pub(crate) mod gates;
pub(crate) mod health;
pub(crate) mod inboxes;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod runs;
pub(crate) mod sandboxes;
pub(crate) mod schedules;
pub(crate) mod steer;
pub(crate) mod threads;
