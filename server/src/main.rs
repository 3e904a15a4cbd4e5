//! The `xds-server` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    xds_server::cli::run(std::env::args_os())
}
