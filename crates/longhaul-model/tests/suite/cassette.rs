//! Cassettes: what is recorded is replayed to the byte, and anything else is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Answered, Ask, Model};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::Body;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Millis;
use longhaul_model::cassette::{CassetteModel, Header, Recorder, Tape};
use longhaul_model::scripted::{Script, ScriptedModel};
use tempfile::TempDir;

use crate::suite::kit::{Heard, Noon};
use crate::suite::words::{ask, result, results, user};

const SECRET: &str = "p\"ss/word+of 12";

const SCRIPT: &str = r#"
replies:
  - text: "Looking first."
    tools: [{ name: read_file, input: { path: "a/b", n: 1.50 } }]
  - error: { status: 529, times: 1 }
    text: "It says {{ last_result }} – é."
"#;

struct Room {
    folder: TempDir,
}

impl Room {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cassettes/one.jsonl")
    }

    /// Records the script, and gives what was said.
    async fn record(&self) -> Vec<Answered> {
        let recorder = Arc::new(Recorder::new(mask()));
        let header = Header::new("run_x".into(), "tidy".into(), "2026-11-15".into());
        let run = questions()[0].run;
        recorder.open(self.path().parent().unwrap()).unwrap();
        recorder.begin(run, &header, &self.path()).unwrap();
        assert!(!self.path().exists(), "it is not whole yet");
        let script = Script::parse("tidy", SCRIPT).unwrap();
        let model = recorder.listen(Arc::new(ScriptedModel::new("tidy", script, Arc::new(Noon))));
        let mut said = Vec::new();
        for question in questions() {
            said.extend(model.reply(&question, &Heard::default()).await);
        }
        // Another run of the same process is not on the tape.
        let other = Ask {
            run: RunId::from_bytes([9; 16]),
            ..questions()[0].clone()
        };
        model.reply(&other, &Heard::default()).await.unwrap();
        assert_eq!(recorder.finish().unwrap(), Some((self.path(), 3)));
        said
    }
}

fn mask() -> Redactor {
    Redactor::new([("DOOR", SECRET), ("SHORT", "abc")])
}

/// A first turn, and a second one that is asked twice.
fn questions() -> Vec<Ask> {
    let first = vec![user(&format!("Open with {SECRET}, abc."))];
    let mut second = first.clone();
    second.push(Arc::new(Message::Assistant(Arc::new(
        serde_json::from_str(
            r#"{"dialect":"scripted","blocks":[{"text":{"text":"Looking first."}}]}"#,
        )
        .unwrap(),
    ))));
    second.push(results(vec![result(1, "call_1_1", "line one\nline two")]));
    let again = |attempt| Ask {
        turn: 2,
        attempt,
        ..ask(&second)
    };
    vec![ask(&first), again(1), again(2)]
}

fn replayed(path: &Path) -> CassetteModel {
    CassetteModel::new("cassette/one".into(), Tape::read(path).unwrap(), mask())
}

#[tokio::test]
async fn a_conversation_is_replayed_to_the_byte() {
    let room = Room::new();
    let said = room.record().await;
    assert_eq!(said.len(), 2);
    let model = replayed(&room.path());
    let heard = Heard::default();
    let mut again = Vec::new();
    let mut failures = Vec::new();
    for question in questions() {
        match model.reply(&question, &heard).await {
            Ok(answered) => again.push(answered),
            Err(failure) => failures.push(failure),
        }
    }
    for (first, second) in said.iter().zip(&again) {
        assert_eq!(first.reply, second.reply);
        assert_eq!((&first.stop, first.usage), (&second.stop, second.usage));
        assert_eq!(second.cost.unwrap().0, 0);
    }
    assert_eq!(again.len(), 2);
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].status, Some(529));
    assert_eq!(
        heard.text(),
        "Looking first.It says line one\nline two – é."
    );
    // A try more than was recorded is answered as the last one was.
    let third = Ask {
        attempt: 7,
        ..questions()[2].clone()
    };
    assert!(model.reply(&third, &heard).await.is_ok());
}

#[tokio::test]
async fn no_secret_is_on_a_tape() {
    let room = Room::new();
    room.record().await;
    let tape = std::fs::read_to_string(room.path()).unwrap();
    assert!(!tape.contains("ss/word"), "{tape}");
    assert!(tape.contains("Open with {{secret:DOOR}}, abc."), "{tape}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(room.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (text, hidden) in [
        ("cCJzcy93b3JkK29mIDEy", "{{secret:DOOR}}"),
        ("x=p%22ss%2Fword%2Bof%2012&y", "x={{secret:DOOR}}&y"),
        (
            r#"{"a":"{\"b\":\"p\\\"ss/word+of 12\"}"}"#,
            r#"{"a":"{\"b\":\"{{secret:DOOR}}\"}"}"#,
        ),
    ] {
        assert_eq!(mask().redact(text), hidden);
    }
}

#[tokio::test]
async fn another_question_is_refused_with_the_first_difference() {
    let room = Room::new();
    room.record().await;
    let model = replayed(&room.path());
    let question = &questions()[1];
    let with = |place: usize, message: Arc<Message>| {
        let mut messages = question.messages.to_vec();
        messages[place] = message;
        Ask {
            messages: Arc::new(messages),
            ..question.clone()
        }
    };
    let fewer = Ask {
        messages: Arc::new(question.messages[..2].to_vec()),
        ..question.clone()
    };
    let mut more = question.messages.to_vec();
    more.push(user("And this?"));
    let cases = [
        Ask {
            system: Body::inline("Be tidy.\nBe quick."),
            ..questions()[0].clone()
        },
        Ask {
            tools: Body::inline("[]"),
            ..questions()[0].clone()
        },
        with(2, results(vec![result(1, "call_1_1", "line one\nline 2")])),
        fewer,
        Ask {
            messages: Arc::new(more),
            ..question.clone()
        },
        Ask {
            turn: 3,
            ..question.clone()
        },
    ];
    let mut told = String::new();
    for case in &cases {
        let failure = model.reply(case, &Heard::default()).await.unwrap_err();
        assert!(!failure.class.may_pass());
        told.push_str(&failure.message);
        told.push_str("\n\n");
    }
    insta::assert_snapshot!(told);
    let loose = replayed(&room.path()).loose();
    assert!(loose.reply(&cases[0], &Heard::default()).await.is_ok());
    assert!(loose.reply(&cases[5], &Heard::default()).await.is_err());
}

#[tokio::test]
async fn a_tape_that_was_cut_or_is_none_is_told_apart() {
    let room = Room::new();
    room.record().await;
    let whole = std::fs::read_to_string(room.path()).unwrap();
    let path = room.folder.path().join("other.jsonl");
    // Cut at every byte it is either shorter by whole exchanges, or has no label.
    for end in 0..whole.len() {
        std::fs::write(&path, &whole.as_bytes()[..end]).unwrap();
        match Tape::read(&path) {
            Ok(tape) => assert!(tape.turns() <= 2),
            Err(error) => assert!(end < 200, "{end}: {error}"),
        }
    }
    let lines: Vec<&str> = whole.lines().collect();
    for (text, says) in [
        ("".to_owned(), "line 1: this is no label"),
        ("{}\n".to_owned(), "line 1: this is no label"),
        (
            whole.replacen("\"cassette\":1", "\"cassette\":2", 1),
            "line 1: its format is 2, this build knows 1",
        ),
        (
            format!("{}\nno\n{}\n", lines[0], lines[1]),
            "line 2: this is no exchange",
        ),
        (
            whole.replacen("\"keeps\":0", "\"keeps\":18446744073709551615", 1),
            "line 2: it keeps 18446744073709551615 messages where there are 0",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Tape::read(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    std::fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
    assert!(Tape::read(&path).is_err());
    assert!(Tape::read(&room.folder.path().join("none")).is_err());
    // A pipe would never end, and a device neither.
    for no_file in [Path::new("/dev/zero"), room.folder.path()] {
        let error = Tape::read(no_file).unwrap_err().to_string();
        assert!(error.contains("no file"), "{error}");
    }
}

#[tokio::test]
async fn a_secret_that_is_spelled_like_a_field_breaks_no_tape() {
    let room = Room::new();
    let recorder = Recorder::new(Redactor::new([
        ("A", "attempt"),
        ("B", "answer"),
        ("C", "line one"),
    ]));
    recorder.open(room.folder.path()).unwrap();
    let header = Header::new("run_x".into(), "the attempt".into(), "now".into());
    let path = room.folder.path().join("tape.jsonl");
    recorder.begin(questions()[0].run, &header, &path).unwrap();
    let failure = Failure {
        retry_after: Some(Millis(u64::MAX)),
        ..Failure::new(FailureClass::RateLimit, "no \\\"answer\\\" to this attempt")
    };
    recorder.note(&questions()[1], &Err(failure));
    recorder.finish().unwrap().unwrap();
    let tape = Tape::read(&path).unwrap();
    assert_eq!(tape.header().agent, "the {{secret:A}}");
    let model = CassetteModel::new("c".into(), tape, Redactor::default()).loose();
    let heard = model.reply(&questions()[1], &Heard::default()).await;
    let failure = heard.unwrap_err();
    assert_eq!(
        failure.message,
        "no \\\"{{secret:B}}\\\" to this {{secret:A}}"
    );
    // Nobody is there who wants to be left alone.
    assert_eq!(failure.retry_after, None);
}

#[test]
fn a_tape_without_an_exchange_takes_nobodys_place() {
    let room = Room::new();
    let path = room.folder.path().join("tape.jsonl");
    std::fs::write(&path, "good").unwrap();
    let recorder = Recorder::new(mask());
    recorder.open(room.folder.path()).unwrap();
    let header = Header::new("run_x".into(), "tidy".into(), "now".into());
    recorder.begin(questions()[0].run, &header, &path).unwrap();
    assert_eq!(recorder.finish().unwrap(), None);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "good");
    recorder.open(room.folder.path()).unwrap();
    drop(recorder);
    let left = std::fs::read_dir(room.folder.path()).unwrap().count();
    assert_eq!(left, 1, "no draft is left behind");
}
