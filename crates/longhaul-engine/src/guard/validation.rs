//! Validates values against JSON Schemas with limits on memory, time and threads.
//!
//! Invariant: no schema is compiled before its size is known, and a check that may take long never
//! runs on a thread of the async runtime.

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use longhaul_core::schema::{
    PATTERNS_MAX, SchemaComplexity, count_patterns, has_backtracking_pattern,
};
use longhaul_core::time::{Clock, Millis};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

/// Maximum memory of one compiled regular expression of a schema, in bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of backtracking steps per match of a regular expression.
const BACKTRACK_MAX: usize = 100_000;

/// Maximum estimated work, in steps, of a check on the caller's thread. Such a check takes a few
/// milliseconds.
const INLINE_WORK_MAX: u64 = 100_000;

/// Maximum estimated work, in steps, of a check that lists the errors. Beyond it the list alone
/// could take gigabytes.
const DETAIL_WORK_MAX: u64 = 1_000_000;

/// Maximum estimated work, in steps, of a check that is started at all. A larger check would not
/// end in time and would block its thread.
const WORK_MAX: u64 = 1_000_000_000;

/// Maximum number of errors that a message lists, and maximum length of each error in bytes.
const ERRORS_MAX: usize = 5;
const ERROR_BYTES_MAX: usize = 400;

/// Timeout of checking one value against a schema.
const CHECK_TIMEOUT: Millis = Millis(5_000);

/// Permits for threads that run long checks. These threads are detached: a thread that is still
/// computing keeps its permit, but does not delay a shutdown or block other work.
static THREAD_PERMITS: Semaphore = Semaphore::const_new(4);

/// A compiled JSON Schema, against which values can be checked.
#[derive(Debug, Clone)]
pub struct SchemaValidator {
    validator: Arc<Validator>,
    shape: SchemaComplexity,
    backtracks: bool,
}

impl SchemaValidator {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Fails if the schema is invalid, or too expensive to check values against.
    pub fn new(schema: &Value) -> Result<Self, String> {
        if count_patterns(schema) > PATTERNS_MAX {
            return Err(format!("the schema contains more than {PATTERNS_MAX} patterns"));
        }
        let shape = SchemaComplexity::measure(schema).map_err(|error| error.to_string())?;
        let limits = PatternOptions::fancy_regex()
            .size_limit(PATTERN_BYTES_MAX)
            .backtrack_limit(BACKTRACK_MAX);
        let options = jsonschema::options().with_pattern_options(limits);
        let validator = options.build(schema).map_err(|error| error.to_string())?;
        Ok(Self {
            validator: Arc::new(validator),
            shape,
            backtracks: has_backtracking_pattern(schema),
        })
    }

    /// Checks a value against the schema. Error messages use the given name for the value.
    ///
    /// # Errors
    /// Returns what is invalid, or that the check did not finish in time.
    pub async fn validate(
        &self,
        value: &Value,
        value_name: &str,
        clock: &dyn Clock,
    ) -> Result<(), String> {
        let work = self.shape.validation_cost(value);
        if work <= INLINE_WORK_MAX && !self.backtracks {
            return check_value(&self.validator, value, (value_name, work));
        }
        if work > WORK_MAX {
            return Err(format!(
                "{value_name} is nested too deeply, or too large, to be checked in time; make it \
                 smaller, or the schema simpler"
            ));
        }
        tokio::select! {
            biased;
            checked = self.validate_on_thread(value.clone(), value_name.to_owned(), work) => checked,
            () = clock.sleep(CHECK_TIMEOUT) => Err(format!(
                "{value_name} could not be checked within {} s; make it smaller, or the schema simpler",
                CHECK_TIMEOUT.0 / 1_000
            )),
        }
    }

    async fn validate_on_thread(
        &self,
        value: Value,
        value_name: String,
        work: u64,
    ) -> Result<(), String> {
        let stopped = || Err("the check stopped unexpectedly".to_owned());
        let Ok(permit) = THREAD_PERMITS.acquire().await else { return stopped() };
        let (sender, receiver) = oneshot::channel();
        let validator = Arc::clone(&self.validator);
        let thread = std::thread::Builder::new().name("schema-check".to_owned());
        let spawned = thread.spawn(move || {
            let _permit = permit;
            // The receiver is gone if the check timed out.
            let _ignored = sender.send(check_value(&validator, &value, (&value_name, work)));
        });
        if let Err(error) = spawned {
            return Err(format!("could not start a thread for the schema check: {error}"));
        }
        receiver.await.unwrap_or_else(|_| stopped())
    }
}

fn check_value(
    validator: &Validator,
    value: &Value,
    (name, work): (&str, u64),
) -> Result<(), String> {
    if work > DETAIL_WORK_MAX {
        return match validator.is_valid(value) {
            true => Ok(()),
            false => Err(format!(
                "{name} is invalid (it is too large to report the position of the error)"
            )),
        };
    }
    let faults = validator.iter_errors(value).take(ERRORS_MAX).map(|error| {
        let path = error.instance_path().to_string();
        let path = if path.is_empty() { name } else { &path };
        let mut message = format!("{path}: {error}");
        message.truncate(message.floor_char_boundary(ERROR_BYTES_MAX));
        message
    });
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use serde_json::{Map, json};

    fn schema_error(schema: &Value) -> Option<String> {
        SchemaValidator::new(schema).err()
    }

    #[test]
    fn number_and_size_of_patterns_are_limited() {
        let schema_with_patterns = |count: usize| {
            let field = |at: usize| (format!("f{at}"), json!({ "pattern": format!("^{at}$") }));
            let fields: Map<String, Value> = (0..count).map(field).collect();
            json!({ "type": "object", "properties": fields })
        };
        assert_eq!(schema_error(&schema_with_patterns(PATTERNS_MAX)), None);
        let error = schema_error(&schema_with_patterns(PATTERNS_MAX + 1));
        assert_eq!(error.as_deref(), Some("the schema contains more than 64 patterns"));
        assert_eq!(schema_error(&json!({ "pattern": r"^[\p{L} ]{1,20}$" })), None);
        assert!(schema_error(&json!({ "pattern": r"(\p{L}{60}){10}" })).is_some());
    }

    /// Test clock on which every wait ends at once.
    #[derive(Debug)]
    struct NoWaitClock;

    #[async_trait::async_trait]
    impl Clock for NoWaitClock {
        fn now(&self) -> longhaul_core::time::Timestamp {
            SystemClock.now()
        }
        async fn sleep(&self, _duration: longhaul_core::time::Millis) {}
        fn monotonic_nanos(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn large_values_are_checked_on_another_thread_within_a_time_limit() {
        let schema = json!({ "type": "array", "items": { "type": "integer" } });
        let validator = SchemaValidator::new(&schema).unwrap();
        let mut large = Value::Array(vec![json!(1); 1_200_000]);
        // The clock ends the wait before the thread can have answered.
        let late = validator.validate(&large, "the answer", &NoWaitClock).await;
        let expect =
            "the answer could not be checked within 5 s; make it smaller, or the schema simpler";
        assert_eq!(late.unwrap_err(), expect);
        assert_eq!(validator.validate(&large, "the answer", &SystemClock).await, Ok(()));
        large[7] = json!("seven");
        let result = validator.validate(&large, "the answer", &SystemClock).await;
        assert_eq!(
            result.unwrap_err(),
            "the answer is invalid (it is too large to report the position of the error)"
        );
        // A check that cannot end in time takes no thread.
        let root_ref = json!({ "$ref": "#" });
        let patterns = json!({ "a": root_ref, "^a": root_ref, "a$": root_ref, "^a$": root_ref });
        let branching = SchemaValidator::new(&json!({ "patternProperties": patterns })).unwrap();
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
        for _ in 0..8 {
            let result = branching.validate(&nested(40), "it", &SystemClock).await;
            let expect = "it is nested too deeply, or too large, to be checked in time; make it \
                          smaller, or the schema simpler";
            assert_eq!(result.unwrap_err(), expect);
        }
        let result = branching.validate(&nested(7), "it", &SystemClock).await;
        assert_eq!(result, Ok(()));
        // A small value needs neither thread nor clock.
        let result = validator.validate(&json!(["x"]), "it", &NoWaitClock).await;
        assert_eq!(result.unwrap_err(), "/0: \"x\" is not of type \"integer\"");
    }
}
