//! Tests of invalid agents, in files and in code, and of when the errors are reported.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use longhaul::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul::sandboxes::{
    Isolation, ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSpec, Sandboxes,
};
use longhaul::{Agent, RawJson, Runtime, RuntimeBuilder, Task, async_trait, models};
use serde_json::json;

fn write_files(folder: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

#[tokio::test]
async fn an_invalid_agent_file_is_reported_on_submit_and_affects_no_other_agent() {
    let folder = tempfile::tempdir().unwrap();
    write_files(
        folder.path(),
        &[
            ("longhaul.toml", ""),
            ("agents/good.md", "---\nmodel: scripted/hi\ntools: [read_file]\n---\nYou greet.\n"),
            ("agents/broken.md", "---\nmodel: scripted/hi\ntools: [raed_file]\n---\nYou read.\n"),
            ("scripts/hi.yaml", "replies: [{ text: 'Hello.' }]\n"),
        ],
    );
    let builder = Runtime::builder().store("sqlite::memory:");
    let runtime = builder.project(folder.path()).open().await.unwrap();
    let worker = runtime.worker().spawn();
    let good_run = runtime.submit(Task::new("good")).await.unwrap();
    assert_eq!(good_run.wait().await.unwrap().text().unwrap(), "Hello.");
    let error = runtime.submit(Task::new("broken")).await.unwrap_err();
    let message = error.to_string();
    for part in ["agents/broken.md:3:", "did you mean `read_file`?"] {
        assert!(message.contains(part), "{message}");
    }
    let error = runtime.submit(Task::new("goood")).await.unwrap_err();
    assert!(error.to_string().contains("`good`"), "{error}");
    worker.stop().await.unwrap();
}

async fn open_error(builder: RuntimeBuilder) -> String {
    builder.open().await.expect_err("the runtime was opened").to_string()
}

#[tokio::test]
async fn an_agent_in_code_is_checked_when_the_runtime_is_opened() {
    let agent = || Agent::new("helper");
    for (agent, expected) in [
        (agent().tool("raed_output"), "did you mean `read_output`?"),
        (agent().tool("mcp:github"), "`mcp:github`"),
        (agent().model("nobody/model-1"), "nobody"),
        (agent().model("gibberish"), "There is no model `gibberish`"),
        (agent().context_provider("board"), "`board`"),
        (agent().prompt("{{ inptu }}"), "did you mean `input`?"),
        (agent().prompt("{{ input"), "invalid template"),
        (agent().prompt("{{ perception }}"), "perception"),
        (agent().output_schema(json!({ "type": "objekt" })), "is not a valid JSON Schema"),
        (agent().output_schema(json!(7)), "is not a schema"),
        (agent().define(|agent| agent.lane = Some("{{ nobody }}".into())), "nobody"),
        (agent().approve("a".repeat(1025), "May it?"), "`approve`: the glob has 1025 bytes"),
    ] {
        let debug_text = format!("{agent:?}");
        let message = open_error(Runtime::builder().store("sqlite::memory:").agent(agent)).await;
        assert!(message.contains("the agent `helper` can't be used"), "{message}");
        assert!(message.contains(expected), "{message}\n{debug_text}");
    }
}

#[tokio::test]
async fn an_agent_in_code_may_name_the_tools_of_its_project() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), &[("longhaul.toml", "")]);
    let builder = || {
        let builder = Runtime::builder().store("sqlite::memory:");
        builder.project(folder.path())
    };
    let agent = || Agent::new("helper").tool("read_file").tool("ask_human");
    builder().agent(agent()).open().await.unwrap();
    let message = open_error(builder().agent(agent().tool("shell"))).await;
    assert!(message.contains("`shell` needs a sandbox"), "{message}");
    let message = open_error(builder().agent(agent().tool("read_flie"))).await;
    assert!(message.contains("did you mean `read_file`?"), "{message}");
}

#[derive(Debug)]
struct FakeContextProvider;

#[async_trait]
impl ContextProvider for FakeContextProvider {
    async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
        Ok(Perception { world: RawJson::null(), context: BTreeMap::new() })
    }
}

#[tokio::test]
async fn a_model_or_a_context_provider_that_is_registered_twice_is_refused() {
    let model = || models::scripted("a", "replies: [{ text: 'a' }]").unwrap();
    let builder = || Runtime::builder().store("sqlite::memory:");
    let message = open_error(builder().model("a", model()).model("a", model())).await;
    assert!(message.contains("two models named `a`"), "{message}");
    let builder_with_sky = builder().context_provider("sky", FakeContextProvider);
    let message = open_error(builder_with_sky.context_provider("sky", FakeContextProvider)).await;
    assert!(message.contains("two context providers named `sky`"), "{message}");
}

#[tokio::test]
async fn a_second_runtime_on_the_same_file_fails_with_the_current_driver() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("agents.db").display());
    let first = Runtime::builder().store(&store).open().await.unwrap();
    let message = open_error(Runtime::builder().store(&store)).await;
    let pid = format!("pid {}", std::process::id());
    for part in ["agents.db", &pid] {
        assert!(message.contains(part), "{message}");
    }
    drop(first);
    Runtime::builder().store(&store).open().await.unwrap();
}

/// A provider without sandboxes.
#[derive(Debug)]
struct EmptyProvider(&'static str);

#[async_trait]
impl Sandboxes for EmptyProvider {
    fn name(&self) -> &str {
        self.0
    }

    fn host(&self) -> Option<String> {
        None
    }

    async fn status(&self) -> ProviderStatus {
        ProviderStatus { isolation: Ok(Isolation::Remote), notes: Vec::new() }
    }

    async fn create(&self, _: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        Err(SandboxError::NotFound)
    }

    async fn start(&self, _: &str, _: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        Err(SandboxError::NotFound)
    }

    async fn get(&self, _: &str) -> Result<SandboxInfo, SandboxError> {
        Err(SandboxError::NotFound)
    }

    async fn list(&self, _: &BTreeMap<String, String>) -> Result<Vec<SandboxInfo>, SandboxError> {
        Ok(Vec::new())
    }

    async fn stop(&self, _: &str) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn delete(&self, _: &str) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// A registered name may be similar to the name of another provider.
#[tokio::test]
async fn an_agent_file_may_name_a_registered_sandbox_provider() {
    let folder = tempfile::tempdir().unwrap();
    let front = "model: scripted/hi\ntools: [shell]\nsandbox: { provider: docker2 }";
    let agent = format!("---\n{front}\n---\nYou greet.\n");
    let files =
        [("agents/a.md", agent.as_str()), ("scripts/hi.yaml", "replies: [{ text: Hi. }]\n")];
    write_files(folder.path(), &files);
    let builder = || Runtime::builder().store("sqlite::memory:").project(folder.path());
    let runtime = builder().open().await.unwrap();
    let error = runtime.submit(Task::new("a")).await.unwrap_err().to_string();
    let expected = "agents/a.md:4:22: unknown sandbox provider `docker2`, did you mean `docker`?";
    assert!(error.contains(expected), "{error}");
    let runtime = builder().sandboxes(EmptyProvider("docker2")).open().await.unwrap();
    runtime.submit(Task::new("a")).await.unwrap();
}
