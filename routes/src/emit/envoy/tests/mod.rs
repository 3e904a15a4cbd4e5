//! Resources for Envoys: what comes out for each feature, and what holds for every plan.

mod draws;
mod goldens;
mod plans;
mod properties;
mod random;
mod rules;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;
use xds_cache::{MissingReferences, Profile, Resource, ResourceType};
use xds_codec::{Codec, Tree};

use super::action::ERROR;
use super::envoy;
use crate::emit::all;
use crate::encode::Encoder;
use crate::input::Options;
use crate::plan::Plan;

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("built in"));

/// The resources of a plan, which the codec takes without a word.
fn emit(plan: &Plan, options: &Options) -> Vec<Resource> {
    let encode = |message: &Json| {
        let (resource, warnings) =
            CODEC.resource_from_tree(&Tree::from_json(message)).unwrap_or_else(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                panic!("{}\n{message:#}", faults.join("\n"))
            });
        assert!(warnings.is_empty(), "{warnings:?}\n{message:#}");
        resource
    };
    let written = all(|emit| envoy(plan, options, emit));
    let whole: Vec<Resource> = written.iter().map(|emitted| encode(&emitted.whole())).collect();
    // Route configurations are served as they are put together of their virtual hosts.
    let mut encoder = Encoder::new(&CODEC);
    for (emitted, whole) in written.iter().zip(&whole).filter(|(emitted, _)| !emitted.hosts.is_empty()) {
        let hosts = emitted.hosts.iter().map(|host| encoder.host(host)).collect::<Result<Vec<_>, _>>();
        let served = encoder
            .assembled(emitted, Ok(&hosts.unwrap().into_iter().enumerate().collect()), None, &[])
            .ok()
            .unwrap();
        assert_eq!((served[0].version(), served[0].value()), (whole.version(), whole.value()), "{whole:?}");
    }
    whole
}

/// The ports of the mesh that documents ask for and no gateway has, and where Envoys listen for them.
pub(super) fn mesh_ports(plan: &Plan, options: &Options) -> Vec<(u16, IpAddr)> {
    let asked = plan.services.iter().filter(|service| !service.is_implicit).map(|service| service.port);
    let mut ports: BTreeSet<u16> = asked.collect();
    ports.retain(|port| !plan.ports.iter().any(|gateway| gateway.port == *port));
    ports.into_iter().filter_map(|port| Some((port, options.mesh_address?))).collect()
}

/// The faults of resources together: names that are there twice, names that lead nowhere, and what the codec's lint says.
fn faults(resources: &[Resource]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for resource in resources {
        let key = format!("{:?}", resource.key());
        if !names.insert(key.clone()) {
            faults.push(format!("twice: {key}"));
        }
    }
    // One cluster is meant to be missing.
    let missing = MissingReferences::among(resources.iter().cloned().map(Arc::new).collect());
    let missing = missing.iter().filter(|one| *one.to.name != *ERROR);
    faults.extend(missing.map(|one| format!("{one:?}")));
    // The plan decides which clusters have sessions, and plans made for tests decide as they like (C87). Fractions may be too fine
    // to be independent of each other, but weights never depend on one (C10). Certificates of these tests are short texts (D116).
    let found = CODEC.lint_profile(resources.iter(), Profile::Envoy).into_iter();
    let found =
        found.filter(|it| it.row != "C87" && (it.row != "C10" || it.path.ends_with("weighted_clusters")));
    let found = found.filter(|it| it.row != "D116" || it.resource.resource_type != ResourceType::Secret);
    faults.extend(found.map(|it| format!("{it:?}")));
    faults
}

/// As YAML, with what the codec made of it.
fn text(resources: &[Resource]) -> String {
    let texts: Vec<String> = resources.iter().map(|resource| CODEC.to_yaml(resource)).collect();
    texts.join("---\n")
}

/// The messages of a type, by the end of its type URL.
fn messages(resources: &[Resource], type_name: &str) -> Vec<Json> {
    let messages = resources.iter().map(|resource| CODEC.to_json_with_secrets(resource));
    messages.filter(|message| message["@type"].as_str().is_some_and(|it| it.ends_with(type_name))).collect()
}

/// The routes of the first virtual host of the first RouteConfiguration.
fn routes(resources: &[Resource]) -> Vec<Json> {
    let configurations = messages(resources, "RouteConfiguration");
    let routes = &configurations[0]["virtual_hosts"][0]["routes"];
    routes.as_array().cloned().unwrap_or_default()
}
