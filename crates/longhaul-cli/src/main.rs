//! The `longhaul` binary: reads the command line and hands over to one command.
//!
//! Never: does work of its own; every command lives in a file of its own.

mod agents;
mod answer;
mod approve;
mod bench;
mod card;
mod chaos;
mod cli;
mod client;
mod config;
mod cpu;
mod crash_counts;
mod db;
mod demo;
mod driven;
mod driving;
mod eof;
mod ephemeral;
mod error;
mod exit;
mod export;

mod figure;
mod follow;
mod gates;
mod heir;
mod here;
mod interrupts;
mod keys;
mod log;
mod ls;
mod mark;
mod mcp;
mod me;
mod memory;
mod mock_model;
mod models;
mod name;

mod open;
mod own_process;
mod page;
mod paint;
mod person;
mod plain;
mod project_files;
mod run;
mod run_commands;
mod runtime;
mod say;
mod serve;
mod serving;
mod show;
mod steer;
mod submit;
mod table;
mod tape;
mod task_args;
mod teller;
mod transcript;
mod trust;
mod version;
mod watch;
mod why;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
