//! The integration test binary of this crate. Each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod mcp_file;
    #[cfg(feature = "mcp")]
    mod mcp_restart;
    #[cfg(feature = "mcp")]
    mod mcp_tools;
    mod providers;
}
