//! Every way out, and every closed door.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use longhaul_testkit::clock::SimClock;
use longhaul_tool::Files;
use proptest::prelude::{Strategy as _, any, prop, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use std::sync::Arc;

use super::{Fixture, call};

/// Every tool that takes a path refuses this one for this reason.
async fn assert_refused(world: &Fixture, path: &str, why: &str) {
    let all = [
        ("read_file", json!({ "path": path })),
        ("write_file", json!({ "path": path, "content": "x" })),
        ("edit_file", json!({ "path": path, "old": "the", "new": "x" })),
        ("list_files", json!({ "path": path })),
        ("search_files", json!({ "path": path, "pattern": "the" })),
    ];
    for (tool, input) in all {
        let said = world.call(tool, input).await;
        let said = said.expect_err(&format!("{tool} {path:?}"));
        assert!(said.contains(why), "{tool} {path:?}: {said}");
        assert!(!said.contains("the secret"), "{said}");
    }
}

#[tokio::test]
async fn every_path_escape_is_rejected() {
    let world = Fixture::new();
    world.write_file("in/a.txt", "the text");
    let outside = world.outside();
    symlink(&outside, world.path("link")).unwrap();
    symlink(&outside, world.path("in/link")).unwrap();
    symlink("../..", world.path("in/up")).unwrap();
    symlink(outside.join("secret.txt"), world.path("in/s.txt")).unwrap();
    symlink(outside.join("new.txt"), world.path("in/dangling")).unwrap();
    symlink("a.txt", world.path("in/inner")).unwrap();
    symlink("loop", world.path("loop")).unwrap();
    symlink("/dev/zero", world.path("zero")).unwrap();
    symlink("/proc/self/root", world.path("magic")).unwrap();
    let absolute = outside.join("secret.txt");
    let around = format!("{}/../outside/secret.txt", world.path("").display());
    let table = [
        ("../outside/secret.txt", "has `..`"),
        ("in/../../outside/secret.txt", "has `..`"),
        ("in/..", "has `..`"),
        (&around, "has `..`"),
        ("..", "has `..`"),
        (absolute.to_str().unwrap(), "outside of the workspace"),
        ("/", "outside of the workspace"),
        ("/etc/passwd", "outside of the workspace"),
        ("//etc/passwd", "outside of the workspace"),
        ("~/.bashrc", "outside of the workspace"),
        ("..\\outside\\secret.txt", "part folders by `/`"),
        ("C:\\x", "part folders by `/`"),
        ("in/a.txt\0", "control or invisible"),
        ("in/a\u{202e}txt", "control or invisible"),
        ("in/\u{feff}a.txt", "control or invisible"),
        ("in/a.txt\n", "control or invisible"),
        ("link/secret.txt", "is a link or not"),
        ("link/new/deep.txt", "is a link or not"),
        ("in/link/secret.txt", "is a link or not"),
        ("in/up/outside/secret.txt", "is a link or not"),
        ("in/s.txt", "is a link or not"),
        ("in/dangling", "is a link or not"),
        ("in/inner", "is a link or not"),
        ("loop", "is a link or not"),
        ("loop/x", "is a link or not"),
        ("zero", "is a link or not"),
        ("magic/etc/passwd", "is a link or not"),
        ("in/a.txt/x", "is a link or not"),
        ("IN/a.txt", "is spelled `in`"),
        ("in/A.TXT", "is spelled `a.txt`"),
        (&"d/".repeat(33), "too deep"),
        (&"d".repeat(256), "longer than 255"),
        (&"d/".repeat(2_000), "too long"),
    ];
    for (path, why) in table {
        assert_refused(&world, path, why).await;
    }
    let left: Vec<_> = fs::read_dir(&outside).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let secret = fs::read_to_string(outside.join("secret.txt")).unwrap();
    assert_eq!(secret, "the secret");
    assert_eq!(world.content("in/a.txt"), "the text");
    let found = world.search(json!({ "pattern": "the" })).await;
    assert_eq!(found, "in/a.txt:1: the text");
}

#[tokio::test]
async fn protected_files_stay_protected() {
    let world = Fixture::new();
    let shut = [
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
    for path in shut {
        world.write_file(path, "the secret");
    }
    for path in shut {
        assert_refused(&world, path, "closed to agents").await;
    }
    world.write_file(".git/HEAD", "ref: x\n");
    assert!(world.read(".git/HEAD").await.unwrap().contains("ref: x"));
    for path in [".git/HEAD", ".git/hooks/pre-commit", "sub/.git", ".GIT/x", ".git"] {
        let wrote = world.write(path, "x").await.unwrap_err();
        assert!(wrote.contains("only git itself writes"), "{wrote}");
        let edited = world.edit(path, "ref", "x").await.unwrap_err();
        assert!(edited.contains("only git itself writes"), "{edited}");
    }
    for path in ["nul", "a/aux.txt", "com1", "a:b", "end.", "end ", "a. /b"] {
        let wrote = world.write(path, "x").await.unwrap_err();
        assert!(wrote.contains("use another name"), "{wrote}");
    }
    let found = world.search(json!({ "pattern": "secret" })).await;
    assert!(!found.contains("the secret"), "{found}");
    // Another name for the same thing opens nothing.
    fs::hard_link(world.path("runs.db"), world.path("innocent.txt")).unwrap();
    let said = world.read("innocent.txt").await.unwrap_err();
    assert!(said.contains("belongs to the runtime"), "{said}");
    let said = world.write("innocent.txt", "x").await.unwrap_err();
    assert!(said.contains("belongs to the runtime"), "{said}");
}

#[tokio::test]
async fn pipes_and_sockets_do_not_block() {
    let world = Fixture::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, world.path("pipe"), kind, mode, 0).unwrap();
    let _socket = UnixListener::bind(world.path("socket")).unwrap();
    for path in ["pipe", "socket", "pipe/x"] {
        assert_refused(&world, path, "is a link or not").await;
    }
    let list = world.list(json!({})).await;
    assert_eq!(list, "pipe (not a plain file)\nsocket (not a plain file)");
    let found = world.search(json!({ "pattern": "x" })).await;
    assert_eq!(found, "[Nothing was found in 0 files.]");
}

#[tokio::test]
async fn invalid_input_says_what_to_send() {
    let world = Fixture::new();
    for (tool, input, why) in [
        ("read_file", json!({}), "missing field `path`"),
        ("read_file", json!({ "path": "a", "offset": -1 }), "invalid value"),
        ("read_file", json!({ "path": "a", "follow": true }), "path, offset, limit"),
        ("write_file", json!({ "path": "a" }), "missing field `content`"),
        ("edit_file", json!({ "path": "a", "old": "b" }), "missing field `new`"),
        ("list_files", json!("src"), "path, glob"),
    ] {
        let said = world.call(tool, input).await.unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(world.list(json!({})).await, "[The folder is empty.]");
}

#[tokio::test]
async fn a_workspace_root_may_be_a_symlink() {
    let world = Fixture::new();
    world.write_file("a.txt", "the text");
    let link = world.dir.path().join("alias");
    symlink(world.path(""), &link).unwrap();
    let files = Files::new(&link, Arc::new(SimClock::new()));
    let tools = files.tools().unwrap();
    let real = world.path("a.txt").canonicalize().unwrap();
    for path in [link.join("a.txt"), real, "a.txt".into()] {
        let said = call(&tools[0], json!({ "path": path })).await.unwrap();
        assert!(said.starts_with("1\tthe text"), "{said}");
    }
    let none = Files::new(world.dir.path().join("none"), Arc::new(SimClock::new()));
    let list = none.tools().unwrap()[3].clone();
    let said = call(&list, json!({})).await.unwrap_err();
    assert!(said.contains("is not there"), "{said}");
}

/// What somebody who wants out might write between two `/`.
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

/// Whatever is written as a path, nothing outside is read or changed.
#[test]
fn no_path_leads_outside() {
    let part =
        prop_oneof![prop::sample::select(PATH_PARTS).prop_map(str::to_owned), any::<String>(),];
    let paths = (any::<bool>(), prop::collection::vec(part, 0..7));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let world = Fixture::new();
    world.write_file("in/a.txt", "inside");
    symlink(world.outside(), world.path("link")).unwrap();
    symlink("..", world.path("up")).unwrap();
    symlink(world.outside().join("secret.txt"), world.path("s")).unwrap();
    let base = world.dir.path().to_str().unwrap().to_owned();
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let done = TestRunner::new(config).run(&paths, |(absolute, parts)| {
        let below = parts.join("/");
        let path = if absolute { format!("{base}/{below}") } else { below };
        let said = runtime.block_on(async {
            let _ = world.write(&path, "written").await;
            let _ = world.edit(&path, "the secret", "edited").await;
            let read = world.read(&path).await;
            let input = json!({ "path": path, "pattern": "the secret" });
            let found = world.call("search_files", input).await;
            format!("{read:?}{found:?}")
        });
        prop_assert!(!said.contains("\tthe secret") && !said.contains(": the secret"));
        let mut top: Vec<_> = fs::read_dir(world.dir.path())?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        top.sort();
        prop_assert_eq!(top, ["outside", "work"]);
        prop_assert_eq!(fs::read_dir(world.outside())?.count(), 1);
        let secret = fs::read_to_string(world.outside().join("secret.txt"))?;
        prop_assert_eq!(secret, "the secret");
        Ok(())
    });
    done.unwrap();
}
