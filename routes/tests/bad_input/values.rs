//! Expressions, weights, ports and names that are none.

use super::{AROUND, backend, check, filters, method, route};

#[test]
fn expressions_that_re2_refuses() {
    let service = |regex: &str| method(&format!("{{type: RegularExpression, service: '{regex}'}}"));
    let header = |regex: &str| {
        route(
            "GRPCRoute",
            &format!(
                "[{{matches: [{{headers: [{{type: RegularExpression, name: x, value: '{regex}'}}]}}]}}]"
            ),
        )
    };
    check(&[
        (
            "look-ahead",
            service("a(?=b)"),
            &["bad.yaml:26:66: error[bad-regex] spec.rules[0].matches[0].method.service: \"a(?=b)\" is \
                 not valid RE2: column 2: RE2 has no look-ahead: `(?=`; list what may be there, or use two routes"],
        ),
        (
            "negative look-behind",
            service("(?<!a)b"),
            &["bad.yaml:26:66: error[bad-regex] spec.rules[0].matches[0].method.service: \"(?<!a)b\" \
                 is not valid RE2: column 1: RE2 has no look-behind: `(?<!`; list what may be there, or use two routes"],
        ),
        (
            "back-reference",
            header(r"(a)\1"),
            &["bad.yaml:26:75: error[bad-regex] spec.rules[0].matches[0].headers[0].value: \
                 \"(a)\\\\1\" is not valid RE2: column 4: RE2 has no references to groups: `\\1`; repeat the expression"],
        ),
        (
            "open class",
            header("[a"),
            &["bad.yaml:26:75: error[bad-regex] spec.rules[0].matches[0].headers[0].value: \"[a\" is \
                 not valid RE2: column 1: `[` is never closed; add `]`, or write `\\[` for the character"],
        ),
    ]);
}

#[test]
fn expressions_of_paths_and_of_smi_that_re2_refuses() {
    let path = |regex: &str| {
        route(
            "HTTPRoute",
            &format!("[{{matches: [{{path: {{type: RegularExpression, value: '{regex}'}}}}]}}]"),
        )
    };
    let group = |body: &str| {
        format!(
            "apiVersion: specs.smi-spec.io/v1alpha4\nkind: HTTPRouteGroup\nmetadata: {{name: \
             g}}\nspec:\n  matches:\n  - {body}\n"
        )
    };
    check(&[
        (
            "open group",
            path("/a(b"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"/a(b\" is not \
                 valid RE2: column 3: `(` is never closed; add `)`, or write `\\(` for the character"],
        ),
        (
            "nothing to repeat",
            path("*"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"*\" is not \
                 valid RE2: column 1: `*` repeats nothing; something to repeat before it, or `\\` for the character"],
        ),
        (
            "too many repetitions",
            path("/a{1001}"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"/a{1001}\" is \
                 not valid RE2: column 3: `{1001}` repeats more than 1000 times, or backwards; at most {1000}"],
        ),
        (
            "possessive",
            path("/a++"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"/a++\" is not \
                 valid RE2: column 3: RE2 has no repetition of a repetition: `++`; one repetition, or `(?:…)` around the first"],
        ),
        (
            "atomic group",
            path("/(?>a)"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"/(?>a)\" is not \
                 valid RE2: column 2: RE2 does not know `(?>`; `(?:…)`, or a flag of `i`, `m`, `s`, `U`"],
        ),
        (
            "unknown escape",
            path(r"/\y"),
            &["bad.yaml:26:62: error[bad-regex] spec.rules[0].matches[0].path.value: \"/\\\\y\" is not \
                 valid RE2: column 2: RE2 does not know the escape `\\y`; `\\\\` for a backslash"],
        ),
        (
            "path of SMI",
            group("{name: m, pathRegex: '(?!x)'}"),
            &["bad.yaml:6:26: error[bad-regex] spec.matches[0].pathRegex: \"(?!x)\" is not valid RE2: \
                 column 1: RE2 has no look-ahead: `(?!`; list what may be there, or use two routes"],
        ),
        (
            "header of SMI",
            group("{name: m, headers: {x: '(a'}}"),
            &["bad.yaml:6:25: error[bad-regex] spec.matches[0].headers[\"x\"]: \"(a\" is not valid \
                 RE2: column 1: `(` is never closed; add `)`, or write `\\(` for the character"],
        ),
    ]);
}

#[test]
fn weights_of_routes_that_are_none() {
    check(&[
        (
            "negative",
            backend("{name: bad, port: 80, weight: -1}"),
            &["bad.yaml:26:56: error[out-of-range] spec.rules[0].backendRefs[0].weight: expected a \
                 whole number from 0 to 1000000, found -1"],
        ),
        (
            "fractional",
            backend("{name: bad, port: 80, weight: 0.5}"),
            &["bad.yaml:26:56: error[out-of-range] spec.rules[0].backendRefs[0].weight: expected a \
                 whole number from 0 to 1000000, found 0.5"],
        ),
        (
            "too large",
            backend("{name: bad, port: 80, weight: 1000001}"),
            &["bad.yaml:26:56: error[out-of-range] spec.rules[0].backendRefs[0].weight: expected a \
                 whole number from 0 to 1000000, found 1000001"],
        ),
        (
            "text",
            backend("{name: bad, port: 80, weight: '1'}"),
            &["bad.yaml:26:56: error[wrong-type] spec.rules[0].backendRefs[0].weight: expected a whole \
                 number, found \"1\""],
        ),
        (
            "all zero",
            backend("{name: bad, port: 80, weight: 0}"),
            &["bad.yaml:26:25: warning[no-weight] spec.rules[0].backendRefs: all weights are 0, so \
                 every request of the rule fails"],
        ),
    ]);
}

#[test]
fn weights_of_splits_that_are_none() {
    let split = |weight: &str| {
        format!(
            "{AROUND}apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {{name: bad}}\nspec:\n  \
             service: bad\n  backends:\n  - service: bad\n    weight: {weight}\n"
        )
    };
    check(&[
        (
            "negative in a split",
            split("-1"),
            &["bad.yaml:28:13: error[out-of-range] spec.backends[0].weight: expected a whole number \
                 from 0 to 4294967295, found -1"],
        ),
        (
            "fractional in a split",
            split("0.5"),
            &["bad.yaml:28:13: error[out-of-range] spec.backends[0].weight: expected a whole number \
                 from 0 to 4294967295, found 0.5"],
        ),
        (
            "too large in a split",
            split("4294967296"),
            &["bad.yaml:28:13: error[out-of-range] spec.backends[0].weight: expected a whole number \
                 from 0 to 4294967295, found 4294967296"],
        ),
        (
            "text in a split",
            split("10%"),
            &[
                "bad.yaml:28:13: error[bad-weight] spec.backends[0].weight: \"10%\" is not a weight; a weight is a whole number from 0 to 4294967295",
            ],
        ),
        (
            "all zero in a split",
            split("0"),
            &[
                "bad.yaml:25:12: warning[no-eligible-backends] spec.service: no backend with a weight has \
                 a port of the root, so requests go to the root itself, Service default/bad",
                "bad.yaml:27:5: warning[self-referential-split] spec.backends[0]: the backend bad is the \
                 root itself, so this share goes to all of its endpoints, of any version",
            ],
        ),
    ]);
}

#[test]
fn weights_of_the_native_form_that_are_none() {
    let native = |to: &str| {
        format!(
            "version: xds-server/v1\nlisteners: {{bad: {{port: 8082}}}}\nroutes:\n  bad:\n    hosts: \
             [bad.example.com]\n    to: {to}\nbackends:\n  a: 10.0.0.1:80\n"
        )
    };
    check(&[
        (
            "negative in the native form",
            native("{a: -1}"),
            &["bad.yaml:6:10: error[out-of-range] routes[\"bad\"].to[\"a\"]: expected a whole number \
                 from 0 to 1000000, found -1"],
        ),
        (
            "fractional in the native form",
            native("{a: 0.5}"),
            &["bad.yaml:6:10: error[out-of-range] routes[\"bad\"].to[\"a\"]: expected a whole number \
                 from 0 to 1000000, found 0.5"],
        ),
        (
            "too large in the native form",
            native("{a: 1000001}"),
            &["bad.yaml:6:10: error[out-of-range] routes[\"bad\"].to[\"a\"]: expected a whole number \
                 from 0 to 1000000, found 1000001"],
        ),
        (
            "all zero in the native form",
            native("{a: 0}"),
            &["bad.yaml:6:9: warning[no-weight] routes[\"bad\"].to: all weights are 0, so every \
                 request of the rule fails"],
        ),
    ]);
}

#[test]
fn times_of_draining_that_are_none() {
    let service = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s, annotations: {{{annotations}}}}}\nspec: {{ports: [{{port: 80}}]}}\n"
        )
    };
    check(&[(
        "no duration",
        service("xds-server.io/drain-cluster: soon"),
        &[
            "bad.yaml:3:35: error[bad-duration] metadata.annotations[\"xds-server.io/drain-cluster\"]: \"soon\" is not a duration: write 500ms, 30s, 5m or 2h, at most 168h",
        ],
    )]);
}

#[test]
fn ports_that_are_missing_or_none() {
    check(&[
        ("of a backend", backend("{name: bad}"), &["bad.yaml:26:26: error[missing-port] spec.rules[0].backendRefs[0]: Must have port for Service reference"]),
        ("of a mirror", filters("{type: RequestMirror, requestMirror: {backendRef: {name: bad}}}"), &["bad.yaml:26:72: error[missing-port] spec.rules[0].filters[0].requestMirror.backendRef: Must have port for Service reference"]),
        ("that the Service does not have", backend("{name: bad, port: 81}"), &["bad.yaml:26:26: warning[backend-not-found] spec.rules[0].backendRefs[0]: the Service default/bad has no port 81; it has 80"]),
        ("of a Service", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports:\n  - name: http\n".to_owned(), &["bad.yaml:6:5: error[missing-field] spec.ports[0]: the field `port` is missing"]),
        (
            "of a listener",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  \
             gatewayClassName: xds-server\n  listeners:\n  - {name: http, protocol: HTTP}\n"
                .to_owned(),
            &["bad.yaml:7:5: error[missing-field] spec.listeners[0]: the field `port` is missing"],
        ),
        (
            "of an endpoint",
            "version: xds-server/v1\nlisteners: {bad: {port: 8082}}\nroutes:\n  bad: {hosts: [bad.example.com], to: a}\nbackends:\n  a: 10.0.0.1\n".to_owned(),
            &["bad.yaml:6:3: error[bad-address] backends[\"a\"]: \"10.0.0.1\" has no port; write it as in \
               `10.0.0.4:50051`, `[2001:db8::1]:50051` or `greeter.internal:50051`", "bad.yaml:4:39: \
               warning[backend-not-found] routes[\"bad\"].to: there is no Backend default/a"],
        ),
        (
            "0",
            "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 0}]}\n".to_owned(),
            &["bad.yaml:4:23: error[out-of-range] spec.ports[0].port: expected a whole number from 1 to \
               65535, found 0"],
        ),
    ]);
}

#[test]
fn names_with_other_characters() {
    let named = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"
        )
    };
    check(&[
        (
            "percent",
            named("'a%2fb'"),
            &["bad.yaml:3:18: error[bad-name] metadata.name: \"a%2fb\" is not a name of a Service: 1 to \
                 63 lower-case letters, digits and `-` are allowed"],
        ),
        (
            "slash",
            named("a/b"),
            &["bad.yaml:3:18: error[bad-name] metadata.name: \"a/b\" is not a name: `/`, blanks and \
                 control characters are not allowed"],
        ),
        (
            "unicode",
            named("größe"),
            &["bad.yaml:3:18: error[bad-name] metadata.name: \"größe\" is not a name of a Service: 1 to \
                 63 lower-case letters, digits and `-` are allowed"],
        ),
        (
            "dots upwards",
            named("'../a'"),
            &["bad.yaml:3:18: error[bad-name] metadata.name: \"../a\" is not a name: `/`, blanks and \
                 control characters are not allowed"],
        ),
        (
            "empty",
            named("''"),
            &["bad.yaml:3:18: error[bad-length] metadata.name: \"\" has 0 characters, 1 to 253 are allowed"],
        ),
        (
            "capital",
            named("Shop"),
            &["bad.yaml:3:18: error[bad-name] metadata.name: \"Shop\" is not a name of a Service: 1 to 63 \
                 lower-case letters, digits and `-` are allowed"],
        ),
        (
            "namespace",
            named("a, namespace: 'x/y'"),
            &["bad.yaml:3:32: error[bad-name] metadata.namespace: \"x/y\" is not a name: `/`, blanks and \
                 control characters are not allowed"],
        ),
    ]);
}

#[test]
fn references_and_hosts_with_other_characters() {
    let host = |host: &str| {
        route("GRPCRoute", "[]").replace("  rules:", &format!("  hostnames: [{host}]\n  rules:"))
    };
    check(&[
        (
            "backend with a percent",
            backend("{name: 'a%b', port: 80}"),
            &["bad.yaml:26:26: warning[backend-not-found] spec.rules[0].backendRefs[0]: there is no \
                 Service default/a%b"],
        ),
        (
            "backend with a slash",
            backend("{name: a/b, port: 80}"),
            &["bad.yaml:26:33: error[bad-name] spec.rules[0].backendRefs[0].name: \"a/b\" is not a name: \
                 `/`, blanks and control characters are not allowed"],
        ),
        (
            "backend in unicode",
            backend("{name: größe, port: 80}"),
            &["bad.yaml:26:26: warning[backend-not-found] spec.rules[0].backendRefs[0]: there is no \
                 Service default/größe"],
        ),
        (
            "host with a percent",
            host("'a%b.com'"),
            &[
                "bad.yaml:26:15: error[bad-hostname] spec.hostnames[0]: \"a%b.com\": a host name consists of lower-case letters, digits, `-` and `.`, as RFC 1123 requires",
            ],
        ),
        (
            "host with a slash",
            host("a.com/b"),
            &[
                "bad.yaml:26:15: error[bad-hostname] spec.hostnames[0]: \"a.com/b\": a host name consists of lower-case letters, digits, `-` and `.`, as RFC 1123 requires",
            ],
        ),
        (
            "host in unicode",
            host("größe.com"),
            &[
                "bad.yaml:26:15: error[bad-hostname] spec.hostnames[0]: \"größe.com\": a host name consists of lower-case letters, digits, `-` and `.`, as RFC 1123 requires",
            ],
        ),
        (
            "rule with a slash",
            route("GRPCRoute", "[{name: a/b}]"),
            &["bad.yaml:26:18: error[bad-name] spec.rules[0].name: \"a/b\" is not a name: lower-case \
                 letters, digits, `-` and `.` are allowed"],
        ),
        (
            "root of a split",
            "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: s}\nspec:\n  \
             service: größe%/x\n  backends: [{service: a, weight: 1}]\n"
                .to_owned(),
            &["bad.yaml:5:12: error[bad-name] spec.service: \"größe%/x\" is not a name: `/`, blanks and \
                 control characters are not allowed"],
        ),
        (
            "native backend",
            "version: xds-server/v1\nbackends: {'a/b': 10.0.0.1:80}\n".to_owned(),
            &["bad.yaml:2:12: error[bad-name] backends[\"a/b\"]: \"a/b\" is not a name: `/`, blanks and \
                 control characters are not allowed"],
        ),
    ]);
}
