//! Costs of a question at 10,000 routes: to make the model, the first question, and the next ones.
//!
//! Compare ratios between two runs on one machine; absolute times mean little elsewhere.

#![expect(clippy::print_stdout, reason = "a benchmark tells its figures")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use prost::Message as _;
use xds_cache::{Resource, ResourceType};
use xds_explain::{Client, Language, Model, Request};

const N_ROUTES: usize = 10_000;
const N_QUESTIONS: u32 = 100;

fn table(n_hosts: usize) -> Arc<Resource> {
    let route = |at: usize| Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::PathSeparatedPrefix(format!("/service-{at}"))),
            ..RouteMatch::default()
        }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(format!("cluster-{at}"))),
            ..RouteAction::default()
        })),
        name: format!("Route/default/route-{at}/0/0"),
        ..Route::default()
    };
    let host = |host: usize| VirtualHost {
        name: format!("host-{host}"),
        domains: vec![format!("host-{host}.test")],
        routes: (0..N_ROUTES / n_hosts).map(|at| route(host * N_ROUTES / n_hosts + at)).collect(),
        ..VirtualHost::default()
    };
    let virtual_hosts = (0..n_hosts).map(host).collect();
    let message = RouteConfiguration { name: "r".to_owned(), virtual_hosts, ..RouteConfiguration::default() };
    Arc::new(Resource::plain(ResourceType::RouteConfiguration, "r", message.encode_to_vec()))
}

fn main() {
    for n_hosts in [1, 1_000] {
        let table = table(n_hosts);
        let client = Client::newest(Language::Envoy);
        let last = format!("/service-{}/x", N_ROUTES - 1);
        let request = Request {
            route_config: Some("r".to_owned()),
            ..Request::get(&format!("host-{}.test", n_hosts - 1), &last)
        };
        let began = Instant::now();
        let model = Model::compile([table], client);
        let answer = model.explain(&request);
        let first = began.elapsed();
        assert!(answer.iter().any(xds_explain::Explanation::is_routed), "{answer:?}");
        let began = Instant::now();
        for _ in 0..N_QUESTIONS {
            black_box(model.explain(&request));
        }
        let next = began.elapsed() / N_QUESTIONS;
        println!(
            "{N_ROUTES} routes in {n_hosts} hosts: model and first question {first:?}, next questions {next:?}"
        );
    }
}
