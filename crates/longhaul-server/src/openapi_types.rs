//! OpenAPI schemas of path, query and header parameters. They only describe the parameters; the
//! parsers validate them.

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
    /// OpenAPI schema of a run's id.
    RunIdSchema,
    schema::run_id_schema()
);
schema_type!(
    /// OpenAPI schema of a gate's id.
    GateIdSchema,
    schema::gate_id_schema()
);
schema_type!(
    /// OpenAPI schema of the id of a remembered approval.
    RuleIdSchema,
    schema::rule_id_schema()
);
schema_type!(
    /// OpenAPI schema of the id of a message to a run.
    SteerIdSchema,
    schema::steer_id_schema()
);
schema_type!(
    /// OpenAPI schema of a gate's status.
    GateStatusSchema,
    schema::gate_status_schema()
);
schema_type!(
    /// OpenAPI schema of a list of run statuses.
    StatusListSchema,
    ArrayBuilder::new().items(schema::run_status_schema())
);
