//! `explain`: where a request goes, and why, or what gRPC clients hold for a target, by files or by what a running server serves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::json;
use xds_cache::Profile;
use xds_control::question;
use xds_explain::{Connection, Explanation, Model, Request, Target};
use xds_units::escape::clean_lines;

use crate::about::AboutArgs;
use crate::admin::ConnectionArgs;
use crate::failure::Failure;
use crate::offline::FilesArgs;
use crate::output;
use crate::served::Served;

/// The flags of `explain`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("paths", |paths| paths.required(false)))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    about: AboutArgs,
    /// Explain by what was served at this revision, as far as the server keeps it
    #[arg(long, value_name = "REVISION", conflicts_with = "paths")]
    at: Option<u64>,
    /// Also show routes whose path does not fit
    #[arg(long)]
    all: bool,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A request on the command line.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestArgs {
    /// Host, with a port if the client sends one
    #[arg(long, value_name = "HOST", required_unless_present_any = ["curl", "target"])]
    host: Option<String>,
    /// Path, with its query [default: /]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Method [default: GET]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_pair)]
    headers: Vec<(String, String)>,
    /// http or https [default: as the listener speaks]
    #[arg(long, value_name = "SCHEME", value_parser = ["http", "https"])]
    scheme: Option<String>,
    /// A gRPC call
    #[arg(long, value_name = "SERVICE/METHOD", conflicts_with_all = ["path", "method"])]
    call: Option<String>,
    /// Target of a proxyless gRPC client; implies --profile grpc. `explain` without a call says what the client holds for it
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
    #[arg(long, value_name = "IP[:PORT]", value_parser = question::parse_source)]
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
    #[arg(long, value_name = "STATE", value_parser = question::parse_certificate)]
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
    /// Dynamic metadata that a filter has set; may be repeated
    #[arg(long, value_name = "FILTER.KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// Filter state that a filter has set; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    filter_state: Vec<(String, String)>,
    /// How many endpoints of a cluster are healthy, the first N of M; may be repeated [default: as they are served]
    #[arg(long, value_name = "CLUSTER=N/M", value_parser = parse_healthy)]
    healthy: Vec<(String, (usize, usize))>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// Lines
    Text,
    /// One object
    Json,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn parse_runtime(text: &str) -> Result<(String, (u32, u32)), String> {
    let read = || {
        let (key, fraction) = text.split_once('=')?;
        Some((key.to_owned(), question::parse_fraction(fraction)?))
    };
    let wanted = "write KEY=N/D with a denominator of 100, 10000 or 1000000, such as canary.share=10/100";
    read().ok_or_else(|| wanted.to_owned())
}

fn parse_healthy(text: &str) -> Result<(String, (usize, usize)), String> {
    let read = || {
        let (cluster, healthy) = text.split_once('=')?;
        Some((cluster.to_owned(), question::parse_healthy(healthy)?))
    };
    read().ok_or_else(|| "write CLUSTER=N/M, such as default/web=2/3".to_owned())
}

impl RequestArgs {
    /// Returns `true` if it is the request of a proxyless gRPC client.
    pub(crate) fn is_of_target(&self) -> bool {
        self.target.is_some()
    }

    /// Returns `true` if it says nothing of a call, but the target.
    fn is_about_target(&self) -> bool {
        self.target.is_some() && self.call.is_none() && self.path.is_none() && self.method.is_none()
    }

    /// The request.
    pub(crate) fn request(&self) -> Result<Request, Failure> {
        let host = self.target.as_deref().or(self.host.as_deref()).unwrap_or_default();
        let mut request = match (&self.curl, &self.call) {
            (Some(command), _) => {
                xds_explain::curl(command).map_err(|error| Failure::Usage(error.to_string()))?
            }
            (None, Some(call)) => Request::call(host, call),
            (None, None) => Request::get(host, self.path.as_deref().unwrap_or("/")),
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
        request.metadata = self.metadata.iter().cloned().collect();
        request.filter_state = self.filter_state.iter().cloned().collect();
        request.healthy = self.healthy.iter().cloned().collect();
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
    if args.files.paths.is_empty() { ask(args, &request) } else { read(args, &request) }
}

/// By what a running server serves.
fn ask(args: &ExplainArgs, request: &Request) -> Result<(), Failure> {
    let mut question = json!({"request": match &args.request.target {
        Some(target) if args.request.is_about_target() => json!({"target": target}),
        Some(_) | None => question::to_json(request),
    }});
    args.about.write(&mut question, args.request.is_of_target().then_some(Profile::Grpc));
    if let Some(at) = args.at {
        question["at"] = json!(at);
    }
    let query = format!("text={}&all={}", args.output == Form::Text, args.all);
    let answer = args.connection.connect()?.post(&format!("/v1/explain?{query}"), &question)?;
    match args.output {
        Form::Json => output::print_json(&answer)?,
        Form::Text => output::print(&clean_lines(answer["text"].as_str().unwrap_or_default()))?,
    }
    let mut outcomes = output::items(&answer["explanations"]).flat_map(|one| output::items(&one["outcomes"]));
    let is_routed = outcomes.any(|outcome| !outcome["route"].is_null());
    let is_held = output::items(&answer["targets"]).any(|target| target["fails"].is_null());
    if is_routed || is_held { Ok(()) } else { Err(Failure::Silent) }
}

/// By files.
fn read(args: &ExplainArgs, request: &Request) -> Result<(), Failure> {
    let served = Served::read(&args.files)?;
    let whose = args.about.whose();
    let mut answers: Vec<Explanation> = Vec::new();
    let mut held: Vec<Target> = Vec::new();
    for client in args.about.clients(args.request.is_of_target().then_some(Profile::Grpc)) {
        let view = served.view(&whose, client)?;
        let model = Model::of_view(&view, client);
        if args.request.is_about_target() {
            let wanted = "an Envoy has no target; add --call, or leave out the client";
            let target = model.target(&request.authority).ok_or_else(|| Failure::Usage(wanted.to_owned()))?;
            let mut target = vec![target];
            served.locate(&view, &mut target);
            held.extend(target);
            continue;
        }
        let mut explained = model.explain(request);
        served.locate(&view, &mut explained);
        answers.extend(explained);
    }
    let text = || xds_explain::to_text(&answers, args.all) + &xds_explain::targets_to_text(&held);
    match args.output {
        Form::Json if held.is_empty() => output::print_json(&json!({"explanations": answers}))?,
        Form::Json => output::print_json(&json!({"targets": held}))?,
        Form::Text => show(&text(), served.n_errors())?,
    }
    let is_routed = answers.iter().any(Explanation::is_routed);
    if is_routed || held.iter().any(|target| target.fails.is_none()) { Ok(()) } else { Err(Failure::Silent) }
}

fn show(text: &str, n_errors: usize) -> Result<(), Failure> {
    let errors = match n_errors {
        0 => String::new(),
        n => format!(
            "{n} errors in the files; xds-server validate shows them. What has none is explained:\n\n"
        ),
    };
    output::print(&format!("{errors}{}", clean_lines(text)))
}
