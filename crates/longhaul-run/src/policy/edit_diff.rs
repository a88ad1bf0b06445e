//! The difference between the content that a gate was raised with and an edit of it.

use longhaul_core::event::gate::EditedValue;
use longhaul_core::raw::RawJson;
use serde_json::Value;

/// Returns the values that differ between two JSON texts. Objects are compared field by field.
/// Other values, and texts that are nested too deeply to parse, are compared as a whole.
pub(crate) fn diff_json(before: &RawJson, after: &RawJson) -> Vec<EditedValue> {
    let parse = |json: &RawJson| serde_json::from_str::<Value>(json.as_str());
    let (Ok(old), Ok(new)) = (parse(before), parse(after)) else {
        let (before, after) = (Some(before.clone()), Some(after.clone()));
        return vec![EditedValue { path: String::new(), before, after }];
    };
    let mut diff = Vec::new();
    add_differences(String::new(), (&old, &new), &mut diff);
    diff
}

fn add_differences(path: String, (before, after): (&Value, &Value), diff: &mut Vec<EditedValue>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        diff.push(edited_value(path, Some(before), Some(after)));
        return;
    };
    for (name, value) in old {
        let path = format!("{path}/{}", escape_json_pointer_token(name));
        match new.get(name) {
            Some(after) => add_differences(path, (value, after), diff),
            None => diff.push(edited_value(path, Some(value), None)),
        }
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        let path = format!("{path}/{}", escape_json_pointer_token(name));
        diff.push(edited_value(path, None, Some(value)));
    }
}

fn edited_value(path: String, before: Option<&Value>, after: Option<&Value>) -> EditedValue {
    let raw = |value: Option<&Value>| value.map(RawJson::from_serialize);
    EditedValue { path, before: raw(before), after: raw(after) }
}

fn escape_json_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changed_added_and_removed_values_are_listed() {
        let before = json!({ "a": 1, "b": { "c": [1, 2], "d/e": "x" }, "gone": null, "same": {} });
        let after = json!({ "same": {}, "a": 2, "b": { "c": [1], "d/e": "x", "new": true } });
        let diff = diff_json(&RawJson::from_serialize(&before), &RawJson::from_serialize(&after));
        let expected = json!([
            { "path": "/a", "before": 1, "after": 2 },
            { "path": "/b/c", "before": [1, 2], "after": [1] },
            { "path": "/b/new", "after": true },
            { "path": "/gone", "before": null },
        ]);
        assert_eq!(serde_json::to_value(&diff).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Vec<EditedValue>>(expected).unwrap(), diff);
        let slash = diff_json(
            &RawJson::from_serialize(&json!({ "d/e~": 1 })),
            &RawJson::from_serialize(&json!("all")),
        );
        assert_eq!(slash[0].path, "");
    }
}
