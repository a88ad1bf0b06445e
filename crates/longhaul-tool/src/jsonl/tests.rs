//! Tests of lookups by key: which lines are found, whatever happened to the file.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::jsonl::JsonLinesFile;

struct JsonLinesFixture {
    dir: TempDir,
    lines: JsonLinesFile,
}

impl JsonLinesFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lines = JsonLinesFile::new(dir.path().join("box.jsonl").into());
        Self { dir, lines }
    }

    fn lines_path(&self) -> PathBuf {
        self.lines.display_path().into()
    }

    /// Appends lines as another process would, without a lookup between them.
    fn append_lines(&self, numbers: std::ops::Range<u32>) {
        let mut text = String::new();
        for number in numbers {
            text += &format!("{}\n", line_json(number));
        }
        self.append_text(&text);
    }

    fn append_text(&self, text: &str) {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.lines_path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn check_key_lookups(&self, present: &[u32], missing: &[u32]) {
        let locked_file = self.lines.lock_or_create().unwrap();
        let find = |number: &u32| locked_file.lines_with_key(&line_key(*number)).unwrap();
        for number in present {
            assert_eq!(find(number), [line_json(*number)], "line {number}");
        }
        for number in missing {
            assert!(find(number).is_empty(), "line {number} was found");
        }
    }
}

fn line_key(number: u32) -> String {
    format!("run_0000000000000000000000{number:08}:t1.1")
}

fn line_json(number: u32) -> Value {
    json!({ "kind": "intent", "key": line_key(number), "text": "x".repeat(60) })
}

#[test]
fn every_line_of_a_long_file_is_found_by_its_key() {
    let fixture = JsonLinesFixture::new();
    // Keys in other fields, and lines that are not objects with a key, are not found.
    fixture.append_text(&format!("[\"{0}\"]\n{{\"text\":\"{0}\"}}\nnot {0}\n\n", line_key(7_777)));
    fixture.append_text(&format!("{}\n", "x".repeat(5 * 1024 * 1024)));
    for start in [0, 10_000, 20_000] {
        fixture.append_lines(start..start + 10_000);
        fixture.check_key_lookups(&[0, start + 5_000, start + 9_999], &[start + 10_000]);
    }
}

#[test]
fn lines_of_a_key_are_returned_in_file_order() {
    let fixture = JsonLinesFixture::new();
    let locked_file = fixture.lines.lock_or_create().unwrap();
    for part in 0..3 {
        locked_file.append(&json!({ "key": line_key(1), "part": part })).unwrap();
        fixture.append_lines(part * 1_000 + 10..part * 1_000 + 1_010);
        locked_file.lines_with_key(&line_key(1)).unwrap();
    }
    let found = locked_file.lines_with_key(&line_key(1)).unwrap();
    let parts: Vec<&Value> = found.iter().map(|line| &line["part"]).collect();
    assert_eq!(parts, [0, 1, 2]);
}

#[test]
fn a_replaced_or_truncated_file_shows_its_own_lines() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..2_000);
    fixture.check_key_lookups(&[0, 1_999], &[]);

    // Moved away by log rotation.
    fs::rename(fixture.lines_path(), fixture.dir.path().join("box.1")).unwrap();
    fixture.append_lines(5_000..7_000);
    fixture.check_key_lookups(&[5_000, 6_999], &[0, 1_999]);

    // Emptied and written again to more than its former length, in the same inode.
    fs::write(fixture.lines_path(), "").unwrap();
    fixture.append_lines(8_000..12_000);
    fixture.check_key_lookups(&[8_000, 11_999], &[5_000, 6_999]);

    // A line removed in the middle by an editor.
    let text = fs::read_to_string(fixture.lines_path()).unwrap();
    let remaining: String = text
        .lines()
        .filter(|line| !line.contains(&line_key(9_000)))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(fixture.lines_path(), remaining).unwrap();
    fixture.check_key_lookups(&[8_000, 11_999], &[9_000]);

    fs::remove_file(fixture.lines_path()).unwrap();
    fixture.check_key_lookups(&[], &[8_000]);
}

#[test]
fn a_torn_last_line_is_not_found_before_it_is_complete() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..2_000);
    let text = format!("{}\n", line_json(7_777));
    let (start, end) = text.split_at(40);
    fixture.append_text(start);
    fixture.check_key_lookups(&[0], &[7_777]);
    fixture.append_text(end);
    fixture.check_key_lookups(&[0, 7_777], &[]);
    // A line that is appended after a torn one is complete.
    fixture.append_text(start);
    fixture.lines.lock_or_create().unwrap().append(&line_json(8_888)).unwrap();
    fixture.check_key_lookups(&[7_777, 8_888], &[]);
}
