//! What people and their systems leave in a vault: notes that nobody can read
//! whole, and letters of two code points.

use std::fs;

use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn an_unreadable_note_is_not_replaced() {
    let world = Fixture::new();
    let long = format!("---\na: 1\n---\n{}", "ü".repeat(200_000));
    let table: [(&str, &[u8], &str); 4] = [
        ("Broken", b"---\ntags: [a\n---\nMine.", "front matter that"),
        ("Open", b"---\ntitle: never closed\n", "no closing `---`"),
        ("Bytes", b"a\xff\xfe b", "is not text in UTF-8"),
        ("Long", long.as_bytes(), "is longer than the 262144 bytes"),
    ];
    for (title, bytes, why) in table {
        let path = world.path(&format!("In/{title}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let said = world.write("In", title).await.unwrap_err();
        let begins = format!("The note was not written: `In/{title}` is there and ");
        assert!(said.starts_with(&begins) && said.contains(why), "{said}");
        let mend = ": write under another title, or let a person mend the file.";
        assert!(said.ends_with(mend), "{said}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        // Whoever reads it learns the same.
        let read = world.read("In", title).await.unwrap();
        let is_told = read.contains(why) && read.contains("vault_write does not replace it");
        assert_eq!(is_told, title != "Long", "{}", &read[read.len() - 200..]);
    }
    let list = world.list(json!({ "folder": "In" })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.count(), 3, "{list}");
}

#[tokio::test]
async fn accented_titles_have_one_normal_form() {
    let world = Fixture::new();
    let (one, two) = ("Caf\u{e9}", "Cafe\u{301}");
    world.write(two, one).await.unwrap();
    let said = world.write(one, two).await.unwrap();
    assert_eq!(said, format!("`{one}/{one}` says exactly this already."));
    assert_eq!(world.titles(json!({ "folder": two })).await, [one]);
    let names: Vec<_> = fs::read_dir(world.path("")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");

    // What a person's system spelled otherwise is the same note, under its own name.
    let below = format!("E\u{301}t\u{e9}/{two}.md");
    world.write_file(&below, "Mine.");
    let folder = "\u{c9}t\u{e9}";
    for title in [one, two] {
        assert_eq!(world.read(folder, title).await.unwrap(), "Mine.");
    }
    let said = world.write(folder, one).await.unwrap();
    assert_eq!(said, format!("Updated the note `{folder}/{one}`."));
    let text = fs::read_to_string(world.path(&below)).unwrap();
    assert!(text.ends_with("---\n\ntext"), "{text}");
    assert_eq!(fs::read_dir(world.path("E\u{301}t\u{e9}")).unwrap().count(), 1);
    let list = world.list(json!({ "folder": folder })).await;
    assert_eq!(list["notes"][0]["folder"], folder);
    assert_eq!(list["notes"][0]["title"], one);
    // Another case is another matter.
    let said = world.read(folder, "caf\u{e9}").await.unwrap_err();
    assert!(said.contains(&format!("is spelled `{one}` there")), "{said}");
    let input = json!({ "folder": two, "title": two });
    let subject = format!("{one}/{one}");
    assert_eq!(world.tool("vault_write").subjects(&input), [subject]);

    // Two that are there already are both shown, and which of them is meant.
    world.write_file(&format!("E\u{301}t\u{e9}/{one}.md"), "Twin.");
    assert_eq!(world.read(folder, two).await.unwrap(), "Twin.");
    let list = world.list(json!({ "folder": folder })).await;
    let notes = list["notes"].as_array().unwrap();
    let problems = notes.iter().filter_map(|note| note["problem"].as_str());
    assert_eq!(problems.collect::<Vec<_>>().len(), 1, "{list}");
}
