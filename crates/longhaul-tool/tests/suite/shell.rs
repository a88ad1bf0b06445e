//! `shell`: environment and output of commands, limits, and the cleanup of processes.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Progress, Tool as _, ToolContext};
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::ShellTool;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::suite::harness::wait_until_gone;

struct Fixture {
    dir: TempDir,
    clock: SimClock,
    shell: ShellTool,
    ctx: ToolContext,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SimClock::new();
        let protected = [dir.path().join(".longhaul")];
        let shell = ShellTool::new(dir.path(), protected, Arc::new(clock.clone())).unwrap();
        let call = CallId { turn: 1, index: 1 };
        let ctx = ToolContext::new(RunId::from_bits(7), call, Epoch(3));
        Self { dir, clock, shell, ctx }
    }

    async fn call(&self, input: Value) -> String {
        match self.shell.call(input, &self.ctx).await {
            Ok(output) => text(&output),
            Err(failure) => failure.to_string(),
        }
    }

    async fn run(&self, command: &str) -> String {
        self.call(json!({ "command": command })).await
    }

    /// Runs a command until this file exists, then drops the call.
    async fn run_until(&self, command: &str, file: &str) -> String {
        let input = json!({ "command": command });
        let mut call = self.shell.call(input, &self.ctx);
        let file = self.dir.path().join(file);
        loop {
            assert!(call.as_mut().now_or_never().is_none(), "the call ended early");
            match fs::read_to_string(&file) {
                Ok(output) if output.ends_with('\n') => return output,
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

fn text(output: &ToolOutput) -> String {
    let texts = output.content.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(_) => "an image".to_owned(),
    });
    texts.collect()
}

fn parse_pid(text: &str) -> i32 {
    text.trim().parse().unwrap()
}

#[tokio::test]
async fn output_is_ordered_and_has_the_exit_code() {
    let fixture = Fixture::new();
    for (command, expected) in [
        ("echo a; echo b >&2; echo c", "a\nb\nc\nexit 0"),
        ("printf x; exit 3", "x\nexit 3"),
        ("true", "[The command printed nothing.]\nexit 0"),
        ("kill -9 $$", "[The command printed nothing.]\nthe command was killed by signal 9"),
        ("cat", "[The command printed nothing.]\nexit 0"),
        ("printf 'a\\377b'", "a\u{fffd}b\nexit 0"),
        ("no-such-program 2>/dev/null", "[The command printed nothing.]\nexit 127"),
    ] {
        assert_eq!(fixture.run(command).await, expected, "{command}");
    }
    let long_output = fixture.run("head -c 11000000 /dev/zero; echo; echo end").await;
    assert!(long_output.contains(" bytes left out here]\n"), "{}", long_output.len());
    // With our notes the result stays below the limit of a run.
    assert!(long_output.len() < 10 * 1024 * 1024, "{}", long_output.len());
    let end = &long_output[long_output.len() - 300..];
    let expected_end = "end\n[The command printed 11000005 bytes in total. The first 5210112 and the last 5210112 are \
                 kept; the 579781 between them are lost. Redirect the output to a file \
                 to read all of it.]\nexit 0";
    assert!(end.ends_with(expected_end), "{end}");
}

#[tokio::test]
async fn a_command_starts_inside_the_workspace() {
    let fixture = Fixture::new();
    let root = fixture.dir.path();
    for folder in ["src/deep", ".longhaul"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    let pwd_in = async |cwd: Value| fixture.call(json!({ "command": "pwd -P", "cwd": cwd })).await;
    let real_root = root.canonicalize().unwrap();
    let expected_pwd =
        |relative_path: &str| format!("{}\nexit 0", real_root.join(relative_path).display());
    assert_eq!(pwd_in(json!("src/deep")).await, expected_pwd("src/deep"));
    let root_output = expected_pwd("").replace("/\n", "\n");
    assert_eq!(pwd_in(Value::Null).await, root_output);
    assert_eq!(pwd_in(json!("")).await, root_output);
    for (cwd, expected) in [
        ("..", "has `..` in it"),
        ("/etc", "is outside of the workspace"),
        ("out", "is a symbolic link"),
        ("out/etc", "is a symbolic link"),
        ("nowhere", "does not exist"),
        (".longhaul", "is not accessible to agents"),
    ] {
        let output = pwd_in(json!(cwd)).await;
        assert!(
            output.starts_with("The command was not run: ") && output.contains(expected),
            "{cwd}: {output}"
        );
    }
}

#[tokio::test]
async fn a_command_gets_a_minimal_environment_without_secrets() {
    let fixture = Fixture::new();
    let output = fixture.run("env").await;
    let names = output.lines().filter_map(|line| Some(line.split_once('=')?.0));
    // Variables that the shell itself sets are ignored.
    let mut names: Vec<&str> =
        names.filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name)).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "LONGHAUL_EPOCH", "LONGHAUL_RUN", "PATH", "TERM"]);
    assert!(output.contains("LONGHAUL_EPOCH=3\n"), "{output}");
    assert!(output.contains("TERM=dumb\n"), "{output}");
    assert!(output.contains(&format!("LONGHAUL_RUN={}\n", fixture.ctx.run)));
}

#[tokio::test]
async fn invalid_commands_are_rejected() {
    let fixture = Fixture::new();
    for (input, expected) in [
        (json!({ "command": " \n" }), "the command is empty"),
        (json!({ "command": "a\0b" }), "NUL"),
        (json!({ "command": "x".repeat(70_000) }), "longer than"),
        (json!({ "cwd": "src" }), "can't read its input"),
    ] {
        let output = fixture.call(input).await;
        assert!(output.contains(expected), "{output}");
    }
}

#[tokio::test]
async fn background_processes_end_with_the_command() {
    let fixture = Fixture::new();
    let output = fixture.run("sleep 600 & echo $!").await;
    let (first, exit) = output.split_once('\n').unwrap();
    assert_eq!(exit, "exit 0");
    wait_until_gone(parse_pid(first)).await;
}

#[tokio::test]
async fn a_process_that_leaves_the_group_does_not_block_the_call() {
    let fixture = Fixture::new();
    let input = json!({ "command": "setsid sleep 600 & echo $! > pid; sleep 0.1; echo out" });
    let mut call = fixture.shell.call(input, &fixture.ctx);
    let output = loop {
        if let Some(output) = call.as_mut().now_or_never() {
            break text(&output.unwrap());
        }
        fixture.clock.advance(Millis(100));
        tokio::task::yield_now().await;
    };
    assert_eq!(output, "out\nexit 0");
    let detached_pid = parse_pid(&fs::read_to_string(fixture.dir.path().join("pid")).unwrap());
    let detached_pid = rustix::process::Pid::from_raw(detached_pid).unwrap();
    rustix::process::kill_process(detached_pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_dropped_command_is_killed_and_leaves_its_partial_output() {
    let fixture = Fixture::new();
    let command =
        "trap '' TERM INT; echo half; sh -c 'echo $$ > inner; sleep 600' & echo $$ >> inner; wait";
    let command = format!("{command}; echo whole");
    let output = fixture.run_until(&command, "inner").await;
    assert!(Path::new(&fixture.dir.path().join("inner")).exists(), "{output}");
    assert_eq!(fixture.ctx.partial_output.take_output_so_far().as_deref(), Some("half\n"));
    for line in output.lines() {
        wait_until_gone(parse_pid(line)).await;
    }
}

#[derive(Debug, Default)]
struct RecordedProgress(Mutex<Vec<String>>);

impl Progress for RecordedProgress {
    fn report(&self, percent: Option<u8>, message: &str) {
        assert_eq!(percent, None);
        self.0.lock().unwrap().push(message.to_owned());
    }
}

#[tokio::test]
async fn the_last_line_is_reported_as_progress_each_second() {
    let mut fixture = Fixture::new();
    let progress = Arc::new(RecordedProgress::default());
    fixture.ctx.progress = Arc::clone(&progress) as Arc<dyn Progress>;
    let input = json!({ "command": "echo one; echo '  two '; sleep 600" });
    let mut call = fixture.shell.call(input, &fixture.ctx);
    while progress.0.lock().unwrap().is_empty() {
        assert!(call.as_mut().now_or_never().is_none(), "the call ended early");
        fixture.clock.advance(Millis::from_secs(1));
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        fixture.clock.advance(Millis::from_secs(1));
        assert!(call.as_mut().now_or_never().is_none(), "the call ended early");
    }
    // Reported once, because nothing more was printed.
    let lines = progress.0.lock().unwrap().join("|");
    assert!(["two", "one|two"].contains(&lines.as_str()), "{lines}");
}

#[test]
fn shell_calls_have_rule_match_texts_and_opacity() {
    let shell = Fixture::new().shell;
    assert!(shell.is_cancel_safe() && shell.may_outlive_worker() && shell.is_unsandboxed());
    let input = json!({ "command": "cargo test && rm -rf x" });
    assert_eq!(shell.class(&input), EffectClass::Once);
    assert_eq!(shell.rule_match_texts(&input), ["cargo test", "rm -rf x"]);
    assert!(!shell.are_rule_match_texts_unknown(&input));
    assert!(shell.are_rule_match_texts_unknown(&json!({ "command": "ls $(x)" })));
    assert_eq!(shell.spec().in_doubt, None);
    for (timeout, seconds) in
        [(Value::Null, 120), (json!(7), 7), (json!(0), 1), (json!(999_999), 1_800)]
    {
        let input = json!({ "command": "x", "timeout": timeout });
        assert_eq!(shell.timeout(&input), Some(Millis::from_secs(seconds)));
    }
}
