//! Effect keys and references to outputs, from an agent file to the output of the commands.

use std::fs;
use std::process::{Command, Stdio};

use super::project::Project;

/// A project with an agent that makes these calls, one per turn.
fn project(front: &str, calls: &[&str]) -> Project {
    let project = Project::new();
    let agent = format!("---\ndescription: A test.\nmodel: scripted/keys\n{front}\n---\nYou.\n");
    project.write("agents/keys.md", &agent);
    let replies: String = calls.iter().map(|call| format!("- tools: [{call}]\n")).collect();
    let script = format!("replies:\n{replies}- text: 'Done: {{{{ last_result }}}}'\n");
    project.write("scripts/keys.yaml", &script);
    project
}

#[test]
fn a_second_run_reads_the_result_of_the_first() {
    let front = "tools: [write_file]\napprove: [{ tool: write_file, allow: true }]\n\
                 effects: [{ tool: write_file, key: 'file:{{ input.path }}' }]";
    let call = "{ name: write_file, input: { path: a.txt, content: one } }";
    let project = project(front, &[call]);
    let output = project.run(&["agents", "show", "keys"], 0).out;
    assert!(output.contains("tool: write_file, key: \"file:{{ input.path }}\""), "{output}");
    let first = project.run(&["run", "keys", "x", "--no-input"], 0).out;
    assert!(!first.contains("was not made"), "{first}");
    fs::remove_file(project.path().join("a.txt")).unwrap();
    let second = project.run(&["run", "keys", "x", "--no-input"], 0);
    assert!(second.out.contains("This call was not made: the call t1.1 of run_"), "{}", second.out);
    assert!(second.err.contains("write_file was not started: the call t1.1 of run_"));
    assert!(!project.path().join("a.txt").exists(), "the effect happens once");
}

#[test]
fn a_gate_says_that_the_effect_has_happened_already() {
    let front = "tools: [write_file]\napprove: [{ tool: write_file, ask: Write? }]\n\
                 effects: [{ tool: write_file, key: 'file:{{ input.path }}' }]";
    let project = project(front, &["{ name: write_file, input: { path: a.txt, content: one } }"]);
    let first = project.run(&["run", "keys", "x", "--no-input", "--json"], 3).json();
    project.run(&["approve", "@last", "--yes"], 0);
    project.run(&["watch", "@last", "--no-input"], 0);
    project.run(&["run", "keys", "x", "--no-input"], 3);
    let gate = project.json(&["gates", "--json"])["data"][0].clone();
    assert_eq!(gate["key_taken"]["run"], first["id"], "{gate}");
    assert_eq!(gate["key_taken"]["state"], "done");
    let note =
        format!("already done by {}; approving changes nothing", first["id"].as_str().unwrap());
    for args in [&["gates"][..], &["gates", "show", gate["id"].as_str().unwrap()]] {
        let output = project.run(args, 0).out;
        assert!(output.contains(&note), "{output}");
    }
}

#[test]
fn a_person_sees_what_a_reference_passes_on() {
    let front = "tools: [read_file, write_file]\napprove: [{ tool: write_file, ask: Write? }]";
    let calls = [
        "{ name: read_file, input: { path: a.txt } }",
        "{ name: write_file, input: { path: b.txt, content: { '$output': t1.1 } } }",
    ];
    let project = project(front, &calls);
    project.write("a.txt", "first line\n");
    project.run(&["run", "keys", "x", "--no-input"], 3);
    let gates = project.json(&["gates", "--json"]);
    let id = gates["data"][0]["id"].as_str().unwrap();
    assert_eq!(gates["data"][0]["outputs"][0]["call"], "t1.1");
    let card = project.run(&["gates", "show", id], 0).out;
    assert!(
        card.contains(
            "passes on an earlier result: the input at /content is the output of the call t1.1, "
        ),
        "{card}"
    );
    assert!(card.contains("first line"), "{card}");
}

#[test]
fn a_run_behind_a_key_ends_if_nobody_continues_the_other_run() {
    let front = "tools: [shell]\nsandbox: { isolation: none }\n\
                 approve: [{ tool: shell, allow: true }]\n\
                 effects: [{ tool: shell, key: 'command:{{ input.command }}' }]";
    let call = "{ name: shell, input: { command: 'echo $$ > part; mv part pid; exec sleep 300' } }";
    let project = project(front, &[call]);
    project.run(&["trust", "--yes"], 0);
    let mut first = project.command(&["run", "keys", "x", "--no-input"]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = project.path().join("pid");
    while !pid.exists() {
        assert!(first.try_wait().unwrap().is_none(), "the first run has ended");
        std::thread::yield_now();
    }
    let key_holder = project.json(&["show", "@last", "--json"])["id"].as_str().unwrap().to_owned();
    first.kill().unwrap();
    first.wait().unwrap();
    let second = project.run(&["run", "keys", "x", "--no-input"], 3);
    assert!(
        second.err.contains(&format!("{key_holder}: No process drives the run.")),
        "{second:?}"
    );
    assert!(second.err.contains(&format!("longhaul watch {key_holder}")), "{second:?}");
    project.run(&["watch", &key_holder, "--no-input"], 3);
    let third = project.run(&["run", "keys", "x", "--no-input"], 3);
    let expected = format!("{key_holder}: The run waits for an answer: shell was started.");
    assert!(third.err.contains(&expected), "{third:?}");
    let gates = project.json(&["gates", "--json"]);
    let id = gates["data"][0]["id"].as_str().unwrap();
    assert!(third.err.contains(&format!("longhaul answer {id} TEXT")), "{third:?}");
    let card = project.run(&["gates", "show", id], 0).out;
    assert!(card.contains("  key: command:echo $$"), "{card}");
    let sleep_pid = fs::read_to_string(pid).unwrap();
    assert!(Command::new("kill").arg(sleep_pid.trim()).status().unwrap().success());
}

#[test]
fn a_person_frees_the_key_of_a_call_in_doubt() {
    let front = "tools: [shell]\nsandbox: { isolation: none }\nin_doubt: fail\n\
                 approve: [{ tool: shell, allow: true }]\n\
                 effects: [{ tool: shell, key: 'pay:7' }]";
    let call = "{ name: shell, input: { command: 'echo x >> paid; sleep 300', timeout: 1 } }";
    let project = project(front, &[call]);
    project.run(&["trust", "--yes"], 0);
    project.run(&["run", "keys", "x", "--no-input"], 0);
    let holder = project.json(&["show", "@last", "--json"])["id"].as_str().unwrap().to_owned();
    let second = project.run(&["run", "keys", "x", "--no-input"], 1);
    let command = format!("longhaul free-key {holder} t1.1");
    assert!(second.err.contains(&command), "{second:?}");
    assert!(project.run(&["why", "@last"], 0).out.contains(&command));
    let refused = project.run(&["free-key", "@last", "t1.1"], 2).err;
    assert!(refused.contains("holds no effect key in doubt"), "{refused}");
    project.run(&["free-key", &holder, "t1.1", "--note", "not in the list"], 0);
    let page = project.run(&["show", &holder], 0).out;
    assert!(page.contains("t1.1: effect key freed by cli"), "{page}");
    assert!(page.contains(": not in the list"), "{page}");
    project.run(&["run", "keys", "x", "--no-input"], 0);
    let effects = fs::read_to_string(project.path().join("paid")).unwrap();
    assert_eq!(effects, "x\nx\n");
}

#[test]
fn the_error_of_an_invalid_call_id_says_what_one_looks_like() {
    let error = Project::new().run(&["free-key", "@last", "../x"], 2).err;
    assert!(error.contains("names its turn and its place there, such as t1.1"), "{error}");
    assert!(error.contains("longhaul show RUN --events"), "{error}");
}
