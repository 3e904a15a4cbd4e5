//! The `xds-server` command: the command line of `xds-cli` with the server of `xds-serve`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use xds_cli::Failure;
use xds_control::chain;
use xds_server::config::{self, Config, ConfigError, ServeArgs};
use xds_server::{run, telemetry};

/// glibc's allocator keeps most of the memory of a burst for as long as the process lives; this one returns it in seconds.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    xds_cli::run::<Serve>(env::args_os())
}

/// The command `serve`.
#[derive(Debug, clap::Args)]
struct Serve {
    #[command(flatten)]
    args: ServeArgs,
}

impl xds_cli::Serve for Serve {
    fn config_file(&self) -> Option<&Path> {
        self.args.config.as_deref()
    }

    fn with_defaults(serve: clap::Command, file: &Path) -> Result<clap::Command, Failure> {
        config::file::apply(serve, file).map_err(|error| wrong(&error))
    }

    fn split_watch(&mut self) {
        self.args.watch = self.args.watch.iter().flat_map(env::split_paths).collect::<Vec<PathBuf>>();
    }

    fn run(self) -> Result<(), Failure> {
        let config = Config::try_from(self.args).map_err(|error| wrong(&error))?;
        telemetry::init(&config.log);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        let served = runtime.block_on(run::serve(config));
        // Work that still blocks, such as a slow disk, must not keep the process from ending.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        served.map_err(|error| Failure::Failed(format!("{error:#}")))
    }
}

fn wrong(error: &ConfigError) -> Failure {
    Failure::Usage(chain(error))
}

/// How long blocking work may take to end after everything else has.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
