//! Durable agents inside a program: a Rust function as an agent, an agent with a model and a tool of
//! the program, an approval, an event stream, and a worker that drains when it stops.
//!
//! It needs no real model and stores nothing, so it runs anywhere.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;

use longhaul::models::{
    Block, BudgetAmount, CostEstimate, DeltaSink, Failure, Model, ModelPricing, ModelRequest,
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
struct Payment {
    /// Amount in cents
    amount: u32,
}

/// Sends a payment to a bank that executes it only once per idempotency key.
async fn send_payment(amount: u32, key: &str) -> Result<String, Error> {
    Ok(format!("paid {amount} cents under {key}"))
}

async fn pay_invoice(
    request: HandlerRequest,
    progress: Arc<dyn Progress>,
) -> Result<String, HandlerError> {
    let payment: Payment = request.input()?;
    progress.report(Some(50), "sending the payment");
    // The key is the same at every attempt. Use it as the idempotency key of a request, or as a
    // unique column in a database.
    Ok(send_payment(payment.amount, &request.key).await?)
}

#[derive(Debug)]
struct PayTool;

#[async_trait]
impl TypedTool for PayTool {
    type Input = Payment;
    const NAME: &'static str = "pay";
    const DESCRIPTION: &'static str = "Pays a bill.";

    async fn call(&self, input: Payment, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(format!("paid {} cents", input.amount)))
    }
}

async fn open() -> Result<Runtime, Error> {
    let agent = Agent::new("billing")
        .model("fixed")
        .prompt("You pay bills.")
        .tool(typed(PayTool))
        .approve("pay", "Pay this?")
        .max_turns(10);
    Runtime::builder()
        .store("sqlite::memory:")
        .model("fixed", FixedReplyModel)
        .agent(agent)
        .handler("pay_invoice", pay_invoice)
        .open()
        .await
}

/// A model that calls `pay` in its first turn and ends with a text in its second.
#[derive(Debug)]
struct FixedReplyModel;

#[async_trait]
impl Model for FixedReplyModel {
    fn estimate(&self, _request: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: BudgetAmount::default(), pricing: ModelPricing::default() }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let (block, stop) = match request.turn {
            1 => (pay_call(700), StopReason::ToolUse),
            _ => (text_block("Paid.", sink), StopReason::EndTurn),
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: "fixed".to_owned(), blocks: vec![block] }),
            stop,
            usage: Usage::default(),
            cost: None,
            model: "fixed".to_owned(),
            output: None,
        })
    }
}

fn pay_call(amount: u32) -> Block {
    Block::ToolCall(ToolCall {
        id: "call-1".to_owned(),
        name: "pay".to_owned(),
        input: RawJson::from_serialize(&serde_json::json!({ "amount": amount })),
        extra: None,
    })
}

fn text_block(text: &str, sink: &dyn DeltaSink) -> Block {
    sink.on_text(text);
    Block::Text(TextBlock { text: text.into(), extra: None })
}

async fn approve_gates(runtime: &Runtime) -> Result<(), Error> {
    for gate in runtime.gates().open().await? {
        println!("{} {:?}", gate.ask, gate.input);
        let answer = Answer::approve(gate.digest).by("shop:anna");
        runtime.answer(gate.id, answer).await?;
    }
    Ok(())
}

async fn follow(runtime: &Runtime, run: &RunHandle) -> Result<(), Error> {
    let mut events = run.events();
    while let Some(entry) = events.next().await {
        let kind = entry?.event.kind();
        println!("{kind}");
        if kind == "run.waiting" {
            approve_gates(runtime).await?;
        }
    }
    Ok(())
}

async fn drive(runtime: &Runtime, stop: CancellationToken) -> Result<(), Error> {
    let worker = runtime
        .worker()
        .inbox("default")
        .inbox("mail")
        .filter(|task| task.priority >= 0)
        .max_concurrent(4)
        .on_task_start(|run| println!("{run} started"))
        .on_task_complete(|run| println!("{} completed", run.id))
        .on_task_error(|task| println!("{task}"))
        .on_empty(|| println!("no runs to drive"));
    worker.run(stop).await
}

async fn submit_and_wait(runtime: &Runtime) -> Result<Vec<String>, Error> {
    let task = Task::new("pay_invoice").input(serde_json::json!({ "amount": 700 }));
    let invoice = runtime.submit(task.idempotency_key("invoice-7")).await?;
    let billing = Task::new("billing").input("Pay the bill.");
    let billing = runtime.submit(billing).await?;
    follow(runtime, &billing).await?;
    let mut texts = Vec::new();
    for run in [invoice, billing] {
        texts.push(run.wait().await?.text()?.to_owned());
    }
    Ok(texts)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let runtime = open().await?;
    let stop = CancellationToken::new();
    let (texts, drive_result) = tokio::join!(
        async {
            let texts = submit_and_wait(&runtime).await;
            stop.cancel();
            texts
        },
        drive(&runtime, stop.clone()),
    );
    drive_result?;
    println!("{:?}", texts?);
    Ok(())
}
