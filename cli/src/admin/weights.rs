//! `weights`: shows and changes the weights of rules.

use http::Method;
use serde_json::{Map, Value};

use super::connection::{AdminArgs, segment};
use super::writes::{Change, WriteFlags};
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_list};

/// The arguments of `weights`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WeightsArgs {
    #[command(subcommand)]
    command: Option<WeightsCommand>,
    /// Only objects of this kind: GRPCRoute, HTTPRoute, Route, TrafficSplit or RouteConfiguration
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// Only this object; for a RouteConfiguration, its group and name
    #[arg(value_name = "NAMESPACE/NAME", requires = "kind")]
    object: Option<String>,
    /// Only this rule: its name or index
    #[arg(value_name = "RULE", requires = "object")]
    rule: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum WeightsCommand {
    /// Change the weights of a rule; other backends keep theirs
    Set(SetArgs),
    /// Remove the override of a rule, so that it has its object's own weights again
    Reset(ResetArgs),
}

/// The rule to change, and how.
#[derive(Clone, Debug, clap::Args)]
struct Target {
    /// GRPCRoute, HTTPRoute, Route, TrafficSplit or RouteConfiguration
    #[arg(value_name = "KIND")]
    kind: String,
    /// The object; for a RouteConfiguration, its group and name
    #[arg(value_name = "NAMESPACE/NAME")]
    object: String,
    /// The rule: its name or index
    #[arg(value_name = "RULE")]
    rule: String,
    #[command(flatten)]
    write: WriteFlags,
}

#[derive(Clone, Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    target: Target,
    /// New weights, from 0 to 1000000
    #[arg(value_name = "BACKEND=WEIGHT", required = true)]
    weights: Vec<String>,
    /// The numbers are percents; the other backends share the rest
    #[arg(long)]
    percent: bool,
    /// Remove existing overrides of backends that are not named
    #[arg(long)]
    replace: bool,
    /// How long the change lasts, such as 30m or 2h [default: until the next change]
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct ResetArgs {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn weights(args: &WeightsArgs) -> Result<(), Failure> {
    match &args.command {
        None => show(args),
        Some(WeightsCommand::Set(args)) => set(args),
        Some(WeightsCommand::Reset(args)) => change(&args.target, Method::DELETE, None),
    }
}

fn show(args: &WeightsArgs) -> Result<(), Failure> {
    let object = args.object.as_deref().map(split).transpose()?;
    let mut filters: Vec<String> = args.kind.iter().map(|kind| format!("kind={}", segment(kind))).collect();
    if let Some((namespace, name)) = object {
        filters.push(format!("namespace={}&name={}", segment(namespace), segment(name)));
    }
    let admin = args.admin.connect()?;
    let mut found = admin.get_pages(&format!("/v1/weights?{}", filters.join("&")), "objects")?;
    if let Some(rule) = &args.rule {
        let objects = found["objects"].as_array_mut().into_iter().flatten();
        for rules in objects.filter_map(|object| object["rules"].as_array_mut()) {
            rules.retain(|one| one["id"] == **rule);
        }
    }
    let has_rules = |object: &Value| object["rules"].as_array().is_some_and(|rules| !rules.is_empty());
    if args.object.is_some() && !items(&found["objects"]).any(has_rules) {
        let rule = args.rule.as_ref().map(|rule| format!(" with a rule {rule}")).unwrap_or_default();
        let (kind, object) = (args.kind.as_deref(), args.object.as_deref());
        let (kind, object) = (kind.unwrap_or_default(), object.unwrap_or_default());
        return Err(Failure::Failed(format!(
            "there is no {kind} {object}{rule}; `xds-server weights` lists all"
        )));
    }
    print_list(args.admin.output, &found, || table(&found))
}

fn table(found: &Value) -> Table {
    let mut table =
        Table::new(&["OBJECT", "RULE", "BACKEND", "WEIGHT", "PERCENT", "SOURCE", "OWN WEIGHT", "UNTIL"])
            .named_by(2);
    for object in items(&found["objects"]) {
        let name = ["kind", "namespace", "name"].map(|field| cell(&object[field]));
        let name = format!("{} {}/{}", name[0], name[1], name[2]);
        for rule in items(&object["rules"]) {
            for (backend, weight) in rule["backends"].as_object().into_iter().flatten() {
                table.push(vec![
                    name.clone(),
                    cell(&rule["id"]),
                    backend.clone(),
                    cell(weight),
                    cell(&rule["effective"][backend]),
                    cell(&rule["source"]),
                    cell(&rule["fileWeights"][backend]),
                    cell(&rule["expires"]),
                ]);
            }
        }
    }
    table
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let mut weights = Map::new();
    for text in &args.weights {
        let parsed = text.rsplit_once('=').and_then(|(backend, number)| {
            let number: Value = serde_json::from_str(number).ok().filter(Value::is_number)?;
            Some((backend.to_owned(), number))
        });
        let Some((backend, number)) = parsed else {
            return Err(Failure::Usage(format!(
                "{text:?} is not BACKEND=WEIGHT, such as greeter-v2:50051=10"
            )));
        };
        if weights.insert(backend, number).is_some() {
            return Err(Failure::Usage(format!("the backend of {text:?} appears twice")));
        }
    }
    let mut body =
        Map::from_iter([(if args.percent { "percent" } else { "backends" }.to_owned(), weights.into())]);
    if let Some(expires) = &args.expires {
        body.insert("expires".to_owned(), expires.as_str().into());
    }
    let method = if args.replace { Method::PUT } else { Method::PATCH };
    change(&args.target, method, Some(&Value::Object(body)))
}

/// Changes the present weights without a precondition: a user who types weights has just looked at them, or does not care.
fn change(target: &Target, method: Method, body: Option<&Value>) -> Result<(), Failure> {
    let (namespace, name) = split(&target.object)?;
    let path = [target.kind.as_str(), namespace, name, &target.rule].map(segment).join("/");
    let path = format!("/v1/weights/{path}");
    let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
    target.write.send(Change { method, path: &path, headers: &[("if-match", "*")], body })
}

fn split(object: &str) -> Result<(&str, &str), Failure> {
    let wrong = || Failure::Usage(format!("{object:?} is not NAMESPACE/NAME, such as prod/greeter"));
    object
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_backend_is_a_row() {
        let found = json!({"objects": [{"kind": "GRPCRoute", "namespace": "prod", "name": "greeter", "rules": [
            {"id": "0", "backends": {"v1:80": 3, "v2:80": 1}, "effective": {"v1:80": 75.0, "v2:80": 25.0},
                "source": "override", "fileWeights": {"v1:80": 9, "v2:80": 1}, "etag": "a"}]}]});
        assert_eq!(
            table(&found).render(),
            "OBJECT                  RULE  BACKEND  WEIGHT  PERCENT  SOURCE    OWN WEIGHT  UNTIL\n\
             GRPCRoute prod/greeter  0     v1:80    3       75.0     override  9\n\
             GRPCRoute prod/greeter  0     v2:80    1       25.0     override  1\n"
        );
    }
}
