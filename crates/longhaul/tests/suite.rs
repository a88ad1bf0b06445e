//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod agents;
    mod agents_claude;
    mod agents_cli;
    mod agents_fields;
    mod agents_reload;
    mod alone;
    mod amiss;
    mod asked;
    mod bad_input;
    mod bench;
    mod chaos;
    mod config;
    mod config_cli;
    mod demo;
    mod docs;
    mod doubt_cli;
    mod ephemeral_cli;
    mod exit_codes;
    mod files_cli;
    mod front;
    mod judges;
    mod likeness;
    mod look_cli;
    mod mcp_cli;
    mod mcp_cli_file;
    mod mcp_cli_login;
    mod mcp_cli_served;
    mod mcp_cli_supplies;
    mod memory_cli;
    mod mock_model;
    mod models_cli;
    mod ollama;
    mod on_the_way;
    mod parity;
    mod people_cli;
    mod project;
    mod providers;
    mod secrets_cli;
    mod served;
    mod served_cli;
    mod serving;
    mod serving_log;
    mod shipped;
    mod skills;
    mod stand_in;
    mod stateless;
    mod steer_cli;
    mod terminal;
    mod together;
    mod trust_cli;
    mod trust_cli_out;
    mod trust_cli_shell;
    mod village;
}
