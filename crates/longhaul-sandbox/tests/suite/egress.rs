//! Tests of the module `egress`.
