//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod command;
    mod files;
    mod kit;
    mod memory;
    mod skill;
    mod typed;
    mod vault;
}
