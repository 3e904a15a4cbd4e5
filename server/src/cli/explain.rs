//! `explain`: where a request goes, and why, by files.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::json;
use xds_cache::{GroupName, Node, Profile, Publisher, Revision};
use xds_codec::Diagnostic;
use xds_control::acks::view_key_of_group;
use xds_control::model::Texts;
use xds_control::{Places, Secrets};
use xds_explain::{Client, Connection, Explanation, Language, Model, Request};

use crate::cli::failure::Failure;
use crate::cli::get::ClientKind;
use crate::cli::offline::{FilesArgs, Offline};
use crate::cli::output;
use crate::escape::clean_lines;

/// The flags of `explain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Kind of clients
    #[arg(long, value_enum, value_name = "CLIENT", default_value = "envoy")]
    profile: ClientKind,
    /// Client with a version, such as envoy@1.38 or grpc-go; may be repeated [default: the newest of each language of the profile]
    #[arg(long = "client", value_name = "CLIENT")]
    clients: Vec<Client>,
    /// Group of the client
    #[arg(long, value_name = "GROUP", default_value = "default", value_parser = parse_group)]
    group: GroupName,
    /// Explain for the node with this ID, in all its groups
    #[arg(long, value_name = "ID", conflicts_with = "group")]
    node: Option<String>,
    /// Also show routes whose path does not fit
    #[arg(long)]
    all: bool,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    files: FilesArgs,
}

/// A request on the command line.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestArgs {
    /// Host, with a port if the client sends one
    #[arg(long, value_name = "HOST", required_unless_present_any = ["curl", "target"])]
    host: Option<String>,
    /// Path, with its query
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
    /// Method [default: GET]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// http or https [default: as the listener speaks]
    #[arg(long, value_name = "SCHEME", value_parser = ["http", "https"])]
    scheme: Option<String>,
    /// A gRPC call
    #[arg(long, value_name = "SERVICE/METHOD", conflicts_with_all = ["path", "method"])]
    call: Option<String>,
    /// Target of a proxyless gRPC client; implies --profile grpc
    #[arg(long, value_name = "xds:///NAME", conflicts_with = "host")]
    target: Option<String>,
    /// A curl command, as it is pasted
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["host", "path", "method", "headers", "scheme", "call", "target"])]
    curl: Option<String>,
    /// Name of the listener
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Port of the listener [default: every listener with a route for the request]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address that the client connects to
    #[arg(long, value_name = "IP")]
    to: Option<IpAddr>,
    /// Address that the client connects from
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_source)]
    from: Option<(IpAddr, Option<u16>)>,
    /// Server name of the TLS handshake [default: the host]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Protocols of the TLS handshake
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alpn: Vec<String>,
    /// Connect with TLS, or without
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tls: Option<bool>,
    /// Client certificate: presented, or presented,validated, or none
    #[arg(long, value_name = "STATE", value_parser = parse_certificate)]
    client_cert: Option<(bool, bool)>,
    /// RouteConfiguration to begin at, without a listener
    #[arg(long, value_name = "NAME")]
    route_config: Option<String>,
    /// Random number of the request, which decides about fractions and weights
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Runtime key of a fraction; may be repeated
    #[arg(long, value_name = "KEY=N/D", value_parser = parse_runtime)]
    runtime: Vec<(String, (u32, u32))>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// Lines
    Text,
    /// One object
    Json,
}

pub(super) fn parse_group(text: &str) -> Result<GroupName, String> {
    GroupName::new(text).map_err(|error| error.to_string())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn parse_source(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(ip) = text.parse() {
        return Ok((ip, None));
    }
    let addr: std::net::SocketAddr =
        text.parse().map_err(|_| "write an IP address, with a port if you like")?;
    Ok((addr.ip(), Some(addr.port())))
}

fn parse_certificate(text: &str) -> Result<(bool, bool), String> {
    match text {
        "none" => Ok((false, false)),
        "presented" => Ok((true, false)),
        "validated" | "presented,validated" => Ok((true, true)),
        _ => Err("write none, presented, or presented,validated".to_owned()),
    }
}

fn parse_runtime(text: &str) -> Result<(String, (u32, u32)), String> {
    let read = || {
        let (key, fraction) = text.split_once('=')?;
        let (n, of) = fraction.split_once('/')?;
        Some((key.to_owned(), (n.parse().ok()?, of.parse().ok()?)))
    };
    let (key, (n, of)) = read().ok_or("write KEY=N/D, such as canary.share=10/100")?;
    match of {
        100 | 10_000 | 1_000_000 => Ok((key, (n, of))),
        _ => Err("the denominator is 100, 10000 or 1000000".to_owned()),
    }
}

impl RequestArgs {
    /// The request.
    pub(crate) fn request(&self) -> Result<Request, Failure> {
        let host = self.target.as_deref().or(self.host.as_deref()).unwrap_or_default();
        let mut request = match (&self.curl, &self.call) {
            (Some(command), _) => {
                xds_explain::curl(command).map_err(|error| Failure::Usage(error.to_string()))?
            }
            (None, Some(call)) => Request::call(host, call),
            (None, None) => Request::get(host, &self.path),
        };
        if self.curl.is_none() {
            request.scheme = self.scheme.clone().unwrap_or_default();
        }
        if let Some(method) = &self.method {
            request.method.clone_from(method);
        }
        request.headers.extend(self.headers.iter().cloned());
        request.random = self.random;
        request.runtime = self.runtime.iter().cloned().collect::<BTreeMap<_, _>>();
        request.route_config.clone_from(&self.route_config);
        let own = request.connection;
        request.connection = Connection {
            listener: self.listener.clone(),
            port: self.port.or(own.port),
            to: self.to.or(own.to),
            from: self.from.map(|(ip, _)| ip),
            from_port: self.from.and_then(|(_, port)| port),
            sni: self.sni.clone().or(own.sni),
            alpn: if self.alpn.is_empty() { own.alpn } else { self.alpn.clone() },
            tls: self.tls,
            certificate: self.client_cert,
        };
        Ok(request)
    }
}

/// Exit code 0 if the request reaches a route for some client, 1 if not.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let request = args.request.request()?;
    let offline = Offline::read(&args.files, Secrets::Any)?;
    let texts = Texts::new(
        offline
            .scan
            .files
            .iter()
            .filter_map(|(path, read)| Some((path.clone(), read.as_ref().ok()?.bytes.clone())))
            .collect(),
        &offline.limits,
    );
    let publisher = Publisher::new();
    publisher.publish(Revision(1), offline.groups());
    let is_grpc = args.request.target.is_some();
    let profile = if is_grpc { Profile::Grpc } else { args.profile.into() };
    let clients = match &*args.clients {
        [] => Language::of_profile(profile).iter().map(|language| Client::newest(*language)).collect(),
        clients => clients.to_vec(),
    };
    let mut answers: Vec<Explanation> = Vec::new();
    for client in clients {
        let view = match &args.node {
            Some(id) => publisher
                .view_of(&Node { user_agent_name: user_agent(client).to_owned(), ..Node::with_id(id) }),
            None => publisher.view_at(&view_key_of_group(&args.group, client.language.profile())),
        };
        let Some(view) = view else {
            return Err(Failure::Failed(format!("nothing is served to the group {}", args.group)));
        };
        let mut explained = Model::of_view(&view, client).explain(&request);
        Places { view: &view, documents: &offline.translated.documents, texts: &texts }
            .locate(&mut explained);
        answers.extend(explained);
    }
    let n_errors = offline.diagnostics.iter().filter(|one| Diagnostic::is_error(one)).count();
    show(&answers, args.all, args.output, n_errors)?;
    if answers.iter().any(Explanation::is_routed) { Ok(()) } else { Err(Failure::Silent) }
}

/// A name by which the server knows what kind of client it is.
pub(super) fn user_agent(client: Client) -> &'static str {
    match client.language.profile() {
        Profile::Envoy => "envoy",
        Profile::Grpc => "gRPC Go",
    }
}

fn show(answers: &[Explanation], shows_all: bool, form: Form, n_errors: usize) -> Result<(), Failure> {
    if form == Form::Json {
        return output::print_json(&json!({"explanations": answers}));
    }
    let mut text = String::new();
    if n_errors > 0 {
        text.push_str(&format!(
            "{n_errors} errors in the files; xds-server validate shows them. What has none is explained:\n\n"
        ));
    }
    for (at, group) in together(answers).into_iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&clean_lines(&group.to_text(shows_all)));
    }
    output::print(&text)
}

/// The answers, with those of clients that do the same as one.
fn together(answers: &[Explanation]) -> Vec<Explanation> {
    let mut groups: Vec<Explanation> = Vec::new();
    for answer in answers {
        let alike =
            |one: &&mut Explanation| Explanation { client: one.client.clone(), ..answer.clone() } == **one;
        match groups.iter_mut().find(alike) {
            Some(one) => one.client = format!("{}, {}", one.client, answer.client),
            None => groups.push(answer.clone()),
        }
    }
    groups
}
