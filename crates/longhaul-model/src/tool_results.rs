//! Calls that have no result yet, and the results that are theirs.
//!
//! Never: a result for two calls, or two for one.

use longhaul_core::message::{Part, ToolResult};

/// What a call is told of which no result is known: providers refuse a
/// conversation in which a call has none.
pub(crate) const NO_RESULT: &str = "no result of this call is known";

/// A call that has no result yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingCall {
    /// The id it goes by.
    pub(crate) id: String,
    /// The id it came with.
    pub(crate) original_id: String,
    /// Its place among the calls of its reply, from 1.
    pub(crate) index: usize,
}

/// Results sorted out: whose they are, who has none, and which nobody asked for.
#[derive(Debug)]
pub(crate) struct MatchedResults<'a> {
    /// In the order of the calls.
    pub(crate) matched: Vec<(PendingCall, &'a ToolResult)>,
    pub(crate) missing: Vec<PendingCall>,
    pub(crate) orphans: Vec<&'a ToolResult>,
}

/// Gives each call its result: by our count, or else by the provider's id.
pub(crate) fn match_results(owed: Vec<PendingCall>, results: &[ToolResult]) -> MatchedResults<'_> {
    let mut left: Vec<Option<&ToolResult>> = results.iter().map(Some).collect();
    let (mut paid, mut missing) = (Vec::new(), Vec::new());
    for owed in owed {
        match result_index(&left, &owed).and_then(|place| left[place].take()) {
            None => missing.push(owed),
            Some(result) => paid.push((owed, result)),
        }
    }
    MatchedResults { matched: paid, missing, orphans: left.into_iter().flatten().collect() }
}

fn result_index(left: &[Option<&ToolResult>], owed: &PendingCall) -> Option<usize> {
    let alike = |result: &ToolResult| result.id.is_empty() || result.id == owed.original_id;
    let by_index = left.iter().position(|result| {
        result.is_some_and(|one| usize::from(one.call.index) == owed.index && alike(one))
    });
    by_index.or_else(|| {
        left.iter().position(|result| {
            result.is_some_and(|one| !one.id.is_empty() && one.id == owed.original_id)
        })
    })
}

/// Whether a part says anything: providers refuse a block that does not.
pub(crate) fn has_content(part: &Part) -> bool {
    match part {
        Part::Text(words) => !words.trim().is_empty(),
        Part::Image(_) => true,
    }
}
