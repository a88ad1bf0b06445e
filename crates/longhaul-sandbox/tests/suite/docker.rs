//! Tests of the module `docker`.
