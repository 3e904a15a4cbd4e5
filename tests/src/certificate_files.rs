//! Certificates as files: a test authority of `xds-server ca`, and what it issues.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use tempfile::TempDir;

use crate::crl::crl;
use crate::envoy::Envoy;
use crate::server::{Server, Setup, cli};

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

    /// Issues `NAME.crt` and `NAME.key` for a host, with a serial number by which the certificate can be [revoked](Self::revoke).
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    pub fn issue_numbered(&self, name: &str, host: &str, serial: u64) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::DnsName(host.try_into()?)];
        params.serial_number = Some(serial.into());
        let certificate = params.signed_by(&key, &self.issuer()?)?;
        self.replace(&format!("{name}.key"), &key.serialize_pem())?;
        self.replace(&format!("{name}.crt"), &certificate.pem())
    }

    /// Writes the file `crl.pem`, in which the authority revokes these serial numbers and no others. It is due in a day.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    pub fn revoke(&self, serials: &[u64]) -> Result<()> {
        let day = Duration::from_secs(24 * 60 * 60);
        self.replace("crl.pem", &crl(&self.issuer()?, serials, SystemTime::now() + day)?)
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>> {
        let key = KeyPair::from_pem(&fs::read_to_string(self.path("ca.key"))?)?;
        Ok(Issuer::from_ca_cert_pem(&fs::read_to_string(self.path("ca.crt"))?, key)?)
    }

    /// Writes a whole file and renames it, so that nobody reads half of it.
    fn replace(&self, file: &str, text: &str) -> Result<()> {
        let new = self.path(&format!("{file}.new"));
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.path(file))?)
    }

    /// The flags of a server whose port `xds` or `admin` speaks TLS and asks for certificates.
    #[must_use]
    pub fn protect(&self, setup: Setup, port: &str) -> Setup {
        self.protect_from(setup, port, "ca.crt")
    }

    /// The same with the authorities of clients in another file of the directory.
    #[must_use]
    pub fn protect_from(&self, setup: Setup, port: &str, authorities: &str) -> Setup {
        setup
            .arg(format!("--{port}-tls-cert={}", self.path("server.crt")))
            .arg(format!("--{port}-tls-key={}", self.path("server.key")))
            .arg(format!("--{port}-client-ca={}", self.path(authorities)))
            .arg("--tls-poll-interval=100ms")
    }

    /// The flags of `bootstrap` for a client with the certificate `client`.
    #[must_use]
    pub fn bootstrap_flags(&self) -> Vec<String> {
        [("--tls-ca", "ca.crt"), ("--tls-cert", "client.crt"), ("--tls-key", "client.key")]
            .map(|(flag, file)| format!("{flag}={}", self.path(file)))
            .to_vec()
    }

    /// The bootstrap of an Envoy or gRPC `client` as `edge-1`, with these flags.
    ///
    /// # Errors
    ///
    /// If `xds-server bootstrap` fails.
    pub async fn bootstrap(&self, server: &Server, client: &str, flags: &[String]) -> Result<String> {
        let xds = server.xds().to_string();
        let mut args = vec!["bootstrap", client, "--node-id", "edge-1", "--xds-address", &xds];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    }

    /// Starts an Envoy as `edge-1` that follows the files of the certificate `client`. Its own files are in the directory that is
    /// returned.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn envoy(&self, server: &Server, more: &[&str]) -> Result<(Envoy, PathBuf)> {
        let out = self.0.path().join("envoy");
        let mut flags = self.bootstrap_flags();
        flags.push(format!("--out-dir={}", out.display()));
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.bootstrap(server, "envoy", &flags).await?;
        Ok((Envoy::start(&fs::read_to_string(out.join("envoy.json"))?).await?, out))
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
