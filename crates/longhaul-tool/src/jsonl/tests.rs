//! Tests of lookups by key: which lines are found, and how many bytes are read.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::jsonl::{JsonLinesFile, TAIL_BYTES_MAX};

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

    fn index_path(&self) -> PathBuf {
        self.dir.path().join(".longhaul-box.jsonl.index")
    }

    /// Appends lines as another process would, without a lookup between them.
    fn append_lines(&self, numbers: std::ops::Range<u32>) {
        let mut text = String::new();
        for number in numbers {
            text += &format!("{}\n", line_json(number));
        }
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.lines_path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Returns how many lines have the key `line_key(number)`, and how many bytes were read to find
    /// them.
    fn count_key_matches_and_bytes_read(&self, number: u32) -> (usize, u64) {
        let found =
            self.lines.lock_or_create_file().unwrap().find_lines_by_key(&line_key(number)).unwrap();
        assert!(found.lines.iter().all(|line| line["key"] == line_key(number)));
        (found.lines.len(), found.bytes_read)
    }

    fn check_key_lookups(&self, present: &[u32], missing: &[u32]) {
        for number in present {
            assert_eq!(
                self.count_key_matches_and_bytes_read(*number).0,
                1,
                "line {number} was not found"
            );
        }
        for number in missing {
            assert_eq!(
                self.count_key_matches_and_bytes_read(*number).0,
                0,
                "line {number} was found"
            );
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
fn a_lookup_reads_as_little_of_a_long_file_as_of_a_short_one() {
    let fixture = JsonLinesFixture::new();
    let (mut count, mut bytes_read) = (0, Vec::new());
    for total in [1_000, 5_000, 50_000] {
        fixture.append_lines(count..total);
        count = total;
        // The first lookup adds the new lines to the index.
        fixture.count_key_matches_and_bytes_read(0);
        for number in [0, total / 2, total - 1, total + 1] {
            let (lines, bytes) = fixture.count_key_matches_and_bytes_read(number);
            assert_eq!(lines, usize::from(number < total));
            bytes_read.push(bytes);
        }
    }
    let max_bytes = TAIL_BYTES_MAX + 1_000;
    assert!(bytes_read.iter().all(|bytes| *bytes <= max_bytes), "{bytes_read:?}");
}

#[test]
fn every_line_is_indexed_once() {
    let fixture = JsonLinesFixture::new();
    let length = |number: u32| format!("{}\n", line_json(number)).len() as u64;
    let (mut max_bytes_read, mut written) = (0, 0);
    for number in 0..3_000 {
        let locked_file = fixture.lines.lock_or_create_file().unwrap();
        let found = locked_file.find_lines_by_key(&line_key(number)).unwrap();
        assert!(found.lines.is_empty());
        max_bytes_read = max_bytes_read.max(found.bytes_read);
        locked_file.append_json_line(&line_json(number)).unwrap();
        written += length(number);
    }
    // The tail is read once for the index, and the rest of it once for the search.
    assert!(max_bytes_read <= TAIL_BYTES_MAX + 1_000, "{max_bytes_read} of {written} bytes");
    fixture.check_key_lookups(&[0, 1_500, 2_999], &[3_000]);
}

#[test]
fn a_short_file_needs_no_index() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..100);
    fixture.check_key_lookups(&[0, 99], &[100]);
    assert!(!fixture.index_path().exists());
}

#[test]
fn lines_of_a_key_are_returned_in_file_order() {
    let fixture = JsonLinesFixture::new();
    let locked_file = fixture.lines.lock_or_create_file().unwrap();
    for part in 0..3 {
        locked_file.append_json_line(&json!({ "key": line_key(1), "part": part })).unwrap();
        fixture.append_lines(part * 1_000 + 10..part * 1_000 + 1_010);
        locked_file.find_lines_by_key(&line_key(1)).unwrap();
    }
    let found = locked_file.find_lines_by_key(&line_key(1)).unwrap();
    let parts: Vec<&Value> = found.lines.iter().map(|line| &line["part"]).collect();
    assert_eq!(parts, [0, 1, 2]);
}

#[test]
fn a_replaced_or_truncated_file_gets_a_new_index() {
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
fn a_damaged_or_symlinked_index_hides_no_line() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..2_000);
    fixture.check_key_lookups(&[0, 1_999], &[]);
    for content in [&b""[..], b"not an index", &[0; 100_000]] {
        fs::write(fixture.index_path(), content).unwrap();
        fixture.check_key_lookups(&[0, 1_000, 1_999], &[2_000]);
    }
    // Truncated after its header.
    let index = fs::read(fixture.index_path()).unwrap();
    fs::write(fixture.index_path(), &index[..4_096]).unwrap();
    fixture.check_key_lookups(&[0, 1_000, 1_999], &[2_000]);

    let other = fixture.dir.path().join("other");
    fs::write(&other, "keep").unwrap();
    fs::remove_file(fixture.index_path()).unwrap();
    std::os::unix::fs::symlink(&other, fixture.index_path()).unwrap();
    fixture.check_key_lookups(&[0, 1_999], &[2_000]);
    assert_eq!(fs::read_to_string(other).unwrap(), "keep");
}

#[test]
fn an_index_that_is_outdated_after_a_crash_catches_up() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..2_000);
    fixture.check_key_lookups(&[0], &[]);
    let before = fs::read(fixture.index_path()).unwrap();
    fixture.append_lines(2_000..4_000);
    fixture.check_key_lookups(&[3_999], &[]);
    // The slots of the second batch reached the disk, the header did not.
    let after = fs::read(fixture.index_path()).unwrap();
    let mut torn = after.clone();
    torn[..64].copy_from_slice(&before[..64]);
    fs::write(fixture.index_path(), torn).unwrap();
    fixture.check_key_lookups(&[0, 1_999, 2_000, 3_999], &[4_000]);
    // Slots that were there already are counted as used.
    assert!(fs::read(fixture.index_path()).unwrap() == after);
}

#[test]
fn an_index_without_a_free_slot_hides_no_line() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..1_000);
    fixture.check_key_lookups(&[0], &[]);
    let mut full = fs::read(fixture.index_path()).unwrap();
    full[64..].fill(0xfe);
    fs::write(fixture.index_path(), full).unwrap();
    fixture.append_lines(1_000..2_000);
    fixture.check_key_lookups(&[1_000, 1_999], &[2_000]);
}

#[test]
fn a_torn_last_line_is_not_indexed_before_it_is_complete() {
    let fixture = JsonLinesFixture::new();
    fixture.append_lines(0..2_000);
    let mut options = OpenOptions::new();
    let mut file = options.append(true).open(fixture.lines_path()).unwrap();
    let text = format!("{}\n", line_json(7_777));
    let (start, end) = text.split_at(40);
    file.write_all(start.as_bytes()).unwrap();
    fixture.check_key_lookups(&[0], &[7_777]);
    file.write_all(end.as_bytes()).unwrap();
    fixture.check_key_lookups(&[0, 7_777], &[]);
}
