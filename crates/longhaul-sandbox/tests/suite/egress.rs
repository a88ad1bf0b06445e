//! Tests of the module `egress`, with `curl`, TLS clients and servers of the test.

mod decryption;
mod harness;
mod hosts;
mod limits;
mod requests;
mod tunnels;
