//! Commands: their input, output, environment and exit.

use std::collections::BTreeMap;

use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    EPOCH_VAR, ExecStatus, SandboxCommand, SandboxError, SandboxSecret, SandboxSpec,
};

use crate::conformance::sandboxes::fixture::{
    SandboxFixture, TIMEOUT, run, run_script, run_until_lines, shell,
};

/// The two streams of a command arrive apart.
pub async fn output_streams_are_separate(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let script = "printf 'out\\377\\n'; echo error >&2; printf more";
    let (status, output) = run(&*sandbox, shell(script)).await.expect("run");
    assert_eq!(status, ExecStatus::Exited(0));
    assert_eq!(output.stdout, b"out\xff\nmore");
    assert_eq!(output.stderr, b"error\n");
}

/// Output is passed on before the command ends.
pub async fn output_arrives_while_the_command_runs(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    run_until_lines(&*sandbox, shell("echo first; exec sleep 100000"), 1).await;
}

/// The exit code of a command is returned as it is.
pub async fn exit_codes_are_returned(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    for code in [0, 1, 2, 77, 127, 255] {
        let (status, _) = run(&*sandbox, shell(&format!("exit {code}"))).await.expect("run");
        assert_eq!(status, ExecStatus::Exited(code));
    }
}

/// A command that is killed by a signal is reported by the signal, or by the exit code that a
/// shell returns for the signal.
pub async fn a_signal_is_reported(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    for signal in [9, 15] {
        let (status, _) = run(&*sandbox, shell(&format!("kill -{signal} $$"))).await.expect("run");
        let expected = [ExecStatus::Signaled(signal), ExecStatus::Exited(128 + signal)];
        assert!(expected.contains(&status), "{status:?}");
    }
}

/// A program that does not exist is a failed command and no failure of the provider.
pub async fn a_missing_program_fails(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let argv = vec!["no-such-program".to_owned()];
    let command = SandboxCommand { argv, timeout: Some(TIMEOUT), ..SandboxCommand::default() };
    let (status, output) = run(&*sandbox, command).await.expect("run");
    assert!(matches!(status, ExecStatus::Exited(code) if code != 0), "{status:?}");
    let output = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8_lossy(&output).contains("no-such-program"), "{output:?}");
}

/// The input of a command arrives completely and then ends.
pub async fn input_reaches_the_command(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let stdin: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    let command = SandboxCommand { stdin: stdin.clone(), ..shell("cat") };
    let (status, output) = run(&*sandbox, command).await.expect("run");
    assert_eq!(status, ExecStatus::Exited(0));
    assert!(output.stdout == stdin, "{} bytes of {}", output.stdout.len(), stdin.len());
    assert_eq!(run_script(&*sandbox, "cat | wc -c").await.trim(), "0");
}

/// A command that does not read its input ends as usual.
pub async fn input_may_be_left_unread(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let command = SandboxCommand { stdin: vec![b'x'; 1_000_000], ..shell("exec <&-; echo done") };
    let (status, output) = run(&*sandbox, command).await.expect("run");
    assert_eq!((status, output.stdout_text().as_str()), (ExecStatus::Exited(0), "done\n"));
}

/// Working directories are absolute, or relative to the work folder.
pub async fn a_command_runs_in_its_working_directory(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "mkdir -p 'some folder/inner'").await;
    for (cwd, expected) in [
        (None, "/workspace\n"),
        (Some("/workspace/some folder"), "/workspace/some folder\n"),
        (Some("some folder/inner"), "/workspace/some folder/inner\n"),
        (Some("/tmp"), "/tmp\n"),
    ] {
        let command = SandboxCommand { cwd: cwd.map(str::to_owned), ..shell("pwd") };
        let (status, output) = run(&*sandbox, command).await.expect("run");
        assert_eq!((status, output.stdout_text().as_str()), (ExecStatus::Exited(0), expected));
    }
}

/// A command whose working directory is missing does not run.
pub async fn a_missing_working_directory_is_an_error(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let cwd = Some("/workspace/missing".to_owned());
    let result = run(&*sandbox, SandboxCommand { cwd, ..shell("touch /workspace/ran") }).await;
    let failed = match &result {
        Ok((status, _)) => *status != ExecStatus::Exited(0),
        Err(error) => matches!(error, SandboxError::File(_)),
    };
    assert!(failed, "{result:?}");
    assert_eq!(run_script(&*sandbox, "ls").await, "");
}

/// Commands see the variables of the sandbox, then their own, the epoch of their claim and the
/// placeholders of secrets, and no variable of the worker.
pub async fn commands_see_their_environment(fixture: SandboxFixture) {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let secret = SandboxSecret {
        name: "API_TOKEN".to_owned(),
        value: "the-secret-value".to_owned(),
        hosts: vec!["example.com".to_owned()],
    };
    let env = map(&[("OF_SANDBOX", "a"), ("OF_BOTH", "a")]);
    let mut spec = SandboxSpec { env, ..fixture.new_spec() };
    let script = format!("echo $OF_SANDBOX $OF_BOTH $OF_COMMAND ${EPOCH_VAR} \"${{CARGO-unset}}\"");
    let command = |script: &str| SandboxCommand {
        env: map(&[("OF_BOTH", "b $HOME\n"), ("OF_COMMAND", "c")]),
        epoch: Epoch(7),
        ..shell(script)
    };
    let sandbox = fixture.create_from(&spec).await;
    let (_, output) = run(&*sandbox, command(&script)).await.expect("run");
    assert_eq!(output.stdout_text(), "a b $HOME c 7 unset\n");
    // A provider that can't replace placeholders refuses secrets.
    spec = SandboxSpec { secrets: vec![secret.clone()], ..fixture.new_spec() };
    match fixture.harness.provider.create(&spec).await {
        Ok(sandbox) => {
            let environment = run_script(&*sandbox, "env; cat /proc/self/environ").await;
            assert!(environment.contains(&format!("API_TOKEN={}", secret.placeholder())));
            assert!(!environment.contains("the-secret-value"));
        }
        Err(error) => assert!(matches!(error, SandboxError::Refused(_)), "{error}"),
    }
}

/// Arguments reach the program as they are: no shell expands them.
pub async fn arguments_are_passed_unchanged(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let arguments = ["", " two  spaces ", "$HOME", "*", "\"'\\", "line\nbreak", "--flag", "é"];
    let mut argv = ["/bin/sh", "-c", "for a; do printf '%s|' \"$a\"; done", "sh"].to_vec();
    argv.extend(arguments);
    let argv = argv.into_iter().map(str::to_owned).collect();
    let command = SandboxCommand { argv, timeout: Some(TIMEOUT), ..SandboxCommand::default() };
    let (_, output) = run(&*sandbox, command).await.expect("run");
    let expected: String = arguments.iter().map(|argument| format!("{argument}|")).collect();
    assert_eq!(output.stdout_text(), expected);
}

/// Commands of one sandbox run concurrently: each waits for the next one.
pub async fn commands_run_concurrently(fixture: SandboxFixture) {
    const COMMANDS: usize = 8;
    let sandbox = fixture.create().await;
    run_script(&*sandbox, &format!("for i in $(seq 0 {COMMANDS}); do mkfifo pipe$i; done")).await;
    let commands = (0..COMMANDS).map(|index| {
        let script = match index {
            0 => "echo token > pipe1; echo first".to_owned(),
            _ if index == COMMANDS - 1 => format!("cat pipe{index}"),
            _ => format!("cat pipe{index} > pipe{}; echo {index}", index + 1),
        };
        let sandbox = &sandbox;
        async move { run(&**sandbox, shell(&script)).await.expect("run").1.stdout_text() }
    });
    let outputs = futures_util::future::join_all(commands).await;
    assert_eq!(outputs, ["first\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "token\n"]);
}

/// Output is passed on in pieces, however long it is.
pub async fn long_output_does_not_fill_memory(fixture: SandboxFixture) {
    const GROWTH_MAX: u64 = 256 << 20;
    let bytes = fixture.harness.long_output_bytes;
    let sandbox = fixture.create().await;
    let before = peak_memory_bytes();
    let mut received = 0;
    let command = SandboxCommand { timeout: None, ..shell(&format!("head -c {bytes} /dev/zero")) };
    let mut on_output = |_, output: &[u8]| received += output.len() as u64;
    let exit = sandbox.exec(command, &mut on_output).await.expect("run");
    assert_eq!(exit.status, ExecStatus::Exited(0));
    assert_eq!(received, bytes);
    let growth = peak_memory_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{growth} bytes for an output of {bytes} bytes");
}

/// Returns the highest memory use of this process so far. 0 where the system does not tell it.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

/// A command that the operating system can't represent is refused, also one without a program.
pub async fn an_argument_with_a_nul_byte_is_refused(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let nul = "a\0b".to_owned();
    let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    for command in [
        SandboxCommand { argv: Vec::new(), ..shell("") },
        SandboxCommand { argv: vec!["echo".to_owned(), nul.clone()], ..shell("") },
        SandboxCommand { cwd: Some(nul.clone()), ..shell("true") },
        SandboxCommand { env: env("NAME", &nul), ..shell("true") },
        SandboxCommand { env: env("A=B", "value"), ..shell("true") },
    ] {
        let result = run(&*sandbox, command.clone()).await;
        let error = result.err().unwrap_or_else(|| panic!("{command:?} was run"));
        assert!(matches!(error, SandboxError::Refused(_) | SandboxError::File(_)), "{error}");
    }
}
