//! The vault tools on real directories: results and rejections.

mod manual_edits;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::vault_tools;

/// A vault next to a directory that must not be accessed.
struct Fixture {
    dir: TempDir,
    clock: SimClock,
    tools: Vec<Arc<dyn Tool>>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SimClock::new();
        let vault = vault_tools(dir.path().join("vault"), Arc::new(clock.clone()));
        fs::create_dir_all(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret.md"), "the secret").unwrap();
        Self { tools: vault.unwrap(), clock, dir }
    }

    fn path(&self, relative_path: &str) -> PathBuf {
        self.dir.path().join("vault").join(relative_path)
    }

    fn write_file(&self, relative_path: &str, text: &str) {
        fs::create_dir_all(self.path(relative_path).parent().unwrap()).unwrap();
        fs::write(self.path(relative_path), text).unwrap();
    }

    fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let mut tools = self.tools.iter();
        let tool = tools.find(|tool| tool.spec().name.as_str() == name);
        tool.unwrap().clone()
    }

    async fn call(&self, name: &str, input: Value) -> Result<String, String> {
        call(self.tool(name), input).await
    }

    async fn write(&self, folder: &str, title: &str) -> Result<String, String> {
        self.call("vault_write", note_input(folder, title, "text")).await
    }

    async fn read(&self, folder: &str, title: &str) -> Result<String, String> {
        let input = json!({ "folder": folder, "title": title });
        self.call("vault_read", input).await
    }

    async fn list(&self, input: Value) -> Value {
        let output = self.call("vault_list", input).await.unwrap();
        serde_json::from_str(&output).unwrap()
    }

    async fn titles(&self, input: Value) -> Vec<String> {
        let list = self.list(input).await;
        let notes = list["notes"].as_array().unwrap().iter();
        notes.map(|note| note["title"].as_str().unwrap().to_owned()).collect()
    }
}

async fn call(tool: Arc<dyn Tool>, input: Value) -> Result<String, String> {
    let run = RunId::from_bits(7);
    let id = CallId { turn: 1, index: 1 };
    let ctx = ToolContext::new(run, id, Epoch(1));
    match tool.call(input, &ctx).await {
        Ok(output) => match &output.content[..] {
            [Part::Text(text)] => Ok(text.to_string()),
            other => panic!("one text, not {other:?}"),
        },
        Err(failure) => Err(failure.to_string()),
    }
}

fn note_input(folder: &str, title: &str, content: &str) -> Value {
    json!({ "folder": folder, "title": title, "content": content, "tags": ["home"], "confidence": 90 })
}

#[tokio::test]
async fn a_note_is_written_updated_read_and_listed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.list(json!({})).await["found"], 0);
    let first = note_input("Projects/Alpha", "Plan", "One.");
    let output = fixture.call("vault_write", first.clone()).await.unwrap();
    assert_eq!(output, "Created the note `Projects/Alpha/Plan`.");
    let original = fs::read_to_string(fixture.path("Projects/Alpha/Plan.md")).unwrap();
    assert_eq!(fixture.read("Projects/Alpha", "Plan").await.unwrap(), original);

    fixture.clock.advance(Millis::from_secs(60));
    let second_output = fixture.call("vault_write", first).await.unwrap();
    assert_eq!(second_output, "`Projects/Alpha/Plan` already has exactly this content.");
    assert_eq!(fixture.read("Projects/Alpha", "Plan").await.unwrap(), original);

    let second = note_input("Projects/Alpha", "Plan", "Two.");
    let output = fixture.call("vault_write", second).await.unwrap();
    assert_eq!(output, "Updated the note `Projects/Alpha/Plan`.");
    let updated_note = fixture.read("Projects/Alpha", "Plan").await.unwrap();
    assert!(updated_note.contains("created: \"2026-01-01T00:00:00.000000Z\"\n"));
    assert!(updated_note.contains("updated: \"2026-01-01T00:01:00.000000Z\"\n"));
    assert!(updated_note.ends_with("---\n\nTwo."));
    let list = fixture.list(json!({})).await;
    let expected = json!({
        "notes": [{
            "folder": "Projects/Alpha", "title": "Plan", "tags": ["home"],
            "confidence": 90, "updated": "2026-01-01T00:01:00.000000Z",
        }],
        "found": 1,
    });
    assert_eq!(list, expected);
}

#[tokio::test]
async fn notes_and_their_folders_are_for_their_owner_only() {
    let fixture = Fixture::new();
    fixture.write("In/Deep", "Mine").await.unwrap();
    for (relative_path, expected) in
        [("", 0o700), ("In", 0o700), ("In/Deep", 0o700), ("In/Deep/Mine.md", 0o600)]
    {
        let mode = fs::metadata(fixture.path(relative_path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{relative_path}");
    }
}

#[tokio::test]
async fn every_path_escape_is_rejected() {
    let fixture = Fixture::new();
    fixture.write("Tasks", "Milk").await.unwrap();
    let outside_dir = fixture.dir.path().join("outside");
    symlink(&outside_dir, fixture.path("Link")).unwrap();
    symlink(&outside_dir, fixture.path("Tasks/Deep")).unwrap();
    symlink(outside_dir.join("secret.md"), fixture.path("Tasks/secret.md")).unwrap();
    symlink(outside_dir.join("new.md"), fixture.path("Tasks/Dangling.md")).unwrap();
    symlink("Milk.md", fixture.path("Tasks/Inner.md")).unwrap();
    fs::create_dir(fixture.path("Tasks/Dir.md")).unwrap();
    let absolute = outside_dir.to_str().unwrap();
    let long = "x".repeat(300);
    let table = [
        ("../outside", "secret", "starts with a dot"),
        ("Tasks/../../outside", "secret", "starts with a dot"),
        (".", "secret", "starts with a dot"),
        (absolute, "secret", "has an empty component"),
        ("//outside", "secret", "has an empty component"),
        ("..\\outside", "secret", "starts with a dot"),
        ("a\\..\\..\\outside", "secret", "contains one of"),
        ("C:", "secret", "contains one of"),
        ("Tasks", "../../outside/secret", "starts with a dot"),
        ("Tasks", "x/../../../outside/secret", "contains one of"),
        ("Tasks", "..", "starts with a dot"),
        ("Tasks", "", "empty"),
        ("Tasks\0", "a", "control or invisible"),
        ("Tasks", "a\0", "control or invisible"),
        ("Tasks", "a\u{202e}b", "control or invisible"),
        ("Link", "secret", "is a symbolic link"),
        ("Link/below", "new", "is a symbolic link"),
        ("Tasks/Deep", "secret", "is a symbolic link"),
        ("Tasks", "secret", "is a symbolic link"),
        ("Tasks", "Dangling", "is a symbolic link"),
        ("Tasks", "Inner", "is a symbolic link"),
        ("Tasks", "Dir", "is a folder"),
        ("Tasks/Dir.md", "a", "has a file extension"),
        ("tasks", "Milk", "exists as `Tasks`"),
        ("Tasks", "MILK", "exists as `Milk`"),
        ("Tasks", "nul", "reserves for a device"),
        ("com1.x", "a", "reserves for a device"),
        ("Tasks", "a.", "ends with a dot"),
        ("Tasks ", "a", "starts or ends with a space"),
        (".obsidian", "app", "starts with a dot"),
        ("Tasks", &long, "longer than 200 bytes"),
        (&["a"; 40].join("/"), "a", "too deep"),
    ];
    for (folder, title, expected) in table {
        let read_error = fixture.read(folder, title).await.unwrap_err();
        assert!(read_error.contains(expected), "read {folder:?} {title:?}: {read_error}");
        let write_error = fixture.write(folder, title).await.unwrap_err();
        assert!(write_error.contains(expected), "write {folder:?} {title:?}: {write_error}");
    }
    let mut outside_entries: Vec<_> = fs::read_dir(&outside_dir).unwrap().collect();
    assert_eq!(outside_entries.len(), 1, "{outside_entries:?}");
    let secret = fs::read_to_string(outside_entries.remove(0).unwrap().path()).unwrap();
    assert_eq!(secret, "the secret");
    let list = fixture.list(json!({ "text": "secret" })).await;
    assert_eq!(list["found"], 0, "{list}");
    assert_eq!(fixture.titles(json!({})).await, ["Milk"]);
}

#[tokio::test]
async fn a_pipe_does_not_block_the_vault() {
    let fixture = Fixture::new();
    fixture.write("", "Plain").await.unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    let pipe = fixture.path("Pipe.md");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    assert!(fixture.read("", "Pipe").await.unwrap_err().contains("is a symbolic link, or not"));
    let list = fixture.list(json!({})).await;
    assert_eq!((&list["found"], &list["unreadable"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn invalid_input_says_what_to_send() {
    let fixture = Fixture::new();
    let input_with = |key: &str, value: Value| {
        let mut input = note_input("Tasks", "Milk", "x");
        input[key] = value;
        input
    };
    let table = [
        ("vault_write", input_with("path", json!("/etc")), "unknown field `path`"),
        ("vault_write", input_with("confidence", json!(101)), "from 0 to 100"),
        ("vault_write", input_with("confidence", json!("high")), "invalid type"),
        ("vault_write", input_with("tags", json!(["to do"])), "such as `to-do`"),
        ("vault_write", input_with("content", json!("a\0b")), "NUL"),
        ("vault_write", input_with("content", json!("a".repeat(300_000))), "split it"),
        ("vault_write", json!({ "folder": "Tasks" }), "missing field `title`"),
        ("vault_read", json!("Tasks/Milk"), "folder, title"),
        ("vault_read", json!({ "folder": "No", "title": "No" }), "use vault_list"),
        ("vault_list", json!({ "tags": [] }), "unknown field `tags`"),
        ("vault_list", json!({ "folder": "Nowhere" }), "without a folder"),
    ];
    for (tool, input, expected) in table {
        let message = fixture.call(tool, input).await.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    assert!(!Path::exists(&fixture.path("")), "the directory was created");
}

#[tokio::test]
async fn notes_with_unusual_content_are_listed_and_read() {
    let fixture = Fixture::new();
    fixture.write_file("Plain.md", "No front matter, café.");
    fixture.write_file("In/Broken.md", "---\ntags: [a\n---\nBroken body.");
    fixture.write_file("In/Open.md", "---\ntitle: never closed\n");
    fixture.write_file("In/Mine.md", "---\ntags: work, Deep/Er\naliases: [m]\n---\nMine.");
    fixture.write_file("In/.hidden.md", "hidden");
    fixture.write_file(".obsidian/app.md", "hidden");
    fixture.write_file("In/What?.md", "unnameable");
    fixture.write_file("In/image.png", "not a note");
    fs::write(fixture.path("In/Bytes.md"), b"a\xff\xfe CAF\xc3\x89").unwrap();
    let list = fixture.list(json!({})).await;
    assert_eq!(list["found"], 5, "{list}");
    assert_eq!(list["unreadable"], 1);
    let broken_note = &list["notes"][0];
    assert_eq!(broken_note["title"], "Broken");
    assert!(broken_note["problem"].as_str().unwrap().contains("can't be parsed"));
    let body = fixture.read("In", "Broken").await.unwrap();
    assert!(
        body.contains("Broken body.\n\n[vault_write does not replace this note, because the front")
    );
    assert_eq!(fixture.titles(json!({ "tag": "#deep" })).await, ["Mine"]);
    assert_eq!(fixture.titles(json!({ "text": "Café" })).await, ["Bytes", "Plain"]);
    assert_eq!(fixture.titles(json!({ "text": "mine", "folder": "In" })).await, ["Mine"]);
    assert_eq!(fixture.titles(json!({ "text": "PLAIN", "tag": "" })).await, ["Plain"]);

    fs::set_permissions(fixture.path("In/Mine.md"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.write("In", "Mine").await.unwrap();
    let own_note = fixture.read("In", "Mine").await.unwrap();
    assert!(own_note.contains("aliases:\n  - m\n"), "{own_note}");
    let mode = fs::metadata(fixture.path("In/Mine.md")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn temporary_files_of_a_crash_are_ignored_and_removed() {
    let fixture = Fixture::new();
    fixture.write("Tasks", "Milk").await.unwrap();
    let before = fixture.read("Tasks", "Milk").await.unwrap();
    fixture.write_file("Tasks/.longhaul-1-0.tmp", "---\ntitle: ha");
    assert_eq!(fixture.titles(json!({ "text": "ha" })).await, Vec::<String>::new());
    assert_eq!(fixture.read("Tasks", "Milk").await.unwrap(), before);
    fixture.write("Tasks", "Bread").await.unwrap();
    let mut names: Vec<_> = fs::read_dir(fixture.path("Tasks"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["Bread.md", "Milk.md"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_leave_complete_notes() {
    let fixture = Fixture::new();
    fixture.write("Tasks", "Shared").await.unwrap();
    fixture.clock.advance(Millis::from_secs(9));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let content = format!("{writer}").repeat(20_000);
        let tool = fixture.tool("vault_write");
        writers.spawn(async move {
            for title in ["Shared".to_owned(), format!("Own {writer}")] {
                call(tool.clone(), note_input("Tasks/New", &title, &content)).await.unwrap();
                call(tool.clone(), note_input("Tasks", &title, &content)).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let text = fixture.read("Tasks", "Shared").await.unwrap();
    let body = text.split("---\n\n").last().unwrap();
    assert_eq!(body.len(), 20_000);
    assert!(body.bytes().all(|byte| byte == body.as_bytes()[0]));
    assert!(text.contains("created: \"2026-01-01T00:00:00.000000Z\"\n"));
    assert_eq!(fixture.list(json!({})).await["found"], 18);
}

#[tokio::test]
async fn a_truncated_list_says_so() {
    let fixture = Fixture::new();
    for count in 0..130 {
        fixture.write_file(&format!("Many/{count:03}.md"), "text");
    }
    let list = fixture.list(json!({ "folder": "Many" })).await;
    assert_eq!(list["notes"].as_array().unwrap().len(), 100);
    assert_eq!((&list["found"], &list["left_out"]), (&json!(130), &json!(30)));
    assert!(list["hint"].as_str().unwrap().contains("narrow"));
    fixture.write_file("Big.md", &"b".repeat(400_000));
    let big = fixture.read("", "Big").await.unwrap();
    assert!(big.len() < 263_000 && big.ends_with("bytes are shown.]"));
}

#[test]
fn vault_tools_have_effect_classes_and_rule_match_texts() {
    let fixture = Fixture::new();
    let check = |tool: &str, input: Value, class: EffectClass, match_text: &str| {
        let tool = fixture.tool(tool);
        assert_eq!(tool.class(&input), class);
        assert_eq!(tool.rule_match_texts(&input), [match_text]);
        assert_eq!(tool.spec().schema["additionalProperties"], false);
    };
    let at = |folder: &str| json!({ "folder": folder, "title": "b" });
    check("vault_write", at("a/x"), EffectClass::Keyed, "a/x/b");
    check("vault_read", at(""), EffectClass::Pure, "b");
    check("vault_read", json!({ "title": 1 }), EffectClass::Pure, r#"{"title":1}"#);
    check("vault_list", json!({ "folder": "a" }), EffectClass::Pure, "a");
    check("vault_list", json!({}), EffectClass::Pure, "/");
}
