//! What a crash leaves on disk while a sandbox is deleted.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use longhaul_testkit::conformance::sandboxes::fixture::run_script;

use crate::suite::local::fixture::Local;

#[tokio::test]
async fn directories_of_deleted_sandboxes_are_removed_when_the_provider_opens() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    run_script(&*sandbox, "mkdir -p folder && echo content > folder/file && chmod 0 folder").await;
    local.provider.stop(&sandbox.info().handle).await.expect("stop");
    // A worker is killed after it has renamed the directory.
    let dir = local.sandboxes_dir();
    let left = dir.join(".deleted-0123456789abcdef");
    fs::rename(dir.join(&sandbox.info().name), &left).expect("rename");
    let kept = local.create().await;
    kept.write("file", b"kept").await.expect("write");

    let provider = local.open_again().await;
    assert!(!left.exists());
    let infos = provider.list(&Default::default()).await.expect("list");
    assert_eq!(infos.len(), 1);
    assert_eq!(kept.read("file", 100).await.expect("read"), b"kept");
}

/// Only directories of the provider are deleted, and no link is followed.
#[tokio::test]
async fn a_link_with_the_name_of_a_deleted_sandbox_is_not_followed() {
    let local = Local::open().await;
    let outside = local.host_dir().join("outside");
    fs::create_dir(&outside).expect("create a directory");
    fs::write(outside.join("file"), "kept").expect("write");
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o444)).expect("chmod");
    symlink(&outside, local.sandboxes_dir().join(".deleted-link")).expect("link");
    local.open_again().await;
    let metadata = fs::metadata(outside.join("file")).expect("the file is still there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o444);
}
