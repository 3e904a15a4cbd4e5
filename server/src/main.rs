//! The `xds-server` command.

fn main() {}
