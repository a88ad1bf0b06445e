//! Writing and editing: whole files, kept modes, and calls in doubt.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use longhaul_core::event::tool::VerifyOutcome;
use serde_json::json;

use super::{Fixture, edit_input, only_text};

#[tokio::test]
async fn write_creates_replaces_or_keeps_a_file() {
    let world = Fixture::new();
    let made = world.write("src/deep/a.txt", "one\n").await.unwrap();
    assert_eq!(made, "Created `src/deep/a.txt` (4 bytes).");
    let again = world.write("./src/deep/a.txt", "one\n").await.unwrap();
    assert_eq!(again, "`src/deep/a.txt` holds exactly this already (4 bytes).");
    let more = world.write("src/deep/a.txt", "größer\n").await.unwrap();
    assert_eq!(more, "Replaced `src/deep/a.txt` (9 bytes).");
    assert_eq!(world.content("src/deep/a.txt"), "größer\n");
    let names: Vec<_> = fs::read_dir(world.path("src/deep")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it");
    world.write("empty", "").await.unwrap();
    assert_eq!(world.read("empty").await.unwrap(), "[The file is empty.]");
}

#[tokio::test]
async fn file_modes_are_kept_and_read_only_files_are_not_changed() {
    let world = Fixture::new();
    for mode in [0o600, 0o755, 0o664] {
        world.write_file("run.sh", "old");
        let path = world.path("run.sh");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        world.write("run.sh", "new").await.unwrap();
        world.edit("run.sh", "new", "newer").await.unwrap();
        let found = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode);
        assert_eq!(world.content("run.sh"), "newer");
    }
    let path = world.path("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let wrote = world.write("run.sh", "x").await.unwrap_err();
    let edited = world.edit("run.sh", "newer", "x").await.unwrap_err();
    assert!(wrote.contains("is read-only") && edited.contains("is read-only"));
    assert_eq!(world.content("run.sh"), "newer");
}

#[tokio::test]
async fn too_long_content_is_not_written() {
    let world = Fixture::new();
    let long = "x".repeat(5 * 1024 * 1024 + 1);
    let said = world.write("long", &long).await.unwrap_err();
    assert!(said.contains("part it"), "{said}");
    assert!(!world.path("long").exists());
    world.write("long", &long[1..]).await.unwrap();
}

#[tokio::test]
async fn edits_replace_text_or_report_that_it_was_not_found() {
    let check = async |held: &str, (old, new): (&str, &str), expected: Result<&str, &str>| {
        let world = Fixture::new();
        world.write_file("a.txt", held);
        let said = world.edit("a.txt", old, new).await;
        match (said, expected) {
            (Ok(_), Ok(after)) => assert_eq!(world.content("a.txt"), after),
            (Err(said), Err(why)) => {
                assert!(said.contains(why), "{said}");
                assert_eq!(world.content("a.txt"), held);
            }
            (said, expected) => panic!("{held:?} {old:?}: {said:?}, not {expected:?}"),
        }
    };
    check("a\nb\nc\n", ("b", "B"), Ok("a\nB\nc\n")).await;
    check("a\nb\nc\n", ("b\n", ""), Ok("a\nc\n")).await;
    check("größe", ("ö", "oe"), Ok("groeße")).await;
    check("a $1 b", ("$1", "${0}\\n"), Ok("a ${0}\\n b")).await;
    // The endings of the file stay, whatever the model writes.
    check("a\r\nb\r\n", ("a\nb", "x\ny"), Ok("x\r\ny\r\n")).await;
    check("a\r\nb\r\n", ("a\r\nb", "x\r\ny"), Ok("x\r\ny\r\n")).await;
    check("a\r\nb\r\n", ("b", "x\ny"), Ok("a\r\nx\r\ny\r\n")).await;
    check("a\nb\r\nc\n", ("a\nb\r\n", "x\n"), Ok("x\nc\n")).await;
    check("\u{feff}a\n", ("a", "b"), Ok("\u{feff}b\n")).await;
    check("a b a", ("a", "x"), Err("stands in 2 places")).await;
    check("a", ("", "x"), Err("`old` is empty")).await;
    check("a", ("a", "a"), Err("the same text")).await;
    check("a", ("z", "x"), Err("copy the text exactly")).await;
    check("a b", ("z", "b"), Err("holds `new` already")).await;
    check("a\n  b", ("a b", "x"), Err("other spaces")).await;
    check("a\nb", ("1\ta\n2\tb", "x"), Err("leave out the line numbers")).await;
}

#[tokio::test]
async fn an_edit_replaces_all_occurrences_or_none() {
    let world = Fixture::new();
    world.write_file("a.txt", "cat\ncat cat\n");
    let mut input = edit_input("a.txt", "cat", "dog");
    let said = world.call("edit_file", input.clone()).await.unwrap_err();
    assert!(said.contains("3 places") && said.contains("set `all`"), "{said}");
    input["all"] = json!(true);
    let said = world.call("edit_file", input).await.unwrap();
    assert_eq!(said, "Edited `a.txt` in 3 places, the first at line 1.");
    assert_eq!(world.content("a.txt"), "dog\ndog dog\n");
    world.write_file("long.txt", "a".repeat(1_000_000));
    let long = "b".repeat(1_000_000);
    let input = json!({ "path": "long.txt", "old": "a", "new": long, "all": true });
    let said = world.call("edit_file", input).await.unwrap_err();
    assert!(said.contains("would be longer"), "{said}");
    let missing = world.edit("no/a.txt", "a", "b").await.unwrap_err();
    assert!(missing.contains("is not there; list_files"), "{missing}");
    assert!(!world.path("no").exists(), "an edit makes no folder");
    world.write_file("b.bin", b"a\0b");
    let binary = world.edit("b.bin", "a", "b").await.unwrap_err();
    assert!(binary.contains("is a binary file"), "{binary}");
}

#[tokio::test]
async fn verify_settles_a_write_in_doubt() {
    let world = Fixture::new();
    let input = edit_input("a.txt", "one\ntwo", "1\n2");
    assert_eq!(world.verify(input.clone()).await, VerifyOutcome::Unknown);
    world.write_file("a.txt", "one\r\ntwo\r\n");
    assert_eq!(world.verify(input.clone()).await, VerifyOutcome::NotHappened);
    world.call("edit_file", input.clone()).await.unwrap();
    let VerifyOutcome::Happened(output) = world.verify(input.clone()).await else {
        panic!("it has happened");
    };
    assert_eq!(only_text(&output), "Edited `a.txt`: the new text stands there.");
    world.write_file("a.txt", "something else");
    assert_eq!(world.verify(input).await, VerifyOutcome::Unknown);
    for refused in [
        edit_input("../a.txt", "a", "b"),
        edit_input(".env", "a", "b"),
        edit_input("a.txt", "", "b"),
        json!({ "path": 1 }),
    ] {
        assert_eq!(world.verify(refused).await, VerifyOutcome::NotHappened);
    }
}
