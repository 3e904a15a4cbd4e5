//! The `xds-server` command.

use std::process::ExitCode;

/// glibc's allocator keeps most of the memory of a burst for as long as the process lives; this one returns it in seconds.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    xds_server::cli::run(std::env::args_os())
}
