//! The program that runs in a sandbox before its command, as a hidden command of our executable: a
//! relay by which programs reach the egress proxy outside.

/// First argument of our executable that runs [`launch`] with the other arguments.
pub const LAUNCH_COMMAND: &str = "sandbox-launch";
