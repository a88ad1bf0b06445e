//! Tests of the module `docker`: against a real engine where there is one, and against a scripted
//! engine everywhere.

mod commands;
mod conformance;
mod fake_engine;
mod real_engine;
mod requests;
mod spec;
