//! Several at once: writers beside writers, and a hand that swaps links in.

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
    let world = Fixture::new();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let content = format!("{writer}").repeat(50_000);
        let tool = world.tool("write_file");
        writers.spawn(async move {
            for path in ["new/shared.txt".to_owned(), format!("new/own-{writer}.txt")] {
                let input = json!({ "path": path, "content": content });
                call(&tool, input).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let shared = world.content("new/shared.txt");
    assert_eq!(shared.len(), 50_000);
    assert!(shared.bytes().all(|byte| byte == shared.as_bytes()[0]));
    assert_eq!(fs::read_dir(world.path("new")).unwrap().count(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_edits_are_all_applied() {
    let world = Fixture::new();
    let lines: String = (0..16).map(|line| format!("<{line}>\n")).collect();
    world.write_file("a.txt", lines);
    let mut writers = JoinSet::new();
    for line in 0..16 {
        let tool = world.tool("edit_file");
        let input = edit_input("a.txt", &format!("<{line}>"), &format!("done {line}"));
        writers.spawn(async move { call(&tool, input).await.unwrap() });
    }
    writers.join_all().await;
    let expected: String = (0..16).map(|line| format!("done {line}\n")).collect();
    assert_eq!(world.content("a.txt"), expected);
}

/// Somebody swaps a folder for a link to the outside and back, as fast as the
/// disk allows, while all tools are at work on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_in_symlink_is_not_followed() {
    let world = Fixture::new();
    world.write_file("dir/secret.txt", "the inside");
    symlink(world.outside(), world.path("swap")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (over, real, link) = (Arc::clone(&over), world.path("dir"), world.path("swap"));
        thread::spawn(move || {
            let mut swaps = 0;
            while !over.load(Ordering::Relaxed) {
                // Both at once, so that no tool ever finds nothing there.
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        })
    };
    let mut found = String::new();
    for round in 0..150 {
        let content = format!("written {round}");
        let _ = world.write("dir/secret.txt", &content).await;
        let _ = world.write(&format!("dir/new-{round}.txt"), "x").await;
        let _ = world.edit("dir/secret.txt", "the secret", "edited").await;
        let read = world.read("dir/secret.txt").await;
        let input = json!({ "pattern": "the secret" });
        let searched = world.call("search_files", input).await;
        found.push_str(&format!("{read:?}{searched:?}"));
    }
    over.store(true, Ordering::Relaxed);
    assert!(swapping.join().unwrap() > 0);
    assert!(!found.contains("\tthe secret") && !found.contains(": the secret"));
    assert_eq!(fs::read_dir(world.outside()).unwrap().count(), 1);
    let secret = fs::read_to_string(world.outside().join("secret.txt")).unwrap();
    assert_eq!(secret, "the secret");
}
