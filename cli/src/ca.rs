//! `ca`: certificates for trying out TLS. No authority for production: its key lies unencrypted in a file, and nothing is revoked.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use xds_settings::units::parse_duration;

use crate::failure::Failure;

/// The flags of `ca`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "For tests only: the authority's key is in a file without encryption, and certificates cannot be revoked."
)]
pub(crate) struct CaArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Make an authority: ca.crt and ca.key
    Init {
        /// Directory for the files
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// How long the authority is valid
        #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = parse_duration)]
        valid_for: Duration,
    },
    /// Issue a certificate for servers and clients: NAME.crt and NAME.key
    Issue {
        /// Name of the files
        #[arg(value_name = "NAME", value_parser = file_name)]
        name: String,
        /// Name in the certificate: a host, an IP address or a SPIFFE ID; may be repeated [default: NAME]
        #[arg(long = "san", value_name = "SAN")]
        sans: Vec<String>,
        /// Directory with ca.crt and ca.key, and for the files
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// How long the certificate is valid
        #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = parse_duration)]
        valid_for: Duration,
    },
}

pub(crate) fn run(args: &CaArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Init { dir, valid_for } => init(dir, *valid_for),
        Command::Issue { name, sans, dir, valid_for } => {
            let default = [name.clone()];
            issue(dir, name, if sans.is_empty() { &default } else { sans }, *valid_for)
        }
    }
}

fn init(dir: &Path, valid_for: Duration) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "xds-server test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut params, valid_for)?;
    let key = KeyPair::generate().map_err(unfit)?;
    let certificate = params.self_signed(&key).map_err(unfit)?;
    write(&dir.join("ca.key"), &key.serialize_pem(), PRIVATE, false)?;
    write(&dir.join("ca.crt"), &certificate.pem(), PUBLIC, false)
}

fn issue(dir: &Path, name: &str, sans: &[String], valid_for: Duration) -> Result<(), Failure> {
    let read = |file: &str| {
        let path = dir.join(file);
        fs::read_to_string(&path).map_err(|error| {
            Failure::Usage(format!("cannot read {}: {error}; `xds-server ca init` makes it", path.display()))
        })
    };
    let authority_key = KeyPair::from_pem(&read("ca.key")?).map_err(unfit)?;
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt")?, authority_key).map_err(unfit)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = sans.iter().map(|san| subject_name(san)).collect::<Result<_, _>>()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    limit(&mut params, valid_for)?;
    let key = KeyPair::generate().map_err(unfit)?;
    let certificate = params.signed_by(&key, &issuer).map_err(unfit)?;
    write(&dir.join(format!("{name}.key")), &key.serialize_pem(), PRIVATE, true)?;
    write(&dir.join(format!("{name}.crt")), &certificate.pem(), PUBLIC, true)
}

fn limit(params: &mut CertificateParams, valid_for: Duration) -> Result<(), Failure> {
    let now = SystemTime::now();
    let end = now.checked_add(valid_for).filter(|_| valid_for <= MAX_VALID);
    let end = end
        .ok_or_else(|| Failure::Usage("--valid-for can be at most 876000h, which is 100 years".to_owned()))?;
    // Clocks differ a little.
    params.not_before = now.checked_sub(BACKDATED).unwrap_or(now).into();
    params.not_after = end.into();
    Ok(())
}

fn subject_name(text: &str) -> Result<SanType, Failure> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let not_ascii = |_| Failure::Usage(format!("--san {text}: names in certificates are ASCII"));
    if text.contains("://") {
        return Ok(SanType::URI(text.try_into().map_err(not_ascii)?));
    }
    let is_host =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte));
    if !is_host {
        return Err(Failure::Usage(format!("--san {text}: not a host, an IP address or a SPIFFE ID")));
    }
    Ok(SanType::DnsName(text.try_into().map_err(not_ascii)?))
}

fn file_name(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match text {
        "" | "." | ".." | "ca" => Err("choose another name for the files".to_owned()),
        _ if !is_plain => {
            Err("use letters, digits, `-`, `_` and `.`; write names for the certificate with --san"
                .to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// Writes a whole file and renames it, so watchers never read half of it.
fn write(path: &Path, text: &str, mode: u32, may_replace: bool) -> Result<(), Failure> {
    if !may_replace && path.exists() {
        return Err(Failure::Usage(format!("{} exists; delete it first to replace it", path.display())));
    }
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(mode).open(&new);
    let written =
        opened.and_then(|mut file| file.write_all(text.as_bytes())).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}

fn unfit(error: rcgen::Error) -> Failure {
    Failure::Failed(error.to_string())
}

const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;
/// How long before now certificates begin.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
const MAX_VALID: Duration = Duration::from_secs(876_000 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_look_like() {
        assert!(matches!(subject_name("10.0.0.1"), Ok(SanType::IpAddress(_))));
        assert!(matches!(subject_name("*.example.com"), Ok(SanType::DnsName(_))));
        assert!(matches!(subject_name("spiffe://example.org/ns/a/sa/b"), Ok(SanType::URI(_))));
        for bad in ["", "a b", "ü.example"] {
            assert!(subject_name(bad).is_err(), "{bad}");
        }
        for bad in ["", "..", "a/b", "ca", "spiffe://a"] {
            assert!(file_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_certificate_is_issued_by_the_authority_and_an_authority_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (at, hour) = (dir.path(), Duration::from_secs(3600));
        assert!(issue(at, "server", &["localhost".to_owned()], hour).is_err());
        init(at, hour).unwrap();
        assert!(init(at, hour).is_err());
        issue(at, "server", &["localhost".to_owned(), "127.0.0.1".to_owned()], hour).unwrap();
        issue(at, "server", &["localhost".to_owned()], hour).unwrap();
        for (file, mode) in
            [("ca.key", 0o600), ("server.key", 0o600), ("ca.crt", 0o644), ("server.crt", 0o644)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let found = fs::metadata(at.join(file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found & !mode, 0, "{file}: {found:o}");
        }
        assert!(issue(at, "server", &[], MAX_VALID + hour).is_err());
    }
}
