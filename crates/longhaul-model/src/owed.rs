//! Calls that have no result yet, and the results that are theirs.
//!
//! Never: a result for two calls, or two for one.

use longhaul_core::message::{Part, ToolResult};

/// What a call is told of which no result is known: providers refuse a
/// conversation in which a call has none.
pub(crate) const NO_RESULT: &str = "no result of this call is known";

/// A call that has no result yet.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    /// The id it goes by.
    pub(crate) id: String,
    /// The id it came with.
    pub(crate) came: String,
    /// Its place among the calls of its reply, from 1.
    pub(crate) index: usize,
}

/// Results sorted out: whose they are, who has none, and which nobody asked for.
#[derive(Debug)]
pub(crate) struct Paired<'a> {
    /// In the order of the calls.
    pub(crate) paid: Vec<(Owed, &'a ToolResult)>,
    pub(crate) missing: Vec<Owed>,
    pub(crate) strays: Vec<&'a ToolResult>,
}

/// Gives each call its result: by our count, or else by the provider's id.
pub(crate) fn pair(owed: Vec<Owed>, results: &[ToolResult]) -> Paired<'_> {
    let mut left: Vec<Option<&ToolResult>> = results.iter().map(Some).collect();
    let (mut paid, mut missing) = (Vec::new(), Vec::new());
    for owed in owed {
        match place(&left, &owed).and_then(|place| left[place].take()) {
            None => missing.push(owed),
            Some(result) => paid.push((owed, result)),
        }
    }
    Paired {
        paid,
        missing,
        strays: left.into_iter().flatten().collect(),
    }
}

fn place(left: &[Option<&ToolResult>], owed: &Owed) -> Option<usize> {
    let alike = |result: &ToolResult| result.id.is_empty() || result.id == owed.came;
    let by_index = left.iter().position(|result| {
        result.is_some_and(|one| usize::from(one.call.index) == owed.index && alike(one))
    });
    by_index.or_else(|| {
        left.iter()
            .position(|result| result.is_some_and(|one| !one.id.is_empty() && one.id == owed.came))
    })
}

/// Whether a part says anything: providers refuse a block that does not.
pub(crate) fn says_something(part: &Part) -> bool {
    match part {
        Part::Text(words) => !words.trim().is_empty(),
        Part::Image(_) => true,
    }
}
