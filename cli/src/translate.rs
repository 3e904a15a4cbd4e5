//! `translate`: prints the resources that files would generate, without a server.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};

use serde_json::json;
use xds_cache::{GroupName, Publisher, ResourceType, Revision};
use xds_codec::{Diagnostic, Severity};
use xds_control::acks::view_key_of_group;

use crate::failure::Failure;
use crate::get::{ClientKind, Form, parse_type};
use crate::offline::{FilesArgs, Offline, render};
use crate::output;

/// The flags of `translate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TranslateArgs {
    /// Kind of clients
    #[arg(long, alias = "target", value_enum, value_name = "CLIENT", default_value = "envoy")]
    profile: ClientKind,
    /// Group of the clients
    #[arg(long, value_name = "GROUP", default_value = "default", value_parser = parse_group)]
    group: GroupName,
    /// Only this type: listeners, routes, clusters, endpoints, secrets, … or a type URL; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    types: Vec<ResourceType>,
    /// The form of the result [default: yaml on a terminal, else json]
    #[arg(long, alias = "output", value_enum, value_name = "FORM")]
    format: Option<Form>,
    #[command(flatten)]
    files: FilesArgs,
}

fn parse_group(text: &str) -> Result<GroupName, String> {
    GroupName::new(text).map_err(|error| error.to_string())
}

/// Resources to standard output, without their secrets; errors and warnings to standard error. Exit code 1 if there is an
/// error.
pub(crate) fn run(args: &TranslateArgs) -> Result<(), Failure> {
    let mut offline = Offline::read(&args.files, xds_control::Secrets::Any)?;
    tell(&mut offline);
    let groups = offline.groups();
    if !groups.contains_key(&args.group) {
        let names: Vec<&str> = groups.keys().map(GroupName::as_str).collect();
        return Err(Failure::Failed(format!(
            "there is no group {}; there is {}",
            args.group,
            names.join(", ")
        )));
    }
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups);
    let view = publisher.view_at(&view_key_of_group(&args.group, args.profile.into()));
    let resources = view.iter().flat_map(|view| view.resources());
    let wanted: BTreeSet<&ResourceType> = args.types.iter().collect();
    let resources =
        resources.filter(|resource| wanted.is_empty() || wanted.contains(resource.resource_type()));
    let resources: Vec<_> = resources.map(|resource| offline.codec.to_json(resource)).collect();
    let shown = json!({"resources": resources});
    let default = if io::stdout().is_terminal() { Form::Yaml } else { Form::Json };
    match args.format.unwrap_or(default) {
        Form::Json => output::print_json(&shown)?,
        Form::Yaml => {
            let yaml = serde_saphyr::to_string(&shown).map_err(|error| Failure::Failed(error.to_string()))?;
            output::print(&yaml)?;
        }
    }
    if offline.diagnostics.iter().any(Diagnostic::is_error) { Err(Failure::Silent) } else { Ok(()) }
}

/// Says what is wrong or doubtful, where it does not get between the resources.
fn tell(offline: &mut Offline) {
    offline.diagnostics.sort_by(|a, b| a.place.cmp(&b.place));
    let told: Vec<Diagnostic> =
        offline.diagnostics.iter().filter(|one| one.severity != Severity::Info).cloned().collect();
    let text = render(&told, &offline.scan, io::stderr().is_terminal());
    // Nothing can be done if standard error is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
