//! Tests of the runtime as a program uses it. Only `longhaul` is imported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use longhaul::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul::models::{
    Block, BudgetAmount, CostEstimate, DeltaSink, Failure, Model, ModelPricing, ModelRequest,
    ModelResponse, Reply, StopReason, TextBlock, Usage,
};
use longhaul::schemars::{self, JsonSchema};
use longhaul::tools::{
    self, EffectClass, Tool, ToolContext, ToolFailure, ToolName, ToolOutput, ToolSpec, TypedTool,
};
use longhaul::{
    Agent, Answer, AnswerOutcome, CancellationToken, Error, RawJson, Runtime, RuntimeBuilder,
    Status, Task, async_trait, models,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[path = "../../examples/embedded.rs"]
mod embedded;

#[test]
fn the_example_runs() {
    embedded::main().unwrap();
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    /// Part to order
    part: String,
}

/// Orders parts and records the orders.
#[derive(Debug, Default, Clone)]
struct OrderTool(Arc<Mutex<Vec<String>>>);

impl OrderTool {
    fn orders(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl TypedTool for OrderTool {
    type Input = Order;
    const NAME: &'static str = "order";
    const DESCRIPTION: &'static str = "Orders a part.";

    async fn call(&self, order: Order, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        self.0.lock().unwrap().push(order.part.clone());
        Ok(ToolOutput::text(format!("ordered {}", order.part)))
    }
}

fn in_memory_builder() -> RuntimeBuilder {
    Runtime::builder().store("sqlite::memory:")
}

const BUYER_SCRIPT: &str = "
replies:
  - tools: [{ name: order, input: { part: wheel } }]
  - text: 'Done: {{ last_result }}.'
";

fn buyer_agent(order_tool: &OrderTool) -> Agent {
    Agent::new("buyer")
        .model("script")
        .prompt("You buy parts.")
        .tool(tools::typed(order_tool.clone()))
}

#[tokio::test]
async fn an_agent_in_code_does_its_work_once_for_one_key() {
    let order_tool = OrderTool::default();
    let script = models::scripted("buys", BUYER_SCRIPT).unwrap();
    let builder = in_memory_builder().model("script", script).agent(buyer_agent(&order_tool));
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let task = || Task::new("buyer").input("A wheel").idempotency_key("order-7");
    let run = runtime.submit(task()).await.unwrap();
    let done = run.wait().await.unwrap();
    assert_eq!(done.status, Status::Completed);
    assert_eq!(done.text().unwrap(), "Done: ordered wheel.");
    assert_eq!(done.data::<String>().unwrap(), "Done: ordered wheel.");
    assert_eq!(done.tools_called, ["order"]);
    assert!(format!("{done:?}").contains("Done: ordered wheel."));
    assert!(done.usage.output_tokens > 0);
    let second_run = runtime.submit(task()).await.unwrap();
    assert_eq!(second_run.id(), run.id());
    assert_eq!(order_tool.orders(), ["wheel"]);
    let error = runtime.submit(task().input("Two wheels")).await.unwrap_err();
    assert!(matches!(error, Error::IdempotencyKeyReused), "{error}");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_gate_is_listed_and_answered_and_its_events_are_in_order() {
    let order_tool = OrderTool::default();
    let agent = buyer_agent(&order_tool).approve("order", "Order it?");
    let script = models::scripted("buys", BUYER_SCRIPT).unwrap();
    let builder = in_memory_builder().model("script", script).agent(agent);
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("buyer")).await.unwrap();
    let mut events = run.events();
    let mut kinds = Vec::new();
    while let Some(entry) = events.next().await {
        let kind = entry.unwrap().event.kind();
        kinds.push(kind);
        if kind != "run.waiting" {
            continue;
        }
        assert_eq!(order_tool.orders(), Vec::<String>::new());
        let gates = runtime.gates().open().await.unwrap();
        let [gate] = &gates[..] else { panic!("{gates:?}") };
        assert_eq!((gate.run, gate.ask.as_str()), (run.id(), "Order it?"));
        let stale_approval = Answer::approve(longhaul::Hash::digest(b"another"));
        assert!(matches!(runtime.answer(gate.id, stale_approval).await, Err(Error::Engine(_))));
        let approval = Answer::approve(gate.digest).by("shop:anna");
        let outcome = runtime.answer(gate.id, approval).await.unwrap();
        assert!(matches!(outcome, AnswerOutcome::Closed(_)));
        let closed_gate = runtime.gates().get(gate.id).await.unwrap();
        assert_eq!(closed_gate.answers[0].by, "shop:anna");
    }
    let index_of = |wanted: &str| kinds.iter().position(|kind| *kind == wanted).expect(wanted);
    assert_eq!(index_of("run.created"), 0);
    assert!(index_of("gate.raised") < index_of("gate.answered"));
    assert!(index_of("gate.answered") < index_of("tool.started"));
    assert_eq!(kinds.last(), Some(&"run.completed"));
    assert_eq!(order_tool.orders(), ["wheel"]);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_rejection_reaches_the_model() {
    let order_tool = OrderTool::default();
    let agent = buyer_agent(&order_tool).approve("order", "Order it?");
    let script = models::scripted("buys", BUYER_SCRIPT).unwrap();
    let builder = in_memory_builder().model("script", script).agent(agent);
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("buyer")).await.unwrap();
    let mut events = run.events();
    while let Some(entry) = events.next().await {
        if entry.unwrap().event.kind() == "run.waiting" {
            let gate = &runtime.gates().open().await.unwrap()[0];
            let rejection = Answer::reject().note("Too dear.");
            runtime.answer(gate.id, rejection).await.unwrap();
        }
    }
    let done = run.wait().await.unwrap();
    assert!(done.text().unwrap().contains("Too dear."), "{done:?}");
    assert_eq!(order_tool.orders(), Vec::<String>::new());
    worker.stop().await.unwrap();
}

/// A model that replies with the turn and the model name.
#[derive(Debug)]
struct FakeModel;

#[async_trait]
impl Model for FakeModel {
    fn estimate(&self, _: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: BudgetAmount::default(), pricing: ModelPricing::default() }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let text = format!("turn {} of {}", request.turn, request.model);
        sink.on_text(&text);
        let block = TextBlock { text: text.into(), extra: None };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: "counter".to_owned(), blocks: vec![Block::Text(block)] }),
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            cost: None,
            model: "counter".to_owned(),
            output: None,
        })
    }
}

/// A context provider that returns the time of day.
#[derive(Debug)]
struct FakeContextProvider;

#[async_trait]
impl ContextProvider for FakeContextProvider {
    async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
        Ok(Perception { world: RawJson::from_serialize(&"night"), context: BTreeMap::new() })
    }
}

#[tokio::test]
async fn a_registered_model_and_context_provider_are_used() {
    let agent = Agent::new("watch")
        .model("counter")
        .prompt("It is {{ perception }}.")
        .context_provider("sky");
    let builder = in_memory_builder().model("counter", FakeModel).agent(agent);
    let runtime = builder.context_provider("sky", FakeContextProvider).open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("watch")).await.unwrap();
    let done = run.wait().await.unwrap();
    assert_eq!(done.text().unwrap(), "turn 1 of counter");
    let prepared_event = run.events().first_of_kind("run.prepared").await;
    assert!(prepared_event.contains("It is night."), "{prepared_event}");
    worker.stop().await.unwrap();
}

trait RunEventsExt {
    async fn first_of_kind(self, kind: &str) -> String;
}

impl RunEventsExt for longhaul::RunEvents {
    /// Returns the debug text of the first entry of this kind.
    async fn first_of_kind(mut self, kind: &str) -> String {
        while let Some(entry) = self.next().await {
            let entry = entry.unwrap();
            if entry.event.kind() == kind {
                return format!("{entry:?}");
            }
        }
        panic!("there is no {kind}");
    }
}

/// A tool with a hand-written schema.
#[derive(Debug)]
struct EchoTool(ToolSpec);

#[async_trait]
impl Tool for EchoTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn class(&self, _: &Value) -> EffectClass {
        EffectClass::Pure
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(format!("{input} try {}", ctx.attempt)))
    }
}

#[tokio::test]
async fn a_tool_instance_is_shared_by_two_agents() {
    let echo = Arc::new(EchoTool(ToolSpec {
        name: ToolName::new("echo").unwrap(),
        description: "Returns its input.".to_owned(),
        schema: json!({ "type": "object" }),
        can_verify: false,
        in_doubt: None,
        timeout: None,
    }));
    let replies = "replies: [{ tools: [{ name: echo, input: { a: 1 } }] }, \
                   { text: '{{ last_result }}' }]";
    let script = models::scripted("echo", replies).unwrap();
    let agent = |name| Agent::new(name).model("script").tool(echo.clone());
    let builder = in_memory_builder().model("script", script);
    let builder = builder.agent(agent("one")).agent(agent("two"));
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    for name in ["one", "two"] {
        let run = runtime.submit(Task::new(name)).await.unwrap();
        let done = run.wait().await.unwrap();
        assert_eq!(done.text().unwrap(), r#"{"a":1} try 1"#);
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_is_paused_resumed_steered_and_cancelled_by_its_handle() {
    let order_tool = OrderTool::default();
    let script = models::scripted("buys", BUYER_SCRIPT).unwrap();
    let builder = in_memory_builder().model("script", script).agent(buyer_agent(&order_tool));
    let runtime = builder.open().await.unwrap();
    let run = runtime.submit(Task::new("buyer")).await.unwrap();
    run.pause().await.unwrap();
    assert_eq!(run.view().await.unwrap().status, Status::Paused);
    run.steer("Hurry.").await.unwrap();
    run.resume().await.unwrap();
    run.cancel("nobody wants it").await.unwrap();
    let done = run.wait().await.unwrap();
    assert_eq!(done.status, Status::Cancelled);
    let error_text = done.text().unwrap_err().to_string();
    assert!(error_text.contains("nobody wants it"), "{error_text}");
    assert!(run.cancel("again").await.is_err());
    assert_eq!(runtime.run(run.id()).id(), run.id());
}

#[tokio::test]
async fn hooks_are_called_for_every_run_and_a_token_drains_the_worker() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let record = |name: &'static str| {
        let calls = Arc::clone(&calls);
        move || calls.lock().unwrap().push(name)
    };
    let (record_start, record_complete, record_error) =
        (record("start"), record("complete"), record("error"));
    let builder = in_memory_builder().handler("good", |_, _| async move { Ok("fine") });
    let builder = builder.handler("bad", |_, _| async move {
        Err::<(), _>(longhaul::HandlerError::new("no paper"))
    });
    let runtime = builder.open().await.unwrap();
    let stop = CancellationToken::new();
    let stop_token = stop.clone();
    runtime.submit(Task::new("good")).await.unwrap();
    runtime.submit(Task::new("bad").priority(-1)).await.unwrap();
    let worker = runtime
        .worker()
        .max_concurrent(1)
        .on_task_start(move |_| record_start())
        .on_task_complete(move |_| record_complete())
        .on_task_error(move |_| record_error())
        .on_empty(move || stop_token.cancel());
    worker.run(stop).await.unwrap();
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls, ["start", "complete", "start", "error"]);
}

#[tokio::test]
async fn invalid_definitions_fail_at_open_or_submit() {
    let open_error_text =
        async |builder: RuntimeBuilder| builder.open().await.unwrap_err().to_string();
    let no_store = open_error_text(Runtime::builder()).await;
    assert!(no_store.contains(".store("), "{no_store}");
    let two_agents = in_memory_builder().agent(Agent::new("a")).agent(Agent::new("a"));
    assert!(open_error_text(two_agents).await.contains("two agents named `a`"));
    let agent_and_handler = in_memory_builder().agent(Agent::new("a"));
    let agent_and_handler = agent_and_handler.handler("a", |_, _| async move { Ok(()) });
    assert!(open_error_text(agent_and_handler).await.contains("two agents named `a`"));
    let invalid_name = open_error_text(in_memory_builder().agent(Agent::new("two\nlines"))).await;
    assert!(invalid_name.contains("agent name"), "{invalid_name}");
    let unknown_store = open_error_text(Runtime::builder().store("mysql://there")).await;
    assert!(unknown_store.contains("mysql"), "{unknown_store}");
    let missing_folder = open_error_text(Runtime::builder().project("/no/such/folder")).await;
    assert!(missing_folder.contains("/no/such/folder"), "{missing_folder}");
    let runtime = in_memory_builder().agent(Agent::new("helper")).open().await.unwrap();
    let error = runtime.submit(Task::new("helpr")).await.unwrap_err();
    assert!(error.to_string().contains("did you mean `helper`?"), "{error}");
    let lane = runtime.submit(Task::new("helper").lane("")).await;
    assert!(matches!(lane, Err(Error::InvalidName(_))));
}

#[tokio::test]
async fn a_task_is_refused_if_a_model_of_its_agent_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[providers.shop]\napi = \"chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
                    key_env = \"A_KEY_THAT_NOBODY_SETS\"\n";
    std::fs::write(folder.path().join("longhaul.toml"), settings).unwrap();
    let script = models::scripted("a", "replies: [{ text: Hello. }]").unwrap();
    let builder = in_memory_builder()
        .project(folder.path())
        .model("script", script)
        .agent(Agent::new("helper").model("script").model("shop/large"));
    let runtime = builder.open().await.unwrap();
    let error = runtime.submit(Task::new("helper")).await.unwrap_err();
    assert!(matches!(error, Error::ModelUnavailable(_)), "{error}");
    // Only the model that the task names is checked.
    let task = Task::new("helper").model("script");
    runtime.submit(task).await.unwrap();
}

#[tokio::test]
async fn a_value_that_cannot_be_serialized_is_refused() {
    let unserializable = BTreeMap::from([((1, 2), 3)]);
    let runtime = in_memory_builder().agent(Agent::new("helper")).open().await;
    let runtime = runtime.unwrap();
    let input = runtime.submit(Task::new("helper").input(&unserializable)).await;
    assert!(matches!(input, Err(Error::Serialize { .. })), "{input:?}");
    let context = Task::new("helper").context("map", &unserializable);
    let context = runtime.submit(context).await.unwrap_err().to_string();
    assert!(context.contains("`map`"), "{context}");
    let gate = longhaul::GateId::from_bits(7);
    let edit = runtime.answer(gate, Answer::edit(None, &unserializable)).await;
    assert!(matches!(edit, Err(Error::Serialize { .. })), "{edit:?}");
    let schema = in_memory_builder().agent(Agent::new("helper").output_schema(&unserializable));
    let schema = schema.open().await.map(drop);
    assert!(matches!(schema, Err(Error::Serialize { .. })), "{schema:?}");
}

#[tokio::test]
async fn file_tools_cannot_read_the_store_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("longhaul.toml", ""),
        (
            "agents/reader.md",
            "---\ndescription: Reads.\nmodel: scripted/reads\ntools: [read_file]\n---\nYou read.\n",
        ),
        (
            "scripts/reads.yaml",
            "replies:\n  - tools: [{ name: read_file, input: { path: agents.db } }]\n  - text: '{{ last_result }}'\n",
        ),
    ] {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let store = format!("sqlite:{}", folder.path().join("agents.db").display());
    let builder = Runtime::builder().store(store).project(folder.path());
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("reader").input("x")).await.unwrap();
    let done = run.wait().await.unwrap();
    let text = done.text().unwrap();
    assert!(text.contains("agents.db") && !text.contains("SQLite format"), "{text}");
    worker.stop().await.unwrap();
}
