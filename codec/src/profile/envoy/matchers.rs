//! Trees of matchers that choose routes and filter chains (rows D114 and D121).

use super::super::Effect::Crashes;
use super::super::any::type_of;
use super::super::rule::{Fault, Scope};
use super::shared::{is_true, refuse};
use crate::message::{Message, child, entries, list};
use crate::path::Path;

/// What a tree may not have.
#[derive(Clone, Copy)]
pub(super) enum Chooses {
    Route,
    FilterChain,
}

impl Chooses {
    /// Checks a matcher and those in it. Messages in an `Any` are not followed.
    pub(super) fn check(self, matcher: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        if let Some(of_list) = child(matcher, "matcher_list") {
            let path = path.field("matcher_list");
            let path = path.field("matchers");
            for (index, branch) in list(&of_list, "matchers").iter().enumerate() {
                let path = path.index(index);
                if let Some(predicate) = child(branch, "predicate") {
                    self.predicate(&predicate, &path.field("predicate"), scope);
                }
                self.then(branch, "on_match", &path, scope);
            }
        }
        if let Some(tree) = child(matcher, "matcher_tree") {
            let path = path.field("matcher_tree");
            self.input(&tree, &path, scope);
            for kind in ["exact_match_map", "prefix_match_map"] {
                let Some(map) = child(&tree, kind) else { continue };
                let path = path.field(kind);
                let path = path.field("map");
                for (key, then) in entries(&map, "map") {
                    self.on_match(&then, &path.key(&key), scope);
                }
            }
        }
        self.then(matcher, "on_no_match", path, scope);
    }

    fn then(self, message: &Message, field: &str, path: &Path<'_>, scope: &mut Scope<'_>) {
        if let Some(then) = child(message, field) {
            self.on_match(&then, &path.field(field), scope);
        }
    }

    fn on_match(self, then: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        if is_true(then, "keep_matching") {
            match self {
                Self::Route => {
                    let text = "Envoy rejects `keep_matching` in the tree of a virtual host";
                    refuse(ROUTE, path, "keep_matching", text, scope);
                }
                Self::FilterChain => {
                    let text = "Envoy 1.40 crashes at a connection that comes to `keep_matching` in `filter_chain_matcher`";
                    scope.report(Fault::new(CHAIN.0, Crashes, CHAIN.1), path, "keep_matching", text);
                }
            }
        }
        if let Some(matcher) = child(then, "matcher") {
            self.check(&matcher, &path.field("matcher"), scope);
        }
    }

    fn predicate(self, predicate: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        if let Some(single) = child(predicate, "single_predicate") {
            self.input(&single, &path.field("single_predicate"), scope);
        }
        for kind in ["or_matcher", "and_matcher"] {
            let Some(all) = child(predicate, kind) else { continue };
            let path = path.field(kind);
            let path = path.field("predicate");
            for (index, one) in list(&all, "predicate").iter().enumerate() {
                self.predicate(one, &path.index(index), scope);
            }
        }
        if let Some(one) = child(predicate, "not_matcher") {
            self.predicate(&one, &path.field("not_matcher"), scope);
        }
    }

    /// Inputs that this program does not know are left to Envoy.
    fn input(self, message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        let Some(any) = child(message, "input").and_then(|input| child(&input, "typed_config")) else {
            return;
        };
        let name = type_of(scope.inner, &any);
        match self {
            Self::Route => {
                let is_allowed = ALLOWED_FOR_ROUTES.contains(&&*name);
                if !is_allowed && REFUSED_FOR_ROUTES.iter().any(|of| name.starts_with(of)) {
                    let text = format!(
                        "Envoy rejects a tree that chooses a route by {name}; it allows headers of the request and filter state"
                    );
                    refuse(ROUTE, path, "input", text, scope);
                }
            }
            Self::FilterChain => {
                if name.starts_with(OF_REQUESTS) || name == DYNAMIC_METADATA {
                    let text = format!(
                        "Envoy rejects a tree that chooses a filter chain by {name}, which connections do not have"
                    );
                    refuse(CHAIN, path, "input", text, scope);
                }
            }
        }
    }
}

const ROUTE: (&str, &str) = ("D121", "envoy-route-action");
const CHAIN: (&str, &str) = ("D114", "envoy-filter-chains");

const OF_REQUESTS: &str = "envoy.type.matcher.v3.Http";
const DYNAMIC_METADATA: &str = "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput";

const ALLOWED_FOR_ROUTES: [&str; 2] = [
    "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
    "envoy.extensions.matching.common_inputs.network.v3.FilterStateInput",
];

const REFUSED_FOR_ROUTES: [&str; 4] = [
    OF_REQUESTS,
    "xds.type.matcher.v3.HttpAttributesCelMatchInput",
    "envoy.extensions.matching.common_inputs.network.v3.",
    "envoy.extensions.matching.common_inputs.ssl.v3.",
];
