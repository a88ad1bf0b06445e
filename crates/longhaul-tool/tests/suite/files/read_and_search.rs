//! Reading, listing and searching: limited output with notes about the rest.

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
    let fixture = Fixture::new();
    fixture.write_file("a.txt", "one\r\ntwo\nthree");
    let whole_file = "1\tone\n2\ttwo\n3\tthree\n[The whole file: 3 lines.]";
    assert_eq!(fixture.read("a.txt").await.unwrap(), whole_file);
    let absolute = fixture.path("a.txt");
    assert_eq!(fixture.read(absolute.to_str().unwrap()).await.unwrap(), whole_file);
    let range = json!({ "path": "a.txt", "offset": 2, "limit": 1 });
    let range = fixture.call("read_file", range).await.unwrap();
    assert_eq!(range, "2\ttwo\n[Lines 2 to 2 of 3. Continue with offset 3.]");
    let past_end = json!({ "path": "a.txt", "offset": 4 });
    let past_end = fixture.call("read_file", past_end).await.unwrap_err();
    assert!(past_end.contains("has 3 lines, so there is no line 4"), "{past_end}");
    fixture.write_file("many.txt", "line\n".repeat(3_000));
    let many_lines = fixture.read("many.txt").await.unwrap();
    assert!(many_lines.ends_with("[Lines 1 to 2000 of 3000. Continue with offset 2001.]"));
}

#[tokio::test]
async fn only_a_valid_image_file_is_shown_as_an_image() {
    let fixture = Fixture::new();
    let gif = b"GIF89a\x03\0\x02\0\0\0\0;";
    fixture.write_file("a.gif", gif);
    fixture.write_file("named.txt", "GIF89a is how they begin");
    fixture.write_file("large.gif", b"GIF89a\xff\xff\x02\0\0\0\0;");
    fixture.write_file("cut.png", b"\x89PNG\r\n\x1a\n\0");
    fixture.write_file("cut.jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF");
    let ctx = tool_context();
    let input = json!({ "path": "a.gif" });
    let output = fixture.tool("read_file").call(input, &ctx).await.unwrap();
    let [Part::Text(caption), Part::Image(image)] = &output.content[..] else {
        panic!("{output:?}");
    };
    assert_eq!(&**caption, "[Image: image/gif, 3 x 2, 14 bytes.]");
    assert_eq!(image.media_type, "image/gif");
    let images = ctx.images.drain();
    assert_eq!(&*images[0].content, gif);
    assert_eq!(images[0].blob_ref, image.blob);
    let text = fixture.read("named.txt").await.unwrap();
    assert!(text.starts_with("1\tGIF89a is"), "{text}");
    for (path, expected) in [
        ("large.gif", "`large.gif` is an image that can't be shown"),
        ("cut.png", "can't be shown: the data is not a complete PNG, JPEG, GIF or WebP"),
        ("cut.jpeg", "the data is not a complete PNG"),
    ] {
        let error = fixture.read(path).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn binary_files_are_described_and_not_shown() {
    let fixture = Fixture::new();
    fixture.write_file("bin", b"ab\0cd");
    fixture.write_file("latin", b"caf\xe9");
    fixture.write_file("wide", b"\xff\xfea\0");
    fs::create_dir(fixture.path("dir")).unwrap();
    // A sparse file, so that the test is fast.
    let huge = File::create(fixture.path("huge")).unwrap();
    huge.set_len(100 * 1024 * 1024).unwrap();
    for (path, expected) in [
        ("bin", "is binary (5 bytes"),
        ("latin", "is not UTF-8 text (4 bytes, invalid at byte 3)"),
        ("wide", "is UTF-16"),
        ("dir", "is a folder and not a file; use list_files"),
        ("huge", "has 104857600 bytes"),
        ("none", "does not exist; use list_files"),
        ("none/none", "does not exist; use list_files"),
        ("bin/a", "is a symbolic link, or not a regular"),
        ("", "is the workspace itself"),
    ] {
        let message = fixture.read(path).await.unwrap_err();
        assert!(message.contains(expected), "{path}: {message}");
    }
    let found = fixture.search(json!({ "pattern": "caf|ab" })).await;
    assert!(found.contains("No match in 0 files"), "{found}");
    assert!(found.contains("unreadable or too long: 4"), "{found}");
}

/// A workspace with files of all kinds.
fn populated_fixture() -> Fixture {
    let fixture = Fixture::new();
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
        fixture.write_file(path, "needle\n");
    }
    symlink(fixture.outside(), fixture.path("link")).unwrap();
    fixture
}

#[tokio::test]
async fn folders_are_listed_and_globs_recurse() {
    let fixture = populated_fixture();
    let top_list = "README.md\nlink (a symbolic link, not followed)\n.git/\n.github/\nkeys/\nnode_modules/\nsrc/\ntarget/\nweb/\n\
        [Entries that agents can't access: 3.]";
    assert_eq!(fixture.list(json!({})).await, top_list);
    assert_eq!(fixture.list(json!({ "path": "src", "glob": "" })).await, "src/main.rs\nsrc/deep/");
    let rust_files = fixture.list(json!({ "glob": "*.rs" })).await;
    let notes = "[Skipped folders (name a folder in the glob to include it): .git, node_modules, target.]\n[Entries that agents can't access: 4.]";
    assert_eq!(rust_files, format!("src/main.rs\nsrc/deep/lib.rs\n{notes}"));
    let target_files = fixture.list(json!({ "path": "target", "glob": "**" })).await;
    assert_eq!(target_files, "target/debug/out.rs");
    let target_files = fixture.list(json!({ "glob": "target/**/*.rs" })).await;
    assert!(target_files.starts_with("target/debug/out.rs\n"), "{target_files}");
    let src_files = fixture.list(json!({ "path": "src", "glob": "src/**/*.rs" })).await;
    assert_eq!(src_files, "src/main.rs\nsrc/deep/lib.rs");
    let no_files = fixture.list(json!({ "path": "web", "glob": "*.rs" })).await;
    assert_eq!(no_files, "[No file matches.]");
    assert_eq!(fixture.list(json!({ "path": ".git" })).await, ".git/HEAD");
}

#[tokio::test]
async fn lines_are_found_by_pattern_path_and_glob() {
    let fixture = populated_fixture();
    let matches =
        fixture.search(json!({ "pattern": "NEEDLE|need", "glob": "*.{rs,tsx,yml}" })).await;
    let lines: Vec<&str> = matches.lines().filter(|line| !line.starts_with('[')).collect();
    let expected = [
        ".github/ci.yml:1: needle",
        "src/main.rs:1: needle",
        "src/deep/lib.rs:1: needle",
        "web/app.tsx:1: needle",
    ];
    assert_eq!(lines, expected, "{matches}");
    let matches_in_file =
        fixture.search(json!({ "pattern": "need(", "path": "src/main.rs" })).await;
    assert!(
        matches_in_file.contains("No match in 1 files") && matches_in_file.contains("plain text"),
        "{matches_in_file}"
    );
    let matches_in_file =
        fixture.search(json!({ "pattern": "^n.+e$", "path": "src/main.rs" })).await;
    assert_eq!(matches_in_file, "src/main.rs:1: needle");
    for (tool, input, expected) in [
        ("list_files", json!({ "path": "nowhere" }), "does not exist"),
        ("list_files", json!({ "path": "link" }), "is a symbolic link, or not"),
        ("list_files", json!({ "path": "README.md" }), "is a symbolic link, or not"),
        ("list_files", json!({ "glob": "{a" }), "is not a valid glob"),
        ("search_files", json!({ "pattern": "a", "path": "link" }), "is a symbolic link, or not"),
        ("search_files", json!({ "pattern": "" }), "pattern is empty"),
        ("search_files", json!({ "pattern": "a", "path": ".env" }), "not accessible to agents"),
        ("search_files", json!({}), "missing field `pattern`"),
    ] {
        let message = fixture.call(tool, input).await.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn truncated_results_say_so() {
    let fixture = Fixture::new();
    for count in 0..1_010 {
        fixture.write_file(&format!("many/{count:04}.txt"), "x\n");
    }
    let list = fixture.list(json!({ "path": "many" })).await;
    assert_eq!(list.lines().count(), 1_001);
    assert!(list.ends_with(
        "[There is more: only the first 1000 are shown; narrow the search by path or glob.]"
    ));
    let found = fixture.search(json!({ "pattern": "x" })).await;
    assert_eq!(found.lines().count(), 201);
    assert!(found.contains("[There is more: only the first 200 lines"));
    let mut deep_folder = fixture.path("");
    for _ in 0..40 {
        deep_folder.push("d");
    }
    fs::create_dir_all(&deep_folder).unwrap();
    fs::write(deep_folder.join("lost.md"), "lost").unwrap();
    let list = fixture.list(json!({ "glob": "*.md" })).await;
    assert!(list.contains("[No file matches.]") && list.contains("deeper than 32"), "{list}");
}

/// A clock that advances by one second whenever it is read.
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
    let fixture = Fixture::with_clock(Arc::new(FastClock::default()));
    for count in 0..50 {
        fixture.write_file(&format!("{count:02}.txt"), "x\n");
    }
    let list = fixture.list(json!({})).await;
    assert!(list.contains("19.txt") && !list.contains("40.txt"));
    assert!(
        list.contains("[Incomplete: the walk through the folders stopped after 20 seconds"),
        "{list}"
    );
    fixture.write_file("00.txt", "y\n".repeat(2_000_000));
    let found = fixture.search(json!({ "pattern": "z", "path": "00.txt" })).await;
    assert!(found.contains("the search timed out"), "{found}");
}

#[tokio::test]
async fn a_long_line_is_searched_to_its_end() {
    let fixture = Fixture::new();
    let json = format!(
        "{{{}\"needle\": 1, {}\"ünd\": 2}}",
        "\"ä\": 0, ".repeat(40_000),
        "\"b\": 3, ".repeat(40_000)
    );
    fixture.write_file("one.json", &json);
    let found = fixture.search(json!({ "pattern": "needle" })).await;
    let (position, excerpt) = found.split_once(": ").unwrap();
    assert_eq!(position, "one.json:1");
    assert!(excerpt.contains("\"needle\": 1, \"b\""), "{found}");
    assert!(excerpt.starts_with("...") && excerpt.ends_with("..."), "{found}");
    assert_eq!(excerpt.chars().count(), 246, "{found}");
    let end = fixture.search(json!({ "pattern": "2\\}$" })).await;
    assert!(end.ends_with("\"ünd\": 2}"), "{end}");
    let no_matches = fixture.search(json!({ "pattern": "0$|, $" })).await;
    assert_eq!(no_matches, "[No match in 1 files.]");
    let many_matches = fixture.search(json!({ "pattern": "\"b\"" })).await;
    assert!(many_matches.ends_with("... [more matches in the rest of this line]"));
    // A pattern that is slow per byte is not matched against the whole line.
    let large_pattern = fixture.search(json!({ "pattern": r"\w{8}|needle" })).await;
    let expected_note =
        "[Searched only up to byte 65536 because the pattern is large: 1 long lines. ";
    assert!(
        large_pattern.contains("No match in") && large_pattern.contains(expected_note),
        "{large_pattern}"
    );
    let read = fixture.read("one.json").await.unwrap();
    assert!(read.contains("was truncated. search_files also finds text in the rest"));
}
