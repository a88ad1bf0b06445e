//! Directory trees on their way into a sandbox and out of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::conformance::sandboxes::files::{
    assert_file_error, assert_host_is_unchanged, host_file,
};
use crate::conformance::sandboxes::fixture::{SandboxFixture, run_script};

/// A tree comes back as it was: contents, names in any encoding, empty folders and permissions to
/// execute.
pub async fn a_tree_round_trips(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let from = fixture.harness.dir.join("from");
    let binary_name = OsStr::from_bytes(b"not text \xff\n");
    let content: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    write_host_file(&from.join("a/b/file"), &content);
    write_host_file(&from.join(binary_name), b"binary name");
    write_host_file(&from.join("script"), b"#!/bin/sh\necho ran\n");
    write_host_file(&from.join("x".repeat(200)).join("y".repeat(200)), b"long path");
    fs::set_permissions(from.join("script"), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::create_dir_all(from.join("empty")).expect("create a folder");
    sandbox.upload(&from, "/workspace/new/target").await.expect("upload");
    assert_eq!(
        run_script(&*sandbox, "cd new/target && ./script && ls -d empty").await,
        "ran\nempty\n"
    );

    let to = fixture.harness.dir.join("to");
    sandbox.download("new/target", &to).await.expect("download");
    assert_eq!(fs::read(to.join("a/b/file")).expect("read"), content);
    assert_eq!(fs::read(to.join(binary_name)).expect("read"), b"binary name");
    let long = to.join("x".repeat(200)).join("y".repeat(200));
    assert_eq!(fs::read(long).expect("read"), b"long path");
    assert!(to.join("empty").is_dir());
    let mode = fs::metadata(to.join("script")).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o100, 0o100);

    let file = fixture.harness.dir.join("single");
    sandbox.download("new/target/a/b/file", &file).await.expect("download a file");
    assert_eq!(fs::read(&file).expect("read"), content);
    sandbox.upload(&file, "single").await.expect("upload a file");
    assert_eq!(sandbox.read("single", 1_000_000).await.expect("read"), content);
}

/// An upload replaces files and keeps the others. Commands can change uploaded files.
pub async fn an_upload_replaces_files(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let from = fixture.harness.dir.join("from");
    write_host_file(&from.join("folder/replaced"), b"new");
    run_script(&*sandbox, "mkdir folder && echo old > folder/replaced && echo kept > folder/kept")
        .await;
    sandbox.upload(&from, "/workspace").await.expect("upload");
    assert_eq!(run_script(&*sandbox, "cat folder/replaced folder/kept").await, "newkept\n");
    run_script(&*sandbox, "echo changed > folder/replaced && rm folder/replaced").await;
}

/// A download to a path that exists is an error and changes nothing.
pub async fn a_download_needs_a_new_target(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "echo content > file").await;
    let to = host_file(&fixture);
    assert_file_error(sandbox.download("file", &to).await);
    assert_file_error(sandbox.download("/workspace", &fixture.harness.dir).await);
    assert_host_is_unchanged(&fixture);
}

/// Links stay links in both directions, wherever they lead.
pub async fn links_are_copied_as_links(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let from = fixture.harness.dir.join("from");
    let file = host_file(&fixture);
    fs::create_dir(&from).expect("create a folder");
    symlink(&file, from.join("absolute")).expect("link");
    symlink("missing", from.join("dangling")).expect("link");
    sandbox.upload(&from, "target").await.expect("upload");
    let links = run_script(&*sandbox, "cd target && readlink absolute && readlink dangling").await;
    assert_eq!(links, format!("{}\nmissing\n", file.display()));

    let to = fixture.harness.dir.join("to");
    sandbox.download("target", &to).await.expect("download");
    assert_eq!(fs::read_link(to.join("absolute")).expect("a link"), file);
    assert_eq!(fs::read_link(to.join("dangling")).expect("a link"), Path::new("missing"));
}

/// A download leaves out FIFOs, and does not wait for a writer.
pub async fn special_files_are_not_downloaded(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "mkdir folder && cd folder && mkfifo fifo && echo content > file").await;
    let to = fixture.harness.dir.join("to");
    sandbox.download("folder", &to).await.expect("download");
    assert_eq!(fs::read_to_string(to.join("file")).expect("read"), "content\n");
    let fifo = fs::symlink_metadata(to.join("fifo"));
    assert!(fifo.is_err() || fifo.is_ok_and(|fifo| !fifo.file_type().is_fifo()));
}

/// An upload to or over a link changes nothing on the machine.
pub async fn an_upload_does_not_follow_links_to_the_host(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let file = host_file(&fixture);
    let dir = fixture.harness.dir.display();
    let source = fixture.harness.dir.join("source");
    write_host_file(&source.join("folder/host-file"), b"overwritten");
    write_host_file(&source.join("file"), b"overwritten");
    let script =
        format!("ln -s {dir} folder && ln -s {} file && ln -s {dir} target", file.display());
    run_script(&*sandbox, &script).await;
    for to in ["/workspace", "target", "target/new"] {
        // The upload may fail, replace the link, or follow the link in the sandbox.
        _ = sandbox.upload(&source, to).await;
    }
    fs::remove_dir_all(&source).expect("delete the source");
    assert_host_is_unchanged(&fixture);
}

fn write_host_file(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("create folders");
    fs::write(path, content).expect("write a file of this machine");
}
