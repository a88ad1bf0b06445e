//! `longhaul config` on the command line.

use std::path::Path;

use super::cli::longhaul_in;
use super::config::project;

fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[("LONGHAUL_WORKER_POLL", "3s")]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    (out, err)
}

#[test]
fn config_show_prints_values_with_their_origin() {
    let project = project("[worker]\nlease = \"20s\"\n");
    let folder = project.folder.path();
    let (out, _) = run(folder, &["config", "show"], 0);
    assert!(out.contains("worker.lease = \"20s\"\n"), "{out}");
    assert!(out.contains("store.url = \"sqlite:.longhaul/longhaul.db\"\n"), "{out}");
    let (out, _) = run(folder, &["config", "show", "--origin"], 0);
    let line = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("worker.lease").ends_with("  # project file longhaul.toml:2"), "{out}");
    assert!(line("worker.poll").ends_with("  # environment LONGHAUL_WORKER_POLL"), "{out}");
    assert!(line("worker.concurrency").ends_with("  # default"), "{out}");
    let (out, _) = run(folder, &["config", "show", "--origin", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["worker.poll"]["value"], "3s");
    assert_eq!(json["worker.poll"]["origin"], "environment LONGHAUL_WORKER_POLL");
    let (out, _) = run(folder, &["config", "show", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["worker.concurrency"], 256);
    let (out, _) = run(folder, &["config", "path", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["project_file"]["exists"], true);
    let (out, _) = run(folder, &["config", "path"], 0);
    assert!(out.contains("user file"), "{out}");
    let (out, _) = run(folder, &["config", "show", "--help"], 0);
    assert!(out.contains("Examples:"), "{out}");
}

#[test]
fn an_invalid_file_is_refused_with_its_position() {
    let project = project("[worker]\nlese = \"20s\"\n");
    let folder = project.folder.path();
    let (out, err) = run(folder, &["config", "show"], 2);
    assert_eq!(out, "");
    assert!(
        err.contains("longhaul.toml:2:1: unknown key `worker.lese`, did you mean `worker.lease`?"),
        "{err}"
    );
    assert!(err.contains("`longhaul config path`"), "{err}");
    let (out, _) = run(folder, &["config", "path"], 2);
    assert!(out.contains("project file  "), "{out}");
}
