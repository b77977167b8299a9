//! The `kohort` command.
fn main() {}
