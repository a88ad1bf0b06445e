//! Attempts to leave the workspace or to access protected files.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use longhaul_testkit::clock::SimClock;
use longhaul_tool::file_tools;
use proptest::prelude::{Strategy as _, any, prop, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use std::sync::Arc;

use super::{Fixture, call};

/// Checks that every tool with a path rejects this one for this reason.
async fn assert_refused(fixture: &Fixture, path: &str, expected: &str) {
    let all = [
        ("read_file", json!({ "path": path })),
        ("write_file", json!({ "path": path, "content": "x" })),
        ("edit_file", json!({ "path": path, "old": "the", "new": "x" })),
        ("list_files", json!({ "path": path })),
        ("search_files", json!({ "path": path, "pattern": "the" })),
    ];
    for (tool, input) in all {
        let message = fixture.call(tool, input).await;
        let message = message.expect_err(&format!("{tool} {path:?}"));
        assert!(message.contains(expected), "{tool} {path:?}: {message}");
        assert!(!message.contains("the secret"), "{message}");
    }
}

#[tokio::test]
async fn every_path_escape_is_rejected() {
    let fixture = Fixture::new();
    fixture.write_file("in/a.txt", "the text");
    let outside_dir = fixture.outside();
    symlink(&outside_dir, fixture.path("link")).unwrap();
    symlink(&outside_dir, fixture.path("in/link")).unwrap();
    symlink("../..", fixture.path("in/up")).unwrap();
    symlink(outside_dir.join("secret.txt"), fixture.path("in/s.txt")).unwrap();
    symlink(outside_dir.join("new.txt"), fixture.path("in/dangling")).unwrap();
    symlink("a.txt", fixture.path("in/inner")).unwrap();
    symlink("loop", fixture.path("loop")).unwrap();
    symlink("/dev/zero", fixture.path("zero")).unwrap();
    symlink("/proc/self/root", fixture.path("magic")).unwrap();
    let absolute = outside_dir.join("secret.txt");
    let via_parent = format!("{}/../outside/secret.txt", fixture.path("").display());
    let table = [
        ("../outside/secret.txt", "has `..`"),
        ("in/../../outside/secret.txt", "has `..`"),
        ("in/..", "has `..`"),
        (&via_parent, "has `..`"),
        ("..", "has `..`"),
        (absolute.to_str().unwrap(), "outside of the workspace"),
        ("/", "outside of the workspace"),
        ("/etc/passwd", "outside of the workspace"),
        ("//etc/passwd", "outside of the workspace"),
        ("~/.bashrc", "outside of the workspace"),
        ("..\\outside\\secret.txt", "separate folders by `/`"),
        ("C:\\x", "separate folders by `/`"),
        ("in/a.txt\0", "control or invisible"),
        ("in/a\u{202e}txt", "control or invisible"),
        ("in/\u{feff}a.txt", "control or invisible"),
        ("in/a.txt\n", "control or invisible"),
        ("link/secret.txt", "is a symbolic link, or not"),
        ("link/new/deep.txt", "is a symbolic link, or not"),
        ("in/link/secret.txt", "is a symbolic link, or not"),
        ("in/up/outside/secret.txt", "is a symbolic link, or not"),
        ("in/s.txt", "is a symbolic link, or not"),
        ("in/dangling", "is a symbolic link, or not"),
        ("in/inner", "is a symbolic link, or not"),
        ("loop", "is a symbolic link, or not"),
        ("loop/x", "is a symbolic link, or not"),
        ("zero", "is a symbolic link, or not"),
        ("magic/etc/passwd", "is a symbolic link, or not"),
        ("in/a.txt/x", "is a symbolic link, or not"),
        ("IN/a.txt", "exists as `in`"),
        ("in/A.TXT", "exists as `a.txt`"),
        (&"d/".repeat(33), "too deep"),
        (&"d".repeat(256), "longer than 255"),
        (&"d/".repeat(2_000), "too long"),
    ];
    for (path, expected) in table {
        assert_refused(&fixture, path, expected).await;
    }
    let outside_entries: Vec<_> = fs::read_dir(&outside_dir).unwrap().collect();
    assert_eq!(outside_entries.len(), 1, "{outside_entries:?}");
    let secret = fs::read_to_string(outside_dir.join("secret.txt")).unwrap();
    assert_eq!(secret, "the secret");
    assert_eq!(fixture.content("in/a.txt"), "the text");
    let found = fixture.search(json!({ "pattern": "the" })).await;
    assert_eq!(found, "in/a.txt:1: the text");
}

#[tokio::test]
async fn protected_files_stay_protected() {
    let fixture = Fixture::new();
    let protected = [
        ".longhaul/longhaul.db",
        ".LONGHAUL/vault/a.md",
        ".env",
        ".Env.local",
        "sub/.env.production",
        "local.key",
        "keys/id_ed25519",
        "tls/server.pem",
        ".ssh/config",
        ".git/config",
        ".git/credentials",
        "state/x",
        "State/x",
        "runs.db",
    ];
    for path in protected {
        fixture.write_file(path, "the secret");
    }
    for path in protected {
        assert_refused(&fixture, path, "not accessible to agents").await;
    }
    fixture.write_file(".git/HEAD", "ref: x\n");
    assert!(fixture.read(".git/HEAD").await.unwrap().contains("ref: x"));
    for path in [".git/HEAD", ".git/hooks/pre-commit", "sub/.git", ".GIT/x", ".git"] {
        let write_error = fixture.write(path, "x").await.unwrap_err();
        assert!(write_error.contains("which only git writes"), "{write_error}");
        let edit_error = fixture.edit(path, "ref", "x").await.unwrap_err();
        assert!(edit_error.contains("which only git writes"), "{edit_error}");
    }
    for path in ["nul", "a/aux.txt", "com1", "a:b", "end.", "end ", "a. /b"] {
        let write_error = fixture.write(path, "x").await.unwrap_err();
        assert!(write_error.contains("use another name"), "{write_error}");
    }
    let found = fixture.search(json!({ "pattern": "secret" })).await;
    assert!(!found.contains("the secret"), "{found}");
    // A hard link to a protected file is protected too.
    fs::hard_link(fixture.path("runs.db"), fixture.path("innocent.txt")).unwrap();
    let message = fixture.read("innocent.txt").await.unwrap_err();
    assert!(message.contains("belongs to the runtime"), "{message}");
    let message = fixture.write("innocent.txt", "x").await.unwrap_err();
    assert!(message.contains("belongs to the runtime"), "{message}");
}

#[tokio::test]
async fn pipes_and_sockets_do_not_block() {
    let fixture = Fixture::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, fixture.path("pipe"), kind, mode, 0).unwrap();
    let _socket = UnixListener::bind(fixture.path("socket")).unwrap();
    for path in ["pipe", "socket", "pipe/x"] {
        assert_refused(&fixture, path, "is a symbolic link, or not").await;
    }
    let list = fixture.list(json!({})).await;
    assert_eq!(list, "pipe (not a regular file)\nsocket (not a regular file)");
    let found = fixture.search(json!({ "pattern": "x" })).await;
    assert_eq!(found, "[No match in 0 files.]");
}

#[tokio::test]
async fn invalid_input_says_what_to_send() {
    let fixture = Fixture::new();
    for (tool, input, expected) in [
        ("read_file", json!({}), "missing field `path`"),
        ("read_file", json!({ "path": "a", "offset": -1 }), "invalid value"),
        ("read_file", json!({ "path": "a", "follow": true }), "path, offset, limit"),
        ("write_file", json!({ "path": "a" }), "missing field `content`"),
        ("edit_file", json!({ "path": "a", "old": "b" }), "missing field `new`"),
        ("list_files", json!("src"), "path, glob"),
    ] {
        let message = fixture.call(tool, input).await.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(fixture.list(json!({})).await, "[The folder is empty.]");
}

#[tokio::test]
async fn a_workspace_root_may_be_a_symlink() {
    let fixture = Fixture::new();
    fixture.write_file("a.txt", "the text");
    let link = fixture.dir.path().join("alias");
    symlink(fixture.path(""), &link).unwrap();
    let tools = file_tools(&link, Vec::new(), Arc::new(SimClock::new())).unwrap();
    let real_path = fixture.path("a.txt").canonicalize().unwrap();
    for path in [link.join("a.txt"), real_path, "a.txt".into()] {
        let output = call(&tools[0], json!({ "path": path })).await.unwrap();
        assert!(output.starts_with("1\tthe text"), "{output}");
    }
    let missing_root = fixture.dir.path().join("none");
    let tools = file_tools(missing_root, Vec::new(), Arc::new(SimClock::new())).unwrap();
    let output = call(&tools[3], json!({})).await.unwrap_err();
    assert!(output.contains("does not exist"), "{output}");
}

/// Path components of an attacker.
const PATH_PARTS: &[&str] = &[
    "..",
    ".",
    "",
    "in",
    "link",
    "up",
    "s",
    "~",
    "outside",
    "secret.txt",
    "work",
    "IN",
    ".git",
    "\\..",
    "..\\",
    "\u{ff0e}\u{ff0e}",
    "\u{2025}",
    "%2e%2e",
    "..;",
    "\0",
    " ..",
    ".. ",
    "...",
    "/",
    "//",
];

/// Whatever the path is, nothing outside is read or changed.
#[test]
fn no_path_leads_outside() {
    let part =
        prop_oneof![prop::sample::select(PATH_PARTS).prop_map(str::to_owned), any::<String>(),];
    let paths = (any::<bool>(), prop::collection::vec(part, 0..7));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fixture = Fixture::new();
    fixture.write_file("in/a.txt", "inside");
    symlink(fixture.outside(), fixture.path("link")).unwrap();
    symlink("..", fixture.path("up")).unwrap();
    symlink(fixture.outside().join("secret.txt"), fixture.path("s")).unwrap();
    let base = fixture.dir.path().to_str().unwrap().to_owned();
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&paths, |(absolute, parts)| {
        let relative_path = parts.join("/");
        let path = if absolute { format!("{base}/{relative_path}") } else { relative_path };
        let output = runtime.block_on(async {
            let _ = fixture.write(&path, "written").await;
            let _ = fixture.edit(&path, "the secret", "edited").await;
            let read_result = fixture.read(&path).await;
            let input = json!({ "path": path, "pattern": "the secret" });
            let search_result = fixture.call("search_files", input).await;
            format!("{read_result:?}{search_result:?}")
        });
        prop_assert!(!output.contains("\tthe secret") && !output.contains(": the secret"));
        let mut top_entries: Vec<_> = fs::read_dir(fixture.dir.path())?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        top_entries.sort();
        prop_assert_eq!(top_entries, ["outside", "work"]);
        prop_assert_eq!(fs::read_dir(fixture.outside())?.count(), 1);
        let secret = fs::read_to_string(fixture.outside().join("secret.txt"))?;
        prop_assert_eq!(secret, "the secret");
        Ok(())
    });
    result.unwrap();
}
