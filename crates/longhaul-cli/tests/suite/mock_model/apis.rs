//! Every API over a real socket.

use std::io::{Read as _, Write as _};

use serde_json::Value;

use super::{API_PATHS, chat_request, connect, project, request, start};

#[test]
fn every_api_replies_with_json_and_as_a_stream() {
    let project = project();
    let server = start(&project, &[]);
    let end_markers = ["message_stop", "response.completed", "data: [DONE]"];
    for (path, end) in API_PATHS.into_iter().zip(end_markers) {
        let line = format!("POST {path}?beta=true");
        let body = chat_request("scripted/look", false).to_string();
        let answer = server.request(&line, &[("x-api-key", "any")], &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["model"], "scripted/look");
        assert!(answer.body.contains("Looking for the key."), "{answer:?}");
        let body = chat_request("look", true).to_string();
        let answer = server.request(&line, &[], &body);
        let kind = answer.header("content-type").unwrap();
        assert!(kind.starts_with("text/event-stream"), "{answer:?}");
        assert!(answer.body.contains(end), "{answer:?}");
        assert!(answer.body.ends_with("0\r\n\r\n"), "{answer:?}");
        let answer = server.request(&line, &[("x-longhaul-turn", "x")], &body);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
}

#[test]
fn one_connection_serves_many_requests() {
    let project = project();
    let server = start(&project, &[]);
    let mut stream = connect(&server);
    let body = chat_request("look", false).to_string();
    for path in API_PATHS.into_iter().chain(["/responses", "/chat/completions"]) {
        stream.write_all(&request(path, "", body.as_bytes())).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        let length = head.lines().find_map(|line| {
            let length = line.strip_prefix("content-length: ")?;
            length.parse::<usize>().ok()
        });
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["model"], "look");
    }
}

#[test]
fn scripts_are_listed_as_models_of_either_provider() {
    let project = project();
    let server = start(&project, &[]);
    // Files that are not scripts are not listed.
    project.write("scripts/.hidden.yaml", "replies: []");
    project.write("scripts/notes.txt", "no script");
    project.write("scripts/folder.yaml/x", "no file");
    let list_models = |headers: &[(&str, &str)]| {
        let answer = server.request("GET /v1/models", headers, "");
        let models = answer.json()["data"].as_array().unwrap().clone();
        let kind = answer.json()["object"].clone();
        let ids = models.iter().map(|model| model["id"].as_str().unwrap());
        (kind, ids.map(str::to_owned).collect::<Vec<_>>())
    };
    let (kind, names) = list_models(&[]);
    assert_eq!(kind, "list");
    assert!(names.contains(&"look".to_owned()), "{names:?}");
    for non_script in [".hidden", "notes", "folder"] {
        assert!(!names.contains(&non_script.to_owned()), "{names:?}");
    }
    let (kind, anthropic_names) = list_models(&[("anthropic-version", "2023-06-01")]);
    assert_eq!((kind, anthropic_names), (Value::Null, names));
}

#[test]
fn requests_and_their_bytes_are_counted() {
    let project = project();
    let server = start(&project, &[]);
    let get_stats = || server.request("GET /stats", &[], "").json();
    assert_eq!(get_stats()["requests"], 0);
    let body = chat_request("look", false).to_string();
    for path in ["/v1/messages", "/v1/responses", "/v1/chat/completions"] {
        let answer = server.request(&format!("POST {path}"), &[], &body);
        assert_eq!(answer.status, 200, "{path}");
    }
    // A rejected request counts; a request for the model list does not.
    assert_eq!(server.request("POST /v1/messages", &[], "{").status, 400);
    assert_eq!(server.request("GET /v1/models", &[], "").status, 200);
    let stats = get_stats();
    assert_eq!(stats["requests"], 4, "{stats}");
    assert_eq!(stats["body_bytes"], 3 * body.len() + 1, "{stats}");
    assert!(stats["cpu_us"].as_u64() > Some(0), "{stats}");
}
