//! The HTTP API `/v1`, shared by the server and its clients: a table of all operations, and the types
//! of their requests and answers. The feature `client` adds a client.

pub mod agent;
#[cfg(feature = "client")]
pub mod client;
pub mod fork;
pub mod gate;
pub mod health;
pub mod history;
pub mod inbox;
pub mod key;
pub mod lane;
pub mod list;
pub mod operation;
pub mod operations;
pub mod path;
pub mod problem;
pub mod query;
pub mod run;
pub mod run_list;
pub mod sandbox;
pub mod schedule;
pub mod spend;
pub mod steer;
pub mod task;
pub mod transcript;
