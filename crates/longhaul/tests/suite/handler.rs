//! Tests of Rust functions as agents: input, output and failures.

use longhaul::{FinishedRun, HandlerError, Response, Runtime, RuntimeBuilder, Status, Task};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Size {
    width: u32,
    height: u32,
}

async fn run_to_end(builder: RuntimeBuilder, task: Task) -> FinishedRun {
    let runtime = builder.store("sqlite::memory:").open().await.unwrap();
    let worker = runtime.worker().spawn();
    let done = runtime.submit(task).await.unwrap().wait().await.unwrap();
    worker.stop().await.unwrap();
    done
}

#[tokio::test]
async fn input_and_output_are_typed() {
    let builder = Runtime::builder().handler("halve", |request, progress| async move {
        assert_eq!((request.attempt, &request.key), (1, &request.run.to_string()));
        let size: Size = request.input()?;
        progress.report(Some(50), "halving");
        Ok(Size { width: size.width / 2, height: size.height / 2 })
    });
    let task = Task::new("halve").input(json!({ "width": 8, "height": 6 }));
    let done = run_to_end(builder, task).await;
    let half_size = Size { width: 4, height: 3 };
    assert_eq!(done.data::<Size>().unwrap(), half_size);
    assert_eq!(done.text().unwrap(), r#"{"width":4,"height":3}"#);
    assert_eq!(done.tools_called, ["handler:halve", "finish"]);
    assert_eq!(done.cost_usd, Some(0.0));
    let error_text = done.data::<u8>().unwrap_err().to_string();
    assert!(error_text.contains("does not have the expected type"), "{error_text}");
}

#[tokio::test]
async fn texts_numbers_and_unit_are_valid_outputs() {
    let builder = || {
        Runtime::builder()
            .handler("text", |_, _| async move { Ok("7") })
            .handler("number", |_, _| async move { Ok(7) })
            .handler("nothing", |_, _| async move { Ok(()) })
    };
    let text = run_to_end(builder(), Task::new("text")).await;
    assert_eq!(text.data::<String>().unwrap(), "7");
    let number_run = run_to_end(builder(), Task::new("number")).await;
    assert_eq!((number_run.text().unwrap(), number_run.data::<u8>().unwrap()), ("7", 7));
    let unit_run = run_to_end(builder(), Task::new("nothing")).await;
    assert_eq!(unit_run.status, Status::Completed);
    unit_run.data::<()>().unwrap();
}

#[tokio::test]
async fn a_long_result_is_returned_untruncated() {
    let long_text = || "word ".repeat(20_000);
    let builder = Runtime::builder().handler("long", move |_, _| async move { Ok(long_text()) });
    let done = run_to_end(builder, Task::new("long")).await;
    assert!(done.text().unwrap() == long_text(), "{} bytes", done.text().unwrap().len());
}

#[tokio::test]
async fn a_handler_error_fails_the_run() {
    let builder = || {
        Runtime::builder()
            .handler("file", |request, _| async move {
                Ok(std::fs::read_to_string(request.input::<String>()?)?)
            })
            .handler("panics", |_, _| async move {
                assert!(std::hint::black_box(false), "the paper is out");
                Ok(())
            })
            .handler("words", |_, _| async move {
                Err::<(), _>(HandlerError::new("the printer is on fire"))
            })
    };
    let error_text = |done: FinishedRun| {
        assert_eq!(done.status, Status::Failed);
        done.text().unwrap_err().to_string()
    };
    let message = error_text(run_to_end(builder(), Task::new("words")).await);
    assert!(message.ends_with("the printer is on fire"), "{message}");
    let message = error_text(run_to_end(builder(), Task::new("file").input("/no/such/file")).await);
    assert!(message.contains("No such file"), "{message}");
    let message = error_text(run_to_end(builder(), Task::new("file").input(7)).await);
    assert!(message.contains("the input does not have the expected type"), "{message}");
    let done = run_to_end(builder(), Task::new("panics")).await;
    let error = done.error.clone().unwrap();
    assert_eq!(error.message, "the handler `panics` panicked: the paper is out");
    let hint = format!("fix the handler or the task's input, then: `longhaul retry {}`", done.id);
    assert_eq!(error.hint, hint);
}

#[tokio::test]
async fn a_message_to_a_handler_changes_nothing_and_a_cancel_ends_it() {
    let started = std::sync::Arc::new(tokio::sync::Notify::new());
    let start_notifier = std::sync::Arc::clone(&started);
    let builder = Runtime::builder().handler("waits", move |_, _| {
        let start_notifier = std::sync::Arc::clone(&start_notifier);
        async move {
            start_notifier.notify_one();
            std::future::pending::<Result<(), HandlerError>>().await
        }
    });
    let runtime = builder.store("sqlite::memory:").open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("waits")).await.unwrap();
    started.notified().await;
    run.steer("Hurry.").await.unwrap();
    run.cancel("enough").await.unwrap();
    let done = run.wait().await.unwrap();
    assert_eq!(done.status, Status::Cancelled);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_input_nested_too_deeply_fails_with_a_message() {
    let builder = Runtime::builder().handler("deep", |request, _| async move {
        let input: serde_json::Value = request.input()?;
        Ok(input)
    });
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let deep = longhaul::RawJson::parse(deep).unwrap();
    let done = run_to_end(builder, Task::new("deep").input(deep)).await;
    assert_eq!(done.status, Status::Failed, "{done:?}");
    let message = done.text().unwrap_err().to_string();
    assert!(message.contains("the input does not have the expected type"), "{message}");
}

#[tokio::test]
async fn a_result_too_long_or_nested_too_deeply_fails_with_a_message() {
    let builder = || {
        Runtime::builder()
            .handler("long", |request, _| async move { Ok("x".repeat(request.input()?)) })
            .handler("deep", |request, _| async move { Ok(request.input) })
    };
    let error_text = |done: FinishedRun| {
        assert_eq!(done.status, Status::Failed, "{done:?}");
        done.text().unwrap_err().to_string()
    };
    let (max_bytes, quote_bytes) = (4_194_293, 2);
    let done = run_to_end(builder(), Task::new("long").input(max_bytes - quote_bytes)).await;
    assert_eq!(done.text().unwrap().len(), max_bytes - quote_bytes);
    let message = error_text(run_to_end(builder(), Task::new("long").input(max_bytes - 1)).await);
    assert!(message.contains("4194294 bytes"), "{message}");
    let deep = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    let deep = longhaul::RawJson::parse(deep).unwrap();
    let message = error_text(run_to_end(builder(), Task::new("deep").input(deep)).await);
    assert!(message.contains("the result can't be stored"), "{message}");
}

#[tokio::test]
async fn no_model_and_no_other_agent_can_call_a_handler() {
    let script = "replies: [{ tools: [{ name: 'handler:pay', input: {} }] }, \
                  { text: '{{ last_result }}' }]";
    let script = longhaul::models::scripted("pays", script).unwrap();
    let clerk_agent = longhaul::Agent::new("clerk").model("script");
    let builder = Runtime::builder()
        .store("sqlite::memory:")
        .model("script", script)
        .agent(clerk_agent.tool("handler:pay"))
        .handler("pay", |_, _| async move { Ok("paid") });
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let task = Task::new("pay").model("script");
    let message = runtime.submit(task).await.unwrap_err().to_string();
    assert!(message.contains("`pay`") && message.contains("model"), "{message}");
    let run = runtime.submit(Task::new("clerk")).await.unwrap();
    let done = run.wait().await.unwrap();
    let message = done.text().unwrap();
    assert!(message.contains("no other agent"), "{message}");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_that_ends_during_shutdown_is_not_repeated() {
    let (start_sender, mut start_receiver) = tokio::sync::mpsc::unbounded_channel();
    let (end_sender, end_receiver) = tokio::sync::watch::channel(false);
    let builder = Runtime::builder().handler("slow", move |_, _| {
        let (start_sender, mut end_receiver) = (start_sender.clone(), end_receiver.clone());
        async move {
            start_sender.send(())?;
            end_receiver.wait_for(|is_ended| *is_ended).await?;
            Ok("done")
        }
    });
    let runtime = builder.store("sqlite::memory:").open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("slow")).await.unwrap();
    start_receiver.recv().await.unwrap();
    let mut stop_future = std::pin::pin!(worker.stop());
    let poll_result = futures_util::poll!(stop_future.as_mut());
    assert!(poll_result.is_pending(), "the worker stopped in the middle of a call");
    end_sender.send(true).unwrap();
    stop_future.await.unwrap();
    let worker = runtime.worker().spawn();
    assert_eq!(run.wait().await.unwrap().text().unwrap(), "done");
    worker.stop().await.unwrap();
    assert!(start_receiver.try_recv().is_err(), "the handler was called again");
}

#[tokio::test]
async fn two_inputs_nested_too_deeply_are_different_tasks() {
    let builder = Runtime::builder().handler("deep", |_, _| async move { Ok(()) });
    let runtime = builder.store("sqlite::memory:").open().await.unwrap();
    let task = |value: &str| {
        let deep = format!("{}{value}{}", "[".repeat(200), "]".repeat(200));
        let deep = longhaul::RawJson::parse(deep).unwrap();
        Task::new("deep").input(deep).idempotency_key("one")
    };
    let first = runtime.submit(task("1")).await.unwrap();
    let second = runtime.submit(task("1")).await.unwrap();
    assert_eq!(first.id(), second.id());
    let error = runtime.submit(task("2")).await.unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused", "{error}");
}

#[tokio::test]
async fn a_response_has_text_data_confidence_and_artifacts() {
    let builder = || {
        Runtime::builder()
            .handler("full", |_, _| async move {
                Ok(Response::text("two birds")
                    .data(["heron", "wren"])
                    .confidence(0.8)
                    .artifact(json!({ "path": "a.txt" }))
                    .artifact("b.txt"))
            })
            .handler("unsure", |_, _| async move { Ok(Response::text("x").confidence(8.0)) })
    };
    let done = run_to_end(builder(), Task::new("full")).await;
    let output = done.output.as_ref().unwrap();
    assert_eq!((output.text.as_str(), output.confidence), ("two birds", Some(80)));
    assert_eq!(done.data::<Vec<String>>().unwrap(), ["heron", "wren"]);
    let artifacts: Vec<&str> = output.artifacts.iter().map(|one| one.as_str()).collect();
    assert_eq!(artifacts, [r#"{"path":"a.txt"}"#, r#""b.txt""#]);
    assert_eq!(output.tools_called, ["handler:full"]);
    let done = run_to_end(builder(), Task::new("unsure")).await;
    let error = done.error.unwrap();
    assert_eq!(error.code, "handler_failed");
    assert!(error.message.contains("the confidence is 8, but must be from 0 to 1"), "{error:?}");
}

#[tokio::test]
async fn a_handler_sees_its_task() {
    let builder = Runtime::builder().handler("echo", |request, _| async move {
        let links = request.links.map(|links| links.to_value());
        let metadata = request.metadata.map(|metadata| metadata.to_value());
        Ok(json!([request.kind, request.actor.map(|actor| actor.to_value()), links, metadata]))
    });
    let task = Task::new("echo")
        .kind("mail")
        .actor(json!("ada"))
        .links(json!({ "project": 7 }))
        .metadata(json!({ "a": 1 }));
    let done = run_to_end(builder, task).await;
    let request_fields: serde_json::Value = done.data().unwrap();
    assert_eq!(request_fields, json!(["mail", "ada", { "project": 7 }, { "a": 1 }]));
}
