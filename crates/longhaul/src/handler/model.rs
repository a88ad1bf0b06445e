//! The model of a handler, without a provider: it calls the function as a tool, and ends the run with
//! the function's result.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Block, HANDLER_API, Part, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{Store, StoreError};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_core::usage::{BudgetAmount, MicroUsd, ModelPricing, Price, Usage};
use serde_json::json;

use crate::handler::journaled_calls::{
    DecodedHandlerResult, FINISH_PREFIX, JournaledHandlerCalls, decode_handler_result,
};

/// Name of the tool that ends a run with a result.
pub(crate) const FINISH_TOOL: &str = "finish";

/// Model of a handler. Instead of calling a provider, it requests a call of the handler's function,
/// and then ends the run with the function's result.
#[derive(Debug)]
pub(crate) struct HandlerModel {
    pub(crate) name: String,
    /// Name of the handler's tool, in the format that models receive.
    pub(crate) tool: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) records: Arc<dyn RecordStore>,
}

impl HandlerModel {
    /// Returns the reply to a request, one content block: a call of the handler's tool, or the end
    /// of the run. The second value is the run's output if the handler returned a `Response`.
    async fn next_reply_block_and_run_output(
        &self,
        request: &ModelRequest,
    ) -> Result<(Block, Option<RunOutput>), Failure> {
        let journaled = JournaledHandlerCalls::read_journal(&*self.store, request.run).await;
        let journaled = journaled.map_err(store_error_to_failure)?;
        if let Some(output) = journaled.result {
            let result = self.full_output_text(output).await.map_err(store_error_to_failure)?;
            return final_reply_block_and_run_output(&result).map_err(|reason| {
                let message = format!("the handler's result can't be read: {reason}");
                Failure::new(FailureClass::HandlerFailed, message)
            });
        }
        match journaled.failure {
            Some(output) => {
                let class = match output.transient {
                    true => FailureClass::HandlerFailedTransiently,
                    false => FailureClass::HandlerFailed,
                };
                Err(Failure::new(class, join_text_parts(&output.content)))
            }
            None => Ok((new_tool_call(&self.tool, RawJson::from_serialize(&json!({}))), None)),
        }
    }

    /// Returns the full text of a tool output. If the output was truncated, the full text is read
    /// from a blob in the store.
    async fn full_output_text(&self, output: ToolOutput) -> Result<String, StoreError> {
        let blob = match output.full {
            Some(blob_ref) => self.records.blob(blob_ref.hash).await?,
            None => None,
        };
        Ok(match blob {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => join_text_parts(&output.content),
        })
    }
}

/// Returns the content block that ends the run with a journaled result, and the run's output if the
/// result is a `Response`.
fn final_reply_block_and_run_output(result: &str) -> Result<(Block, Option<RunOutput>), String> {
    match decode_handler_result(result)? {
        DecodedHandlerResult::Value(output_json) => {
            let finish_input = RawJson::parse(format!("{FINISH_PREFIX}{output_json}}}"));
            Ok((new_tool_call(FINISH_TOOL, finish_input.map_err(|error| error.to_string())?), None))
        }
        DecodedHandlerResult::Response(output) => {
            let block = TextBlock { text: output.text.as_str().into(), extra: None };
            Ok((Block::Text(block), Some(*output)))
        }
    }
}

#[async_trait]
impl Model for HandlerModel {
    fn estimate(&self, _request: &ModelRequest) -> CostEstimate {
        CostEstimate {
            hold: BudgetAmount::default(),
            pricing: ModelPricing {
                price: Some(Price::default()),
                // The conversation is not sent anywhere, so it is never too long.
                window_tokens: u64::from(u32::MAX),
                ..ModelPricing::default()
            },
        }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        _sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let (block, output) = self.next_reply_block_and_run_output(request).await?;
        let stop = match output {
            Some(_) => StopReason::EndTurn,
            None => StopReason::ToolUse,
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: HANDLER_API.to_owned(), blocks: vec![block] }),
            stop,
            usage: Usage::default(),
            cost: Some(MicroUsd::default()),
            model: self.name.clone(),
            output,
        })
    }
}

fn new_tool_call(tool_name: &str, input: RawJson) -> Block {
    Block::ToolCall(ToolCall { id: String::new(), name: tool_name.to_owned(), input, extra: None })
}

fn join_text_parts(content: &[Part]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn store_error_to_failure(error: StoreError) -> Failure {
    Failure::new(FailureClass::Server, error.to_string())
}
