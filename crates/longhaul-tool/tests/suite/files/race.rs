//! Concurrency: several writers, and a folder that is replaced by a symbolic link.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Fixture, call, edit_input};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_leave_complete_files() {
    let fixture = Fixture::new();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let content = format!("{writer}").repeat(50_000);
        let tool = fixture.tool("write_file");
        writers.spawn(async move {
            for path in ["new/shared.txt".to_owned(), format!("new/own-{writer}.txt")] {
                let input = json!({ "path": path, "content": content });
                call(&tool, input).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let shared_text = fixture.content("new/shared.txt");
    assert_eq!(shared_text.len(), 50_000);
    assert!(shared_text.bytes().all(|byte| byte == shared_text.as_bytes()[0]));
    assert_eq!(fs::read_dir(fixture.path("new")).unwrap().count(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_edits_are_all_applied() {
    let fixture = Fixture::new();
    let lines: String = (0..16).map(|line| format!("<{line}>\n")).collect();
    fixture.write_file("a.txt", lines);
    let mut writers = JoinSet::new();
    for line in 0..16 {
        let tool = fixture.tool("edit_file");
        let input = edit_input("a.txt", &format!("<{line}>"), &format!("done {line}"));
        writers.spawn(async move { call(&tool, input).await.unwrap() });
    }
    writers.join_all().await;
    let expected: String = (0..16).map(|line| format!("done {line}\n")).collect();
    assert_eq!(fixture.content("a.txt"), expected);
}

/// A thread swaps a folder with a link to the outside, as fast as the disk allows, while all tools
/// use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_in_symlink_is_not_followed() {
    let fixture = Fixture::new();
    fixture.write_file("dir/secret.txt", "the inside");
    symlink(fixture.outside(), fixture.path("swap")).unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let swap_thread = {
        let (is_done, real, link) =
            (Arc::clone(&is_done), fixture.path("dir"), fixture.path("swap"));
        thread::spawn(move || {
            let mut swaps = 0;
            while !is_done.load(Ordering::Relaxed) {
                // Swapped atomically, so that a tool always finds one of them.
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        })
    };
    let mut output = String::new();
    for round in 0..150 {
        let content = format!("written {round}");
        let _ = fixture.write("dir/secret.txt", &content).await;
        let _ = fixture.write(&format!("dir/new-{round}.txt"), "x").await;
        let _ = fixture.edit("dir/secret.txt", "the secret", "edited").await;
        let read_result = fixture.read("dir/secret.txt").await;
        let input = json!({ "pattern": "the secret" });
        let search_result = fixture.call("search_files", input).await;
        output.push_str(&format!("{read_result:?}{search_result:?}"));
    }
    is_done.store(true, Ordering::Relaxed);
    assert!(swap_thread.join().unwrap() > 0);
    assert!(!output.contains("\tthe secret") && !output.contains(": the secret"));
    assert_eq!(fs::read_dir(fixture.outside()).unwrap().count(), 1);
    let secret = fs::read_to_string(fixture.outside().join("secret.txt")).unwrap();
    assert_eq!(secret, "the secret");
}
