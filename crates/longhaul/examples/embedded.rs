//! Durable agents inside a program: a Rust function, an agent with a model of the program's own,
//! a gate that is answered, events that are followed, and a worker that drains.
//!
//! Never: asks a real model, or keeps anything. It runs anywhere.

#![allow(clippy::print_stdout, reason = "an example shows what came of it")]

use std::sync::Arc;

use longhaul::models::{
    Block, CostEstimate, DeltaSink, Failure, Hold, Model, ModelPricing, ModelRequest,
    ModelResponse, Reply, StopReason, TextBlock, ToolCall, Usage,
};
use longhaul::schemars::{self, JsonSchema};
use longhaul::tools::{Progress, ToolContext, ToolFailure, ToolOutput, TypedTool, typed};
use longhaul::{
    Agent, Answer, CancellationToken, Error, HandlerError, HandlerRequest, RawJson, RunHandle,
    Runtime, Task, async_trait,
};
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    /// What it costs
    crowns: u32,
}

/// A bank that charges once for one key.
async fn charge_at_bank(crowns: u32, key: &str) -> Result<String, Error> {
    Ok(format!("{crowns} crowns for {} letters", key.len()))
}

async fn charge(
    request: HandlerRequest,
    progress: Arc<dyn Progress>,
) -> Result<String, HandlerError> {
    let order: Order = request.input()?;
    progress.report(Some(50), "asking the bank");
    // The key is the same at every attempt: a bank takes it as its idempotency key, a database as
    // a unique column.
    Ok(charge_at_bank(order.crowns, &request.key).await?)
}

/// Pays for something.
#[derive(Debug)]
struct PayTool;

#[async_trait]
impl TypedTool for PayTool {
    type Input = Order;
    const NAME: &'static str = "pay";
    const DESCRIPTION: &'static str = "Pays for something.";

    async fn call(&self, order: Order, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(format!("paid {}", order.crowns)))
    }
}

async fn open() -> Result<Runtime, Error> {
    let clerk = Agent::new("clerk")
        .model("parrot")
        .prompt("You pay bills.")
        .tool(typed(PayTool))
        .approve("pay", "Pay this?")
        .max_turns(10);
    Runtime::builder()
        .store("sqlite::memory:")
        .model("parrot", FixedReplyModel)
        .agent(clerk)
        .handler("charge", charge)
        .open()
        .await
}

/// A model that pays 7 crowns and then says so.
#[derive(Debug)]
struct FixedReplyModel;

#[async_trait]
impl Model for FixedReplyModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: Hold::default(), pricing: ModelPricing::default() }
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let (block, stop) = match ask.turn {
            1 => (pay_call(7), StopReason::ToolUse),
            _ => (text_block("Paid.", ear), StopReason::EndTurn),
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: "parrot".to_owned(), blocks: vec![block] }),
            stop,
            usage: Usage::default(),
            cost: None,
            model: "parrot".to_owned(),
        })
    }
}

fn pay_call(crowns: u32) -> Block {
    Block::ToolCall(ToolCall {
        id: "call-1".to_owned(),
        name: "pay".to_owned(),
        input: RawJson::from_serialize(&serde_json::json!({ "crowns": crowns })),
        extra: None,
    })
}

fn text_block(words: &str, ear: &dyn DeltaSink) -> Block {
    ear.on_text(words);
    Block::Text(TextBlock { text: words.into(), extra: None })
}

async fn answer_gates(runtime: &Runtime) -> Result<(), Error> {
    for gate in runtime.gates().open().await? {
        println!("{} {:?}", gate.ask, gate.input);
        let yes = Answer::approve(gate.digest).by("shop:anna");
        runtime.answer(gate.id, yes).await?;
    }
    Ok(())
}

async fn follow(runtime: &Runtime, run: &RunHandle) -> Result<(), Error> {
    let mut events = run.events();
    while let Some(entry) = events.next().await {
        let kind = entry?.event.kind();
        println!("{kind}");
        if kind == "run.waiting" {
            answer_gates(runtime).await?;
        }
    }
    Ok(())
}

async fn drive(runtime: &Runtime, stop: CancellationToken) -> Result<(), Error> {
    let worker = runtime
        .worker()
        .max_concurrent(4)
        .on_task_start(|run| println!("{run} begins"))
        .on_task_complete(|run| println!("{} is done", run.id))
        .on_task_error(|run| println!("{} failed", run.id))
        .on_empty(|| println!("nothing to do"));
    worker.run(stop).await
}

async fn submit_and_wait(runtime: &Runtime) -> Result<Vec<String>, Error> {
    let task = Task::new("charge").input(serde_json::json!({ "crowns": 7 }));
    let charged = runtime.submit(task.idempotency_key("order-7")).await?;
    let clerk = runtime.submit(Task::new("clerk").input("Pay it.")).await?;
    follow(runtime, &clerk).await?;
    let mut texts = Vec::new();
    for run in [charged, clerk] {
        texts.push(run.wait().await?.text()?.to_owned());
    }
    Ok(texts)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let runtime = open().await?;
    let stop = CancellationToken::new();
    let (worked, driven) = tokio::join!(
        async {
            let worked = submit_and_wait(&runtime).await;
            stop.cancel();
            worked
        },
        drive(&runtime, stop.clone()),
    );
    driven?;
    println!("{:?}", worked?);
    Ok(())
}
