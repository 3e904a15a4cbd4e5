//! TLS in bootstraps: the files that a client uses, and the settings by which it follows their changes.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf, absolute};

use serde_json::{Value, json};

use crate::failure::Failure;

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
    /// File on the client's host with a JSON Web Token, which proves who the client is; it is read again when it changes (with an Envoy
    /// only with --out-dir)
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    jwt_file: Option<PathBuf>,
    /// Name in the servers' certificates, if it is not the host of the address (Envoy only)
    #[arg(long, value_name = "NAME", requires = "tls_ca", conflicts_with = "tls_server_uri")]
    tls_server_name: Option<String>,
    /// SPIFFE ID in the servers' certificates (Envoy only)
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
    /// Its token.
    token: Option<PathBuf>,
    /// Who the server may be; never empty.
    servers: Vec<ServerIdentity>,
}

/// What an Envoy needs to speak TLS, and to say who it is.
pub(super) struct EnvoyTls {
    /// The transport socket of the server's cluster.
    pub(super) socket: Value,
    /// The filters of the server's cluster that send the token; empty without one.
    pub(super) filters: Vec<Value>,
    /// Secrets of the bootstrap itself.
    pub(super) secrets: Vec<Value>,
}

/// A name that the server's certificate may have.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// TLS to servers that are reached as one of `hosts`, if the client is to speak it. Each may have a certificate of its own.
    ///
    /// # Errors
    ///
    /// If a path cannot be made absolute: a client may be started anywhere.
    pub(super) fn with_hosts<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Tls>, Failure> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        let at = |path: &Path| {
            absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        };
        let own = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((at(certificate)?, at(key)?)),
            (_, _) => None,
        };
        let mut servers: Vec<ServerIdentity> = match (&self.tls_server_uri, &self.tls_server_name) {
            (Some(uri), _) => vec![ServerIdentity::Uri(uri.clone())],
            (None, Some(name)) => vec![ServerIdentity::of_host(name)],
            (None, None) => hosts.into_iter().map(ServerIdentity::of_host).collect(),
        };
        servers.dedup();
        let token = self.jwt_file.as_deref().map(at).transpose()?;
        Ok(Some(Tls { ca: at(ca)?, own, token, servers }))
    }
}

impl ServerIdentity {
    fn of_host(host: &str) -> Self {
        host.parse().map_or_else(|_| Self::Dns(host.to_owned()), Self::Ip)
    }

    /// What Envoy compares the names in the certificate with.
    fn matcher(&self) -> Value {
        let (kind, name) = match self {
            Self::Dns(name) => ("DNS", name.clone()),
            Self::Ip(ip) => ("IP_ADDRESS", ip.to_string()),
            Self::Uri(uri) => ("URI", uri.clone()),
        };
        json!({"san_type": kind, "matcher": {"exact": name}})
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

    /// `call_creds` of gRPC, which sends them over TLS alone; `None` without a token.
    pub(super) fn call_credentials(&self) -> Option<Value> {
        let token = self.token.as_ref()?;
        Some(json!([{"type": "jwt_token_file", "config": {"jwt_token_file": token}}]))
    }

    /// For an Envoy that reads the files once, when it starts.
    pub(super) fn once(&self) -> EnvoyTls {
        let mut common = common();
        common["validation_context"] = self.validation(None);
        if let Some(own) = self.certificate(None) {
            common["tls_certificates"] = json!([own]);
        }
        let secrets = self
            .token
            .as_deref()
            .map(|file| json!({"name": TOKEN, "generic_secret": {"secret": {"filename": file}}}));
        let filters = self.token.as_ref().map(|_| token_filters(&json!({"name": TOKEN}))).unwrap_or_default();
        EnvoyTls { socket: self.socket(&common), filters, secrets: secrets.into_iter().collect() }
    }

    /// For an Envoy that follows changes, and the files of `directory` by which it does.
    pub(super) fn followed(&self, directory: &Path) -> (EnvoyTls, Files) {
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
        let mut filters = vec![];
        if let Some(token) = &self.token {
            let mut file = json!({"filename": token});
            watch(&mut file, token.parent());
            files.push((TOKEN_FILE, secret(TOKEN, "generic_secret", json!({"secret": file}))));
            filters = token_filters(&source(TOKEN, TOKEN_FILE));
        }
        (EnvoyTls { socket: self.socket(&common), filters, secrets: vec![] }, Files(files))
    }

    fn socket(&self, common: &Value) -> Value {
        let mut context = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            // The server resumes no session.
            "max_session_keys": 0,
            "common_tls_context": common,
        });
        // One cluster asks all its servers for one name, so there is none to ask for if they have several.
        if let [ServerIdentity::Dns(name)] = &self.servers[..] {
            context["sni"] = name.as_str().into();
        }
        json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
    }

    /// Always with the names of the servers: an Envoy without a matcher takes any certificate of the authority.
    fn validation(&self, watched: Option<&Path>) -> Value {
        let names: Vec<Value> = self.servers.iter().map(ServerIdentity::matcher).collect();
        let mut validation =
            json!({"trusted_ca": {"filename": self.ca}, "match_typed_subject_alt_names": names});
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

/// The filters of a cluster by which Envoy puts the token of a secret into every request.
fn token_filters(secret: &Value) -> Vec<Value> {
    let generic = json!({
        "@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
        "credential": secret,
        "header_value_prefix": "Bearer ",
    });
    let injector = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
        "overwrite": true,
        "credential": {"name": "envoy.http.injected_credentials.generic", "typed_config": generic},
    });
    let codec =
        json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"});
    vec![
        json!({"name": "envoy.filters.http.credential_injector", "typed_config": injector}),
        json!({"name": "envoy.filters.http.upstream_codec", "typed_config": codec}),
    ]
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
const TOKEN: &str = "xds_token";
const TOKEN_FILE: &str = "xds_token.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> TlsArgs {
        TlsArgs {
            tls_ca: Some("/tls/ca.crt".into()),
            tls_cert: Some("/tls/tls.crt".into()),
            tls_key: Some("/tls/tls.key".into()),
            jwt_file: None,
            tls_server_name: None,
            tls_server_uri: None,
            out_dir: None,
        }
    }

    #[test]
    fn the_server_is_known_by_the_name_that_it_is_reached_by_or_is_said_to_have() {
        let expected = |args: &TlsArgs, host: &str| {
            let socket = args.with_hosts([host]).unwrap().unwrap().once().socket;
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
    fn each_of_several_servers_may_have_a_certificate_of_its_own() {
        let socket = |args: &TlsArgs, hosts: [&str; 2]| {
            let socket = args.with_hosts(hosts).unwrap().unwrap().once().socket;
            let context = &socket["typed_config"];
            let sans = &context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"];
            (sans.clone(), context["sni"].clone())
        };
        let san = |kind: &str, name: &str| json!({"san_type": kind, "matcher": {"exact": name}});
        let several = json!([san("DNS", "xds-a"), san("IP_ADDRESS", "10.0.0.2")]);
        assert_eq!(socket(&args(), ["xds-a", "10.0.0.2"]), (several, Value::Null));
        assert_eq!(socket(&args(), ["xds", "xds"]), (json!([san("DNS", "xds")]), json!("xds")), "two ports");
        let named = TlsArgs { tls_server_name: Some("xds".into()), ..args() };
        assert_eq!(socket(&named, ["xds-a", "xds-b"]), (json!([san("DNS", "xds")]), json!("xds")));
    }

    #[test]
    fn a_token_is_in_its_file_alone_and_envoy_follows_it() {
        let args = TlsArgs { jwt_file: Some("/tokens/xds".into()), ..args() };
        let tls = args.with_hosts(["xds"]).unwrap().unwrap();
        let config = json!([{"type": "jwt_token_file", "config": {"jwt_token_file": "/tokens/xds"}}]);
        assert_eq!(tls.call_credentials(), Some(config));
        let credential = |tls: &EnvoyTls| {
            let injector = &tls.filters[0]["typed_config"];
            assert_eq!((tls.filters.len(), &injector["overwrite"]), (2, &json!(true)));
            injector["credential"]["typed_config"]["credential"].clone()
        };
        let once = tls.once();
        assert_eq!(credential(&once), json!({"name": "xds_token"}));
        assert_eq!(once.secrets[0]["generic_secret"]["secret"], json!({"filename": "/tokens/xds"}));
        let (followed, files) = tls.followed(Path::new("/out"));
        let path = &credential(&followed)["sds_config"]["path_config_source"]["path"];
        assert_eq!((path, followed.secrets.len()), (&json!("/out/xds_token.json"), 0));
        let (name, secret) = files.0.last().unwrap();
        let secret = &secret["resources"][0]["generic_secret"]["secret"];
        let watched = json!({"filename": "/tokens/xds", "watched_directory": {"path": "/tokens"}});
        assert_eq!((*name, secret), ("xds_token.json", &watched));
    }

    #[test]
    fn no_client_goes_on_in_plaintext() {
        let credentials = args().with_hosts(["xds"]).unwrap().unwrap().channel_credentials();
        assert_eq!(credentials.as_array().unwrap().len(), 1);
        assert_eq!(credentials[0]["type"], "tls");
        assert!(TlsArgs { tls_ca: None, ..args() }.with_hosts(["xds"]).unwrap().is_none());
    }
}
