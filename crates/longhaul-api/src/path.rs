//! Parameters in the paths of operations: ids and names of resources.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::str::FromStr;

use longhaul_core::id::{
    ApiKeyName, BatchId, GateId, InboxName, LaneKey, RuleId, RunId, SteerId, ThreadKey,
};
use utoipa::openapi::schema::Object;

use crate::schema;

/// Id or name of a resource in a path.
pub trait PathParam: Display + FromStr<Err: Display> {
    /// Word for the resource, such as `run`.
    const NOUN: &'static str;
    /// Description of the parameter for the OpenAPI document.
    const DESCRIPTION: &'static str;
    /// Code of the 404 error for a text that is not an id. `None` means that the parameter is a
    /// name, and that an invalid name is a 422 error.
    const NOT_FOUND: Option<&'static str>;

    /// Returns the OpenAPI schema of the parameter.
    fn schema() -> Object;
}

macro_rules! path_params {
    ($($type:ty = $noun:literal, $description:literal, $not_found:expr, $schema:expr;)+) => {$(
        impl PathParam for $type {
            const NOUN: &'static str = $noun;
            const DESCRIPTION: &'static str = $description;
            const NOT_FOUND: Option<&'static str> = $not_found;

            fn schema() -> Object {
                $schema()
            }
        }
    )+};
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub String);

        impl Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Infallible;

            fn from_str(text: &str) -> Result<Self, Infallible> {
                Ok(Self(text.to_owned()))
            }
        }
    )+};
}

names! {
    /// Any text that is compared with the names of agents.
    AgentParam;
    /// Any text that is compared with the names of chains.
    ChainParam;
    /// Any text that is compared with the names of schedules.
    ScheduleParam;
    /// Any text that is compared with the ids of spend caps.
    CapParam;
}

path_params! {
    RunId = "run", "The run's id", Some("run_not_found"), schema::run_id_schema;
    GateId = "gate", "The gate's id", Some("gate_not_found"), schema::gate_id_schema;
    RuleId = "rule", "Id of the remembered approval", Some("rule_not_found"), schema::rule_id_schema;
    SteerId = "steer", "The message's id", Some("steer_not_found"), schema::steer_id_schema;
    BatchId = "batch", "The batch's id", Some("batch_not_found"), schema::text_schema;
    AgentParam = "agent", "Name of the agent", None, schema::text_schema;
    ChainParam = "chain", "Name of the chain", None, schema::text_schema;
    ScheduleParam = "schedule", "Name of the schedule", None, schema::text_schema;
    CapParam = "cap", "Id of the cap, such as `day-usd-key`", None, schema::text_schema;
    InboxName = "inbox", "Name of the inbox", None, schema::text_schema;
    LaneKey = "lane", "Name of the lane", None, schema::text_schema;
    ThreadKey = "thread", "Name of the thread", None, schema::text_schema;
    ApiKeyName = "key", "Name of the key", None, schema::text_schema;
}

/// Value of a path parameter, and the word for its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathValue {
    /// Word for the resource, such as `run`.
    pub noun: &'static str,
    /// Id or name of the resource.
    pub text: String,
}

/// Error for a path parameter that is not valid.
#[derive(Debug)]
pub struct InvalidPathParam {
    /// Word for the resource, such as `run`.
    pub noun: &'static str,
    /// Code of the 404 error. `None` means a 422 error.
    pub not_found: Option<&'static str>,
    /// Why the parameter is not valid.
    pub reason: String,
}

/// All parameters in the path of an operation.
pub trait PathParams: Sized {
    /// Returns the values in the order of the path.
    fn values(&self) -> Vec<PathValue>;

    /// Parses the texts of the parameters, in the order of the path.
    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam>;

    /// Returns the descriptions and schemas of the parameters, in the order of the path.
    fn describe() -> Vec<(&'static str, Object)>;
}

impl PathParams for () {
    fn values(&self) -> Vec<PathValue> {
        Vec::new()
    }

    fn parse(_: &[&str]) -> Result<Self, InvalidPathParam> {
        Ok(())
    }

    fn describe() -> Vec<(&'static str, Object)> {
        Vec::new()
    }
}

impl<T: PathParam> PathParams for T {
    fn values(&self) -> Vec<PathValue> {
        vec![PathValue { noun: T::NOUN, text: self.to_string() }]
    }

    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam> {
        let text = texts.first().copied().unwrap_or_default();
        text.parse().map_err(|error: T::Err| InvalidPathParam {
            noun: T::NOUN,
            not_found: T::NOT_FOUND,
            reason: error.to_string(),
        })
    }

    fn describe() -> Vec<(&'static str, Object)> {
        vec![(T::DESCRIPTION, T::schema())]
    }
}

impl<A: PathParam, B: PathParam> PathParams for (A, B) {
    fn values(&self) -> Vec<PathValue> {
        [self.0.values(), self.1.values()].concat()
    }

    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam> {
        Ok((A::parse(texts)?, B::parse(texts.get(1..).unwrap_or_default())?))
    }

    fn describe() -> Vec<(&'static str, Object)> {
        [A::describe(), B::describe()].concat()
    }
}
