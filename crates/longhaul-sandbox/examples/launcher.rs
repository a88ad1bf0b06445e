//! The launcher of the tests: what the executable does for its hidden command.

use std::process::ExitCode;

use longhaul_sandbox::launch::{LAUNCH_COMMAND, launch};

fn main() -> std::io::Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let command = args.next();
    assert!(command.is_some_and(|command| command == LAUNCH_COMMAND), "an unknown command");
    launch(args)
}
