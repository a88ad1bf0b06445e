//! Builds programs in a folder outside of this workspace. Their only Longhaul dependency is `longhaul`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST_TEMPLATE: &str = r#"
[package]
name = "NAME"
version = "0.0.0"
edition = "2024"

[dependencies]
longhaul = { path = "LONGHAUL", default-features = false, features = [FEATURES] }
reqwest = { version = "0.13", default-features = false }
tokio = { version = "1", features = ["macros", "rt-multi-thread", "fs"] }

[workspace]
"#;

/// Returns the folder of the library and the folder of the workspace.
pub(super) fn package_and_workspace() -> (&'static Path, &'static Path) {
    let library = Path::new(env!("CARGO_MANIFEST_DIR"));
    (library, library.ancestors().nth(2).expect("the workspace folder"))
}

/// Builds a program from this source, with these features of `longhaul`. Third-party dependencies are already
/// built in the target directory of these tests, with the same versions and the same profile.
pub(super) fn build_program(name: &str, features: &[&str], source: &str, folder: &Path) -> PathBuf {
    let (library, workspace) = package_and_workspace();
    let cargo_toml = fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    let (_, profile) = cargo_toml.split_once("[profile.dev]").expect("the dev profile");
    // Longhaul itself is built again, and without optimization that takes less time.
    let profile = profile.lines().filter(|line| !line.starts_with("longhaul-"));
    let profile = profile.collect::<Vec<_>>().join("\n");
    let manifest = MANIFEST_TEMPLATE.replace("NAME", name);
    let manifest = manifest.replace("LONGHAUL", library.to_str().unwrap());
    let features: Vec<String> = features.iter().map(|name| format!("{name:?}")).collect();
    let manifest = manifest.replace("FEATURES", &features.join(", "));
    fs::write(folder.join("Cargo.toml"), format!("{manifest}\n[profile.dev]{profile}")).unwrap();
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    fs::create_dir(folder.join("src")).unwrap();
    fs::write(folder.join("src/main.rs"), source).unwrap();
    let test_binary = std::env::current_exe().unwrap();
    let target = test_binary.ancestors().nth(3).expect("the target directory");
    let mut cargo = Command::new(env!("CARGO"));
    // Removed, because a change of these variables would run build scripts again and rebuild everything after
    // them.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let built = cargo
        .args(["build", "--offline", "--quiet"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{stderr}");
    target.join("debug").join(name)
}
