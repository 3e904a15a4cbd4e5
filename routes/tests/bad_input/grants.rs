//! A grant that is deleted.

use xds_cache::Profile;
use xds_routes::Translation;

use crate::support::resources_text;

use super::{route, said};

/// A grant that goes takes the requests that it allowed, and nothing else.
#[test]
fn a_grant_that_is_deleted_while_in_use() {
    let using = route("GRPCRoute", "[{backendRefs: [{name: far, namespace: far, port: 80}]}]");
    let far = "---\napiVersion: v1\nkind: Service\nmetadata: {name: far, namespace: far}\nspec: {ports: [{port: 80}]}\n---\n\
               apiVersion: v1\nkind: Endpoints\nmetadata: {name: far, namespace: far}\n\
               subsets: [{addresses: [{ip: 10.0.0.3}], ports: [{port: 80}]}]\n";
    let grant = "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: far}\n\
                 spec:\n  from: [{group: gateway.networking.k8s.io, kind: GRPCRoute, namespace: default}]\n  \
                 to: [{group: '', kind: Service}]\n";
    let (granted, before) = said("granted", &format!("{using}{far}{grant}"));
    let (revoked, after) = said("revoked", &format!("{using}{far}"));
    assert_eq!(granted, Vec::<String>::new());
    let expected = "bad.yaml:26:26: warning[ref-not-permitted] spec.rules[0].backendRefs[0]: the namespace far has no \
                    ReferenceGrant that lets a GRPCRoute of default refer to the Service far";
    assert_eq!(revoked, [expected]);
    let reached = |translation: &Translation, profile, table: &str| {
        let text = resources_text(translation, profile);
        let found = text
            .split("---\n")
            .find(|one| one.contains(&format!("RouteConfiguration\nname: {table}\n")))
            .map(str::to_owned);
        found.unwrap_or_else(|| panic!("{text}"))
    };
    for (profile, table, failing) in [
        (Profile::Envoy, "default/bad/8081", "status: 503"),
        (Profile::Grpc, "grpc/default/bad/8081/*", "cluster: xds-server/unavailable"),
    ] {
        let (before, after) = (reached(&before, profile, table), reached(&after, profile, table));
        assert!(before.contains("cluster: far/far/80"), "{before}");
        assert!(!after.contains("far/far/80") && after.contains(failing), "{after}");
    }
}
