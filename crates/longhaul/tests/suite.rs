//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod crash;
    mod features;
    mod handler;
    mod mcp_file;
    mod mcp_supplies;
    mod open;
    mod outside;
    mod program;
    mod providers;
    mod runtime;
    #[cfg(feature = "server")]
    mod serve;
    mod stateless;
    mod worker;
}
