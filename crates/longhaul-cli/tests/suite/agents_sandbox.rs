//! The field `sandbox` of agent files: valid and invalid values.

use longhaul_core::port::sandbox::Isolation;
use longhaul_engine::agent::config::IsolationLevel;

use super::agents::{agent, assert_problems};

#[test]
fn a_sandbox_table_has_these_fields() {
    let unsandboxed = agent("sandbox: { isolation: none }\ntools: [shell]");
    assert_eq!(unsandboxed.sandbox.unwrap().isolation, IsolationLevel::None);
    let fields = "provider: docker, image: rust, idle_stop: 2m, auto_stop: 1h, keep: 1d, \
                  network: [crates.io, packages], cache: [cargo], min_isolation: docker, \
                  volume: { name: cache, path: /data }, memory_mb: 512, cpus: 1.5";
    let sandboxed = agent(&format!("sandbox: {{ {fields} }}\ntools: [shell]"));
    let sandbox = sandboxed.sandbox_config().unwrap();
    assert_eq!(sandbox.provider.as_deref(), Some("docker"));
    assert_eq!(sandbox.network, ["crates.io", "packages"]);
    assert_eq!(sandbox.cache, ["cargo"]);
    assert_eq!(sandbox.min_isolation(), Isolation::Docker);
    assert_eq!((sandbox.memory_mb, sandbox.cpus), (Some(512), Some(1.5)));
    assert!(agent("sandbox: { network: none }").sandbox.unwrap().network.is_empty());
}

#[test]
fn an_invalid_sandbox_is_refused() {
    for (fields, problem) in [
        (
            "isolation: weak",
            "2:23: `isolation: weak` is not valid: leave it out for a sandbox, or write `container` \
             if Longhaul itself runs in a container that isolates enough, or `none` to run \
             unsandboxed",
        ),
        (
            "min_isolation: none",
            "2:27: `min_isolation: none` is not valid: write `isolation: none`",
        ),
        (
            "network: some",
            "2:21: `network: some` is not valid: write `none`, `host`, or a list such as \
             `[packages, example.com]`",
        ),
        ("netwrok: none", "2:12: unknown key `netwrok`, did you mean `network`?"),
        ("volume: { name: cache }", "2:20: `volume` needs `name` and `path`"),
        (
            "volume: { name: cache, path: /a/../b }",
            "2:20: `path: /a/../b` is not valid: write an absolute path such as `/data`",
        ),
    ] {
        assert_problems(&format!("sandbox: {{ {fields} }}"), &[problem]);
    }
    assert_problems(
        "sandbox: local",
        &["2:10: `sandbox` is \"local\": write a table such as `sandbox: { provider: ... }`"],
    );
    let message = "`shell` needs a sandbox: write `sandbox: { provider: local }`, or `sandbox: \
                   { isolation: none }` to run its commands with your own rights";
    assert_problems("tools: [shell]", &[&format!("2:1: {message}")]);
}
