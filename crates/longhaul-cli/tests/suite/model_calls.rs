//! Model calls over the real APIs, from the command line to the journal: calls, fallbacks,
//! recording and replay. Keys appear nowhere.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::project::{CommandOutput, Project};
use super::server_harness::TestServer;

const KEY: &str = "sk-very-secret-0123456789";

const APIS: [(&str, &str); 3] = [("anthropic", ""), ("responses", "/v1"), ("chat", "/v1")];

const SCRIPT: &str = "replies:
- text: 'Writing {{ input }}.'
  tools:
  - { name: vault_write, input: { folder: Tasks, title: 'Buy {{ input }}', content: 'a \"quoted\" é', tags: [x], confidence: 90 } }
  - { name: vault_write, input: { folder: Tasks, title: 'Cook {{ input }}', content: b, tags: [], confidence: 15 } }
- text: 'Done: {{ last_result }}'
";

/// A project whose providers all point to one mock.
struct MockProject {
    project: Project,
    mock: TestServer,
}

impl MockProject {
    fn new(flags: &[&str]) -> Self {
        let project = Project::new();
        project.write("scripts/buy.yaml", SCRIPT);
        project.write(
            "scripts/shut.yaml",
            "replies:\n- error: { status: 401, times: 99 }\n  text: never\n",
        );
        let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
        let mock = TestServer::from_command(project.command(&[&listen[..], flags].concat()));
        project.write("longhaul.toml", "[worker]\npoll = \"10m\"\n");
        let mut toml = String::new();
        for (api, version) in APIS {
            let address = mock.address();
            toml.push_str(&format!(
                "[providers.my-{api}]\napi = \"{api}\"\nbase_url = \"http://{address}{version}\"\nkey_env = \"MY_KEY\"\n"
            ));
        }
        // In the user's own file, because a project that names a key would need trust.
        project.write(".config/longhaul/longhaul.toml", &toml);
        write_agent(&project, "buyer", "my-anthropic/buy");
        Self { project, mock }
    }

    fn run_command(&self, args: &[&str], code: i32) -> CommandOutput {
        let output = self.project.command(args).env("MY_KEY", KEY).output();
        let result = CommandOutput::from_output(&output.unwrap());
        assert_eq!(result.code, code, "{args:?}: {result:?}");
        result
    }

    fn run(&self, extra_args: &[&str]) -> Value {
        let args = [&["run", "buyer", "milk", "--json"], extra_args].concat();
        self.run_command(&args, 0).json()
    }

    fn transcript(&self, run: &Value) -> Value {
        let id = run["id"].as_str().unwrap();
        self.project.json(&["show", id, "--transcript", "--json"])
    }
}

fn write_agent(project: &Project, name: &str, model: &str) {
    let text = format!("---\nmodel: {model}\ntools: [vault_write, vault_list]\n---\nBe tidy.\n");
    project.write(&format!("agents/{name}.md"), &text);
}

/// Collects the content of all files below a folder.
fn collect_files(folder: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, files);
        } else {
            files.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn every_api_gives_the_same_result() {
    let project = MockProject::new(&[]);
    for (api, _) in APIS {
        let run = project.run(&["--model", &format!("my-{api}/buy")]);
        assert_eq!(run["status"], "completed", "{run}");
        let text = run["output"]["text"].as_str().unwrap();
        assert!(text.contains("Cook milk"), "{text}");
        assert_eq!(run["turns"], 2, "{run}");
        assert_eq!(run["tools_called"].as_array().unwrap().len(), 2);
        assert!(run["usage"]["input_tokens"].as_u64().unwrap() > 0, "{run}");
        // The price of this model is unknown, so there is no cost.
        assert_eq!(run["cost_usd"], Value::Null, "{run}");
    }
}

#[test]
fn a_key_is_only_in_the_request() {
    let project = MockProject::new(&[]);
    let mut outputs = vec![project.run_command(&["run", "buyer", "milk", "--record=recording"], 0)];
    write_agent(&project.project, "shut", "my-chat/shut");
    outputs.push(project.run_command(&["run", "shut", "milk"], 1));
    for args in [
        &["models"][..],
        &["models", "check", "my-chat", "my-anthropic", "my-responses"],
        &["config", "show", "--origin"],
        &["show", "@last", "--events", "--json"],
    ] {
        outputs.push(project.run_command(args, 0));
    }
    for outputs in &outputs {
        assert!(!outputs.out.contains(KEY) && !outputs.err.contains(KEY), "{outputs:?}");
    }
    let mut files = Vec::new();
    collect_files(project.project.path(), &mut files);
    assert!(files.iter().any(|(name, _)| name.ends_with("recording.jsonl")));
    for (name, bytes) in files {
        let has_key = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!has_key, "{name} holds the key");
    }
}

#[test]
fn a_fallback_model_continues_the_conversation() {
    let project = MockProject::new(&[]);
    for (first, second) in
        [("anthropic", "chat"), ("chat", "responses"), ("responses", "anthropic")]
    {
        // Two turns succeed and the third is refused, so the fallback model continues the
        // conversation.
        project.project.write(
            "scripts/leaves.yaml",
            "replies:
- text: One.
  tools: [{ name: vault_list, input: {} }]
- text: Two.
  tools: [{ name: vault_list, input: {} }, { name: vault_list, input: {} }]
- error: { status: 402, times: 99 }
  text: never
",
        );
        project.project.write(
            "scripts/takes-over.yaml",
            "replies:\n- text: a\n- text: b\n- text: 'Here: {{ last_result }}'\n",
        );
        let models = format!("[my-{first}/leaves, my-{second}/takes-over]");
        write_agent(&project.project, "buyer", &models);
        let run = project.run(&[]);
        assert_eq!(run["turns"], 3, "{run}");
        assert_eq!(run["model"], format!("my-{second}/takes-over"), "{run}");
        let events = project.project.events(run["id"].as_str().unwrap());
        let failed_turns: Vec<&Value> =
            events.iter().filter(|event| event["type"] == "turn.failed").collect();
        assert_eq!(failed_turns.len(), 1, "{events:#?}");
        assert_eq!(failed_turns[0]["data"]["failure"]["class"], "quota");
        assert_eq!(failed_turns[0]["data"]["fallback_model"], run["model"]);
    }
}

#[test]
fn a_fallback_model_without_a_key_is_reported_before_submit() {
    let project = MockProject::new(&[]);
    write_agent(&project.project, "buyer", "[my-chat/buy, openai/gpt-5]");
    let output = project.run_command(&["run", "buyer", "milk"], 2);
    assert!(output.err.contains("OPENAI_API_KEY"), "{output:?}");
}

#[test]
fn a_recorded_run_replays_to_the_byte_without_a_server() {
    for (api, _) in APIS {
        let mock_project = MockProject::new(&[]);
        let model = format!("my-{api}/buy");
        let first = mock_project.run(&["--model", &model, "--record=once"]);
        let MockProject { project, mock } = mock_project;
        drop(mock);
        // Restores the initial files.
        fs::remove_dir_all(project.path().join(".longhaul/vault")).unwrap();
        let replay = project.run(&["run", "buyer", "milk", "--json", "--replay", "once"], 0);
        let replayed = replay.json();
        assert_eq!(replayed["model"], "cassette/once");
        assert_eq!(replayed["cost_usd"], 0.0, "a replay costs nothing: {replayed}");
        let transcript = |run: &Value| {
            let id = run["id"].as_str().unwrap();
            let view = project.json(&["show", id, "--transcript", "--json"]);
            view["messages"].to_string()
        };
        assert_eq!(transcript(&first), transcript(&replayed), "{api}");
    }
}

#[test]
fn a_finished_run_becomes_a_cassette() {
    let project = MockProject::new(&["--cut-every", "2"]);
    let first = project.run(&[]);
    let id = first["id"].as_str().unwrap();
    let output = project.run_command(&["export", id, "--cassette", "after", "--json"], 0).json();
    assert_eq!(output["run"], id);
    let cassette_text = fs::read_to_string(output["cassette"].as_str().unwrap()).unwrap();
    assert!(cassette_text.lines().count() >= 3, "{cassette_text}");
    // The files have changed since: a strict replay reports it, a loose one ignores it.
    let args = ["run", "buyer", "milk", "--replay", "after"];
    let strict_replay = project.run_command(&args, 1);
    assert!(strict_replay.err.contains("Created the note"), "{strict_replay:?}");
    assert!(strict_replay.err.contains("- "), "{strict_replay:?}");
    let loose_replay = project.run_command(&[&args[..], &["--loose", "--json"]].concat(), 0).json();
    assert_eq!(
        project.transcript(&loose_replay)["messages"][1],
        project.transcript(&first)["messages"][1]
    );
    // A cassette from another folder is copied, so its file is not needed later.
    let outside_file = project.project.path().join("elsewhere.jsonl");
    fs::write(&outside_file, &cassette_text).unwrap();
    let file = outside_file.to_str().unwrap();
    let outside_replay =
        project.run_command(&["run", "buyer", "milk", "--loose", "--json", "--replay", file], 0);
    let model = outside_replay.json()["model"].as_str().unwrap().to_owned();
    assert!(model.starts_with("cassette/elsewhere-"), "{model}");
    for (args, expected) in [
        (&["run", "buyer", "x", "--replay", "nowhere"][..], "no cassette `nowhere`"),
        (&["run", "buyer", "x", "--replay", "agents/buyer.md"], "not a cassette header"),
        (&["run", "buyer", "x", "--record=../up"], "not a valid cassette name"),
        (&["export", id, "--cassette", "../up"], "not a valid cassette name"),
        (&["run", "buyer", "x", "--replay", "a", "--record=b"], "cannot be used with"),
    ] {
        let output = project.run_command(args, 2);
        assert!(output.err.contains(expected), "{args:?}: {output:?}");
    }
}

#[test]
fn a_cassette_is_never_lost_or_partial() {
    let project = MockProject::new(&[]);
    let args = ["run", "buyer", "milk", "--record=keep", "--idempotency-key", "k"];
    project.run_command(&args, 0);
    let file = project.project.path().join(".longhaul/cassettes/keep.jsonl");
    let first_cassette = fs::read_to_string(&file).unwrap();
    // The second command calls no model, so it must not replace the cassette.
    let output = project.run_command(&args, 0);
    assert!(output.err.contains("nothing was recorded"), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), first_cassette);
    // If the cassette can't be written, nothing is submitted.
    fs::remove_dir_all(project.project.path().join(".longhaul/cassettes")).unwrap();
    project.project.write(".longhaul/cassettes", "a file");
    project.run_command(&["run", "buyer", "bread", "--record=other"], 2);
    let runs = project.project.json(&["ls", "--json"]);
    assert_eq!(runs["data"].as_array().unwrap().len(), 1, "{runs}");
}

#[test]
fn values_of_dotenv_are_on_no_cassette() {
    let project = MockProject::new(&[]);
    project
        .project
        .write(".env", "MY_KEY=sk-in-a-file-0123456789\nENTRY_CODE=\"open sesame 12\"\n");
    let toml = fs::read_to_string(project.project.path().join("longhaul.toml")).unwrap();
    project.project.write("longhaul.toml", &format!("{toml}[secrets]\nnames = [\"ENTRY_CODE\"]\n"));
    let input = "sk-in-a-file-0123456789 and open sesame 12";
    project.project.run(&["run", "buyer", input, "--record=one"], 0);
    project.project.run(&["export", "@last", "--cassette", "two"], 0);
    for name in ["one", "two"] {
        let file = project.project.path().join(format!(".longhaul/cassettes/{name}.jsonl"));
        let cassette = fs::read_to_string(file).unwrap();
        assert!(!cassette.contains("in-a-file") && !cassette.contains("sesame"), "{cassette}");
        assert!(cassette.contains("{{secret:MY_KEY}} and {{secret:ENTRY_CODE}}"), "{cassette}");
    }
}

#[test]
fn a_server_replays_the_current_cassette_file() {
    let project = MockProject::new(&[]);
    project.run(&["--record=recording"]);
    let first = project.project.path().join(".longhaul/cassettes/recording.jsonl");
    let _server = TestServer::start(&project.project);
    let replay = ["run", "buyer", "milk", "--json", "--replay", "recording", "--loose"];
    let replayed_text = |project: &MockProject| {
        project.run_command(&replay, 0).json()["output"]["text"].to_string()
    };
    assert!(replayed_text(&project).contains("milk"));
    let changed_cassette = fs::read_to_string(&first).unwrap().replace("milk", "bread!");
    fs::write(&first, changed_cassette).unwrap();
    assert!(replayed_text(&project).contains("bread!"));
}

#[test]
fn a_broken_stream_is_retried_and_its_usage_counted() {
    let project = MockProject::new(&["--cut-every", "2"]);
    for (api, _) in APIS {
        let run = project.run(&["--model", &format!("my-{api}/buy")]);
        assert_eq!(run["status"], "completed");
        let events = project.project.events(run["id"].as_str().unwrap());
        let failed_turn = events.iter().find(|event| event["type"] == "turn.failed");
        let failure = &failed_turn.unwrap()["data"]["failure"];
        assert_eq!(failure["class"], "network", "{failure}");
        assert_eq!(failure["usage"]["estimated"], true, "{failure}");
        // A partial reply does not become a message.
        let messages = project.transcript(&run)["messages"].as_array().unwrap().len();
        assert_eq!(messages, 4, "{api}");
    }
}

#[test]
fn a_budget_for_an_unpriced_model_is_noted() {
    let project = MockProject::new(&[]);
    let note = |names: &str, budget: &str| {
        format!("note: {names} no price, so the budget of {budget} does not limit ")
    };
    let output = project.run_command(&["run", "buyer", "milk", "--budget", "2"], 0);
    assert!(output.err.contains(&note("my-anthropic/buy has", "$2.00")), "{output:?}");
    let page = project.run_command(&["show", "@last"], 0).out;
    let cost = "unknown: the model has no price, so the budget of $2.00 does not limit the run";
    assert!(page.contains(cost), "{page}");
    let output = project.run_command(&["submit", "buyer", "milk"], 0);
    assert!(output.err.contains(&note("my-anthropic/buy has", "$5.00")), "{output:?}");
    let output = project.run_command(&["run", "buyer", "milk", "--quiet"], 0);
    assert!(!output.err.contains("no price"), "{output:?}");
    for command in ["run", "submit"] {
        let output = project.run_command(&[command, "buyer", "milk", "--json"], 0);
        assert!(output.err.contains("no price"), "{output:?}");
    }
    // All models of the list count, except those that cost nothing.
    let models = "[my-chat/buy, scripted/buy, ollama/x, my-responses/buy]";
    write_agent(&project.project, "buyer", models);
    let expected_note = note("my-chat/buy and my-responses/buy have", "$5.00");
    let output = project.run_command(&["agents", "check", "buyer"], 0);
    assert!(output.out.contains(&expected_note), "{output:?}");
    assert!(output.out.contains("longhaul models price my-chat/buy my-responses/buy"));
    let output = project.run_command(&["run", "buyer", "milk"], 0);
    assert!(output.err.contains(&expected_note), "{output:?}");
    let output = project.run_command(&["run", "buyer", "milk", "--model", "scripted/buy"], 0);
    assert!(!output.err.contains("no price"), "{output:?}");
    // With prices the budget applies.
    let toml = project.project.path().join("longhaul.toml");
    let mut toml_text = fs::read_to_string(&toml).unwrap();
    for name in ["my-chat/buy", "my-responses/buy"] {
        toml_text.push_str(&format!("[prices.\"{name}\"]\ninput = 1\noutput = 2\n"));
    }
    fs::write(&toml, toml_text).unwrap();
    let output = project.run_command(&["run", "buyer", "milk"], 0);
    assert!(!output.err.contains("no price"), "{output:?}");
    assert_eq!(project.run_command(&["agents", "check", "buyer"], 0).out, "");
}

#[test]
fn a_scripted_model_has_the_window_and_the_price_that_are_set() {
    let project = Project::new();
    project.write("long.txt", &"word ".repeat(2_400));
    project.write(
        "agents/reader.md",
        "---\nmodel: scripted/reader\ntools: [read_file]\n---\nRead on.\n",
    );
    let read_reply =
        "- text: I read long.txt.\n  tools: [{ name: read_file, input: { path: long.txt } }]\n";
    project.write(
        "scripts/reader.yaml",
        &format!("replies:\n{}- text: Done.\n", read_reply.repeat(6)),
    );
    let kinds = |extra_toml: &str| {
        project.write("longhaul.toml", &format!("[worker]\npoll = \"10m\"\n{extra_toml}"));
        let run = project.run(&["run", "reader", "go", "--json"], 0).json();
        let id = run["id"].as_str().unwrap().to_owned();
        let journal = project.run(&["show", &id, "--events", "--json"], 0).out;
        (run, journal.matches("memory.compacted").count())
    };
    let (run, times) = kinds("");
    assert_eq!((times, &run["cost_usd"]), (0, &serde_json::json!(0.0)), "{run}");
    let table = "[prices.\"scripted/reader\"]\nwindow = 16_000\n";
    let (run, times) = kinds(table);
    assert_eq!(run["status"], "completed", "{run}");
    assert!(times >= 1, "{run}");
    let (run, _) = kinds(&format!("{table}input = 1.0\noutput = 2.0\n"));
    assert!(run["cost_usd"].as_f64() > Some(0.0), "{run}");
}
