//! Runs the binary in a terminal with scripted input.

use std::path::Path;
use std::process::Command;

use serde_json::json;

/// Runs a program in a new terminal and types an answer whenever a text appears. Prints the whole
/// terminal output and exits with the program's exit code.
///
/// An answer is typed later than the time within which a line counts as typed before the question.
/// The answer `open:FILE` opens a named pipe instead of typing, and `now:TEXT` is typed at once; if
/// the text to wait for is empty, before the program starts. The terminal has 24 lines, and as many
/// columns as the variable `COLUMNS` says.
const TERMINAL_SCRIPT: &str = r#"
import fcntl, json, os, signal, struct, sys, termios, time
signal.alarm(60)
steps, argv = json.loads(sys.argv[1]), sys.argv[2:]
terminal, program_side = os.openpty()
size = struct.pack("HHHH", 24, int(os.environ.pop("COLUMNS", "80")), 0, 0)
fcntl.ioctl(program_side, termios.TIOCSWINSZ, size)
def act(answer):
    if answer.startswith("open:"):
        open(answer[5:], "w").close()
        return
    if not answer.startswith("now:"):
        time.sleep(0.6)
    os.write(terminal, answer.removeprefix("now:").encode())
while steps and not steps[0][0]:
    act(steps.pop(0)[1])
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(program_side, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(program_side, fd)
    os.closerange(3, 256)
    os.execv(argv[0], argv)
os.close(program_side)
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
        act(steps.pop(0)[1])
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
        // Without live lines, unless the test asks for them.
        .env("TERM", "dumb")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    (screen, output.status.code())
}
