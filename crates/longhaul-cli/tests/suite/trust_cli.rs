//! `longhaul trust` on the command line: nothing of an untrusted project is run before a person has
//! decided.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::cli::longhaul_in;
use super::project::Project;
use super::server_harness::TestServer;
use super::terminal::run_at_terminal;

const MCP: &str = r#"{"mcpServers": {
  "github": {"command": "npx", "args": ["-y", "a b", "--token=${GITHUB_TOKEN}"], "env": {"LEVEL": "s3cret"}},
  "docs": {"url": "https://u:s3cret@docs.example/mcp?key=s3cret", "headers": {"Authorization": "s3cret"}}
}}"#;

/// A project, and a home folder outside of it.
pub(super) struct TrustProject {
    pub(super) project: TempDir,
    home: TempDir,
}

impl TrustProject {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let fixture =
            Self { project: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        fixture.write("longhaul.toml", "");
        for (name, text) in files {
            fixture.write(name, text);
        }
        fixture
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let file = self.project.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn decision_file(&self) -> PathBuf {
        self.home.path().join("longhaul/trust.json")
    }

    pub(super) fn env(&self) -> [(&str, &str); 1] {
        [("XDG_STATE_HOME", self.home.path().to_str().unwrap())]
    }

    /// Runs the binary, asserts the exit code and that no secret is printed.
    pub(super) fn run(&self, args: &[&str], code: i32) -> (String, String) {
        self.run_with_env(args, &[], code)
    }

    pub(super) fn run_with_env(
        &self,
        args: &[&str],
        env: &[(&str, &str)],
        code: i32,
    ) -> (String, String) {
        let env = [&self.env()[..], env].concat();
        let output = longhaul_in(self.project.path(), args, &env);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
        assert!(!format!("{out}{err}").contains("s3cret"), "{args:?}: {out}{err}");
        (out, err)
    }

    pub(super) fn statuses(&self) -> Vec<String> {
        let (out, _) = self.run(&["trust", "ls", "--json"], 0);
        let listing: Value = serde_json::from_str(&out).unwrap();
        let items = listing["items"].as_array().unwrap().iter();
        items
            .map(|item| {
                let field = |key: &str| item[key].as_str().unwrap().to_owned();
                format!("{} {}", field("name"), field("status"))
            })
            .collect()
    }
}

#[test]
fn a_decision_is_stored_outside_the_project_and_ends_with_a_change() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP)]);
    let (_, err) = fixture.run(&["trust"], 6);
    for expected in [
        "This project would run `.mcp.json`",
        "outside any sandbox",
        "  github: npx -y \"a b\" --token=${GITHUB_TOKEN}\n",
        "    variables: LEVEL\n",
        "    reads from your environment: GITHUB_TOKEN\n",
        "  docs: https://docs.example/mcp?...\n",
        "    headers: Authorization\n",
        "  used by: integrations_agent\n",
        "1 item of this project is not trusted",
        "longhaul trust --yes",
    ] {
        assert!(err.contains(expected), "{expected}: {err}");
    }
    assert_eq!(fixture.statuses(), [".mcp.json not_trusted"]);
    assert!(!fixture.decision_file().exists());
    let (_, err) = fixture.run(&["trust", "--yes"], 0);
    assert!(err.contains("github: npx"), "{err}");
    assert!(err.contains("`.mcp.json` is trusted until it changes"), "{err}");
    let metadata = fs::metadata(fixture.decision_file()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let (_, err) = fixture.run(&["trust"], 0);
    assert!(err.contains("`.mcp.json` is trusted already"), "{err}");
    let (out, _) = fixture.run(&["trust", "ls"], 0);
    assert!(out.contains("trusted") && out.contains("integrations_agent"), "{out}");
    fixture.write(".mcp.json", &MCP.replace("-y", "-yy"));
    assert_eq!(fixture.statuses(), [".mcp.json changed"]);
    let (_, err) = fixture.run(&["trust"], 6);
    let expected = "This item has CHANGED since it was trusted: .mcp.json or .env.\n";
    assert!(err.contains(expected), "{err}");
    // The trusted content is trusted again.
    fixture.write(".mcp.json", MCP);
    assert_eq!(fixture.statuses(), [".mcp.json trusted"]);
    let (out, _) = fixture.run(&["trust", "revoke"], 0);
    assert!(out.contains("1 decision"), "{out}");
    assert_eq!(fixture.statuses(), [".mcp.json not_trusted"]);
    fixture.run(&["trust", "revoke"], 0);
    fixture.run(&["trust", "revoke", "x"], 2);
    assert!(fixture.run(&["trust", "--help"], 0).0.contains("Examples:"));
}

#[test]
fn only_a_clear_yes_at_the_terminal_counts() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP)]);
    let folder = fixture.project.path();
    for (answer, code, status) in [
        ("\n", 6, ".mcp.json not_trusted"),
        ("n\n", 6, ".mcp.json not_trusted"),
        ("\u{4}", 6, ".mcp.json not_trusted"),
        ("yep\n", 6, ".mcp.json not_trusted"),
        ("y\n", 0, ".mcp.json trusted"),
    ] {
        let steps = [("Trust it? [y/N]", answer)];
        let (screen, exit_code) = run_at_terminal(folder, &["trust"], &fixture.env(), &steps);
        assert_eq!(exit_code, Some(code), "{answer:?}: {screen}");
        assert_eq!(fixture.statuses(), [status], "{answer:?}: {screen}");
    }
}

#[test]
fn a_project_can_t_trust_itself() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP)]);
    let all = [("LONGHAUL_TRUST", "1")];
    let (out, _) = fixture.run_with_env(&["trust", "ls"], &all, 0);
    assert!(out.contains("trusted by LONGHAUL_TRUST=1"), "{out}");
    let (out, _) = fixture.run_with_env(&["trust", "ls"], &[("LONGHAUL_TRUST", "0")], 0);
    assert!(out.contains("not trusted"), "{out}");
    // Only the real environment may set it.
    fixture.write("agents/a.md", "---\nmodel: scripted/a\n---\nYou.");
    fixture.write("scripts/a.yaml", "replies: [{ text: Done. }]\n");
    for line in [
        "LONGHAUL_TRUST=1",
        "XDG_STATE_HOME=/x",
        "XDG_CONFIG_HOME=/x",
        // The user's key would be sent there.
        "DAYTONA_API_URL=https://attacker.example",
    ] {
        fixture.write(".env", &format!("{line}\n"));
        let (_, err) = fixture.run(&["run", "a", "x"], 2);
        assert!(err.contains("decides what is trusted"), "{err}");
        let (out, _) = fixture.run(&["mcp", "ls"], 0);
        assert!(out.contains("GITHUB_TOKEN is not set"), "{out}");
        assert!(!out.contains("trusted by"), "{out}");
    }
    // The same project in another folder needs its own decision.
    let other_project = TrustProject::new(&[(".mcp.json", MCP)]);
    fixture.run(&["trust", "--yes"], 0);
    let output = longhaul_in(other_project.project.path(), &["trust", "ls"], &fixture.env());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.contains("not trusted"), "{out}");
}

#[test]
fn a_decision_file_writable_by_others_is_ignored() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP)]);
    fixture.run(&["trust", "--yes"], 0);
    let mode = |mode| {
        fs::set_permissions(fixture.decision_file(), fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(0o666);
    assert_eq!(fixture.statuses(), [".mcp.json unknown"]);
    let (_, err) = fixture.run(&["trust", "--yes"], 2);
    assert!(err.contains("is writable by other users"), "{err}");
    mode(0o600);
    fs::write(fixture.decision_file(), "{").unwrap();
    let (_, err) = fixture.run(&["trust", "revoke"], 2);
    assert!(err.contains("rm "), "{err}");
}

fn delivery_status(fixture: &TrustProject) -> String {
    let command = fixture.statuses();
    command.into_iter().next().unwrap_or_default()
}

#[test]
fn trust_of_a_delivery_program_covers_its_content() {
    let toml = "[tools.send_message]\ndeliver = \"command:./send --fast\"\n";
    let fixture = TrustProject::new(&[("longhaul.toml", toml), ("send", "#!/bin/sh\n")]);
    assert_eq!(delivery_status(&fixture), "./send --fast not_trusted");
    fixture.run(&["trust", "--yes"], 0);
    assert_eq!(delivery_status(&fixture), "./send --fast trusted");
    fixture.write("send", "#!/bin/sh\nrm -rf /\n");
    assert_eq!(delivery_status(&fixture), "./send --fast changed");
    fixture.write("longhaul.toml", &toml.replace("--fast", "--slow"));
    assert_eq!(delivery_status(&fixture), "./send --slow not_trusted");
    // A script that is passed to another program is part of the decision.
    fixture.write("longhaul.toml", &toml.replace("./send --fast", "sh -e send"));
    fixture.run(&["trust", "--yes"], 0);
    assert_eq!(delivery_status(&fixture), "sh -e send trusted");
    fixture.write("send", "#!/bin/sh\n");
    assert_eq!(delivery_status(&fixture), "sh -e send changed");
    // Settings in the user's own file need no trust.
    fixture.write("longhaul.toml", "");
    let config = fixture.home.path().join("longhaul");
    fs::write(config.join("longhaul.toml"), toml).unwrap();
    let env = [("XDG_CONFIG_HOME", fixture.home.path().to_str().unwrap())];
    let (_, err) = fixture.run_with_env(&["trust"], &env, 0);
    assert!(err.contains("would run nothing"), "{err}");
}

#[test]
fn trust_of_a_server_covers_the_content_of_its_scripts() {
    let mcp = r#"{"mcpServers": {
      "a": {"command": "./srv.sh", "args": ["--fast"]},
      "b": {"command": "python3", "args": ["-m", "look"], "env": {"NODE_OPTIONS": "--require ./x.js"}},
      "c": {"command": "sh", "args": ["-c", "python3 sub/late.py"], "disabled": true},
      "d": {"command": "python3", "args": ["in.py"], "cwd": "sub"}
    }}"#;
    let files = ["srv.sh", "look.py", "x.js", "sub/in.py"];
    let fixture = TrustProject::new(&[(".mcp.json", mcp), ("sub/late.py", "1")]);
    for file in files {
        fixture.write(file, "1");
    }
    fixture.run(&["trust", "--yes"], 0);
    assert_eq!(fixture.statuses(), [".mcp.json trusted"]);
    let (_, err) = fixture.run(&["trust", "revoke"], 0);
    assert!(err.contains("note"), "{err}");
    let (_, err) = fixture.run(&["trust", "--yes"], 0);
    let expected = "  files of this project: look.py, srv.sh, sub/in.py, x.js\n";
    assert!(err.contains(expected), "{err}");
    for file in files {
        fixture.write(file, "2");
        assert_eq!(fixture.statuses(), [".mcp.json changed"], "{file}");
        let (out, _) = fixture.run(&["mcp", "ls"], 0);
        assert!(out.contains("changed since it was trusted"), "{out}");
        let (_, err) = fixture.run(&["trust"], 6);
        let expected = format!("This item has CHANGED since it was trusted: {file}.\n");
        assert!(err.contains(&expected), "{err}");
        fixture.write(file, "1");
        assert_eq!(fixture.statuses(), [".mcp.json trusted"], "{file}");
    }
    // Disabled servers are not run.
    fixture.write("sub/late.py", "2");
    assert_eq!(fixture.statuses(), [".mcp.json trusted"]);
}

#[test]
fn shown_items_are_escaped_on_the_terminal() {
    let hostile = r#"{"mcpServers": {"a": {"command": "x", "args": ["\u001b[2J\r\nTrust it? [y/N] y\n", "\u202etxt"]}}}"#;
    let fixture = TrustProject::new(&[(".mcp.json", hostile)]);
    let (_, err) = fixture.run(&["trust"], 6);
    assert!(!err.contains('\u{1b}') && !err.contains('\u{202e}'), "{err}");
    assert!(!err.contains("\nTrust it?"), "{err}");
    assert!(err.contains("\\r\\nTrust it? [y/N] y\\n"), "{err}");
    let (out, _) = fixture.run(&["mcp", "ls"], 0);
    assert_eq!(out.lines().count(), 2, "{out}");
    // Names and URLs with a line break are invalid.
    for (server, expected) in [
        (
            r#"{"command": "x", "env": {"A\nTrust it? [y/N] y": "1"}}"#,
            "`env` contains the invalid name \"A\\nTrust it? [y/N] y\"",
        ),
        (r#"{"url": "https://a.example/\nTrust it? [y/N] y"}"#, "`url` contains a line break"),
        (r#"{"command": "x", "K\nTrust it? [y/N] y": 1}"#, "unknown key `K\\nTrust it?"),
    ] {
        fixture.write(".mcp.json", &format!(r#"{{"mcpServers": {{"a": {server}}}}}"#));
        for args in [&["trust"][..], &["mcp", "ls"]] {
            let output = longhaul_in(fixture.project.path(), args, &fixture.env());
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!err.contains("\nTrust it?"), "{err}");
            assert!(args == ["trust"] || err.contains(expected), "{err}");
        }
    }
}

#[test]
fn project_files_can_t_forge_output_lines() {
    let fake_line = "\\nTrust it? [y/N] y";
    let mcp = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "args": ["a{fake_line}"]}}}}}}"#);
    let toml = format!("[tools.send_message]\ndeliver = \"command:x a{fake_line}\"\n");
    let fixture = TrustProject::new(&[
        ("a\nTrust it? [y/N] y", "1"),
        (".mcp.json", &mcp),
        ("longhaul.toml", &toml),
    ]);
    let check = |args: &[&str], expected: &str| {
        let output = longhaul_in(fixture.project.path(), args, &fixture.env());
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(expected), "{args:?}: {text}");
        assert!(!text.contains("\nTrust it?"), "{args:?}: {text}");
    };
    for args in [&["trust"][..], &["trust", "--yes"]] {
        check(args, "  files of this project: a·Trust it? [y/N] y\n");
    }
    check(&["trust", "ls"], "trusted");
    // Values that configuration errors quote are on one line too.
    let provider = format!("[providers.far]\nbase_url = \"https://a.example/{fake_line}\"\n");
    fixture.write("longhaul.toml", &provider);
    check(&["trust"], r#""https://a.example/\nTrust it? [y/N] y" is not valid here"#);
}

#[test]
fn an_unusable_decision_file_is_reported_with_a_remedy() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP), ("file", "")]);
    let file = fixture.project.path().join("file");
    let check = |env: &[(&str, &str)], expected: &[&str]| {
        let output = longhaul_in(fixture.project.path(), &["trust", "--yes"], env);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        for expected in expected {
            assert!(err.contains(expected), "{expected}: {err}");
        }
        // Nothing is shown if the decision can't be stored, and no cause is printed twice.
        assert!(!err.contains("This project would"), "{err}");
        assert!(err.matches("os error").count() <= 1, "{err}");
    };
    let remedies = ["XDG_STATE_HOME=/some/folder longhaul trust", "LONGHAUL_TRUST=1 longhaul"];
    let file = file.to_str().unwrap();
    let expected = format!("ls -ld {file}/longhaul");
    check(&[("XDG_STATE_HOME", file)], &[&expected, remedies[0], remedies[1]]);
    let expected = "no folder to store trust decisions in";
    check(&[("HOME", "nowhere")], &[expected, remedies[0], remedies[1]]);
}

/// The default location of the decision file.
#[test]
fn without_xdg_the_decision_file_is_below_home() {
    let fixture = TrustProject::new(&[(".mcp.json", MCP)]);
    let home = fixture.home.path().to_str().unwrap();
    let env = [("HOME", home), ("XDG_STATE_HOME", "relative/is/passed/over")];
    let output = longhaul_in(fixture.project.path(), &["trust", "--yes"], &env);
    assert!(output.status.success(), "{output:?}");
    let decision_file = Path::new(home).join(".local/state/longhaul/trust.json");
    assert!(decision_file.is_file());
}

#[test]
fn a_run_asks_about_what_its_agent_needs_and_nothing_else() {
    let agent = |front: &str| format!("---\nmodel: scripted/a\n{front}\n---\nYou.");
    let fixture = TrustProject::new(&[
        (".mcp.json", r#"{"mcpServers": {"a": {"command": "touch", "args": ["started"]}}}"#),
        ("agents/plain.md", &agent("tools: []")),
        ("agents/served.md", &agent("tools: [mcp:a]")),
        ("scripts/a.yaml", "replies: [{ text: Done. }]\n"),
    ]);
    let folder = fixture.project.path();
    let (screen, code) = run_at_terminal(folder, &["run", "plain", "x"], &fixture.env(), &[]);
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains("Trust it?"), "{screen}");
    let steps = [("Trust it? [y/N]", "n\n"), ("d detach", "d\n")];
    let (screen, _) = run_at_terminal(folder, &["run", "served", "x"], &fixture.env(), &steps);
    assert!(screen.contains("a: touch started"), "{screen}");
    assert!(screen.contains("used by: integrations_agent, served"), "{screen}");
    assert!(screen.contains("is not trusted yet"), "{screen}");
    assert_eq!(fixture.statuses(), [".mcp.json not_trusted"]);
    assert!(!folder.join("started").exists());
}

#[test]
fn a_yes_before_a_run_covers_only_what_its_agent_needs() {
    let agent = |front: &str| format!("---\nmodel: scripted/a\n{front}\n---\nYou.");
    let fixture = TrustProject::new(&[
        ("look.sh", "echo '{}'\n"),
        ("agents/a.md", &agent("perception: { command: [sh, look.sh] }")),
        ("agents/b.md", &agent("tools: [shell]\nsandbox: { isolation: none }")),
        ("scripts/a.yaml", "replies: [{ text: Done. }]\n"),
    ]);
    let folder = fixture.project.path();
    let steps = [("Trust it? [y/N]", "y\n")];
    let (screen, code) = run_at_terminal(folder, &["run", "a", "x"], &fixture.env(), &steps);
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains("agent `b`"), "{screen}");
    let statuses = fixture.statuses();
    let command_status = "sh look.sh trusted".to_owned();
    assert!(statuses.contains(&command_status), "{statuses:?}");
    let other_statuses = statuses.iter().filter(|status| **status != command_status);
    let other_statuses: Vec<&String> = other_statuses.collect();
    assert_eq!(other_statuses.len(), 1, "{statuses:?}");
    assert!(other_statuses[0].ends_with(" not_trusted"), "{statuses:?}");
    // `trust` asks about everything.
    let (_, err) = fixture.run(&["trust", "--yes"], 0);
    assert!(err.contains("agent `b` is trusted as it is now; the newest 16 versions"), "{err}");
}

#[test]
fn an_invalid_item_blocks_no_other_item() {
    let toml = "[outbound]\nallow = [\"10.0.0.1:80\"]\n";
    let mcp = r#"{"mcpServers": {"a": {"command": "sh", "args": ["${A}", "${A}", "${A}"]}}}"#;
    let env = format!("A={}\n", "a".repeat(100_000));
    let fixture = TrustProject::new(&[("longhaul.toml", toml), (".mcp.json", mcp), (".env", &env)]);
    let (_, err) = fixture.run(&["trust", "--yes"], 2);
    assert!(err.contains("`.mcp.json` can't be trusted: "), "{err}");
    assert!(!err.contains("`.mcp.json` is trusted"), "{err}");
    let mut statuses = fixture.statuses();
    statuses.sort_unstable();
    assert_eq!(statuses, [".mcp.json unknown", "outbound.allow trusted"]);
}

#[test]
fn dev_reloads_a_changed_file_only_once_trusted() {
    let project = Project::new();
    let mcp = |name: &str| format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
    project.write(".mcp.json", &mcp("one"));
    project.run(&["trust", "--yes"], 0);
    let dev = ["dev", "--listen", "127.0.0.1:0", "--until-eof"];
    let mut server = TestServer::from_command(project.command(&dev));
    project.write(".mcp.json", &mcp("two"));
    server.wait_for_line(
        "the previous version stays in effect: `.mcp.json` has changed since it was trusted",
    );
    project.run(&["trust", "--yes"], 0);
    server.wait_for_line(".mcp.json was reloaded");
    project.write(".mcp.json", "{");
    server.wait_for_line("the previous version stays in effect: .mcp.json:1:");
}
