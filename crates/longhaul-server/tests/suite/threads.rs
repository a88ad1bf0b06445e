//! Threads over HTTP: messages are added, read and deleted.

use serde_json::json;

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::server_with;

#[tokio::test]
async fn messages_of_a_thread_are_added_read_and_deleted() {
    let server = server_with([]).open().await;
    let path = "/v1/threads/shop%2F7/messages";
    assert_eq!(
        server.send(get(path)).await.expect(200),
        json!({ "thread": "shop/7", "count": 0, "data": [] })
    );
    for (body, count) in [
        (json!({ "text": "I like milk." }), 1),
        (json!({ "text": "Noted.", "role": "assistant" }), 2),
        (json!({ "text": "And bread.", "role": "user" }), 3),
    ] {
        let added = server.send(post(path, &body)).await.expect(200);
        assert_eq!(added, json!({ "thread": "shop/7", "count": count }));
    }
    let newest = server.send(get(format!("{path}?limit=2"))).await.expect(200);
    assert_eq!(newest["count"], 3);
    let texts = newest["data"].to_string();
    assert!(texts.contains("Noted.") && texts.contains("And bread."), "{texts}");
    assert_eq!(newest["data"].as_array().unwrap().len(), 2);
    for (body, code) in [
        (json!({ "text": " " }), "empty"),
        (json!({ "text": "x".repeat((1 << 20) + 1) }), "too_long"),
        (json!({ "text": "x", "role": "tool" }), "invalid"),
        (json!({ "text": "x", "by": "me" }), "invalid"),
    ] {
        let refused = server.send(post(path, &body)).await;
        assert_eq!((refused.status, &*refused.problem()), (422, code));
    }
    assert_eq!(server.send(get(format!("{path}?limit=0"))).await.status, 422);
    let cleared = server.send(request("DELETE", path)).await.expect(200);
    assert_eq!(cleared, json!({ "thread": "shop/7", "deleted": 3 }));
    assert_eq!(server.send(get(path)).await.expect(200)["count"], 0);
}
