//! Sandboxes of Daytona, on machines of its own.
