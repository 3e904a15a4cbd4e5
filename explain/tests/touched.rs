//! What a change touches: no request outside of it is treated in another way.

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use prost::Message as _;
use xds_cache::layer::{LayerGroup, Resources, merge};
use xds_cache::{GroupName, Layer, Profile, Publisher, Resource, ResourceType, Revision, View, ViewKey};
use xds_explain::{Client, Explanation, Language, Located, Model, Request, Touched};

use crate::random::{self, Random, Tables};

const N_PAIRS: usize = 300;
const N_REQUESTS: usize = 40;

fn view(resources: Vec<Arc<Resource>>) -> Arc<View> {
    let default = GroupName::default_group();
    let resources: Resources = resources.into_iter().collect();
    let group = LayerGroup { resources, ..LayerGroup::default() };
    let layer = Layer { groups: [(default.clone(), group)].into_iter().collect() };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), merge(&layer, &Layer::default(), &Default::default()));
    let key = ViewKey { groups: vec![default].into(), profile: Profile::Envoy, cohort: 0 };
    publisher.view_at(&key).unwrap()
}

/// What happens to a request, without the numbers of virtual hosts and routes.
fn outcomes(mut explained: Vec<Explanation>) -> Vec<Explanation> {
    for one in &mut explained {
        one.locate(&mut |_| None);
        one.routes.clear();
        one.route_config = None;
        if let Some(host) = &mut one.virtual_host {
            host.element.part.path.clear();
            host.passed_over.clear();
        }
        one.notes.clear();
    }
    explained
}

#[test]
fn no_request_outside_is_treated_in_another_way() {
    let mut random = Random::from_env();
    let client = Client::newest(Language::Envoy);
    let (mut n_outside, mut n_moved) = (0, 0);
    for _ in 0..N_PAIRS {
        let tables = Tables::with_trees(&mut random, client);
        let [before, after] =
            [&tables.before, &tables.after].map(|table| view(tables.resources(table, client)));
        let touched = Touched::between(&before, &after);
        let models = [&before, &after].map(|view| Model::of_view(view, client));
        for _ in 0..N_REQUESTS {
            let request = random::request(&mut random, client);
            let [old, new] = [&models[0], &models[1]].map(|model| outcomes(model.explain(&request)));
            n_moved += usize::from(old != new);
            if !touched.takes(&request) {
                n_outside += 1;
                assert_eq!(old, new, "{request:?}\n{tables}");
            }
        }
    }
    println!("{n_outside} requests outside, {n_moved} that moved");
    assert!(n_outside > N_PAIRS && n_moved > N_PAIRS, "{n_outside} outside, {n_moved} moved");
}

#[test]
fn endpoints_do_not_count_and_clusters_do_if_they_come_or_go() {
    let cluster =
        |name: &str, text: &str| Arc::new(Resource::plain(ResourceType::Cluster, name, text.to_owned()));
    let table = RouteConfiguration { name: "r".to_owned(), ..Default::default() };
    let routes =
        |name: &str| Arc::new(Resource::plain(ResourceType::RouteConfiguration, name, table.encode_to_vec()));
    let endpoints =
        |text: &str| Arc::new(Resource::plain(ResourceType::ClusterLoadAssignment, "c", text.to_owned()));
    let base = || vec![cluster("c", "1"), routes("r"), endpoints("1")];
    let is_nothing = |after: Vec<Arc<Resource>>| Touched::between(&view(base()), &view(after)).is_nothing();
    assert!(is_nothing(base()));
    assert!(is_nothing(vec![cluster("c", "2"), routes("r"), endpoints("2")]));
    assert!(is_nothing([base(), vec![cluster("d", "1")]].concat()), "nothing refers to it");
    assert!(!is_nothing(vec![routes("r"), endpoints("1")]));
    assert!(!is_nothing([base(), vec![routes("other")]].concat()));
    assert!(Touched::between(&view(base()), &view(vec![])).takes(&Request::get("a", "/")));
}
