//! Sandboxes that are processes of this machine, isolated by bubblewrap.
