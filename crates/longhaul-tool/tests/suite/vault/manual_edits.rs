//! Notes written by people and other systems: notes that can't be read completely, and names with
//! decomposed characters.

use std::fs;

use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn an_unreadable_note_is_not_replaced() {
    let fixture = Fixture::new();
    let long_note = format!("---\na: 1\n---\n{}", "ü".repeat(200_000));
    let table: [(&str, &[u8], &str); 4] = [
        ("Broken", b"---\ntags: [a\n---\nMine.", "front matter can't"),
        ("Open", b"---\ntitle: never closed\n", "no closing `---`"),
        ("Bytes", b"a\xff\xfe b", "is not UTF-8 text"),
        ("Long", long_note.as_bytes(), "is longer than the 262144 bytes"),
    ];
    for (title, bytes, expected) in table {
        let path = fixture.path(&format!("In/{title}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let message = fixture.write("In", title).await.unwrap_err();
        let prefix = format!("The note was not written: `In/{title}` can't be replaced: ");
        assert!(message.starts_with(&prefix) && message.contains(expected), "{message}");
        let advice = ": use another title, or let a person fix the file.";
        assert!(message.ends_with(advice), "{message}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        // `vault_read` reports the same problem.
        let note_text = fixture.read("In", title).await.unwrap();
        let is_reported = note_text.contains(expected)
            && note_text.contains("vault_write does not replace this note");
        assert_eq!(is_reported, title != "Long", "{}", &note_text[note_text.len() - 200..]);
    }
    let list = fixture.list(json!({ "folder": "In" })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.count(), 3, "{list}");
}

#[tokio::test]
async fn accented_titles_have_one_normal_form() {
    let fixture = Fixture::new();
    let (composed, decomposed) = ("Caf\u{e9}", "Cafe\u{301}");
    fixture.write(decomposed, composed).await.unwrap();
    let output = fixture.write(composed, decomposed).await.unwrap();
    assert_eq!(output, format!("`{composed}/{composed}` already has exactly this content."));
    assert_eq!(fixture.titles(json!({ "folder": decomposed })).await, [composed]);
    let names: Vec<_> = fs::read_dir(fixture.path("")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");

    // A name in another normalization form is the same note and keeps its name on disk.
    let relative_path = format!("E\u{301}t\u{e9}/{decomposed}.md");
    fixture.write_file(&relative_path, "Mine.");
    let folder = "\u{c9}t\u{e9}";
    for title in [composed, decomposed] {
        assert_eq!(fixture.read(folder, title).await.unwrap(), "Mine.");
    }
    let output = fixture.write(folder, composed).await.unwrap();
    assert_eq!(output, format!("Updated the note `{folder}/{composed}`."));
    let text = fs::read_to_string(fixture.path(&relative_path)).unwrap();
    assert!(text.ends_with("---\n\ntext"), "{text}");
    assert_eq!(fs::read_dir(fixture.path("E\u{301}t\u{e9}")).unwrap().count(), 1);
    let list = fixture.list(json!({ "folder": folder })).await;
    assert_eq!(list["notes"][0]["folder"], folder);
    assert_eq!(list["notes"][0]["title"], composed);
    // A name that differs in case is an error.
    let output = fixture.read(folder, "caf\u{e9}").await.unwrap_err();
    assert!(output.contains(&format!("exists as `{composed}`")), "{output}");
    let input = json!({ "folder": decomposed, "title": decomposed });
    let match_text = format!("{composed}/{composed}");
    assert_eq!(fixture.tool("vault_write").rule_match_texts(&input), [match_text]);

    // If both forms exist, both are listed, and one is marked as shadowed.
    fixture.write_file(&format!("E\u{301}t\u{e9}/{composed}.md"), "Twin.");
    assert_eq!(fixture.read(folder, decomposed).await.unwrap(), "Twin.");
    let list = fixture.list(json!({ "folder": folder })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.collect::<Vec<_>>().len(), 1, "{list}");
}
