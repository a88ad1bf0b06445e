//! Writing and editing: complete files, kept permissions, and calls in doubt.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use longhaul_core::event::tool::VerifyOutcome;
use serde_json::json;

use super::{Fixture, edit_input, only_text};

#[tokio::test]
async fn write_creates_replaces_or_keeps_a_file() {
    let fixture = Fixture::new();
    let created = fixture.write("src/deep/a.txt", "one\n").await.unwrap();
    assert_eq!(created, "Created `src/deep/a.txt` (4 bytes).");
    let unchanged = fixture.write("./src/deep/a.txt", "one\n").await.unwrap();
    assert_eq!(unchanged, "`src/deep/a.txt` already has exactly this content (4 bytes).");
    let replaced = fixture.write("src/deep/a.txt", "größer\n").await.unwrap();
    assert_eq!(replaced, "Replaced `src/deep/a.txt` (9 bytes).");
    assert_eq!(fixture.content("src/deep/a.txt"), "größer\n");
    let names: Vec<_> = fs::read_dir(fixture.path("src/deep")).unwrap().collect();
    assert_eq!(names.len(), 1, "a temporary file was left");
    fixture.write("empty", "").await.unwrap();
    assert_eq!(fixture.read("empty").await.unwrap(), "[The file is empty.]");
}

#[tokio::test]
async fn file_modes_are_kept_and_read_only_files_are_not_changed() {
    let fixture = Fixture::new();
    for mode in [0o600, 0o755, 0o664] {
        fixture.write_file("run.sh", "old");
        let path = fixture.path("run.sh");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fixture.write("run.sh", "new").await.unwrap();
        fixture.edit("run.sh", "new", "newer").await.unwrap();
        let actual_mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(actual_mode & 0o777, mode);
        assert_eq!(fixture.content("run.sh"), "newer");
    }
    let path = fixture.path("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let write_error = fixture.write("run.sh", "x").await.unwrap_err();
    let edit_error = fixture.edit("run.sh", "newer", "x").await.unwrap_err();
    assert!(write_error.contains("is read-only") && edit_error.contains("is read-only"));
    assert_eq!(fixture.content("run.sh"), "newer");
}

#[tokio::test]
async fn too_long_content_is_not_written() {
    let fixture = Fixture::new();
    let long = "x".repeat(5 * 1024 * 1024 + 1);
    let message = fixture.write("long", &long).await.unwrap_err();
    assert!(message.contains("split it"), "{message}");
    assert!(!fixture.path("long").exists());
    fixture.write("long", &long[1..]).await.unwrap();
}

#[tokio::test]
async fn edits_replace_text_or_report_that_it_was_not_found() {
    let check = async |content: &str, (old, new): (&str, &str), expected: Result<&str, &str>| {
        let fixture = Fixture::new();
        fixture.write_file("a.txt", content);
        let result = fixture.edit("a.txt", old, new).await;
        match (result, expected) {
            (Ok(_), Ok(expected_content)) => assert_eq!(fixture.content("a.txt"), expected_content),
            (Err(result), Err(expected_error)) => {
                assert!(result.contains(expected_error), "{result}");
                assert_eq!(fixture.content("a.txt"), content);
            }
            (result, expected) => panic!("{content:?} {old:?}: {result:?}, not {expected:?}"),
        }
    };
    check("a\nb\nc\n", ("b", "B"), Ok("a\nB\nc\n")).await;
    check("a\nb\nc\n", ("b\n", ""), Ok("a\nc\n")).await;
    check("größe", ("ö", "oe"), Ok("groeße")).await;
    check("a $1 b", ("$1", "${0}\\n"), Ok("a ${0}\\n b")).await;
    // The line endings of the file are kept, whatever the model writes.
    check("a\r\nb\r\n", ("a\nb", "x\ny"), Ok("x\r\ny\r\n")).await;
    check("a\r\nb\r\n", ("a\r\nb", "x\r\ny"), Ok("x\r\ny\r\n")).await;
    check("a\r\nb\r\n", ("b", "x\ny"), Ok("a\r\nx\r\ny\r\n")).await;
    check("a\nb\r\nc\n", ("a\nb\r\n", "x\n"), Ok("x\nc\n")).await;
    check("\u{feff}a\n", ("a", "b"), Ok("\u{feff}b\n")).await;
    check("a b a", ("a", "x"), Err("occurs 2 times")).await;
    check("a", ("", "x"), Err("`old` is empty")).await;
    check("a", ("a", "a"), Err("the same text")).await;
    check("a", ("z", "x"), Err("copy the text exactly")).await;
    check("a b", ("z", "b"), Err("already contains `new`")).await;
    check("a\n  b", ("a b", "x"), Err("other whitespace")).await;
    check("a\nb", ("1\ta\n2\tb", "x"), Err("leave out the line numbers")).await;
}

#[tokio::test]
async fn an_edit_replaces_all_occurrences_or_none() {
    let fixture = Fixture::new();
    fixture.write_file("a.txt", "cat\ncat cat\n");
    let mut input = edit_input("a.txt", "cat", "dog");
    let message = fixture.call("edit_file", input.clone()).await.unwrap_err();
    assert!(message.contains("3 times") && message.contains("set `all`"), "{message}");
    input["all"] = json!(true);
    let message = fixture.call("edit_file", input).await.unwrap();
    assert_eq!(message, "Edited `a.txt` 3 times, first at line 1.");
    assert_eq!(fixture.content("a.txt"), "dog\ndog dog\n");
    fixture.write_file("long.txt", "a".repeat(1_000_000));
    let long_text = "b".repeat(1_000_000);
    let input = json!({ "path": "long.txt", "old": "a", "new": long_text, "all": true });
    let message = fixture.call("edit_file", input).await.unwrap_err();
    assert!(message.contains("would be longer"), "{message}");
    let error = fixture.edit("no/a.txt", "a", "b").await.unwrap_err();
    assert!(error.contains("does not exist; use list_files"), "{error}");
    assert!(!fixture.path("no").exists(), "an edit created a folder");
    fixture.write_file("b.bin", b"a\0b");
    let binary = fixture.edit("b.bin", "a", "b").await.unwrap_err();
    assert!(binary.contains("is binary"), "{binary}");
}

#[tokio::test]
async fn verify_settles_a_write_in_doubt() {
    let fixture = Fixture::new();
    let input = edit_input("a.txt", "one\ntwo", "1\n2");
    assert_eq!(fixture.verify(input.clone()).await, VerifyOutcome::Unknown);
    fixture.write_file("a.txt", "one\r\ntwo\r\n");
    assert_eq!(fixture.verify(input.clone()).await, VerifyOutcome::NotHappened);
    fixture.call("edit_file", input.clone()).await.unwrap();
    let VerifyOutcome::Happened(output) = fixture.verify(input.clone()).await else {
        panic!("the edit was not recognized");
    };
    assert_eq!(only_text(&output), "Edited `a.txt`: the file contains the new text.");
    fixture.write_file("a.txt", "something else");
    assert_eq!(fixture.verify(input).await, VerifyOutcome::Unknown);
    for invalid_input in [
        edit_input("../a.txt", "a", "b"),
        edit_input(".env", "a", "b"),
        edit_input("a.txt", "", "b"),
        json!({ "path": 1 }),
    ] {
        assert_eq!(fixture.verify(invalid_input).await, VerifyOutcome::NotHappened);
    }
}
