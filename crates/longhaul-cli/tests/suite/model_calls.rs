//! Models over their real wires, from the command line to the journal: asked,
//! given up for another, recorded and replayed, and their keys nowhere to be seen.

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

/// A project whose providers are all one mock.
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
        // The user's own file: a project that names a key would need trust.
        project.write(".config/longhaul/longhaul.toml", &toml);
        write_agent(&project, "buyer", "my-anthropic/buy");
        Self { project, mock }
    }

    fn run_command(&self, args: &[&str], code: i32) -> CommandOutput {
        let output = self.project.command(args).env("MY_KEY", KEY).output();
        let said = CommandOutput::from_output(&output.unwrap());
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    }

    fn run(&self, more: &[&str]) -> Value {
        let args = [&["run", "buyer", "milk", "--json"], more].concat();
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

/// Everything below a folder, as bytes.
fn collect_files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn every_api_gives_the_same_result() {
    let house = MockProject::new(&[]);
    for (api, _) in APIS {
        let run = house.run(&["--model", &format!("my-{api}/buy")]);
        assert_eq!(run["status"], "completed", "{run}");
        let text = run["output"]["text"].as_str().unwrap();
        assert!(text.contains("Cook milk"), "{text}");
        assert_eq!(run["turns"], 2, "{run}");
        assert_eq!(run["tools_called"].as_array().unwrap().len(), 2);
        assert!(run["usage"]["input_tokens"].as_u64().unwrap() > 0, "{run}");
        // Nobody knows what this model costs, and nobody pretends to.
        assert_eq!(run["cost_usd"], Value::Null, "{run}");
    }
}

#[test]
fn a_key_is_only_in_the_request() {
    let house = MockProject::new(&[]);
    let mut said = vec![house.run_command(&["run", "buyer", "milk", "--record=recording"], 0)];
    write_agent(&house.project, "shut", "my-chat/shut");
    said.push(house.run_command(&["run", "shut", "milk"], 1));
    for args in [
        &["models"][..],
        &["models", "check", "my-chat", "my-anthropic", "my-responses"],
        &["config", "show", "--origin"],
        &["show", "@last", "--events", "--json"],
    ] {
        said.push(house.run_command(args, 0));
    }
    for said in &said {
        assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "{said:?}");
    }
    let mut files = Vec::new();
    collect_files(house.project.path(), &mut files);
    assert!(files.iter().any(|(name, _)| name.ends_with("recording.jsonl")));
    for (name, bytes) in files {
        let has = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!has, "{name} holds the key");
    }
}

#[test]
fn a_fallback_model_continues_the_conversation() {
    let house = MockProject::new(&[]);
    for (first, second) in
        [("anthropic", "chat"), ("chat", "responses"), ("responses", "anthropic")]
    {
        // Two turns are good, the third is refused: the conversation changes hands.
        house.project.write(
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
        house.project.write(
            "scripts/takes-over.yaml",
            "replies:\n- text: a\n- text: b\n- text: 'Here: {{ last_result }}'\n",
        );
        let models = format!("[my-{first}/leaves, my-{second}/takes-over]");
        write_agent(&house.project, "buyer", &models);
        let run = house.run(&[]);
        assert_eq!(run["turns"], 3, "{run}");
        assert_eq!(run["model"], format!("my-{second}/takes-over"), "{run}");
        let events = house.project.events(run["id"].as_str().unwrap());
        let failed: Vec<&Value> =
            events.iter().filter(|event| event["type"] == "turn.failed").collect();
        assert_eq!(failed.len(), 1, "{events:#?}");
        assert_eq!(failed[0]["data"]["failure"]["class"], "quota");
        assert_eq!(failed[0]["data"]["fallback_model"], run["model"]);
    }
}

#[test]
fn a_fallback_model_without_a_key_is_reported_before_submit() {
    let house = MockProject::new(&[]);
    write_agent(&house.project, "buyer", "[my-chat/buy, openai/gpt-5]");
    let said = house.run_command(&["run", "buyer", "milk"], 2);
    assert!(said.err.contains("OPENAI_API_KEY"), "{said:?}");
}

#[test]
fn a_recorded_run_replays_to_the_byte_without_a_server() {
    for (api, _) in APIS {
        let house = MockProject::new(&[]);
        let model = format!("my-{api}/buy");
        let first = house.run(&["--model", &model, "--record=once"]);
        let MockProject { project, mock } = house;
        drop(mock);
        // The same world as before.
        fs::remove_dir_all(project.path().join(".longhaul/vault")).unwrap();
        let replay = project.run(&["run", "buyer", "milk", "--json", "--replay", "once"], 0);
        let again = replay.json();
        assert_eq!(again["model"], "cassette/once");
        assert_eq!(again["cost_usd"], 0.0, "nothing is paid twice: {again}");
        let transcript = |run: &Value| {
            let id = run["id"].as_str().unwrap();
            let whole = project.json(&["show", id, "--transcript", "--json"]);
            whole["messages"].to_string()
        };
        assert_eq!(transcript(&first), transcript(&again), "{api}");
    }
}

#[test]
fn a_finished_run_becomes_a_cassette() {
    let house = MockProject::new(&["--cut-every", "2"]);
    let first = house.run(&[]);
    let id = first["id"].as_str().unwrap();
    let said = house.run_command(&["export", id, "--cassette", "after", "--json"], 0).json();
    assert_eq!(said["run"], id);
    let recorded = fs::read_to_string(said["cassette"].as_str().unwrap()).unwrap();
    assert!(recorded.lines().count() >= 3, "{recorded}");
    // The world is another by now: strict says so, loose does not mind.
    let args = ["run", "buyer", "milk", "--replay", "after"];
    let strict = house.run_command(&args, 1);
    assert!(strict.err.contains("Created the note"), "{strict:?}");
    assert!(strict.err.contains("- "), "{strict:?}");
    let loose = house.run_command(&[&args[..], &["--loose", "--json"]].concat(), 0).json();
    assert_eq!(house.transcript(&loose)["messages"][1], house.transcript(&first)["messages"][1]);
    // A file from elsewhere is copied, and then needed no more.
    let elsewhere = house.project.path().join("elsewhere.jsonl");
    fs::write(&elsewhere, &recorded).unwrap();
    let file = elsewhere.to_str().unwrap();
    let copied =
        house.run_command(&["run", "buyer", "milk", "--loose", "--json", "--replay", file], 0);
    let model = copied.json()["model"].as_str().unwrap().to_owned();
    assert!(model.starts_with("cassette/elsewhere-"), "{model}");
    for (args, words) in [
        (&["run", "buyer", "x", "--replay", "nowhere"][..], "no cassette `nowhere`"),
        (&["run", "buyer", "x", "--replay", "agents/buyer.md"], "no label of a cassette"),
        (&["run", "buyer", "x", "--record=../up"], "no name of a cassette"),
        (&["export", id, "--cassette", "../up"], "no name of a cassette"),
        (&["run", "buyer", "x", "--replay", "a", "--record=b"], "cannot be used with"),
    ] {
        let said = house.run_command(args, 2);
        assert!(said.err.contains(words), "{args:?}: {said:?}");
    }
}

#[test]
fn a_cassette_is_never_lost_or_partial() {
    let house = MockProject::new(&[]);
    let once = ["run", "buyer", "milk", "--record=keep", "--idempotency-key", "k"];
    house.run_command(&once, 0);
    let file = house.project.path().join(".longhaul/cassettes/keep.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    // The second one asks nobody, and has nothing to put in its place.
    let said = house.run_command(&once, 0);
    assert!(said.err.contains("nothing is recorded"), "{said:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    // Where nothing can be written, nothing is submitted.
    fs::remove_dir_all(house.project.path().join(".longhaul/cassettes")).unwrap();
    house.project.write(".longhaul/cassettes", "a file");
    house.run_command(&["run", "buyer", "bread", "--record=other"], 2);
    let runs = house.project.json(&["ls", "--json"]);
    assert_eq!(runs["data"].as_array().unwrap().len(), 1, "{runs}");
}

#[test]
fn values_of_dotenv_are_on_no_cassette() {
    let house = MockProject::new(&[]);
    house.project.write(".env", "MY_KEY=sk-in-a-file-0123456789\nENTRY_CODE=\"open sesame 12\"\n");
    let toml = fs::read_to_string(house.project.path().join("longhaul.toml")).unwrap();
    house.project.write("longhaul.toml", &format!("{toml}[secrets]\nnames = [\"ENTRY_CODE\"]\n"));
    let told = "sk-in-a-file-0123456789 and open sesame 12";
    house.project.run(&["run", "buyer", told, "--record=one"], 0);
    house.project.run(&["export", "@last", "--cassette", "two"], 0);
    for name in ["one", "two"] {
        let file = house.project.path().join(format!(".longhaul/cassettes/{name}.jsonl"));
        let tape = fs::read_to_string(file).unwrap();
        assert!(!tape.contains("in-a-file") && !tape.contains("sesame"), "{tape}");
        assert!(tape.contains("{{secret:MY_KEY}} and {{secret:ENTRY_CODE}}"), "{tape}");
    }
}

#[test]
fn a_server_replays_the_current_cassette_file() {
    let house = MockProject::new(&[]);
    house.run(&["--record=recording"]);
    let first = house.project.path().join(".longhaul/cassettes/recording.jsonl");
    let _served = TestServer::start(&house.project);
    let replay = ["run", "buyer", "milk", "--json", "--replay", "recording", "--loose"];
    let said =
        |house: &MockProject| house.run_command(&replay, 0).json()["output"]["text"].to_string();
    assert!(said(&house).contains("milk"));
    let other = fs::read_to_string(&first).unwrap().replace("milk", "bread!");
    fs::write(&first, other).unwrap();
    assert!(said(&house).contains("bread!"));
}

#[test]
fn a_broken_stream_is_retried_and_its_usage_counted() {
    let house = MockProject::new(&["--cut-every", "2"]);
    for (api, _) in APIS {
        let run = house.run(&["--model", &format!("my-{api}/buy")]);
        assert_eq!(run["status"], "completed");
        let events = house.project.events(run["id"].as_str().unwrap());
        let failed = events.iter().find(|event| event["type"] == "turn.failed");
        let failure = &failed.unwrap()["data"]["failure"];
        assert_eq!(failure["class"], "network", "{failure}");
        assert_eq!(failure["usage"]["estimated"], true, "{failure}");
        // Half a reply is no message.
        let messages = house.transcript(&run)["messages"].as_array().unwrap().len();
        assert_eq!(messages, 4, "{api}");
    }
}

#[test]
fn a_budget_for_an_unpriced_model_is_noted() {
    let house = MockProject::new(&[]);
    let note = |names: &str, budget: &str| {
        format!("note: {names} no price here, so the budget of {budget} can't hold ")
    };
    let said = house.run_command(&["run", "buyer", "milk", "--budget", "2"], 0);
    assert!(said.err.contains(&note("my-anthropic/buy has", "$2.00")), "{said:?}");
    let page = house.run_command(&["show", "@last"], 0).out;
    let cost = "not known: the model has no price here, and the budget of $2.00 can't hold it";
    assert!(page.contains(cost), "{page}");
    let said = house.run_command(&["submit", "buyer", "milk"], 0);
    assert!(said.err.contains(&note("my-anthropic/buy has", "$5.00")), "{said:?}");
    let said = house.run_command(&["run", "buyer", "milk", "--quiet"], 0);
    assert!(!said.err.contains("no price"), "{said:?}");
    for command in ["run", "submit"] {
        let said = house.run_command(&[command, "buyer", "milk", "--json"], 0);
        assert!(said.err.contains("no price"), "{said:?}");
    }
    // Each of the list counts, and what costs nothing does not.
    let models = "[my-chat/buy, scripted/buy, ollama/x, my-responses/buy]";
    write_agent(&house.project, "buyer", models);
    let both = note("my-chat/buy and my-responses/buy have", "$5.00");
    let said = house.run_command(&["agents", "check", "buyer"], 0);
    assert!(said.out.contains(&both), "{said:?}");
    assert!(said.out.contains("longhaul models price my-chat/buy my-responses/buy"));
    let said = house.run_command(&["run", "buyer", "milk"], 0);
    assert!(said.err.contains(&both), "{said:?}");
    let said = house.run_command(&["run", "buyer", "milk", "--model", "scripted/buy"], 0);
    assert!(!said.err.contains("no price"), "{said:?}");
    // Whoever sets the prices has a budget that holds.
    let toml = house.project.path().join("longhaul.toml");
    let mut set = fs::read_to_string(&toml).unwrap();
    for name in ["my-chat/buy", "my-responses/buy"] {
        set.push_str(&format!("[prices.\"{name}\"]\ninput = 1\noutput = 2\n"));
    }
    fs::write(&toml, set).unwrap();
    let said = house.run_command(&["run", "buyer", "milk"], 0);
    assert!(!said.err.contains("no price"), "{said:?}");
    assert_eq!(house.run_command(&["agents", "check", "buyer"], 0).out, "");
}

#[test]
fn a_scripted_model_has_the_window_and_the_price_that_are_set() {
    let project = Project::new();
    project.write("long.txt", &"word ".repeat(2_400));
    project.write(
        "agents/reader.md",
        "---\nmodel: scripted/reader\ntools: [read_file]\n---\nRead on.\n",
    );
    let read =
        "- text: I read long.txt.\n  tools: [{ name: read_file, input: { path: long.txt } }]\n";
    project.write("scripts/reader.yaml", &format!("replies:\n{}- text: Done.\n", read.repeat(6)));
    let kinds = |more: &str| {
        project.write("longhaul.toml", &format!("[worker]\npoll = \"10m\"\n{more}"));
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
