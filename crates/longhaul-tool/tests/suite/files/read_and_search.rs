//! Reading, listing and searching: bounded, and honest about the rest.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use longhaul_core::message::Part;
use longhaul_core::time::{Clock, Millis, Timestamp};
use serde_json::json;

use super::{Fixture, tool_context};

#[tokio::test]
async fn a_file_is_read_by_lines() {
    let world = Fixture::new();
    world.write_file("a.txt", "one\r\ntwo\nthree");
    let whole = "1\tone\n2\ttwo\n3\tthree\n[The whole file: 3 lines.]";
    assert_eq!(world.read("a.txt").await.unwrap(), whole);
    let absolute = world.path("a.txt");
    assert_eq!(world.read(absolute.to_str().unwrap()).await.unwrap(), whole);
    let part = json!({ "path": "a.txt", "offset": 2, "limit": 1 });
    let part = world.call("read_file", part).await.unwrap();
    assert_eq!(part, "2\ttwo\n[Lines 2 to 2 of 3. Read on with offset 3.]");
    let beyond = json!({ "path": "a.txt", "offset": 4 });
    let beyond = world.call("read_file", beyond).await.unwrap_err();
    assert!(beyond.contains("has 3 lines, so there is no line 4"), "{beyond}");
    world.write_file("many.txt", "line\n".repeat(3_000));
    let many = world.read("many.txt").await.unwrap();
    assert!(many.ends_with("[Lines 1 to 2000 of 3000. Read on with offset 2001.]"));
}

#[tokio::test]
async fn only_a_valid_image_file_is_shown_as_an_image() {
    let world = Fixture::new();
    let gif = b"GIF89a\x03\0\x02\0\0\0\0;";
    world.write_file("a.gif", gif);
    world.write_file("named.txt", "GIF89a is how they begin");
    world.write_file("large.gif", b"GIF89a\xff\xff\x02\0\0\0\0;");
    world.write_file("cut.png", b"\x89PNG\r\n\x1a\n\0");
    world.write_file("cut.jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF");
    let around = tool_context();
    let input = json!({ "path": "a.gif" });
    let output = world.tool("read_file").call(input, &around).await.unwrap();
    let [Part::Text(words), Part::Image(image)] = &output.content[..] else {
        panic!("{output:?}");
    };
    assert_eq!(&**words, "[A picture: image/gif, 3 x 2, 14 bytes.]");
    assert_eq!(image.media_type, "image/gif");
    let put_up = around.images.drain();
    assert_eq!(&*put_up[0].content, gif);
    assert_eq!(put_up[0].blob_ref, image.blob);
    let text = world.read("named.txt").await.unwrap();
    assert!(text.starts_with("1\tGIF89a is"), "{text}");
    for (path, why) in [
        ("large.gif", "`large.gif` is a picture that can't be shown"),
        ("cut.png", "can't be shown, as it is no whole PNG, JPEG, GIF or WebP"),
        ("cut.jpeg", "it is no whole PNG"),
    ] {
        let refused = world.read(path).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn binary_files_are_described_and_not_shown() {
    let world = Fixture::new();
    world.write_file("bin", b"ab\0cd");
    world.write_file("latin", b"caf\xe9");
    world.write_file("wide", b"\xff\xfea\0");
    fs::create_dir(world.path("dir")).unwrap();
    // A file without content on the disk, so that the test is quick.
    let huge = File::create(world.path("huge")).unwrap();
    huge.set_len(100 * 1024 * 1024).unwrap();
    for (path, why) in [
        ("bin", "is a binary file (5 bytes"),
        ("latin", "is not UTF-8 text (4 bytes, wrong at byte 3)"),
        ("wide", "is UTF-16"),
        ("dir", "is a folder and not a file; list_files"),
        ("huge", "is 104857600 bytes long"),
        ("none", "is not there; list_files"),
        ("none/none", "is not there; list_files"),
        ("bin/a", "is a link or not a plain"),
        ("", "is the workspace itself"),
    ] {
        let said = world.read(path).await.unwrap_err();
        assert!(said.contains(why), "{path}: {said}");
    }
    let found = world.search(json!({ "pattern": "caf|ab" })).await;
    assert!(found.contains("Nothing was found in 0 files"), "{found}");
    assert!(found.contains("no text or too long: 4"), "{found}");
}

/// A workspace with a bit of everything in it.
fn populated() -> Fixture {
    let world = Fixture::new();
    for path in [
        "README.md",
        "src/main.rs",
        "src/deep/lib.rs",
        "web/app.tsx",
        "target/debug/out.rs",
        "node_modules/x/index.ts",
        ".git/HEAD",
        ".github/ci.yml",
        ".env",
        "keys/id_rsa",
        ".longhaul/vault/n.md",
        "state/x.rs",
    ] {
        world.write_file(path, "needle\n");
    }
    symlink(world.outside(), world.path("link")).unwrap();
    world
}

#[tokio::test]
async fn folders_are_listed_and_globs_recurse() {
    let world = populated();
    let top = "README.md\nlink (a link, not followed)\n.git/\n.github/\nkeys/\nnode_modules/\nsrc/\ntarget/\nweb/\n\
        [Closed to agents and left out: 3.]";
    assert_eq!(world.list(json!({})).await, top);
    assert_eq!(world.list(json!({ "path": "src", "glob": "" })).await, "src/main.rs\nsrc/deep/");
    let deep = world.list(json!({ "glob": "*.rs" })).await;
    let notes = "[Not entered unless named: .git, node_modules, target.]\n[Closed to agents and left out: 4.]";
    assert_eq!(deep, format!("src/main.rs\nsrc/deep/lib.rs\n{notes}"));
    let named = world.list(json!({ "path": "target", "glob": "**" })).await;
    assert_eq!(named, "target/debug/out.rs");
    let named = world.list(json!({ "glob": "target/**/*.rs" })).await;
    assert!(named.starts_with("target/debug/out.rs\n"), "{named}");
    let twice = world.list(json!({ "path": "src", "glob": "src/**/*.rs" })).await;
    assert_eq!(twice, "src/main.rs\nsrc/deep/lib.rs");
    let none = world.list(json!({ "path": "web", "glob": "*.rs" })).await;
    assert_eq!(none, "[No file fits.]");
    assert_eq!(world.list(json!({ "path": ".git" })).await, ".git/HEAD");
}

#[tokio::test]
async fn lines_are_found_by_pattern_path_and_glob() {
    let world = populated();
    let found = world.search(json!({ "pattern": "NEEDLE|need", "glob": "*.{rs,tsx,yml}" })).await;
    let lines: Vec<&str> = found.lines().filter(|line| !line.starts_with('[')).collect();
    let expected = [
        ".github/ci.yml:1: needle",
        "src/main.rs:1: needle",
        "src/deep/lib.rs:1: needle",
        "web/app.tsx:1: needle",
    ];
    assert_eq!(lines, expected, "{found}");
    let one = world.search(json!({ "pattern": "need(", "path": "src/main.rs" })).await;
    assert!(one.contains("Nothing was found in 1 files") && one.contains("plain text"), "{one}");
    let one = world.search(json!({ "pattern": "^n.+e$", "path": "src/main.rs" })).await;
    assert_eq!(one, "src/main.rs:1: needle");
    for (tool, input, why) in [
        ("list_files", json!({ "path": "nowhere" }), "is not there"),
        ("list_files", json!({ "path": "link" }), "is a link or not"),
        ("list_files", json!({ "path": "README.md" }), "is a link or not"),
        ("list_files", json!({ "glob": "{a" }), "is no glob"),
        ("search_files", json!({ "pattern": "a", "path": "link" }), "is a link or not"),
        ("search_files", json!({ "pattern": "" }), "pattern is empty"),
        ("search_files", json!({ "pattern": "a", "path": ".env" }), "closed to agents"),
        ("search_files", json!({}), "missing field `pattern`"),
    ] {
        let said = world.call(tool, input).await.unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn truncated_results_say_so() {
    let world = Fixture::new();
    for count in 0..1_010 {
        world.write_file(&format!("many/{count:04}.txt"), "x\n");
    }
    let list = world.list(json!({ "path": "many" })).await;
    assert_eq!(list.lines().count(), 1_001);
    assert!(
        list.ends_with(
            "[There is more: only the first 1000 are shown; narrow it by path or glob.]"
        )
    );
    let found = world.search(json!({ "pattern": "x" })).await;
    assert_eq!(found.lines().count(), 201);
    assert!(found.contains("[There is more: only the first 200 lines"));
    let mut deep = world.path("");
    for _ in 0..40 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("lost.md"), "lost").unwrap();
    let list = world.list(json!({ "glob": "*.md" })).await;
    assert!(list.contains("[No file fits.]") && list.contains("deeper than 32"), "{list}");
}

/// A clock by which every look takes a second.
#[derive(Debug, Default)]
struct FastClock(AtomicI64);

#[async_trait]
impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(1_000_000, Ordering::Relaxed))
    }

    async fn sleep(&self, _: Millis) {}
}

#[tokio::test]
async fn a_walk_ends_at_its_timeout() {
    let world = Fixture::with_clock(Arc::new(FastClock::default()));
    for count in 0..50 {
        world.write_file(&format!("{count:02}.txt"), "x\n");
    }
    let list = world.list(json!({})).await;
    assert!(list.contains("19.txt") && !list.contains("40.txt"));
    assert!(list.contains("[There is more: it was stopped after 20 seconds"), "{list}");
    world.write_file("00.txt", "y\n".repeat(2_000_000));
    let found = world.search(json!({ "pattern": "z", "path": "00.txt" })).await;
    assert!(found.contains("the time was over"), "{found}");
}

#[tokio::test]
async fn a_long_line_is_searched_to_its_end() {
    let world = Fixture::new();
    let json = format!(
        "{{{}\"needle\": 1, {}\"ünd\": 2}}",
        "\"ä\": 0, ".repeat(40_000),
        "\"b\": 3, ".repeat(40_000)
    );
    world.write_file("one.json", &json);
    let found = world.search(json!({ "pattern": "needle" })).await;
    let (place, shown) = found.split_once(": ").unwrap();
    assert_eq!(place, "one.json:1");
    assert!(shown.contains("\"needle\": 1, \"b\""), "{found}");
    assert!(shown.starts_with("...") && shown.ends_with("..."), "{found}");
    assert_eq!(shown.chars().count(), 246, "{found}");
    let end = world.search(json!({ "pattern": "2\\}$" })).await;
    assert!(end.ends_with("\"ünd\": 2}"), "{end}");
    let none = world.search(json!({ "pattern": "0$|, $" })).await;
    assert_eq!(none, "[Nothing was found in 1 files.]");
    let often = world.search(json!({ "pattern": "\"b\"" })).await;
    assert!(often.ends_with("... [found again behind this, in the same line]"));
    // A pattern that takes long for each byte is not let loose on all of it.
    let large = world.search(json!({ "pattern": r"\w{8}|needle" })).await;
    let part = "[Searched only up to byte 65536, as the pattern is large: 1 long lines. ";
    assert!(large.contains("Nothing was found") && large.contains(part), "{large}");
    let read = world.read("one.json").await.unwrap();
    assert!(read.contains("was cut. search_files finds what is behind"));
}
