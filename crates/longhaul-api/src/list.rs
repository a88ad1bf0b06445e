//! One page of a list in a response.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list in a response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Items of this page, in order.
    pub data: Vec<T>,
    /// Value of the parameter `after` for the next page. `None` means that this is the last page.
    pub next: Option<String>,
}
