//! One page of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The items, in order.
    pub data: Vec<T>,
    /// What to give as `after` for the next page; none: this was the last.
    pub next: Option<String>,
}
