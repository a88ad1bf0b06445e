//! The `longhaul` binary: parses the command line and runs one command. Each command has its own
//! module.

mod agents;
mod answer;
mod approve;
mod approve_many;
mod batch;
mod call_text;
mod chains;
mod chaos;
mod child_process;
mod cli;
mod client;
mod completions;
mod config;
mod db;
mod demo;
mod diff;
mod doctor;
mod environment;
mod error;
mod event_printer;
mod exit;
mod export;
mod fitted_table;
mod follow;
mod followed_run;
mod fork;
mod form_prompt;
mod format;
mod gate_card;
mod gates;
mod help;
mod inbox;
mod init;
mod keys;
mod lanes;
mod live;
mod local_driver;
mod log;
mod ls;
mod mcp;
mod memory;
mod mock_model;
mod models;
mod output;
mod point_in_time;
mod prompt;
mod record_replay;
mod resolve;
mod rm;
mod rules;
mod run;
mod run_commands;
mod run_log;
mod run_page;
mod run_status;
mod runtime;
mod sandboxes;
mod sanitize;
mod schedules;
mod server;
mod show;
mod signal;
mod spend;
mod start_time;
mod steer;
mod store_access;
mod style;
mod submit;
mod table;
mod task_args;
mod terminal;
mod tools;
mod transcript;
mod trust;
mod typing;
mod watch;
mod worker;

use std::process::ExitCode;

use longhaul_core::sanitize::is_invisible;

use crate::exit::Exit;

fn main() -> ExitCode {
    if let Some(code) = longhaul_sandbox::launch::handle_launch_command() {
        return code;
    }
    completions::answer_shell(cli::Cli::full_command);
    match cli::Cli::parse_command_line() {
        Ok(cli) => cli.run(),
        // The message repeats arguments as they are.
        Err(error) if error.use_stderr() && has_invisible_argument() => {
            output::eprint_line(error.render().to_string().trim_end());
            Exit::Usage.into()
        }
        Err(error) => error.exit(),
    }
}

/// Returns whether the command line has characters that a terminal would not show as they are.
fn has_invisible_argument() -> bool {
    std::env::args_os().any(|argument| argument.to_string_lossy().contains(is_invisible))
}
