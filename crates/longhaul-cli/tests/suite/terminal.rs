//! Runs the binary in a terminal with scripted input.

use std::path::Path;
use std::process::Command;

use serde_json::json;

/// Runs a program in a new terminal and types an answer whenever a text appears. Prints the whole
/// terminal output and exits with the program's exit code.
const TERMINAL_SCRIPT: &str = r#"
import json, os, pty, signal, sys
signal.alarm(60)
steps, argv = json.loads(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
seen = rest = b""
while True:
    try:
        got = os.read(terminal, 4096)
    except OSError:
        break
    if not got:
        break
    seen, rest = seen + got, rest + got
    while steps and steps[0][0].encode() in rest:
        rest = rest.split(steps[0][0].encode(), 1)[1]
        os.write(terminal, steps.pop(0)[1].encode())
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(status))
"#;

/// Returns the terminal output and the exit code. `steps` are the texts to wait for and the answers
/// to type.
pub(crate) fn run_at_terminal(
    folder: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    steps: &[(&str, &str)],
) -> (String, Option<i32>) {
    let mut command = Command::new("python3");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGHAUL_") {
            command.env_remove(name);
        }
    }
    super::cli::remove_model_env(&mut command);
    let output = command
        .args(["-c", TERMINAL_SCRIPT, &json!(steps).to_string()])
        .arg(env!("CARGO_BIN_EXE_longhaul"))
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env("NO_COLOR", "1")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    (screen, output.status.code())
}
