//! Files and folders of a sandbox, read and written from outside. The paths and the files are
//! hostile: a command in the sandbox can replace any of them by a link.

use std::path::PathBuf;

use longhaul_core::port::sandbox::{SandboxEntry, SandboxEntryKind, SandboxError};

use crate::conformance::sandboxes::fixture::{SandboxFixture, run_script};

const SIZE_MAX: u64 = 1_000_000;

/// A file has the content that was written last, however its path is written.
pub async fn a_written_file_is_read_back(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for content in [&b"first version"[..], b"", &binary, b"short"] {
        sandbox.write("folder/inner/a file", content).await.expect("write");
        for path in ["folder/inner/a file", "/workspace/folder/./inner//a file"] {
            assert_eq!(sandbox.read(path, SIZE_MAX).await.expect("read"), content);
        }
    }
    sandbox.write("/tmp/other", b"temporary").await.expect("write outside the work folder");
    assert_eq!(sandbox.read("/tmp/other", SIZE_MAX).await.expect("read"), b"temporary");
}

/// Commands see the files that were written, may change them, and are seen to change them.
pub async fn a_written_file_is_visible_to_commands(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    sandbox.write("folder/file", b"written\n").await.expect("write");
    sandbox.write("/tmp/file", b"temporary\n").await.expect("write");
    let script = "cat folder/file /tmp/file; echo changed >> folder/file; echo new > folder/new; \
                  echo home > ~/file; echo ~";
    let output = run_script(&*sandbox, script).await;
    let home = output.strip_prefix("written\ntemporary\n").expect("both files").trim_end();
    for (path, expected) in [
        ("folder/file", &b"written\nchanged\n"[..]),
        ("folder/new", b"new\n"),
        (&format!("{home}/file"), b"home\n"),
    ] {
        assert_eq!(sandbox.read(path, SIZE_MAX).await.expect("read"), expected);
    }
    if let Some(dir) = sandbox.workspace_dir() {
        let content = std::fs::read(dir.join("folder/new")).expect("read on this machine");
        assert_eq!(content, b"new\n");
    }
}

/// A file with too many bytes is an error, and not read in part. An endless file is one too.
pub async fn a_file_over_the_size_limit_is_not_read(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    sandbox.write("file", b"0123456789").await.expect("write");
    assert_eq!(sandbox.read("file", 10).await.expect("read"), b"0123456789");
    assert_file_error(sandbox.read("file", 9).await);
    run_script(&*sandbox, "ln -s /dev/zero zero").await;
    assert_file_error(sandbox.read("zero", 100).await);
    assert_file_error(sandbox.read("/dev/zero", 100).await);
}

/// A path that does not exist is an error that names the path.
pub async fn a_missing_file_is_an_error(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let message = assert_file_error(sandbox.read("missing/file", SIZE_MAX).await);
    assert!(message.contains("missing/file"), "{message}");
    let message = assert_file_error(sandbox.list("missing").await);
    assert!(message.contains("missing"), "{message}");
    assert_file_error(sandbox.download("missing", &fixture.harness.dir.join("missing")).await);
    assert_file_error(sandbox.upload(&fixture.harness.dir.join("missing"), "target").await);
}

/// A folder can't be read or replaced as a file, and a file is no folder.
pub async fn a_folder_is_not_a_file(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    sandbox.write("folder/file", b"content").await.expect("write");
    assert_file_error(sandbox.read("folder", SIZE_MAX).await);
    assert_file_error(sandbox.write("folder", b"content").await);
    assert_file_error(sandbox.write("folder/file/below", b"content").await);
    assert_file_error(sandbox.list("folder/file").await);
    for path in ["", "/workspace", "a\0b"] {
        assert_file_error(sandbox.read(path, SIZE_MAX).await);
        assert_file_error(sandbox.write(path, b"content").await);
    }
    assert_eq!(sandbox.read("folder/file", SIZE_MAX).await.expect("read"), b"content");
}

/// A list has the kind and the size of each entry.
pub async fn folders_are_listed_by_name(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let script = "mkdir folder && cd folder && mkdir b && printf 12345 > a && ln -s a c && \
                  mkfifo d && printf 1 > .hidden";
    run_script(&*sandbox, script).await;
    let entry = |name: &str, kind, size| SandboxEntry { name: name.to_owned(), kind, size };
    let expected = [
        entry(".hidden", SandboxEntryKind::File, 1),
        entry("a", SandboxEntryKind::File, 5),
        entry("b", SandboxEntryKind::Dir, 0),
        entry("c", SandboxEntryKind::Symlink, 0),
        entry("d", SandboxEntryKind::Other, 0),
    ];
    assert_eq!(sandbox.list("folder").await.expect("list"), expected);
    assert_eq!(sandbox.list("/workspace/folder/b").await.expect("list"), []);
    let names: Vec<_> =
        sandbox.list("/workspace").await.expect("list").into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["folder"]);
}

/// A name that is not UTF-8 does not keep the other entries from being listed.
pub async fn names_that_are_not_text_do_not_break_a_list(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let script =
        "mkdir folder && cd folder && touch a \"$(printf 'b\\377')\" \"$(printf 'c\\nd')\"";
    run_script(&*sandbox, script).await;
    let entries = sandbox.list("folder").await.expect("list");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert!(names.contains(&"a") && names.contains(&"c\nd"), "{names:?}");
}

/// `..` never reaches a file of the machine.
pub async fn dots_do_not_lead_out(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let file = host_file(&fixture);
    let file = file.to_str().expect("the path is text");
    let up = "../".repeat(30);
    let paths = [file.to_owned(), format!("{up}{file}"), format!("/workspace/{up}{file}")];
    for path in &paths {
        assert_file_error(sandbox.read(path, SIZE_MAX).await);
    }
    for path in &paths {
        // The write may create a file of the sandbox with this path.
        _ = sandbox.write(path, b"overwritten").await;
    }
    assert_host_is_unchanged(&fixture);
}

/// A link to a file or folder of the machine reaches nothing there.
pub async fn links_do_not_lead_to_the_host(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let file = host_file(&fixture);
    let dir = fixture.harness.dir.display();
    let up = "../".repeat(30);
    let script = format!(
        "ln -s {} absolute && ln -s {up}{} relative && ln -s {dir} folder && ln -s self self && \
         mkdir inner && ln -s ../folder inner/link",
        file.display(),
        file.display(),
    );
    run_script(&*sandbox, &script).await;
    for path in ["absolute", "relative", "folder/host-file", "inner/link/host-file", "self"] {
        assert_file_error(sandbox.read(path, SIZE_MAX).await);
    }
    for path in ["folder", "inner/link", "self"] {
        assert_file_error(sandbox.list(path).await);
    }
}

/// A write through a link changes nothing on the machine.
pub async fn writes_do_not_follow_links_to_the_host(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let file = host_file(&fixture);
    let dir = fixture.harness.dir.display();
    run_script(&*sandbox, &format!("ln -s {} file && ln -s {dir} folder", file.display())).await;
    for path in ["file", "folder/host-file", "folder/new", "folder/new-folder/new"] {
        // The write may fail, replace the link, or follow the link in the sandbox.
        _ = sandbox.write(path, b"overwritten").await;
    }
    assert_host_is_unchanged(&fixture);
}

/// Reading a FIFO fails and does not wait for a writer.
pub async fn a_fifo_is_not_read(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "mkfifo fifo").await;
    assert_file_error(sandbox.read("fifo", SIZE_MAX).await);
}

/// Creates a file outside of all sandboxes.
pub(super) fn host_file(fixture: &SandboxFixture) -> PathBuf {
    let file = fixture.harness.dir.join("host-file");
    std::fs::write(&file, "of the host").expect("write a file of this machine");
    file
}

/// Asserts that the directory of this machine contains only the file of [`host_file`].
pub(super) fn assert_host_is_unchanged(fixture: &SandboxFixture) {
    let dir = &fixture.harness.dir;
    let content = std::fs::read_to_string(dir.join("host-file")).expect("read");
    assert_eq!(content, "of the host");
    assert_eq!(std::fs::read_dir(dir).expect("list").count(), 1, "a new file in {dir:?}");
}

/// Asserts that an access failed with an error that the model reads. Returns its message.
pub(super) fn assert_file_error<T: std::fmt::Debug>(result: Result<T, SandboxError>) -> String {
    match result {
        Err(SandboxError::File(message)) => message,
        other => panic!("no error of a file: {other:?}"),
    }
}
