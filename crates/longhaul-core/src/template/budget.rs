//! Budget of one template rendering: limits the text and values that the template builds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Maximum nesting depth of lists and maps in a template.
const DEPTH_MAX: usize = 64;

/// Remaining budget of one template rendering: how much text and how many values it may still
/// build.
#[derive(Debug, Clone)]
pub(super) struct RenderBudget(Arc<AtomicU64>);

impl RenderBudget {
    pub(super) fn new(text_and_value_limit: u64) -> Self {
        Self(Arc::new(AtomicU64::new(text_and_value_limit)))
    }

    pub(super) fn spend(&self, text_and_value_count: u64) -> Result<(), Error> {
        let subtract = |left: u64| left.checked_sub(text_and_value_count);
        let updated = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        match updated {
            Ok(_) => Ok(()),
            Err(_) => Err(over_budget_error()),
        }
    }

    /// Charges the size of a value and everything in it to the budget, and returns the value. An
    /// iterator is converted to a list.
    pub(super) fn charge_value(&self, value: Value) -> Result<Value, Error> {
        let value = match value.kind() == ValueKind::Iterable {
            true => self.collect_bounded_list(&value)?,
            false => value,
        };
        let mut values = vec![(value.clone(), 0)];
        while let Some((value, depth)) = values.pop() {
            self.spend(1)?;
            if depth > DEPTH_MAX {
                return Err(invalid_operation_error(
                    "lists and maps of the template are nested too deeply",
                ));
            }
            if depth > 0 && is_namespace(&value) {
                return Err(nested_namespace_error());
            }
            if let Some(text) = value.as_str() {
                self.spend(text.len() as u64)?;
            }
            let is_map = value.kind() == ValueKind::Map;
            if is_map || matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
                self.spend(value.len().unwrap_or(0) as u64)?;
                for item in value.try_iter()? {
                    let inner = if is_map { value.get_item(&item)? } else { item };
                    values.push((inner, depth + 1));
                }
            } else if let Some(items) = value.len().filter(|_| value.as_str().is_none()) {
                self.spend(items as u64)?;
            }
        }
        Ok(value)
    }

    fn collect_bounded_list(&self, iterator: &Value) -> Result<Value, Error> {
        let left = self.0.load(Ordering::Relaxed);
        let mut items = Vec::new();
        for item in iterator.try_iter()? {
            if items.len() as u64 >= left {
                return Err(over_budget_error());
            }
            items.push(item);
        }
        Ok(Value::from(items))
    }
}

pub(super) fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

pub(super) fn invalid_operation_error(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn over_budget_error() -> Error {
    invalid_operation_error("the template builds too much text or too many values")
}

pub(super) fn nested_namespace_error() -> Error {
    invalid_operation_error("a namespace can't be in a list, a map or another namespace")
}
