//! Matches tool results to the tool calls of a conversation that need a result.
//!
//! Invariant: each result belongs to at most one call, and each call has at most one result.

use longhaul_core::message::{Part, ToolResult};

/// Text sent as the result of a call without a result. Providers reject a conversation in which a
/// call has no result.
pub(crate) const NO_RESULT: &str = "the result of this call is unknown";

/// A tool call that has no result yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingToolCall {
    /// ID that identifies the tool call in the request to the provider. It may differ from
    /// `original_id`.
    pub(crate) id: String,
    /// ID that the provider gave the call in its reply.
    pub(crate) original_id: String,
    /// Position of the call among the calls of its reply, from 1.
    pub(crate) index: usize,
}

/// Tool results matched to tool calls: calls with a result, calls without one, and results without
/// a call.
#[derive(Debug)]
pub(crate) struct MatchedToolResults<'a> {
    /// Calls with their results, in the order of the calls.
    pub(crate) matched: Vec<(PendingToolCall, &'a ToolResult)>,
    pub(crate) missing: Vec<PendingToolCall>,
    pub(crate) orphans: Vec<&'a ToolResult>,
}

/// Matches tool results to calls by call index, or else by the provider's call ID.
pub(crate) fn match_tool_results(
    pending: Vec<PendingToolCall>,
    results: &[ToolResult],
) -> MatchedToolResults<'_> {
    let mut unmatched: Vec<Option<&ToolResult>> = results.iter().map(Some).collect();
    let (mut matched, mut missing) = (Vec::new(), Vec::new());
    for pending in pending {
        match result_index_of_call(&unmatched, &pending).and_then(|index| unmatched[index].take()) {
            None => missing.push(pending),
            Some(result) => matched.push((pending, result)),
        }
    }
    MatchedToolResults { matched, missing, orphans: unmatched.into_iter().flatten().collect() }
}

fn result_index_of_call(
    unmatched: &[Option<&ToolResult>],
    pending: &PendingToolCall,
) -> Option<usize> {
    let has_matching_id =
        |result: &ToolResult| result.id.is_empty() || result.id == pending.original_id;
    let by_index = unmatched.iter().position(|result| {
        result
            .is_some_and(|one| usize::from(one.call.index) == pending.index && has_matching_id(one))
    });
    by_index.or_else(|| {
        unmatched.iter().position(|result| {
            result.is_some_and(|one| !one.id.is_empty() && one.id == pending.original_id)
        })
    })
}

/// Whether a message part is not empty. Providers reject empty blocks.
pub(crate) fn is_non_empty_part(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Image(_) => true,
    }
}
