//! Documents of the Gateway API, from YAML to what they say, and what is said of bad ones.

mod dispatch;
mod filters;
mod gateway;
mod grpc_route;
mod hostile;
mod http_route;
mod parents;
mod policy;
mod seed;
mod session;

use std::sync::Arc;

use xds_codec::{Diagnostic, Limits, Severity, Syntax};
use xds_routes::model::{Match, Route, Rule, Spec};
use xds_routes::{Document, ReadOutcome, read};

/// Reads the one document of a text.
fn read_yaml(yaml: &str) -> ReadOutcome {
    let trees = xds_codec::parse("f.yaml", yaml.as_bytes(), Syntax::Yaml, &Limits::default());
    let trees = trees.unwrap_or_else(|problems| panic!("{yaml}\n{problems:?}"));
    read(&Arc::from("f.yaml"), trees.first().expect("there is a document"), xds_routes::UnknownFields::Refuse)
}

/// The outcome of the one object of a text.
fn outcome(yaml: &str) -> Result<(Arc<Document>, Vec<Diagnostic>), Vec<Diagnostic>> {
    match read_yaml(yaml) {
        ReadOutcome::Objects(mut objects) if objects.len() == 1 => objects.remove(0).outcome,
        ReadOutcome::Unreadable(diagnostics) => Err(diagnostics),
        other @ (ReadOutcome::NotOurs | ReadOutcome::Objects(_)) => panic!("{yaml}\n{other:?}"),
    }
}

/// A document of a kind and version with that `spec`, in flow style.
fn document(kind: &str, version: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: r, namespace: n}}\nspec: {spec}\n"
    )
}

fn show(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics.iter().map(|one| format!("{} {}: {}", one.severity, one.path, one.message)).collect()
}

/// The content of a good document; it must have no warning.
fn spec_of(yaml: &str) -> Spec {
    let (document, warnings) = outcome(yaml).unwrap_or_else(|errors| panic!("{yaml}\n{:#?}", show(&errors)));
    assert!(warnings.is_empty(), "{yaml}\n{:#?}", show(&warnings));
    document.spec.clone()
}

/// The content of a document, and the texts of its warnings as `path: message`.
fn spec_and_warnings(yaml: &str) -> (Spec, Vec<String>) {
    let (document, warnings) = outcome(yaml).unwrap_or_else(|errors| panic!("{yaml}\n{:#?}", show(&errors)));
    assert!(warnings.iter().all(|warning| warning.severity == Severity::Warning));
    (document.spec.clone(), warnings.iter().map(|one| format!("{}: {}", one.path, one.message)).collect())
}

/// The errors of a bad document as `path: message`.
fn errors_of(yaml: &str) -> Vec<String> {
    let Err(diagnostics) = outcome(yaml) else { panic!("it is taken:\n{yaml}") };
    let errors = diagnostics.iter().filter(|one| one.is_error());
    let errors: Vec<_> = errors.map(|one| format!("{}: {}", one.path, one.message)).collect();
    assert!(!errors.is_empty(), "{yaml}");
    errors
}

/// Checks that a document has exactly this one error, or that it is taken if the text is empty.
fn expect(yaml: &str, error: &str) {
    if error.is_empty() {
        if let Err(errors) = outcome(yaml) {
            panic!("{yaml}\n{:#?}", show(&errors));
        }
        return;
    }
    let errors = errors_of(yaml);
    assert!(
        errors.len() == 1 && errors.iter().any(|one| one.ends_with(error)),
        "{yaml}\n{errors:#?}\nnot {error}"
    );
}

fn route_of(spec: Spec) -> Route {
    let Spec::Route(route) = spec else { panic!("{spec:?}") };
    route
}

fn rule_of(route: &Route) -> &Rule {
    route.rules.first().expect("there is a rule")
}

fn match_of(route: &Route) -> &Match {
    rule_of(route).matches.first().expect("there is a match")
}

/// `text` repeated `n` times, with commas between.
fn times(n: usize, text: &str) -> String {
    vec![text; n].join(", ")
}

/// `n` texts made of `{}` replaced by 0, 1, 2 …, with commas between.
fn numbered(n: usize, text: &str) -> String {
    (0..n).map(|index| text.replace("{}", &index.to_string())).collect::<Vec<_>>().join(", ")
}
