//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod bad_input;
    mod crowd;
    mod described;
    mod firehose;
    mod keys;
    mod kit;
    mod links;
    mod load;
    mod log;
    mod once;
    mod pages;
    mod problems;
    mod routes;
    mod sessions;
    mod streams;
}
