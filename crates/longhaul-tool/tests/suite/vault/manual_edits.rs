//! Notes written by people and other systems: notes that can't be read completely, and names with
//! decomposed characters.

use std::fs;

use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn an_unreadable_note_is_not_replaced() {
    let fixture = Fixture::new();
    let long = format!("---\na: 1\n---\n{}", "ü".repeat(200_000));
    let table: [(&str, &[u8], &str); 4] = [
        ("Broken", b"---\ntags: [a\n---\nMine.", "front matter can't"),
        ("Open", b"---\ntitle: never closed\n", "no closing `---`"),
        ("Bytes", b"a\xff\xfe b", "is not UTF-8 text"),
        ("Long", long.as_bytes(), "is longer than the 262144 bytes"),
    ];
    for (title, bytes, why) in table {
        let path = fixture.path(&format!("In/{title}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let message = fixture.write("In", title).await.unwrap_err();
        let begins = format!("The note was not written: `In/{title}` can't be replaced: ");
        assert!(message.starts_with(&begins) && message.contains(why), "{message}");
        let advice = ": use another title, or let a person fix the file.";
        assert!(message.ends_with(advice), "{message}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        // `vault_read` reports the same problem.
        let read = fixture.read("In", title).await.unwrap();
        let is_reported =
            read.contains(why) && read.contains("vault_write does not replace this note");
        assert_eq!(is_reported, title != "Long", "{}", &read[read.len() - 200..]);
    }
    let list = fixture.list(json!({ "folder": "In" })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.count(), 3, "{list}");
}

#[tokio::test]
async fn accented_titles_have_one_normal_form() {
    let fixture = Fixture::new();
    let (one, two) = ("Caf\u{e9}", "Cafe\u{301}");
    fixture.write(two, one).await.unwrap();
    let output = fixture.write(one, two).await.unwrap();
    assert_eq!(output, format!("`{one}/{one}` already has exactly this content."));
    assert_eq!(fixture.titles(json!({ "folder": two })).await, [one]);
    let names: Vec<_> = fs::read_dir(fixture.path("")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");

    // A name in another normalization form is the same note and keeps its name on disk.
    let below = format!("E\u{301}t\u{e9}/{two}.md");
    fixture.write_file(&below, "Mine.");
    let folder = "\u{c9}t\u{e9}";
    for title in [one, two] {
        assert_eq!(fixture.read(folder, title).await.unwrap(), "Mine.");
    }
    let output = fixture.write(folder, one).await.unwrap();
    assert_eq!(output, format!("Updated the note `{folder}/{one}`."));
    let text = fs::read_to_string(fixture.path(&below)).unwrap();
    assert!(text.ends_with("---\n\ntext"), "{text}");
    assert_eq!(fs::read_dir(fixture.path("E\u{301}t\u{e9}")).unwrap().count(), 1);
    let list = fixture.list(json!({ "folder": folder })).await;
    assert_eq!(list["notes"][0]["folder"], folder);
    assert_eq!(list["notes"][0]["title"], one);
    // A name that differs in case is an error.
    let output = fixture.read(folder, "caf\u{e9}").await.unwrap_err();
    assert!(output.contains(&format!("exists as `{one}`")), "{output}");
    let input = json!({ "folder": two, "title": two });
    let subject = format!("{one}/{one}");
    assert_eq!(fixture.tool("vault_write").rule_match_texts(&input), [subject]);

    // If both forms exist, both are listed, and one is marked as shadowed.
    fixture.write_file(&format!("E\u{301}t\u{e9}/{one}.md"), "Twin.");
    assert_eq!(fixture.read(folder, two).await.unwrap(), "Twin.");
    let list = fixture.list(json!({ "folder": folder })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.collect::<Vec<_>>().len(), 1, "{list}");
}
