//! Definitions that change while a server runs: new runs use the new ones, and existing runs keep
//! theirs.

use serde_json::{Value, json};

use super::fake_server::{self, FakeServer, event_stream};
use super::project::{Project, has_status};
use super::server_harness::{TestServer, local_key};

const DEV_ARGS: &[&str] = &["dev", "--listen", "127.0.0.1:0", "--until-eof"];

/// A fake model that writes a note, which needs approval, and then ends. It records the requests.
fn fake_model() -> FakeServer {
    FakeServer::new(|request| {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let is_result = |message: &Value| message["role"] == "tool";
        let (delta, reason) = match messages.iter().any(is_result) {
            true => (json!({ "content": "Done." }), "stop"),
            false => {
                let input =
                    r#"{"folder":"Tasks","title":"Buy","content":"a","tags":[],"confidence":90}"#;
                let call = json!({ "name": "vault_write", "arguments": input });
                let call = json!({ "index": 0, "id": "c1", "type": "function", "function": call });
                (json!({ "tool_calls": [call] }), "tool_calls")
            }
        };
        let first = json!({ "choices": [{ "index": 0, "delta": delta }] });
        let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        event_stream(&format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n"))
    })
}

/// Returns the system prompts of all requests so far.
fn sent_prompts(model: &FakeServer) -> Vec<String> {
    let system_prompt = |body: &Value| {
        let messages = body["messages"].as_array().unwrap();
        let system_prompt = messages.iter().find(|message| message["role"] == "system");
        system_prompt.unwrap()["content"].as_str().unwrap_or_default().to_owned()
    };
    let requests = model.requests();
    let bodies = requests.iter().filter_map(|request| serde_json::from_str(&request.body).ok());
    bodies.map(|body: Value| system_prompt(&body)).collect()
}

fn project(model: &FakeServer) -> Project {
    let project = Project::new();
    let url = &model.url;
    project.write(
        "longhaul.toml",
        &format!("[worker]\npoll = \"10m\"\n[providers.mine]\napi = \"chat\"\nbase_url = \"{url}/v1\"\nkey_env = []\n"),
    );
    project.write("agents/buyer.md", &buyer_agent("First", "vault_write"));
    project
}

fn buyer_agent(prompt: &str, tools: &str) -> String {
    format!(
        "---\nmodel: mine/x\ntools: [{tools}]\napprove:\n  - {{ tool: vault_write, ask: 'Write?' }}\n---\n{prompt}.\n"
    )
}

#[test]
fn a_waiting_run_resumes_with_its_own_agent_version() {
    let model = fake_model();
    let project = project(&model);
    let run = project.run_until_gate("buyer");
    let version = project.json(&["show", &run, "--json"])["agent_version"].clone();
    // The file no longer has the old prompt and the tool.
    project.write("agents/buyer.md", &buyer_agent("Second", "vault_list"));
    project.run(&["approve", &run, "--yes"], 0);
    project.run(&["watch", &run], 0);
    let done = project.json(&["show", &run, "--json"]);
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["agent_version"], version);
    let prompts = sent_prompts(&model);
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert!(prompts.iter().all(|prompt| prompt.contains("First.")), "{prompts:?}");
    std::fs::remove_file(project.path().join("agents/buyer.md")).unwrap();
    assert_eq!(project.json(&["show", &run, "--json"])["agent_version"], version);
}

#[test]
fn dev_gives_new_runs_the_new_version_and_old_ones_their_own() {
    let model = fake_model();
    let project = project(&model);
    let mut dev = TestServer::from_command(project.command(DEV_ARGS));
    let first = project.run_until_gate("buyer");
    project.write("agents/buyer.md", &buyer_agent("Second", "vault_write"));
    let line = dev.wait_for_line("agents/buyer.md changed: version ");
    assert!(line.contains("existing runs keep the old version"), "{line}");
    let second = project.run_until_gate("buyer");
    let version = |run: &str| project.json(&["show", run, "--json"])["agent_version"].clone();
    let (old, new) = (version(&first), version(&second));
    assert_ne!(old, new);
    assert!(line.contains(&new.as_str().unwrap()[..8]), "{line} {new}");
    let key = format!("Bearer {}", local_key(&project));
    let agents = dev.request("GET /v1/agents", &[("authorization", &key)], "").json();
    let agents = agents["data"].as_array().unwrap().clone();
    let buyer = agents.iter().find(|agent| agent["name"] == "buyer").unwrap();
    assert_eq!(buyer["version"], new);
    for (run, prompt) in [(&first, "First."), (&second, "Second.")] {
        project.run(&["approve", run, "--yes"], 0);
        project.wait_until(run, has_status("completed"));
        assert!(sent_prompts(&model).last().unwrap().contains(prompt));
    }
    assert_eq!(version(&first), old);
}

#[test]
fn dev_logs_broken_and_fixed_agents() {
    let project = Project::new();
    let mut dev = TestServer::from_command(project.command(DEV_ARGS));
    let agent_text =
        "---\ndescription: New.\nmodel: scripted/chat\ntools: [vault_list]\n---\nYou.\n";
    project.write("agents/plain.md", agent_text);
    dev.wait_for_line("agents/plain.md changed");
    let run = project.json(&["run", "plain", "milk", "--json"]);
    assert_eq!(run["model"], "scripted/chat");
    project.write("agents/plain.md", "---\ndescription: [\n---\n");
    let line = dev.wait_for_line("agents/plain.md:2:14: ");
    assert!(line.contains("\"warn\""), "{line}");
    let output = project.run(&["submit", "plain", "milk"], 2);
    assert!(output.err.contains("agents/plain.md:2:14"), "{output:?}");
    let key = format!("Bearer {}", local_key(&project));
    let task = json!({ "agent": "plain", "input": "x" }).to_string();
    let refused = dev.request("POST /v1/runs", &[("authorization", &key)], &task);
    assert!((400..500).contains(&refused.status), "{refused:?}");
    // Other agents still work.
    project.run(&["run", "chat", "milk"], 0);
    project.write("agents/plain.md", agent_text);
    dev.wait_for_line("agents/plain.md is ready");
    project.run(&["run", "plain", "milk"], 0);
    std::fs::remove_file(project.path().join("agents/plain.md")).unwrap();
    dev.wait_for_line("agents/plain.md was removed");
}

#[test]
fn changed_settings_apply_after_a_restart_and_need_trust() {
    let server = FakeServer::new(|_| fake_server::json_response("200 OK", "{}"));
    let address = server.url.trim_start_matches("http://").to_owned();
    let project = Project::new();
    let agent = "---\nmodel: scripted/ask\ntools: [http_fetch]\napprove: [{ tool: http_fetch, allow: true }]\n---\nYou.\n";
    project.write("agents/asks.md", agent);
    let script = format!(
        "replies:\n  - tools: [{{ name: http_fetch, input: {{ url: \"{}/a\" }} }}]\n  - text: Done.\n",
        server.url
    );
    project.write("scripts/ask.yaml", &script);
    let before = std::fs::read_to_string(project.path().join("longhaul.toml")).unwrap_or_default();
    let with_outbound = format!("{before}\n[outbound]\nallow = [\"{address}\"]\n");
    let mut dev = TestServer::from_command(project.command(DEV_ARGS));
    project.run(&["run", "asks", "x"], 0);
    project.write("longhaul.toml", &with_outbound);
    let line = dev.wait_for_line("longhaul.toml has changed");
    assert!(line.contains("must be trusted first"), "{line}");
    project.run(&["run", "asks", "x"], 0);
    drop(dev);
    // A restarted server reads the settings, but they are not trusted yet.
    let dev = TestServer::from_command(project.command(DEV_ARGS));
    project.run(&["run", "asks", "x", "--no-input"], 0);
    assert_eq!(server.requests().len(), 0, "no request was allowed");
    drop(dev);
    project.run(&["trust", "--yes"], 0);
    let _dev = TestServer::from_command(project.command(DEV_ARGS));
    project.run(&["run", "asks", "x"], 0);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn dev_logs_deleted_files_and_script_errors() {
    let project = Project::new();
    let mut dev = TestServer::from_command(project.command(DEV_ARGS));
    let remove = |file: &str| std::fs::remove_file(project.path().join(file)).unwrap();
    project.write("scripts/plain.yaml", "- text: [");
    let line = dev.wait_for_line("scripts/plain.yaml:");
    assert!(line.contains("\"warn\""), "{line}");
    project.write("agents/plain.md", "---\ndescription: [\n---\n");
    dev.wait_for_line("agents/plain.md:2:14: ");
    remove("agents/plain.md");
    dev.wait_for_line("agents/plain.md was removed");
    project.write("agents/plan.md", "---\nmodel: scripted/plain\n---\nYou.\n");
    dev.wait_for_line("agents/plan.md changed");
    remove("agents/plan.md");
    let line = dev.wait_for_line("agents/plan.md was removed");
    assert!(line.contains("built-in/plan.md"), "{line}");
}

#[test]
fn every_file_of_an_agent_is_watched() {
    let project = Project::new();
    let agent =
        "---\nmodel: scripted/plain\nskills: [style]\noutput: { schema: a.json }\n---\nYou.\n";
    let skill = |description: &str| format!("---\nname: style\ndescription: {description}\n---\n");
    project.write("agents/made.md", agent);
    let mut dev = TestServer::from_command(project.command(DEV_ARGS));
    project.write("skills/style/SKILL.md", &skill("How."));
    // One of the agent's two problems is left: the missing schema.
    project.write("a.json", "{}");
    dev.wait_for_line("agents/made.md is ready");
    project.write("a.json", "{ \"type\": \"object\" }");
    dev.wait_for_line("agents/made.md changed");
    project.write("skills/style/SKILL.md", &skill("How it is done."));
    dev.wait_for_line("agents/made.md changed");
    project.write("AGENTS.md", "Be kind.");
    dev.wait_for_line("AGENTS.md or CLAUDE.md changed");
    project.write(".claude/agents/theirs.md", "---\nname: theirs\ncolor: red\n---\nYou.\n");
    dev.wait_for_line(".claude/agents/theirs.md is ready");
    project.write("skills/style/SKILL.md", "nothing");
    dev.wait_for_line("skills/style/SKILL.md:1:1: ");
}

#[test]
fn serve_does_not_reload_agents() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let key = format!("Bearer {}", local_key(&project));
    let names = || {
        let agents = server.request("GET /v1/agents", &[("authorization", &key)], "").json();
        let agents = agents["data"].as_array().unwrap().clone();
        agents.iter().map(|agent| agent["name"].to_string()).collect::<Vec<_>>()
    };
    let before = names();
    project.write("agents/new.md", "---\n---\nYou.\n");
    let run = project.submit("chat", "milk");
    project.wait_until(&run, has_status("completed"));
    assert_eq!(names(), before);
}
