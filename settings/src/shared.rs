//! The store that several servers share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_replica::StoreKeys;
use xds_replica::etcd::{EtcdOptions, EtcdUrl};

use crate::error::SettingError;
use crate::units::parse_duration;

/// A store that several servers share.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Shared store")]
pub struct SharedStoreArgs {
    /// Share accepted changes with other servers through an etcd: etcd://HOST:PORT,HOST:PORT/PREFIX, or etcds:// with TLS
    #[arg(long, env = "XDS_SERVER_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// File with the keys that encrypt the shared store, one in each line (`openssl rand -hex 32`); the first one encrypts, all decrypt
    #[arg(long, env = "XDS_SERVER_STORE_KEY_FILE", value_name = "FILE")]
    pub store_key_file: Option<PathBuf>,
    /// Certificates of the authorities that sign those of the etcd
    #[arg(long, env = "XDS_SERVER_STORE_CA", value_name = "FILE")]
    pub store_ca: Option<PathBuf>,
    /// Certificate to show to the etcd
    #[arg(long, env = "XDS_SERVER_STORE_CERT", value_name = "FILE")]
    pub store_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, env = "XDS_SERVER_STORE_KEY", value_name = "FILE")]
    pub store_key: Option<PathBuf>,
    /// User of the etcd
    #[arg(long, env = "XDS_SERVER_STORE_USER", value_name = "NAME")]
    pub store_user: Option<String>,
    /// File with the password of that user
    #[arg(long, env = "XDS_SERVER_STORE_PASSWORD_FILE", value_name = "FILE")]
    pub store_password_file: Option<PathBuf>,
    /// How long to try to store a change before its outcome is unknown
    #[arg(long, env = "XDS_SERVER_STORE_TIMEOUT", value_name = "DURATION", default_value = "10s",
        value_parser = parse_duration)]
    pub store_timeout: Duration,
    /// Accept an etcd on other hosts without TLS
    #[arg(long, env = "XDS_SERVER_ALLOW_PLAINTEXT_STORE", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub allow_plaintext_store: bool,
}

/// A store that several servers share.
#[derive(Clone, Debug)]
pub struct SharedStore {
    /// Where it is.
    pub url: EtcdUrl,
    /// How it is reached.
    pub options: EtcdOptions,
    /// What encrypts it.
    pub keys: StoreKeys,
    /// How long a change is tried.
    pub timeout: Duration,
}

impl SharedStore {
    /// The store that the flags describe; `None` without `--store`.
    ///
    /// # Errors
    ///
    /// If a flag is wrong, or one is missing.
    pub fn new(args: SharedStoreArgs) -> Result<Option<Self>, SettingError> {
        let Some(text) = args.store else { return Ok(None) };
        let url: EtcdUrl = text.parse().map_err(SettingError::StoreUrl)?;
        let needs = |flag, other| SettingError::Needs { flag, other };
        if url.is_exposed() && !args.allow_plaintext_store {
            return Err(SettingError::PlaintextStore(url));
        }
        let keys = args.store_key_file.ok_or_else(|| needs("store", "store-key-file"))?;
        let keys = StoreKeys::read(&keys).map_err(SettingError::StoreKeys)?;
        if url.is_tls && args.store_ca.is_none() {
            return Err(needs("store etcds://…", "store-ca"));
        }
        let identity = match (args.store_cert, args.store_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(needs("store-cert", "store-key")),
            (None, Some(_)) => return Err(needs("store-key", "store-cert")),
        };
        let user = match (args.store_user, args.store_password_file) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => return Err(needs("store-user", "store-password-file")),
            (None, Some(_)) => return Err(needs("store-password-file", "store-user")),
        };
        let options = EtcdOptions { ca: args.store_ca, identity, user };
        Ok(Some(Self { url, options, keys, timeout: args.store_timeout }))
    }
}
