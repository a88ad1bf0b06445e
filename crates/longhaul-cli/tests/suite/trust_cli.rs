//! `longhaul trust` as a person meets it: nothing of a stranger's is run before
//! somebody has looked at it.

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

/// A project, and a home that is elsewhere.
pub(super) struct TrustProject {
    pub(super) project: TempDir,
    home: TempDir,
}

impl TrustProject {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let place =
            Self { project: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        place.write("longhaul.toml", "");
        for (name, text) in files {
            place.write(name, text);
        }
        place
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

    /// Says this, wants this exit code, and never a secret.
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
        let told: Value = serde_json::from_str(&out).unwrap();
        let things = told["items"].as_array().unwrap().iter();
        things
            .map(|thing| {
                let word = |key: &str| thing[key].as_str().unwrap().to_owned();
                format!("{} {}", word("name"), word("status"))
            })
            .collect()
    }
}

#[test]
fn a_decision_is_stored_outside_the_project_and_ends_with_a_change() {
    let place = TrustProject::new(&[(".mcp.json", MCP)]);
    let (_, err) = place.run(&["trust"], 6);
    for says in [
        "This project would run `.mcp.json`",
        "outside any sandbox",
        "  github: npx -y \"a b\" --token=${GITHUB_TOKEN}\n",
        "    variables: LEVEL\n",
        "    reads of your environment: GITHUB_TOKEN\n",
        "  docs: https://docs.example/mcp?...\n",
        "    headers: Authorization\n",
        "  used by: integrations_agent\n",
        "1 thing of this project is not trusted",
        "longhaul trust --yes",
    ] {
        assert!(err.contains(says), "{says}: {err}");
    }
    assert_eq!(place.statuses(), [".mcp.json not_trusted"]);
    assert!(!place.decision_file().exists());
    let (_, err) = place.run(&["trust", "--yes"], 0);
    assert!(err.contains("github: npx"), "{err}");
    assert!(err.contains("`.mcp.json` is trusted until it changes"), "{err}");
    let book = fs::metadata(place.decision_file()).unwrap();
    assert_eq!(book.permissions().mode() & 0o777, 0o600);
    let (_, err) = place.run(&["trust"], 0);
    assert!(err.contains("`.mcp.json` is trusted already"), "{err}");
    let (out, _) = place.run(&["trust", "ls"], 0);
    assert!(out.contains("trusted") && out.contains("integrations_agent"), "{out}");
    place.write(".mcp.json", &MCP.replace("-y", "-yy"));
    assert_eq!(place.statuses(), [".mcp.json changed"]);
    let (_, err) = place.run(&["trust"], 6);
    let says = "It has CHANGED since it was trusted: .mcp.json or .env.\n";
    assert!(err.contains(says), "{err}");
    // What was trusted is exactly that again.
    place.write(".mcp.json", MCP);
    assert_eq!(place.statuses(), [".mcp.json trusted"]);
    let (out, _) = place.run(&["trust", "revoke"], 0);
    assert!(out.contains("1 decision"), "{out}");
    assert_eq!(place.statuses(), [".mcp.json not_trusted"]);
    place.run(&["trust", "revoke"], 0);
    place.run(&["trust", "revoke", "x"], 2);
    assert!(place.run(&["trust", "--help"], 0).0.contains("Examples:"));
}

#[test]
fn only_a_clear_yes_at_the_terminal_counts() {
    let place = TrustProject::new(&[(".mcp.json", MCP)]);
    let folder = place.project.path();
    for (answer, code, status) in [
        ("\n", 6, ".mcp.json not_trusted"),
        ("n\n", 6, ".mcp.json not_trusted"),
        ("\u{4}", 6, ".mcp.json not_trusted"),
        ("yep\n", 6, ".mcp.json not_trusted"),
        ("y\n", 0, ".mcp.json trusted"),
    ] {
        let steps = [("Trust it? [y/N]", answer)];
        let (seen, ended) = run_at_terminal(folder, &["trust"], &place.env(), &steps);
        assert_eq!(ended, Some(code), "{answer:?}: {seen}");
        assert_eq!(place.statuses(), [status], "{answer:?}: {seen}");
    }
}

#[test]
fn a_project_can_t_trust_itself() {
    let place = TrustProject::new(&[(".mcp.json", MCP)]);
    let all = [("LONGHAUL_TRUST", "1")];
    let (out, _) = place.run_with_env(&["trust", "ls"], &all, 0);
    assert!(out.contains("trusted by LONGHAUL_TRUST=1"), "{out}");
    let (out, _) = place.run_with_env(&["trust", "ls"], &[("LONGHAUL_TRUST", "0")], 0);
    assert!(out.contains("not trusted"), "{out}");
    // Only the real environment may say so.
    place.write("agents/a.md", "---\nmodel: scripted/a\n---\nYou.");
    place.write("scripts/a.yaml", "replies: [{ text: Done. }]\n");
    for line in ["LONGHAUL_TRUST=1", "XDG_STATE_HOME=/x", "XDG_CONFIG_HOME=/x"] {
        place.write(".env", &format!("{line}\n"));
        let (_, err) = place.run(&["run", "a", "x"], 2);
        assert!(err.contains("decides what is trusted"), "{err}");
        let (out, _) = place.run(&["mcp", "ls"], 0);
        assert!(out.contains("GITHUB_TOKEN is not set"), "{out}");
        assert!(!out.contains("trusted by"), "{out}");
    }
    // A project at another place is another project.
    let other = TrustProject::new(&[(".mcp.json", MCP)]);
    place.run(&["trust", "--yes"], 0);
    let output = longhaul_in(other.project.path(), &["trust", "ls"], &place.env());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.contains("not trusted"), "{out}");
}

#[test]
fn a_decision_file_writable_by_others_is_ignored() {
    let place = TrustProject::new(&[(".mcp.json", MCP)]);
    place.run(&["trust", "--yes"], 0);
    let mode = |mode| {
        fs::set_permissions(place.decision_file(), fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(0o666);
    assert_eq!(place.statuses(), [".mcp.json unknown"]);
    let (_, err) = place.run(&["trust", "--yes"], 2);
    assert!(err.contains("may be written by others"), "{err}");
    mode(0o600);
    fs::write(place.decision_file(), "{").unwrap();
    let (_, err) = place.run(&["trust", "revoke"], 2);
    assert!(err.contains("rm "), "{err}");
}

fn delivery_status(place: &TrustProject) -> String {
    let command = place.statuses();
    command.into_iter().next().unwrap_or_default()
}

#[test]
fn trust_of_a_delivery_program_covers_its_content() {
    let toml = "[tools.send_message]\ndeliver = \"command:./send --fast\"\n";
    let place = TrustProject::new(&[("longhaul.toml", toml), ("send", "#!/bin/sh\n")]);
    assert_eq!(delivery_status(&place), "./send --fast not_trusted");
    place.run(&["trust", "--yes"], 0);
    assert_eq!(delivery_status(&place), "./send --fast trusted");
    place.write("send", "#!/bin/sh\nrm -rf /\n");
    assert_eq!(delivery_status(&place), "./send --fast changed");
    place.write("longhaul.toml", &toml.replace("--fast", "--slow"));
    assert_eq!(delivery_status(&place), "./send --slow not_trusted");
    // A script that a program from elsewhere is given is looked at too.
    place.write("longhaul.toml", &toml.replace("./send --fast", "sh -e send"));
    place.run(&["trust", "--yes"], 0);
    assert_eq!(delivery_status(&place), "sh -e send trusted");
    place.write("send", "#!/bin/sh\n");
    assert_eq!(delivery_status(&place), "sh -e send changed");
    // What the user set elsewhere is no stranger's.
    place.write("longhaul.toml", "");
    let config = place.home.path().join("longhaul");
    fs::write(config.join("longhaul.toml"), toml).unwrap();
    let home = [("XDG_CONFIG_HOME", place.home.path().to_str().unwrap())];
    let (_, err) = place.run_with_env(&["trust"], &home, 0);
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
    let place = TrustProject::new(&[(".mcp.json", mcp), ("sub/late.py", "1")]);
    for file in files {
        place.write(file, "1");
    }
    place.run(&["trust", "--yes"], 0);
    assert_eq!(place.statuses(), [".mcp.json trusted"]);
    let (_, err) = place.run(&["trust", "revoke"], 0);
    assert!(err.contains("note"), "{err}");
    let (_, err) = place.run(&["trust", "--yes"], 0);
    let says = "  files of this project: look.py, srv.sh, sub/in.py, x.js\n";
    assert!(err.contains(says), "{err}");
    for file in files {
        place.write(file, "2");
        assert_eq!(place.statuses(), [".mcp.json changed"], "{file}");
        let (out, _) = place.run(&["mcp", "ls"], 0);
        assert!(out.contains("changed since it was trusted"), "{out}");
        let (_, err) = place.run(&["trust"], 6);
        let says = format!("It has CHANGED since it was trusted: {file}.\n");
        assert!(err.contains(&says), "{err}");
        place.write(file, "1");
        assert_eq!(place.statuses(), [".mcp.json trusted"], "{file}");
    }
    // What is switched off is not run.
    place.write("sub/late.py", "2");
    assert_eq!(place.statuses(), [".mcp.json trusted"]);
}

#[test]
fn shown_items_are_escaped_on_the_terminal() {
    let hostile = r#"{"mcpServers": {"a": {"command": "x", "args": ["\u001b[2J\r\nTrust it? [y/N] y\n", "\u202etxt"]}}}"#;
    let place = TrustProject::new(&[(".mcp.json", hostile)]);
    let (_, err) = place.run(&["trust"], 6);
    assert!(!err.contains('\u{1b}') && !err.contains('\u{202e}'), "{err}");
    assert!(!err.contains("\nTrust it?"), "{err}");
    assert!(err.contains("\\r\\nTrust it? [y/N] y\\n"), "{err}");
    let (out, _) = place.run(&["mcp", "ls"], 0);
    assert_eq!(out.lines().count(), 2, "{out}");
    // Names and addresses are no texts to be quoted: one with a line break is none.
    for (server, says) in [
        (
            r#"{"command": "x", "env": {"A\nTrust it? [y/N] y": "1"}}"#,
            "`env` has \"A\\nTrust it? [y/N] y\", which is no name",
        ),
        (r#"{"url": "https://a.example/\nTrust it? [y/N] y"}"#, "`url` holds a line break"),
        (r#"{"command": "x", "K\nTrust it? [y/N] y": 1}"#, "unknown key `K\\nTrust it?"),
    ] {
        place.write(".mcp.json", &format!(r#"{{"mcpServers": {{"a": {server}}}}}"#));
        for args in [&["trust"][..], &["mcp", "ls"]] {
            let output = longhaul_in(place.project.path(), args, &place.env());
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!err.contains("\nTrust it?"), "{err}");
            assert!(args == ["trust"] || err.contains(says), "{err}");
        }
    }
}

#[test]
fn project_files_can_t_forge_output_lines() {
    let faked = "\\nTrust it? [y/N] y";
    let mcp = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "args": ["a{faked}"]}}}}}}"#);
    let sends = format!("[tools.send_message]\ndeliver = \"command:x a{faked}\"\n");
    let place = TrustProject::new(&[
        ("a\nTrust it? [y/N] y", "1"),
        (".mcp.json", &mcp),
        ("longhaul.toml", &sends),
    ]);
    let check = |args: &[&str], says: &str| {
        let output = longhaul_in(place.project.path(), args, &place.env());
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(!said.contains("\nTrust it?"), "{args:?}: {said}");
    };
    for args in [&["trust"][..], &["trust", "--yes"]] {
        check(args, "  files of this project: a·Trust it? [y/N] y\n");
    }
    check(&["trust", "ls"], "trusted");
    // What a fault of the configuration quotes is one line as well.
    let provider = format!("[providers.far]\nbase_url = \"https://a.example/{faked}\"\n");
    place.write("longhaul.toml", &provider);
    check(&["trust"], r#""https://a.example/\nTrust it? [y/N] y" does not fit here"#);
}

#[test]
fn an_unusable_decision_file_is_reported_with_a_remedy() {
    let place = TrustProject::new(&[(".mcp.json", MCP), ("file", "")]);
    let file = place.project.path().join("file");
    let check = |env: &[(&str, &str)], says: &[&str]| {
        let output = longhaul_in(place.project.path(), &["trust", "--yes"], env);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        for says in says {
            assert!(err.contains(says), "{says}: {err}");
        }
        // Nobody looks at something for nothing, and no cause is told twice.
        assert!(!err.contains("This project would"), "{err}");
        assert!(err.matches("os error").count() <= 1, "{err}");
    };
    let helps = ["XDG_STATE_HOME=/some/folder longhaul trust", "LONGHAUL_TRUST=1 longhaul"];
    let file = file.to_str().unwrap();
    let says = format!("ls -ld {file}/longhaul");
    check(&[("XDG_STATE_HOME", file)], &[&says, helps[0], helps[1]]);
    let says = "there is no home to keep trust in";
    check(&[("HOME", "nowhere")], &[says, helps[0], helps[1]]);
}

/// Where the book would be without a word.
#[test]
fn without_xdg_the_decision_file_is_below_home() {
    let place = TrustProject::new(&[(".mcp.json", MCP)]);
    let home = place.home.path().to_str().unwrap();
    let env = [("HOME", home), ("XDG_STATE_HOME", "relative/is/passed/over")];
    let output = longhaul_in(place.project.path(), &["trust", "--yes"], &env);
    assert!(output.status.success(), "{output:?}");
    let book = Path::new(home).join(".local/state/longhaul/trust.json");
    assert!(book.is_file());
}

#[test]
fn a_run_asks_about_what_its_agent_needs_and_nothing_else() {
    let agent = |front: &str| format!("---\nmodel: scripted/a\n{front}\n---\nYou.");
    let place = TrustProject::new(&[
        (".mcp.json", r#"{"mcpServers": {"a": {"command": "touch", "args": ["started"]}}}"#),
        ("agents/plain.md", &agent("tools: []")),
        ("agents/served.md", &agent("tools: [mcp:a]")),
        ("scripts/a.yaml", "replies: [{ text: Done. }]\n"),
    ]);
    let folder = place.project.path();
    let (seen, code) = run_at_terminal(folder, &["run", "plain", "x"], &place.env(), &[]);
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains("Trust it?"), "{seen}");
    let steps = [("Trust it? [y/N]", "n\n"), ("d detach", "d\n")];
    let (seen, _) = run_at_terminal(folder, &["run", "served", "x"], &place.env(), &steps);
    assert!(seen.contains("a: touch started"), "{seen}");
    assert!(seen.contains("used by: integrations_agent, served"), "{seen}");
    assert!(seen.contains("is not trusted yet"), "{seen}");
    assert_eq!(place.statuses(), [".mcp.json not_trusted"]);
    assert!(!folder.join("started").exists());
}

#[test]
fn a_yes_before_a_run_covers_only_what_its_agent_needs() {
    let agent = |front: &str| format!("---\nmodel: scripted/a\n{front}\n---\nYou.");
    let place = TrustProject::new(&[
        ("look.sh", "echo '{}'\n"),
        ("agents/a.md", &agent("perception: { command: [sh, look.sh] }")),
        ("agents/b.md", &agent("tools: [shell]\nsandbox: { isolation: none }")),
        ("scripts/a.yaml", "replies: [{ text: Done. }]\n"),
    ]);
    let folder = place.project.path();
    let steps = [("Trust it? [y/N]", "y\n")];
    let (seen, code) = run_at_terminal(folder, &["run", "a", "x"], &place.env(), &steps);
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains("agent `b`"), "{seen}");
    let statuses = place.statuses();
    let look = "sh look.sh trusted".to_owned();
    assert!(statuses.contains(&look), "{statuses:?}");
    let others = statuses.iter().filter(|status| **status != look);
    let others: Vec<&String> = others.collect();
    assert_eq!(others.len(), 1, "{statuses:?}");
    assert!(others[0].ends_with(" not_trusted"), "{statuses:?}");
    // All of it is asked about by `trust`.
    let (_, err) = place.run(&["trust", "--yes"], 0);
    assert!(err.contains("agent `b` is trusted as it is now; the newest 16 versions"), "{err}");
}

#[test]
fn an_invalid_item_blocks_no_other_item() {
    let toml = "[outbound]\nallow = [\"10.0.0.1:80\"]\n";
    let mcp = r#"{"mcpServers": {"a": {"command": "sh", "args": ["${A}", "${A}", "${A}"]}}}"#;
    let env = format!("A={}\n", "a".repeat(100_000));
    let place = TrustProject::new(&[("longhaul.toml", toml), (".mcp.json", mcp), (".env", &env)]);
    let (_, err) = place.run(&["trust", "--yes"], 2);
    assert!(err.contains("`.mcp.json` can't be trusted: "), "{err}");
    assert!(!err.contains("`.mcp.json` is trusted"), "{err}");
    let mut statuses = place.statuses();
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
    let mut served = TestServer::from_command(project.command(&dev));
    project.write(".mcp.json", &mcp("two"));
    served.wait_for_line("the one of before is kept: `.mcp.json` has changed since it was trusted");
    project.run(&["trust", "--yes"], 0);
    served.wait_for_line(".mcp.json was read again");
    project.write(".mcp.json", "{");
    served.wait_for_line("the one of before is kept: .mcp.json:1:");
}
