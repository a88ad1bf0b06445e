//! Cassettes: recorded exchanges are replayed byte for byte, and other requests are rejected.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelRequest, ModelResponse};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::StoredText;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Millis;
use longhaul_model::cassette::{Cassette, CassetteHeader, CassetteModel, CassetteRecorder};
use longhaul_model::scripted::{Script, ScriptedModel};
use tempfile::TempDir;

use crate::suite::fixtures::{model_request, result, results, user};
use crate::suite::harness::{FixedClock, TextSink};

const SECRET: &str = "p\"ss/word+of 12";

const SCRIPT: &str = r#"
replies:
  - text: "Looking first."
    tools: [{ name: read_file, input: { path: "a/b", n: 1.50 } }]
  - error: { status: 529, times: 1 }
    text: "It says {{ last_result }} – é."
"#;

struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cassettes/one.jsonl")
    }

    /// Records the script and returns the responses.
    async fn record(&self) -> Vec<ModelResponse> {
        let recorder = Arc::new(CassetteRecorder::new(redactor()));
        let header = CassetteHeader::new("run_x".into(), "tidy".into(), "2026-11-15".into());
        let run = requests()[0].run;
        recorder.create_temp_file(self.path().parent().unwrap()).unwrap();
        recorder.start_recording(run, &header, &self.path()).unwrap();
        assert!(!self.path().exists(), "the recording is not complete yet");
        let script = Script::parse_yaml("tidy", SCRIPT).unwrap();
        let model =
            recorder.wrap_model(Arc::new(ScriptedModel::new("tidy", script, Arc::new(FixedClock))));
        let mut responses = Vec::new();
        for question in requests() {
            responses.extend(model.generate(&question, &TextSink::default()).await);
        }
        // Another run in the same process is not recorded.
        let other_run_request =
            ModelRequest { run: RunId::from_bytes([9; 16]), ..requests()[0].clone() };
        model.generate(&other_run_request, &TextSink::default()).await.unwrap();
        assert_eq!(recorder.finish_and_count_exchanges().unwrap(), Some((self.path(), 3)));
        responses
    }
}

fn redactor() -> Redactor {
    Redactor::new([("ENTRY_CODE", SECRET), ("SHORT", "abc")])
}

/// The request of a first turn, and a second turn with two attempts.
fn requests() -> Vec<ModelRequest> {
    let first = vec![user(&format!("Open with {SECRET}, abc."))];
    let mut second = first.clone();
    second.push(Arc::new(Message::Assistant(Arc::new(
        serde_json::from_str(r#"{"api":"scripted","blocks":[{"text":{"text":"Looking first."}}]}"#)
            .unwrap(),
    ))));
    second.push(results(vec![result(1, "call_1_1", "line one\nline two")]));
    let second_turn = |attempt| ModelRequest { turn: 2, attempt, ..model_request(&second) };
    vec![model_request(&first), second_turn(1), second_turn(2)]
}

fn cassette_model(path: &Path) -> CassetteModel {
    CassetteModel::new("cassette/one".into(), Cassette::load(path).unwrap(), redactor())
}

#[tokio::test]
async fn a_recorded_conversation_is_replayed_exactly() {
    let fixture = Fixture::new();
    let recorded_responses = fixture.record().await;
    assert_eq!(recorded_responses.len(), 2);
    let model = cassette_model(&fixture.path());
    let sink = TextSink::default();
    let mut replayed_responses = Vec::new();
    let mut failures = Vec::new();
    for question in requests() {
        match model.generate(&question, &sink).await {
            Ok(response) => replayed_responses.push(response),
            Err(failure) => failures.push(failure),
        }
    }
    for (first, second) in recorded_responses.iter().zip(&replayed_responses) {
        assert_eq!(first.reply, second.reply);
        assert_eq!((&first.stop, first.usage), (&second.stop, second.usage));
        assert_eq!(second.cost.unwrap().0, 0);
    }
    assert_eq!(replayed_responses.len(), 2);
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].status, Some(529));
    assert_eq!(sink.text(), "Looking first.It says line one\nline two – é.");
    // More attempts than recorded get the last response.
    let third = ModelRequest { attempt: 7, ..requests()[2].clone() };
    assert!(model.generate(&third, &sink).await.is_ok());
}

#[tokio::test]
async fn a_cassette_has_no_secrets() {
    let fixture = Fixture::new();
    fixture.record().await;
    let contents = std::fs::read_to_string(fixture.path()).unwrap();
    assert!(!contents.contains("ss/word"), "{contents}");
    assert!(contents.contains("Open with {{secret:ENTRY_CODE}}, abc."), "{contents}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(fixture.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (text, redacted) in [
        ("cCJzcy93b3JkK29mIDEy", "{{secret:ENTRY_CODE}}"),
        ("x=p%22ss%2Fword%2Bof%2012&y", "x={{secret:ENTRY_CODE}}&y"),
        (
            r#"{"a":"{\"b\":\"p\\\"ss/word+of 12\"}"}"#,
            r#"{"a":"{\"b\":\"{{secret:ENTRY_CODE}}\"}"}"#,
        ),
    ] {
        assert_eq!(redactor().redact(text), redacted);
    }
}

#[tokio::test]
async fn another_request_is_rejected_with_the_first_difference() {
    let fixture = Fixture::new();
    fixture.record().await;
    let model = cassette_model(&fixture.path());
    let question = &requests()[1];
    let with_message = |index: usize, message: Arc<Message>| {
        let mut messages = question.messages.to_vec();
        messages[index] = message;
        ModelRequest { messages: Arc::new(messages), ..question.clone() }
    };
    let fewer_messages =
        ModelRequest { messages: Arc::new(question.messages[..2].to_vec()), ..question.clone() };
    let mut more_messages = question.messages.to_vec();
    more_messages.push(user("And this?"));
    let cases = [
        ModelRequest {
            system: StoredText::new_inline("Be tidy.\nBe quick."),
            ..requests()[0].clone()
        },
        ModelRequest { tools: StoredText::new_inline("[]"), ..requests()[0].clone() },
        with_message(2, results(vec![result(1, "call_1_1", "line one\nline 2")])),
        fewer_messages,
        ModelRequest { messages: Arc::new(more_messages), ..question.clone() },
        ModelRequest { turn: 3, ..question.clone() },
    ];
    let mut report = String::new();
    for case in &cases {
        let failure = model.generate(case, &TextSink::default()).await.unwrap_err();
        assert!(!failure.class.is_transient());
        report.push_str(&failure.message);
        report.push_str("\n\n");
    }
    insta::assert_snapshot!(report);
    let lenient_model = cassette_model(&fixture.path()).with_lenient_matching();
    assert!(lenient_model.generate(&cases[0], &TextSink::default()).await.is_ok());
    assert!(lenient_model.generate(&cases[5], &TextSink::default()).await.is_err());
}

#[tokio::test]
async fn truncated_and_invalid_cassettes_are_distinguished() {
    let fixture = Fixture::new();
    fixture.record().await;
    let cassette_text = std::fs::read_to_string(fixture.path()).unwrap();
    let path = fixture.folder.path().join("other.jsonl");
    // A file truncated at any byte has fewer exchanges or no valid header.
    for end in 0..cassette_text.len() {
        std::fs::write(&path, &cassette_text.as_bytes()[..end]).unwrap();
        match Cassette::load(&path) {
            Ok(cassette) => assert!(cassette.last_recorded_turn() <= 2),
            Err(error) => assert!(end < 200, "{end}: {error}"),
        }
    }
    let lines: Vec<&str> = cassette_text.lines().collect();
    for (text, expected) in [
        ("".to_owned(), "line 1: this is not a cassette header"),
        ("{}\n".to_owned(), "line 1: this is not a cassette header"),
        (
            cassette_text.replacen("\"cassette\":1", "\"cassette\":2", 1),
            "line 1: the file has format 2, but this build supports format 1",
        ),
        (format!("{}\nno\n{}\n", lines[0], lines[1]), "line 2: this is not a recorded exchange"),
        (
            cassette_text.replacen(
                "\"reused_messages\":0",
                "\"reused_messages\":18446744073709551615",
                1,
            ),
            "line 2: the request reuses 18446744073709551615 messages, but the previous request has 0",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Cassette::load(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
    assert!(Cassette::load(&path).is_err());
    assert!(Cassette::load(&fixture.folder.path().join("none")).is_err());
    // Reading a pipe or a device would never end.
    for no_file in [Path::new("/dev/zero"), fixture.folder.path()] {
        let error = Cassette::load(no_file).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}

#[tokio::test]
async fn a_cassette_with_line_breaks_in_its_records_is_replayed() {
    let fixture = Fixture::new();
    let recorded_responses = fixture.record().await;
    let recorded = std::fs::read_to_string(fixture.path()).unwrap();
    let pretty = recorded.lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::to_string_pretty(&record).unwrap() + "\r\n\n"
    });
    let pretty: String = pretty.collect();
    let path = fixture.folder.path().join("pretty.jsonl");
    std::fs::write(&path, &pretty).unwrap();
    let model = cassette_model(&path);
    let last = model.generate(&requests()[2], &TextSink::default()).await.unwrap();
    assert_eq!(last.reply, recorded_responses[1].reply);
    // An error names the line on which the record starts and the line of the error.
    let second_record = pretty.find("\n\n").map(|end| pretty[..end].lines().count() + 2).unwrap();
    std::fs::write(&path, pretty.replacen("\"turn\"", "\"torn\"", 1)).unwrap();
    let error = Cassette::load(&path).unwrap_err().to_string();
    let expected = format!("line {second_record}: this is not a recorded exchange: missing field");
    assert!(error.contains(&expected), "{error}");
    // The recording process may have died while writing the last record.
    std::fs::write(&path, pretty.trim_end().trim_end_matches('}')).unwrap();
    assert_eq!(Cassette::load(&path).unwrap().last_recorded_turn(), 2);
}

#[tokio::test]
async fn a_secret_that_equals_a_field_name_does_not_break_a_cassette() {
    let fixture = Fixture::new();
    let recorder = CassetteRecorder::new(Redactor::new([
        ("A", "attempt"),
        ("B", "answer"),
        ("C", "line one"),
    ]));
    recorder.create_temp_file(fixture.folder.path()).unwrap();
    let header = CassetteHeader::new("run_x".into(), "the attempt".into(), "now".into());
    let path = fixture.folder.path().join("recording.jsonl");
    recorder.start_recording(requests()[0].run, &header, &path).unwrap();
    let failure = Failure {
        retry_after: Some(Millis(u64::MAX)),
        ..Failure::new(FailureClass::RateLimit, "no \\\"answer\\\" to this attempt")
    };
    recorder.record_exchange(&requests()[1], &Err(failure));
    recorder.finish_and_count_exchanges().unwrap().unwrap();
    let cassette = Cassette::load(&path).unwrap();
    assert_eq!(cassette.header().agent, "the {{secret:A}}");
    let model =
        CassetteModel::new("c".into(), cassette, Redactor::default()).with_lenient_matching();
    let result = model.generate(&requests()[1], &TextSink::default()).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.message, "no \\\"{{secret:B}}\\\" to this {{secret:A}}");
    // The provider is not contacted, so there is nothing to wait for.
    assert_eq!(failure.retry_after, None);
}

#[test]
fn an_empty_cassette_replaces_no_file() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("recording.jsonl");
    std::fs::write(&path, "good").unwrap();
    let recorder = CassetteRecorder::new(redactor());
    recorder.create_temp_file(fixture.folder.path()).unwrap();
    let header = CassetteHeader::new("run_x".into(), "tidy".into(), "now".into());
    recorder.start_recording(requests()[0].run, &header, &path).unwrap();
    assert_eq!(recorder.finish_and_count_exchanges().unwrap(), None);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "good");
    recorder.create_temp_file(fixture.folder.path()).unwrap();
    drop(recorder);
    let file_count = std::fs::read_dir(fixture.folder.path()).unwrap().count();
    assert_eq!(file_count, 1, "no temporary file is left behind");
}
