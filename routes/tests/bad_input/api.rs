//! Refusals that the Gateway API has words for, and too much of everything.

use super::{backend, check, filters, method, n_times, route};

#[test]
fn filters_whose_content_is_not_that_of_their_type() {
    check(&[
        (
            "header modifier without content",
            filters("{type: RequestHeaderModifier}"),
            &["bad.yaml:26:22: error[missing-field] spec.rules[0].filters[0]: \
                 filter.requestHeaderModifier must be specified for RequestHeaderModifier filter.type"],
        ),
        (
            "response modifier without content",
            filters("{type: ResponseHeaderModifier}"),
            &["bad.yaml:26:22: error[missing-field] spec.rules[0].filters[0]: \
                 filter.responseHeaderModifier must be specified for ResponseHeaderModifier filter.type"],
        ),
        (
            "mirror without content",
            filters("{type: RequestMirror}"),
            &["bad.yaml:26:22: error[missing-field] spec.rules[0].filters[0]: filter.requestMirror \
                 must be specified for RequestMirror filter.type"],
        ),
        (
            "extension without content",
            filters("{type: ExtensionRef}"),
            &["bad.yaml:26:22: error[missing-field] spec.rules[0].filters[0]: filter.extensionRef must \
                 be specified for ExtensionRef filter.type"],
        ),
        (
            "header modifier of another type",
            filters(
                "{type: RequestMirror, requestHeaderModifier: {}, requestMirror: {backendRef: {name: \
                 bad, port: 80}}}",
            ),
            &["bad.yaml:26:67: error[misplaced-field] spec.rules[0].filters[0].requestHeaderModifier: \
                 filter.requestHeaderModifier must be nil if the filter.type is not RequestHeaderModifier"],
        ),
        (
            "response modifier of another type",
            filters("{type: RequestHeaderModifier, requestHeaderModifier: {}, responseHeaderModifier: {}}"),
            &["bad.yaml:26:103: error[misplaced-field] \
                 spec.rules[0].filters[0].responseHeaderModifier: filter.responseHeaderModifier must be \
                 nil if the filter.type is not ResponseHeaderModifier"],
        ),
        (
            "mirror of another type",
            filters(
                "{type: RequestHeaderModifier, requestHeaderModifier: {}, requestMirror: {backendRef: \
                 {name: bad, port: 80}}}",
            ),
            &["bad.yaml:26:94: error[misplaced-field] spec.rules[0].filters[0].requestMirror: \
                 filter.requestMirror must be nil if the filter.type is not RequestMirror"],
        ),
        (
            "extension of another type",
            filters(
                "{type: RequestHeaderModifier, requestHeaderModifier: {}, extensionRef: {group: g.io, \
                 kind: K, name: n}}",
            ),
            &["bad.yaml:26:93: error[misplaced-field] spec.rules[0].filters[0].extensionRef: \
                 filter.extensionRef must be nil if the filter.type is not ExtensionRef"],
        ),
    ]);
}

#[test]
fn filters_that_contradict_themselves_or_are_unknown() {
    check(&[
        (
            "header modifier twice",
            filters(&n_times(2, "{type: RequestHeaderModifier, requestHeaderModifier: {}}")),
            &["bad.yaml:26:80: error[repeated-filter] spec.rules[0].filters[1]: RequestHeaderModifier \
                 filter cannot be repeated"],
        ),
        (
            "response modifier twice",
            filters(&n_times(2, "{type: ResponseHeaderModifier, responseHeaderModifier: {}}")),
            &["bad.yaml:26:82: error[repeated-filter] spec.rules[0].filters[1]: ResponseHeaderModifier \
                 filter cannot be repeated"],
        ),
        (
            "percent and fraction",
            filters(
                "{type: RequestMirror, requestMirror: {backendRef: {name: bad, port: 80}, percent: 1, \
                 fraction: {numerator: 1}}}",
            ),
            &["bad.yaml:26:59: error[misplaced-field] spec.rules[0].filters[0].requestMirror: Only one \
                 of percent or fraction may be specified in HTTPRequestMirrorFilter"],
        ),
        (
            "more than all",
            filters(
                "{type: RequestMirror, requestMirror: {backendRef: {name: bad, port: 80}, fraction: \
                 {numerator: 101}}}",
            ),
            &["bad.yaml:26:105: error[out-of-range] spec.rules[0].filters[0].requestMirror.fraction: \
                 numerator must be less than or equal to denominator"],
        ),
        (
            "unknown filter",
            filters("{type: URLRewrite}"),
            &[
                "bad.yaml:26:29: error[unknown-value] spec.rules[0].filters[0].type: \"URLRewrite\" is not one of RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, ExtensionRef",
            ],
        ),
        (
            "unknown extension",
            filters("{type: ExtensionRef, extensionRef: {group: g.io, kind: K, name: n}}"),
            &[
                "bad.yaml:26:22: warning[invalid-kind] spec.rules[0].filters[0]: the filter g.io/K is unknown, so requests for n fail",
            ],
        ),
    ]);
}

#[test]
fn methods_and_parents_that_the_api_refuses() {
    let parents = |parents: &str| {
        route("GRPCRoute", "[]").replace("parentRefs: [{name: bad}]", &format!("parentRefs: [{parents}]"))
    };
    check(&[
        (
            "neither service nor method",
            method("{type: Exact}"),
            &["bad.yaml:26:31: error[empty-method] spec.rules[0].matches[0].method: One or both of \
                 'service' or 'method' must be specified"],
        ),
        (
            "characters of a service",
            method("{service: foo/Bar}"),
            &["bad.yaml:26:41: error[bad-method] spec.rules[0].matches[0].method.service: service must \
                 only contain valid characters (matching \
                 ^(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*$)"],
        ),
        (
            "characters of a method",
            method("{method: 'Get.*'}"),
            &["bad.yaml:26:40: error[bad-method] spec.rules[0].matches[0].method.method: method must \
                 only contain valid characters (matching ^[A-Za-z_][A-Za-z_0-9]*$)"],
        ),
        (
            "two parents without section",
            parents("{name: bad}, {name: bad, sectionName: http}"),
            &["bad.yaml:25:29: error[duplicate-parent] spec.parentRefs[1]: sectionName must be \
                 specified when parentRefs includes 2 or more references to the same parent"],
        ),
        (
            "two parents of a section",
            parents("{name: bad, sectionName: http}, {name: bad, sectionName: http}"),
            &["bad.yaml:25:48: error[duplicate-parent] spec.parentRefs[1]: sectionName must be unique \
                 when parentRefs includes 2 or more references to the same parent"],
        ),
        (
            "two rules of a name",
            route("GRPCRoute", "[{name: one}, {name: one}]"),
            &["bad.yaml:26:24: error[duplicate-rule] spec.rules[1]: Rule name must be unique within \
                 the route: \"one\""],
        ),
    ]);
}

#[test]
fn too_much_of_everything() {
    check(&[
        (
            "17 rules",
            route("GRPCRoute", &format!("[{}]", n_times(17, "{}"))),
            &["bad.yaml:26:10: error[too-many-items] spec.rules: there are 17 items, at most 16 are allowed"],
        ),
        (
            "17 rules of HTTP",
            route("HTTPRoute", &format!("[{}]", n_times(17, "{}"))),
            &["bad.yaml:26:10: error[too-many-items] spec.rules: there are 17 items, at most 16 are allowed"],
        ),
        (
            "129 matches",
            route(
                "GRPCRoute",
                &format!("[{{matches: [{0}]}}, {{matches: [{0}]}}, {{matches: [{{}}]}}]", n_times(64, "{}")),
            ),
            &["bad.yaml:26:10: error[too-many-matches] spec.rules: While 16 rules and 64 matches per \
                 rule are allowed, the total number of matches across all rules in a route must be less \
                 than 128"],
        ),
        (
            "65 matches of a rule",
            route("GRPCRoute", &format!("[{{matches: [{}]}}]", n_times(65, "{}"))),
            &["bad.yaml:26:21: error[too-many-items] spec.rules[0].matches: there are 65 items, at \
                 most 64 are allowed"],
        ),
        (
            "17 backends",
            backend(&n_times(17, "{name: bad, port: 80}")),
            &["bad.yaml:26:25: error[too-many-items] spec.rules[0].backendRefs: there are 17 items, at \
                 most 16 are allowed"],
        ),
    ]);
}
