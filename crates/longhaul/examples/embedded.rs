//! Durable agents inside a program: a Rust function, an agent with a model of the program's own,
//! a gate that is answered, events that are followed, and a worker that drains.
//!
//! Never: asks a real model, or keeps anything. It runs anywhere.

#![allow(clippy::print_stdout, reason = "an example shows what came of it")]

use std::sync::Arc;

use longhaul::models::{
    Answered, Ask, Block, Ear, Failure, Hold, Model, Quote, Reply, StopReason, Tariff, ToolCall,
    Usage, Words,
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
async fn bank(crowns: u32, key: &str) -> Result<String, Error> {
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
    Ok(bank(order.crowns, &request.key).await?)
}

/// Pays for something.
#[derive(Debug)]
struct Pay;

#[async_trait]
impl TypedTool for Pay {
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
        .tool(typed(Pay))
        .approve("pay", "Pay this?")
        .max_turns(10);
    Runtime::builder()
        .store("sqlite::memory:")
        .model("parrot", Parrot)
        .agent(clerk)
        .handler("charge", charge)
        .open()
        .await
}

/// A model that pays 7 crowns and then says so.
#[derive(Debug)]
struct Parrot;

#[async_trait]
impl Model for Parrot {
    fn quote(&self, _ask: &Ask) -> Quote {
        Quote {
            hold: Hold::default(),
            tariff: Tariff::default(),
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let (block, stop) = match ask.turn {
            1 => (pay(7), StopReason::ToolUse),
            _ => (say("Paid.", ear), StopReason::EndTurn),
        };
        Ok(Answered {
            reply: Arc::new(Reply {
                dialect: "parrot".to_owned(),
                blocks: vec![block],
            }),
            stop,
            usage: Usage::default(),
            cost: None,
            model: "parrot".to_owned(),
        })
    }
}

fn pay(crowns: u32) -> Block {
    Block::ToolCall(ToolCall {
        id: "call-1".to_owned(),
        name: "pay".to_owned(),
        input: RawJson::of(&serde_json::json!({ "crowns": crowns })),
        extra: None,
    })
}

fn say(words: &str, ear: &dyn Ear) -> Block {
    ear.words(words);
    Block::Text(Words {
        text: words.into(),
        extra: None,
    })
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

async fn work(runtime: &Runtime) -> Result<Vec<String>, Error> {
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
            let worked = work(&runtime).await;
            stop.cancel();
            worked
        },
        drive(&runtime, stop.clone()),
    );
    driven?;
    println!("{:?}", worked?);
    Ok(())
}
