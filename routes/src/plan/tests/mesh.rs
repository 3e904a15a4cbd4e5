//! Routes whose parents are Services.

use super::backends_support::{external, service, shown, to};
use super::support::{created, documents, gateway, grpc, http, in_groups, one, planned, route, web};
use crate::emit::{Emitted, all};
use crate::input::{Documents, Options};
use crate::memo::Planned;
use crate::model::{Document, RouteKind, Rule};
use xds_cache::{Node, Scalar};

fn services() -> Vec<Document> {
    vec![
        service("a/s", "http:80 grpc:90"),
        service("a/v1", "x:80"),
        service("b/v2", "x:80"),
        service("b/s", "x:80"),
    ]
}

fn with(more: impl IntoIterator<Item = Document>) -> Documents {
    documents(services().into_iter().chain(more))
}

/// The services of a group that a document asks for, with their routes: `namespace/name:port = route; route`.
fn of_group(planned: &Planned, group: &str) -> Vec<String> {
    let group = planned.groups.iter().find(|(name, _)| name.as_str() == group);
    let services = group.map(|(_, group)| group.plan.services.as_slice()).unwrap_or_default();
    let show = |service: &crate::plan::MeshService| {
        let routes = service.routes.iter().map(|route| format!("{} {}", route.id, shown(&route.action)));
        format!(
            "{}/{}:{} = {}",
            service.namespace,
            service.name,
            service.port,
            routes.collect::<Vec<_>>().join("; ")
        )
    };
    services.iter().filter(|service| !service.is_implicit).map(show).collect()
}

fn default_group(documents: &Documents) -> Vec<String> {
    of_group(&crate::memo::plan(documents, &Options::default()), "default")
}

#[test]
fn a_producers_route_is_for_everybody_on_every_port_or_on_one() {
    let to_v1 = || vec![to("a/v1:80")];
    let table = [
        ("Service=a/s", vec!["80", "90"]),
        ("Service=a/s:90", vec!["90"]),
        ("Service=a/s#http", vec!["80"]),
        ("Service=a/s:80 Service=a/s#http", vec!["80"]),
        ("Service=a/s:80 Service=a/s:90", vec!["80", "90"]),
    ];
    for (parents, ports) in table {
        let expected: Vec<String> =
            ports.iter().map(|port| format!("a/s:{port} = GRPCRoute/a/r/0/0 a/v1/80*1")).collect();
        assert_eq!(default_group(&with([grpc("a/r", parents, "", to_v1())])), expected, "{parents}");
    }
}

#[test]
fn a_parent_that_is_not_there_is_told() {
    for (parent, message) in [
        ("Service=a/none", "there is no Service a/none"),
        ("Service=a/s:81", "the Service a/s has no port 81"),
        ("Service=a/s#grpc:80", "the Service a/s has no port 80 named grpc"),
    ] {
        let found = planned(&with([grpc("a/r", parent, "", vec![to("a/v1:80")])]));
        let conditions = found.of_parent("GRPCRoute a/r", 0);
        assert_eq!(conditions, "Accepted=False/NoMatchingParent ResolvedRefs=True/ResolvedRefs", "{parent}");
        assert!(found.diagnostic("no-matching-parent").ends_with(message), "{parent}");
    }
}

#[test]
fn references_and_parents_have_conditions_of_their_own() {
    let found = planned(&with([grpc("a/r", "Service=a/s Service=a/none", "", vec![to("b/v2:80")])]));
    assert_eq!(
        found.of_parent("GRPCRoute a/r", 0),
        "Accepted=True/Accepted ResolvedRefs=False/RefNotPermitted"
    );
    assert_eq!(
        found.of_parent("GRPCRoute a/r", 1),
        "Accepted=False/NoMatchingParent ResolvedRefs=False/RefNotPermitted",
    );
    let told = found.diagnostics.iter().filter(|line| line.starts_with("ref-not-permitted")).count();
    assert_eq!(told, 1, "{:?}", found.diagnostics);
    let documents = with([external("a/out", "x:80", "example.com"), web("a/r", "Service=a/out", "", vec![])]);
    assert!(planned(&documents).diagnostic("external-name-parent").contains("Service a/out"));
}

/// Conformance: MeshConsumerRoute.
#[test]
fn a_consumers_route_needs_no_grant_for_its_own_parent() {
    let rules = || vec![to("a/s:80")];
    let found = planned(&with([grpc("b/consumer", "Service=a/s:80", "", rules())]));
    assert_eq!(
        found.of_parent("GRPCRoute b/consumer", 0),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
    );
    let of_consumer = of_group(
        &crate::memo::plan(&with([grpc("b/consumer", "Service=a/s:80", "", rules())]), &Options::default()),
        "namespace/b",
    );
    assert_eq!(of_consumer, ["a/s:80 = GRPCRoute/b/consumer/0/0 a/s/80*1"]);
    // Another Service of that namespace does.
    let found = planned(&with([grpc("b/consumer", "Service=a/s:80", "", vec![to("a/v1:80")])]));
    assert!(found.of_parent("GRPCRoute b/consumer", 0).ends_with("ResolvedRefs=False/RefNotPermitted"));
}

/// Conformance: MeshConsumerRoute.
#[test]
fn a_consumers_route_is_for_its_namespace_only() {
    let documents = with([
        grpc("a/producer", "Service=a/s:80", "", vec![to("a/v1:80")]),
        grpc("b/consumer", "Service=a/s:80", "", vec![to("b/v2:80")]),
    ]);
    let planned = crate::memo::plan(&documents, &Options::default());
    assert_eq!(of_group(&planned, "default"), ["a/s:80 = GRPCRoute/a/producer/0/0 a/v1/80*1"]);
    assert_eq!(of_group(&planned, "namespace/b"), ["a/s:80 = GRPCRoute/b/consumer/0/0 b/v2/80*1"]);
    let (_, group) = planned.groups.iter().find(|(name, _)| name.as_str() == "namespace/b").unwrap();
    let reached =
        group.plan.services.iter().filter(|service| !service.is_borrowed).flat_map(|one| &one.routes);
    assert_eq!(reached.map(|route| shown(&route.action)).collect::<Vec<_>>(), ["b/v2/80*1"]);
    let definition = group.definition.as_ref().unwrap();
    let node = |namespace: &str| {
        let mut node = Node::with_id("n");
        node.metadata.insert("NAMESPACE".to_owned(), Scalar::String(namespace.to_owned()));
        node
    };
    assert!(definition.selector.selects(&node("b")) && !definition.selector.selects(&node("a")));
    assert_eq!((definition.priority, definition.name.as_str()), (0, "namespace/b"));
    let (_, default) = planned.groups.iter().find(|(name, _)| name.is_default()).unwrap();
    assert_eq!(default.definition, None);
}

/// A group's listener of a port hides that of the default group: it must have all that its clients had before.
#[test]
fn a_consumer_of_one_service_keeps_the_others_of_its_port() {
    let shown = |services: Vec<&crate::plan::MeshService>| -> Vec<String> {
        let line = |one: &&crate::plan::MeshService| {
            let targets: Vec<String> = one.routes.iter().map(|route| route.id.to_string()).collect();
            let mark = if one.is_borrowed { " (borrowed)" } else { "" };
            format!("{}/{}:{} {}{mark}", one.namespace, one.name, one.port, targets.join("; "))
        };
        services.iter().map(line).collect()
    };
    let of = |documents: &Documents, group: &str| {
        let planned = crate::memo::plan(documents, &Options::default());
        let (_, group) = planned.groups.iter().find(|(name, _)| name.as_str() == group).unwrap();
        (shown(group.services_for_envoys().collect()), group.definition.is_some(), group.plan.clone())
    };
    let (found, is_defined, found_plan) = of(
        &with([
            grpc("a/producer", "Service=a/v1:80", "", vec![to("a/s:80")]),
            grpc("b/consumer", "Service=a/s:80", "", vec![to("b/v2:80")]),
            grpc("a/elsewhere", "Service=a/s:90", "", vec![to("a/v1:80")]),
        ]),
        "namespace/b",
    );
    let expected = [
        "a/s:80 GRPCRoute/b/consumer/0/0",
        "a/v1:80 GRPCRoute/a/producer/0/0 (borrowed)",
        "b/s:80 Service/b/s/0/0 (borrowed)",
        "b/v2:80 Service/b/v2/0/0 (borrowed)",
    ];
    assert_eq!(found, expected);
    assert!(is_defined && ["a/s/80", "b/s/80"].iter().all(|name| found_plan.clusters.contains_key(*name)));
    let list = services().into_iter().map(|one| ("default", one));
    let route = grpc("a/r", "Service=a/s:80", "", vec![to("a/v1:80")]);
    let (found, is_defined, _) = of(&in_groups(list.chain([("edge", route)])), "edge");
    let expected = [
        "a/s:80 GRPCRoute/a/r/0/0",
        "a/v1:80 Service/a/v1/0/0 (borrowed)",
        "b/s:80 Service/b/s/0/0 (borrowed)",
        "b/v2:80 Service/b/v2/0/0 (borrowed)",
    ];
    assert_eq!((found, is_defined), (expected.map(str::to_owned).to_vec(), false));
}

/// gRPC clients dial each Service by itself; what the default group serves them is not served twice.
#[test]
fn only_the_lowest_port_of_a_service_is_dialled_without_its_number() {
    let documents = with([grpc("b/consumer", "Service=a/s:90", "", vec![to("b/v2:80")])]);
    let planned = crate::memo::plan(&documents, &Options::default());
    let (_, group) = planned.groups.iter().find(|(name, _)| name.as_str() == "namespace/b").unwrap();
    let emitted = all(|emit| _ = crate::emit::grpc::grpc(&group.plan, &Options::default(), emit));
    let messages = emitted.iter().flat_map(Emitted::messages);
    let names: Vec<String> = messages.map(|message| message["name"].to_string()).collect();
    let has = |name: &str| names.contains(&format!("\"{name}\""));
    assert!(has("s.a:90") && !has("s.a") && !has("s.b:80"), "{names:?}");
}

#[test]
fn a_producers_route_is_for_the_group_of_its_directory() {
    let list = services().into_iter().map(|one| ("default", one));
    let route = grpc("a/r", "Service=a/s:80", "", vec![to("a/v1:80")]);
    let planned = crate::memo::plan(&in_groups(list.chain([("edge", route)])), &Options::default());
    assert!(of_group(&planned, "default").is_empty());
    assert_eq!(of_group(&planned, "edge").len(), 1);
}

/// GRPCRoute before HTTPRoute; who loses every port is told `RouteReasonConflicted`.
#[test]
fn of_several_kinds_on_a_port_the_first_holds_alone() {
    let list = || {
        [
            web("a/old", "Service=a/s", "", vec![to("a/v1:80")]),
            route(RouteKind::Native, "a/native", "Service=a/s:80", "", vec![Rule { ..to("a/s:80") }]),
            grpc("a/new", "Service=a/s:80", "", vec![to("a/v1:80")]),
        ]
    };
    let documents = with(list().map(|one| if &*one.key.name == "old" { created(1, one) } else { one }));
    let expected = ["a/s:80 = GRPCRoute/a/new/0/0 a/v1/80*1", "a/s:90 = HTTPRoute/a/old/0/0 a/v1/80*1"];
    assert_eq!(default_group(&documents), expected);
    let found = planned(&documents);
    assert_eq!(
        found.of_parent("HTTPRoute a/old", 0),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
    );
    assert_eq!(
        found.of_parent("Route a/native", 0),
        "Accepted=False/RouteReasonConflicted ResolvedRefs=True/ResolvedRefs"
    );
    assert!(
        found
            .diagnostic("mesh-conflict")
            .contains("GRPCRoute a/new already has the port 80 of the Service a/s")
    );
    let options = Options { merges_route_kinds: true, ..Options::default() };
    let merged = of_group(&crate::memo::plan(&documents, &options), "default");
    let expected =
        "a/s:80 = GRPCRoute/a/new/0/0 a/v1/80*1; HTTPRoute/a/old/0/0 a/v1/80*1; Route/a/native/0/0 a/s/80*1";
    assert_eq!(merged[0], expected);
}

#[test]
fn routes_of_a_kind_are_merged_by_precedence() {
    let matching = |text: &str| Rule { matches: vec![one(text)], ..to("a/v1:80") };
    let documents = with([
        grpc("a/r1", "Service=a/s:80", "", vec![matching("*"), matching("rpc:a.B/")]),
        grpc("a/r2", "Service=a/s:80", "", vec![matching("rpc:a.B/C"), matching("*")]),
    ]);
    let found = default_group(&documents);
    let order: Vec<&str> = found[0].split([' ', ';']).filter(|word| word.starts_with("GRPCRoute")).collect();
    let expected = ["GRPCRoute/a/r2/0/0", "GRPCRoute/a/r1/1/0", "GRPCRoute/a/r1/0/0", "GRPCRoute/a/r2/1/0"];
    assert_eq!(order, expected);
}

#[test]
fn a_route_without_rules_leaves_nothing_to_call() {
    assert_eq!(default_group(&with([grpc("a/r", "Service=a/s:80", "", vec![])])), ["a/s:80 = "]);
}

#[test]
fn the_short_name_is_for_services_that_are_alone_with_it() {
    let hosts = |documents: &Documents| -> Vec<String> {
        let planned = crate::memo::plan(documents, &Options::default());
        let services = planned.groups.values().flat_map(|group| group.plan.services.clone());
        services.filter(|service| !service.is_implicit).map(|service| service.hosts[0].clone()).collect()
    };
    let a = || grpc("a/r", "Service=a/s:80 Service=a/s:90", "", vec![]);
    assert_eq!(hosts(&with([a()])), ["s", "s"]);
    assert_eq!(hosts(&with([a(), grpc("b/r", "Service=b/s", "", vec![])])), ["s.a", "s.a", "s.b"]);
    // The names that another namespace's clients call are not theirs to change.
    let consumer = grpc("c/r", "Service=a/s:80", "", vec![]);
    assert_eq!(hosts(&with([consumer.clone(), grpc("b/r", "Service=b/s", "", vec![])])), ["s", "s.a", "s"]);
    let both = [a(), grpc("b/r", "Service=b/s", "", vec![]), consumer];
    assert!(hosts(&with(both)).iter().all(|host| host != "s"));
}

#[test]
fn a_service_without_routes_is_for_grpc_clients_only_unless_its_port_is_asked_for() {
    let planned = |documents: &Documents| {
        let mut planned = crate::memo::plan(documents, &Options::default());
        planned.groups.remove(&xds_cache::GroupName::default_group()).unwrap()
    };
    let names = |services: Vec<&crate::plan::MeshService>| -> Vec<String> {
        services.iter().map(|one| format!("{}/{}:{}", one.namespace, one.name, one.port)).collect()
    };
    let all = ["a/s:80", "a/s:90", "a/v1:80", "b/s:80", "b/v2:80"];
    let plain = planned(&with([]));
    assert_eq!(names(plain.plan.services.iter().collect()), all);
    assert!(plain.plan.services.iter().all(|service| service.is_implicit));
    assert_eq!(plain.services_for_envoys().count(), 0);
    assert!(plain.plan.clusters.values().all(|cluster| cluster.protocols.is_empty()));
    let asked = planned(&with([grpc("a/r", "Service=a/s:90", "", vec![to("a/v1:80")])]));
    assert_eq!(names(asked.services_for_envoys().collect()), ["a/s:90"]);
    let shared = planned(&with([grpc("a/r", "Service=a/s:80", "", vec![to("a/v1:80")])]));
    assert_eq!(names(shared.services_for_envoys().collect()), ["a/s:80", "a/v1:80", "b/s:80", "b/v2:80"]);
    assert!(
        shared.plan.clusters["a/s/90"].protocols.is_empty()
            && !shared.plan.clusters["b/s/80"].protocols.is_empty()
    );
}

#[test]
fn a_gateway_takes_a_port_from_the_envoys_of_the_mesh_and_that_is_told() {
    let documents = with([
        gateway("a/gw", vec![http("http", 80, ""), http("other", 81, "")]),
        grpc("a/r", "Service=a/s", "", vec![to("a/v1:80")]),
    ]);
    let outcome = planned(&documents);
    let told: Vec<_> = outcome.diagnostics.iter().filter(|it| it.starts_with("mesh-port-taken")).collect();
    let expected = "mesh-port-taken: Envoys do not listen on port 80 for the Service a/s, because Gateway a/gw of the same node \
                    group has the port; gRPC clients are served";
    assert_eq!(told, [expected]);
}
