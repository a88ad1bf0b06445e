//! How parts of paths, queries and headers are spelled, for the description.
//!
//! Never: read by anybody but programs that make clients. What is taken is
//! decided where it is parsed.

use longhaul_api::schema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! schema_type {
    ($(#[$doc:meta])* $name:ident, $schema:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::from($schema))
            }
        }

        impl ToSchema for $name {}
    };
}

schema_type!(
    /// The id of a run.
    RunIdSchema,
    schema::run_id()
);
schema_type!(
    /// The id of a gate.
    GateIdSchema,
    schema::gate_id()
);
schema_type!(
    /// The id of a message.
    SteerIdSchema,
    schema::steer_id()
);
schema_type!(
    /// How a gate stands.
    GateStatusSchema,
    schema::gate_status()
);
schema_type!(
    /// How runs stand, any number of them.
    StatusListSchema,
    ArrayBuilder::new().items(schema::status())
);
