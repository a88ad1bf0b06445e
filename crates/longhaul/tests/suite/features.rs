//! What a program that depends on `longhaul` does not get unless it asks for it.

use std::process::Command;

#[test]
fn without_features_there_is_no_http_server_and_no_command_line() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "longhaul", "--no-default-features"])
        .args(["--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{said}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let has = |name: &str| {
        tree.lines()
            .any(|line| line.split(' ').next() == Some(name))
    };
    assert!(has("longhaul-engine"), "{tree}");
    for name in ["axum", "clap", "longhaul-server", "longhaul-cli"] {
        assert!(!has(name), "{name} is part of every program");
    }
}
