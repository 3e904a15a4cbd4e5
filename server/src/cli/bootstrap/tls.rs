//! TLS in bootstraps: the files that a client uses, and the settings by which it follows their changes.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf, absolute};

use serde_json::{Value, json};

use crate::cli::failure::Failure;

/// The flags of TLS.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// PEM file on the client's host with the authorities of the server; makes the client speak TLS
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM file on the client's host with its own certificate
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// PEM file on the client's host with the private key of its certificate
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    tls_key: Option<PathBuf>,
    /// Name in the server's certificate, if it is not the host of the address (Envoy only)
    #[arg(long, value_name = "NAME", requires = "tls_ca", conflicts_with = "tls_server_uri")]
    tls_server_name: Option<String>,
    /// SPIFFE ID in the server's certificate (Envoy only)
    #[arg(long, value_name = "URI", requires = "tls_ca")]
    tls_server_uri: Option<String>,
    /// Directory for envoy.json and the files by which Envoy follows changed certificates; without it Envoy reads them once (Envoy
    /// only)
    #[arg(long, value_name = "DIR", requires = "tls_ca")]
    out_dir: Option<PathBuf>,
}

/// The files of a client that speaks TLS.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    ca: PathBuf,
    /// Its certificate and the key.
    own: Option<(PathBuf, PathBuf)>,
    server: ServerIdentity,
}

/// The name that must be in the server's certificate.
#[derive(Clone, Debug)]
enum ServerIdentity {
    Dns(String),
    Ip(IpAddr),
    Uri(String),
}

/// Secrets that Envoy reads from files of their own, by file name.
pub(super) struct Files(Vec<(&'static str, Value)>);

impl TlsArgs {
    /// The directory to write to, if one is given.
    pub(super) fn out_dir(&self) -> Option<&Path> {
        self.out_dir.as_deref()
    }

    /// Returns `true` if something is given that only Envoys understand.
    pub(super) fn has_envoy_flags(&self) -> bool {
        self.tls_server_name.is_some() || self.tls_server_uri.is_some() || self.out_dir.is_some()
    }

    /// TLS to a server that is reached as `host`, if the client is to speak it.
    ///
    /// # Errors
    ///
    /// If a path cannot be made absolute: a client may be started anywhere.
    pub(super) fn with_host(&self, host: &str) -> Result<Option<Tls>, Failure> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        let at = |path: &Path| {
            absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        };
        let own = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((at(certificate)?, at(key)?)),
            (_, _) => None,
        };
        let server = match (&self.tls_server_uri, self.tls_server_name.as_deref().unwrap_or(host)) {
            (Some(uri), _) => ServerIdentity::Uri(uri.clone()),
            (None, name) => match name.parse() {
                Ok(ip) => ServerIdentity::Ip(ip),
                Err(_) => ServerIdentity::Dns(name.to_owned()),
            },
        };
        Ok(Some(Tls { ca: at(ca)?, own, server }))
    }
}

impl Tls {
    /// `channel_creds` of gRPC. There is no second entry: a client that lacks TLS would take it, and go on in plaintext.
    pub(super) fn channel_credentials(&self) -> Value {
        let mut config = json!({"ca_certificate_file": self.ca, "refresh_interval": "60s"});
        if let Some((certificate, key)) = &self.own {
            config["certificate_file"] = json!(certificate);
            config["private_key_file"] = json!(key);
        }
        json!([{"type": "tls", "config": config}])
    }

    /// The transport socket of an Envoy that reads PEM files once, when it starts.
    pub(super) fn transport_socket(&self) -> Value {
        let mut common = common();
        common["validation_context"] = self.validation(None);
        if let Some(own) = self.certificate(None) {
            common["tls_certificates"] = json!([own]);
        }
        self.socket(&common)
    }

    /// The transport socket of an Envoy that follows changes, and the files of `directory` by which it does.
    pub(super) fn followed_transport_socket(&self, directory: &Path) -> (Value, Files) {
        let source = |name: &str, file: &str| {
            json!({"name": name, "sds_config": {
                "path_config_source": {"path": directory.join(file)}, "resource_api_version": "V3",
            }})
        };
        let secret = |name: &str, field: &str, value: Value| {
            json!({"resources": [{
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
                "name": name, field: value,
            }]})
        };
        let mut common = common();
        common["validation_context_sds_secret_config"] = source(CA, CA_FILE);
        let validation = self.validation(self.ca.parent());
        let mut files = vec![(CA_FILE, secret(CA, "validation_context", validation))];
        let directory_of_own = self.own.as_ref().and_then(|(certificate, _)| certificate.parent());
        if let Some(own) = self.certificate(directory_of_own) {
            common["tls_certificate_sds_secret_configs"] = json!([source(CERTIFICATE, CERTIFICATE_FILE)]);
            files.push((CERTIFICATE_FILE, secret(CERTIFICATE, "tls_certificate", own)));
        }
        (self.socket(&common), Files(files))
    }

    fn socket(&self, common: &Value) -> Value {
        let mut context = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            // The server resumes no session.
            "max_session_keys": 0,
            "common_tls_context": common,
        });
        if let ServerIdentity::Dns(name) = &self.server {
            context["sni"] = name.as_str().into();
        }
        json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
    }

    /// Always with the name of the server: an Envoy without a matcher takes any certificate of the authority.
    fn validation(&self, watched: Option<&Path>) -> Value {
        let (kind, name) = match &self.server {
            ServerIdentity::Dns(name) => ("DNS", name.clone()),
            ServerIdentity::Ip(ip) => ("IP_ADDRESS", ip.to_string()),
            ServerIdentity::Uri(uri) => ("URI", uri.clone()),
        };
        let mut validation = json!({
            "trusted_ca": {"filename": self.ca},
            "match_typed_subject_alt_names": [{"san_type": kind, "matcher": {"exact": name}}],
        });
        watch(&mut validation, watched);
        validation
    }

    fn certificate(&self, watched: Option<&Path>) -> Option<Value> {
        let (certificate, key) = self.own.as_ref()?;
        let mut own =
            json!({"certificate_chain": {"filename": certificate}, "private_key": {"filename": key}});
        watch(&mut own, watched);
        Some(own)
    }
}

fn common() -> Value {
    json!({
        "alpn_protocols": ["h2"],
        // An Envoy offers 1.2 and nothing newer unless it is told to.
        "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
    })
}

/// Has Envoy look at a directory: it sees files that are moved into it.
fn watch(secret: &mut Value, directory: Option<&Path>) {
    if let Some(directory) = directory {
        secret["watched_directory"] = json!({"path": directory});
    }
}

impl Files {
    /// Writes the files, and `bootstrap` as `envoy.json`.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or written to.
    pub(super) fn write(&self, directory: &Path, bootstrap: &Value) -> Result<(), Failure> {
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        let all = self.0.iter().map(|(name, value)| (*name, value)).chain([("envoy.json", bootstrap)]);
        for (name, value) in all {
            let path = directory.join(name);
            fs::write(&path, format!("{value:#}\n")).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}

const CA: &str = "xds_ca";
const CA_FILE: &str = "xds_ca.json";
const CERTIFICATE: &str = "xds_certificate";
const CERTIFICATE_FILE: &str = "xds_certificate.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> TlsArgs {
        TlsArgs {
            tls_ca: Some("/tls/ca.crt".into()),
            tls_cert: Some("/tls/tls.crt".into()),
            tls_key: Some("/tls/tls.key".into()),
            tls_server_name: None,
            tls_server_uri: None,
            out_dir: None,
        }
    }

    #[test]
    fn the_server_is_known_by_the_name_that_it_is_reached_by_or_is_said_to_have() {
        let expected = |args: &TlsArgs, host: &str| {
            let socket = args.with_host(host).unwrap().unwrap().transport_socket();
            let context = &socket["typed_config"];
            let sans = &context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"];
            (sans[0]["san_type"].clone(), sans[0]["matcher"]["exact"].clone(), context["sni"].clone())
        };
        assert_eq!(
            expected(&args(), "xds.example"),
            (json!("DNS"), json!("xds.example"), json!("xds.example"))
        );
        assert_eq!(expected(&args(), "::1"), (json!("IP_ADDRESS"), json!("::1"), Value::Null));
        let named = TlsArgs { tls_server_name: Some("other.example".into()), ..args() };
        assert_eq!(
            expected(&named, "10.0.0.1"),
            (json!("DNS"), json!("other.example"), json!("other.example"))
        );
        let spiffe = TlsArgs { tls_server_uri: Some("spiffe://a/xds".into()), ..args() };
        assert_eq!(expected(&spiffe, "10.0.0.1"), (json!("URI"), json!("spiffe://a/xds"), Value::Null));
    }

    #[test]
    fn no_client_goes_on_in_plaintext() {
        let credentials = args().with_host("xds").unwrap().unwrap().channel_credentials();
        assert_eq!(credentials.as_array().unwrap().len(), 1);
        assert_eq!(credentials[0]["type"], "tls");
        assert!(TlsArgs { tls_ca: None, ..args() }.with_host("xds").unwrap().is_none());
    }
}
