//! The field `sandbox` of agent files: valid and invalid values.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::port::sandbox::Isolation;
use longhaul_core::time::Clock;
use longhaul_engine::agent::config::IsolationLevel;
use longhaul_engine::clock::SystemClock;
use longhaul_project::assemble::sandboxes::sandbox_registry;
use longhaul_project::config::load::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::schema::SANDBOX_PROVIDERS;

use super::agents::{agent, assert_problems, load_files};

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
        ("provider: dcoker", "2:22: unknown sandbox provider `dcoker`, did you mean `docker`?"),
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

/// A program that registers a provider may execute the runs, so the agent can be used.
#[test]
fn a_provider_of_an_unknown_program_is_a_missing_reference() {
    let front = "tools: [shell]\nsandbox: { provider: firecracker }";
    for (file, fields) in [
        ("agents/a.md", front.to_owned()),
        (".claude/agents/a.md", front.replace("[shell]", "Bash") + "\nname: a\ndescription: A."),
    ] {
        let (_folder, loaded) =
            load_files(&[(file, format!("---\n{fields}\n---\nHi.").as_bytes())]);
        let agent = &loaded.find_loaded_agent("a").unwrap().agent;
        assert_eq!(agent.sandbox_config().unwrap().provider.as_deref(), Some("firecracker"));
        let missing: Vec<_> = loaded.missing_references.iter().map(ToString::to_string).collect();
        let message = "unknown sandbox provider `firecracker`, expected one of `local`, `docker`, \
                       `daytona`; only a program that registers a provider `firecracker` can \
                       execute runs of the agent";
        assert_eq!(missing, [format!("{file}:3:22: {message}")]);
        assert_eq!(loaded.problems, []);
    }
}

#[test]
fn the_known_providers_are_those_of_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let process_env = ProcessEnv { cwd: folder.path().to_owned(), ..ProcessEnv::default() };
    let config = load(&process_env, &[]).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let registry = sandbox_registry(&config, &clock);
    let registered: BTreeSet<&str> = registry.providers().map(|one| one.name()).collect();
    assert_eq!(registered, BTreeSet::from(SANDBOX_PROVIDERS));
}
