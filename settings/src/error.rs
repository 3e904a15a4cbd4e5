//! Errors of settings.

use xds_replica::KeyFileError;
use xds_replica::etcd::{EtcdUrl, EtcdUrlError};

/// Why a setting cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A flag needs another one.
    #[error("--{flag} needs --{other}")]
    Needs {
        /// The flag.
        flag: &'static str,
        /// The one that is missing.
        other: &'static str,
    },
    /// The URL of the shared store is wrong.
    #[error("--store: {0}")]
    StoreUrl(EtcdUrlError),
    /// The connection with the shared store would not be encrypted.
    #[error(
        "--store {0} is on other hosts and the connection would not be encrypted: use etcds:// with --store-ca, or accept it with \
         --allow-plaintext-store"
    )]
    PlaintextStore(EtcdUrl),
    /// The keys of the shared store cannot be read.
    #[error("--store-key-file: {0}")]
    StoreKeys(#[source] KeyFileError),
    /// There is no home directory to derive the data directory from.
    #[error("neither $XDG_STATE_HOME nor $HOME is set: say where to keep data with --data-dir")]
    NoDataDir,
}
