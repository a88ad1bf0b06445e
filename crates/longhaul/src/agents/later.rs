//! Fields that are understood and whose feature this build does not have.
//!
//! Never: lets one pass in silence. An agent that asks for a wall must not run
//! without it. When a feature comes, its field moves from here to `front`.

use crate::agents::sheet::Sheet;
use crate::agents::template::Names;
use crate::written::{Content, Entry};

/// The keys of these fields.
pub(crate) const KEYS: &[&str] = &[
    "idle_model",
    "skills",
    "sandbox",
    "guards",
    "perception",
    "output",
    "events",
];

/// Checks the shape of such a field, then says that it comes later.
pub(crate) fn read(sheet: &mut Sheet, entry: &Entry) {
    match entry.key.as_str() {
        "idle_model" => drop(sheet.text(entry)),
        "skills" => drop(sheet.texts(entry)),
        "sandbox" => sandbox(sheet, entry),
        "guards" => guards(sheet, entry),
        "perception" => perception(sheet, entry),
        "output" => output(sheet, entry),
        "events" => events(sheet, entry),
        _ => {}
    }
    sheet.later(entry.place, &entry.key);
}

fn sandbox(sheet: &mut Sheet, entry: &Entry) {
    let known = [
        "provider",
        "image",
        "idle_stop",
        "auto_stop",
        "keep",
        "network",
        "volume",
        "env_file",
        "isolation",
    ];
    let Some(fields) = sheet.table(entry, &known) else {
        return;
    };
    for key in ["provider", "image", "isolation"] {
        fields.get(key).map(|entry| sheet.text(entry));
    }
    for key in ["idle_stop", "auto_stop", "keep"] {
        fields.get(key).map(|entry| sheet.span(entry));
    }
    fields.get("env_file").map(|entry| sheet.flag(entry));
    if let Some(network) = fields.get("network") {
        if matches!(network.node.content, Content::List(_)) {
            sheet.texts(network);
        } else {
            sheet.text(network);
        }
    }
    if let Some(volume) = fields.get("volume")
        && let Some(fields) = sheet.table(volume, &["name", "path"])
    {
        for key in ["name", "path"] {
            fields.get(key).map(|entry| sheet.text(entry));
        }
    }
}

fn guards(sheet: &mut Sheet, entry: &Entry) {
    let fields = sheet.table(entry, &["identical_calls"]);
    let calls = fields.and_then(|fields| fields.get("identical_calls"));
    if let Some(calls) = calls {
        if matches!(calls.node.content, Content::Text(_)) {
            sheet.word(calls, &[("off", ())]);
        } else {
            sheet.whole::<u32>(calls, 2);
        }
    }
}

fn perception(sheet: &mut Sheet, entry: &Entry) {
    let Some(fields) = sheet.table(entry, &["command", "url", "every"]) else {
        return;
    };
    match (fields.get("command"), fields.get("url")) {
        (Some(command), None) => drop(sheet.list(command)),
        (None, Some(url)) => drop(sheet.text(url)),
        (None, None) | (Some(_), Some(_)) => {
            sheet.fault(entry.place, "`perception` needs one of `command` and `url`");
        }
    }
    if let Some(every) = fields.get("every") {
        sheet.word(every, &[("run", ()), ("turn", ())]);
    }
}

fn output(sheet: &mut Sheet, entry: &Entry) {
    let fields = sheet.table(entry, &["schema"]);
    match fields.map(|fields| fields.get("schema")) {
        Some(Some(schema)) => drop(sheet.text(schema)),
        Some(None) => sheet.fault(entry.place, "`output` needs a `schema`, the path of a file"),
        None => {}
    }
}

fn events(sheet: &mut Sheet, entry: &Entry) {
    let Content::Table(events) = &entry.node.content else {
        let message = "`events` is a table: write `KIND: \"what the model reads\"`";
        return sheet.fault(entry.node.place, message);
    };
    for event in events {
        sheet.template(event, Names::Any);
    }
}
