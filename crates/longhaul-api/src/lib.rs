//! The types of the HTTP API `/v1`: what a request may say and what a response shows. Server
//! and clients use the same ones. With the feature `client` there is a client as well.

pub mod agent;
#[cfg(feature = "client")]
pub mod client;
pub mod gate;
pub mod health;
pub mod history;
pub mod inbox;
pub mod key;
pub mod lane;
pub mod list;
pub mod problem;
pub mod run;
pub mod schema;
pub mod steer;
pub mod submit;
pub mod transcript;
pub mod why;
