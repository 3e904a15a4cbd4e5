//! Certificates as files: a test authority of `xds-server ca`, and what it issues.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use crate::server::{Setup, cli};

/// A test authority, and the certificates that it issued. Dropping it deletes them.
#[derive(Debug)]
pub struct CertificateFiles(TempDir);

impl CertificateFiles {
    /// An authority with a certificate `server` for this machine and one `client` for `edge-1`.
    ///
    /// # Errors
    ///
    /// If `xds-server ca` fails.
    pub async fn new() -> Result<Self> {
        let this = Self(TempDir::with_prefix("xds-tls-")?);
        cli(&["ca", "init", "--dir", this.dir()]).await?;
        this.issue("server", &["localhost", "127.0.0.1"]).await?;
        this.issue("client", &["edge-1"]).await?;
        Ok(this)
    }

    fn dir(&self) -> &str {
        self.0.path().to_str().unwrap_or_default()
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file, such as `client.crt`.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        self.0.path().join(file).to_string_lossy().into_owned()
    }

    /// Issues `NAME.crt` and `NAME.key` for these names.
    ///
    /// # Errors
    ///
    /// If `xds-server ca` fails.
    pub async fn issue(&self, name: &str, sans: &[&str]) -> Result<()> {
        self.issue_for(name, sans, "1h").await
    }

    /// Issues `NAME.crt` and `NAME.key`, which are valid for so long.
    ///
    /// # Errors
    ///
    /// If `xds-server ca` fails.
    pub async fn issue_for(&self, name: &str, sans: &[&str], valid_for: &str) -> Result<()> {
        let mut args = vec!["ca", "issue", name, "--dir", self.dir(), "--valid-for", valid_for];
        sans.iter().for_each(|san| args.extend(["--san", *san]));
        cli(&args).await.map(drop)
    }

    /// The flags of a server whose port `xds` or `admin` speaks TLS and asks for certificates.
    #[must_use]
    pub fn protect(&self, setup: Setup, port: &str) -> Setup {
        setup
            .arg(format!("--{port}-tls-cert={}", self.path("server.crt")))
            .arg(format!("--{port}-tls-key={}", self.path("server.key")))
            .arg(format!("--{port}-client-ca={}", self.path("ca.crt")))
            .arg("--tls-poll-interval=100ms")
    }

    /// The flags of `bootstrap` for a client with the certificate `client`.
    #[must_use]
    pub fn bootstrap_flags(&self) -> Vec<String> {
        [("--tls-ca", "ca.crt"), ("--tls-cert", "client.crt"), ("--tls-key", "client.key")]
            .map(|(flag, file)| format!("{flag}={}", self.path(file)))
            .to_vec()
    }

    /// The flags of a command with the certificate `client`.
    #[must_use]
    pub fn client_flags(&self) -> Vec<String> {
        self.flags_of("client")
    }

    /// The flags of a command with the certificate of this name.
    #[must_use]
    pub fn flags_of(&self, name: &str) -> Vec<String> {
        let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
        [("--ca", "ca.crt"), ("--cert", &certificate), ("--key", &key)]
            .map(|(flag, file)| format!("{flag}={}", self.path(file)))
            .to_vec()
    }
}
