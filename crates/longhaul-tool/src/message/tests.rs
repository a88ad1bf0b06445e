//! How much of long files a message reads: the outbox and the record of deliveries.

use std::fs;
use std::sync::Arc;

use longhaul_core::event::tool::Finding;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::port::tool::{Tool as _, ToolContext};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use serde_json::json;
use tempfile::TempDir;

use crate::jsonl::Jsonl;
use crate::message::parcel::Parcel;
use crate::message::way::Transport;
use crate::message::{Messages, SendMessage};
use crate::outbound::{Doors, Guarded};

struct Fixture {
    _dir: TempDir,
    tool: SendMessage,
}

/// A number for the outbox and one for the record.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    outbox: u64,
    record: u64,
}

impl Fixture {
    /// A tool over files in which thousands of other messages stand.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SimClock::new());
        let out = Guarded::new(Doors::new([], false).unwrap(), Arc::clone(&clock));
        let messages = Messages {
            deliver: "file:outbox.jsonl".parse().unwrap(),
            record: "deliveries.jsonl".into(),
            root: dir.path().into(),
            allow_private: false,
        };
        let tool = SendMessage::new(messages, clock, Arc::new(out)).unwrap();
        let line = |number| json!({ "kind": "receipt", "key": format!("old:{number}") });
        let text: String = (0..5_000).map(|n| format!("{}\n", line(n))).collect();
        let fixture = Self { _dir: dir, tool };
        let (outbox, record) = fixture.files();
        fs::write(outbox.path(), &text).unwrap();
        fs::write(record.path(), &text).unwrap();
        fixture
    }

    fn files(&self) -> (&Jsonl, &Jsonl) {
        let Transport::File(outbox) = &self.tool.way.transport else {
            panic!("messages go to a file");
        };
        (&outbox.0, &self.tool.record.0)
    }

    fn lengths(&self) -> Bytes {
        let (outbox, record) = self.files();
        let length = |file: &Jsonl| fs::metadata(file.path()).unwrap().len();
        Bytes {
            outbox: length(outbox),
            record: length(record),
        }
    }

    fn bytes_read(&self) -> Bytes {
        let (outbox, record) = self.files();
        Bytes {
            outbox: outbox.bytes_read(),
            record: record.bytes_read(),
        }
    }

    /// Sends a message; says how much was read for it.
    async fn send(&self, index: u16) -> Bytes {
        let before = self.bytes_read();
        let input = json!({ "text": "Hello" });
        self.tool.call(input, &context(index)).await.unwrap();
        self.read_since(before)
    }

    fn read_since(&self, before: Bytes) -> Bytes {
        let after = self.bytes_read();
        Bytes {
            outbox: after.outbox - before.outbox,
            record: after.record - before.record,
        }
    }
}

fn context(index: u16) -> ToolContext {
    let call = CallId { turn: 1, index };
    let mut context = ToolContext::new(RunId::from_bits(7), call, Epoch(1));
    let recipient = RawJson::of(&"ann@example.com");
    context.context.insert("recipient".into(), recipient);
    context
}

#[tokio::test]
async fn a_process_that_sends_one_message_reads_each_file_once() {
    let fixture = Fixture::new();
    let before = fixture.lengths();
    let read = fixture.send(1).await;
    assert_eq!(read.outbox, before.outbox);
    // The record is searched again before the message is put down, in what was added.
    let added = fixture.lengths().record - before.record;
    assert!(
        (before.record..before.record + added).contains(&read.record),
        "{read:?} of {before:?}"
    );
}

#[tokio::test]
async fn a_send_reads_only_what_was_appended_since_the_one_before() {
    let fixture = Fixture::new();
    fixture.send(1).await;
    // The first two lookups of a process read the files, the second into the index.
    let before = fixture.lengths();
    fixture.send(2).await;
    let after = fixture.lengths();
    let read = fixture.send(3).await;
    assert_eq!(read.outbox, after.outbox - before.outbox);
    // Two lookups: before the intent is written, and after.
    let most = 2 * (fixture.lengths().record - before.record);
    assert!((1..=most).contains(&read.record), "{read:?}, not {most}");
}

#[tokio::test]
async fn a_message_is_verified_with_the_index_of_the_sends() {
    let fixture = Fixture::new();
    let before = fixture.lengths();
    fixture.send(1).await;
    fixture.send(2).await;
    // A crash between the intent and the delivery.
    let (context, input) = (context(3), json!({ "text": "Hello" }));
    let parcel = Parcel::new("Hello".into(), &context).unwrap();
    fixture.tool.intend(&context, &parcel).await.unwrap();
    let count = fixture.bytes_read();
    let finding = fixture.tool.verify(input, &context).await;
    assert!(matches!(finding, Finding::NotHappened), "{finding:?}");
    let (read, after) = (fixture.read_since(count), fixture.lengths());
    let (outbox, record) = (after.outbox - before.outbox, after.record - before.record);
    assert!((1..=outbox).contains(&read.outbox), "{read:?}");
    // The line of the intent is read beside what is new.
    assert!((1..=2 * record).contains(&read.record), "{read:?}");
}
