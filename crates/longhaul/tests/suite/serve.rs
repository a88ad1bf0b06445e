//! The server inside a program: the same API, with a key of the program's making.

use longhaul::{Role, Runtime, Task};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_caller_with_a_key_sees_the_program_s_runs_and_one_without_does_not() {
    let builder = Runtime::builder().store("sqlite::memory:");
    let builder = builder.handler("hello", |_, _| async move { Ok("Hello.") });
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("hello")).await.unwrap();
    run.wait().await.unwrap();
    let key = runtime.create_key("ci", Role::Viewer).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/v1/runs/{}",
        listener.local_addr().unwrap(),
        run.id()
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let served = runtime.serve_until(listener, async {
        _ = stopped.await;
    });
    let asked = async {
        let client = reqwest::Client::new();
        let refused = client.get(&url).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 401);
        let shown = client.get(&url).bearer_auth(&key).send().await.unwrap();
        let shown: Value = serde_json::from_str(&shown.text().await.unwrap()).unwrap();
        assert_eq!(shown["output"]["text"], "Hello.", "{shown}");
        stop.send(()).unwrap();
    };
    let (served, ()) = tokio::join!(served, asked);
    served.unwrap();
    assert!(runtime.create_key("ci", Role::Viewer).await.is_err());
    worker.stop().await.unwrap();
}
