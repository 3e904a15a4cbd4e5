//! Failures of commands, and their exit codes.

use std::process::ExitCode;

use xds_control::chain;
use xds_settings::SettingError;

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Exit code 1; everything is said already.
    #[error("failed")]
    Silent,
    /// Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Exit code 3.
    #[error("{0}")]
    Unreachable(String),
    /// Exit code 4: it is on its way, and nothing has refused it.
    #[error("{0}")]
    NotYet(String),
}

impl Failure {
    /// The exit code of the program.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Silent | Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::NotYet(_) => 4,
        })
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::Usage(chain(&error))
    }
}
