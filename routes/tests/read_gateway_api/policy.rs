//! GatewayClass, ReferenceGrant and BackendTLSPolicy.

use xds_routes::model::{BackendTlsPolicy, GrantFrom, GrantTo, Spec};

use super::{document, errors_of, expect, numbered, spec_and_warnings, spec_of, times};

#[test]
fn a_class_names_its_controller() {
    let spec = spec_of(&document("GatewayClass", "v1", "{controllerName: example.org/c, description: d}"));
    assert_eq!(spec, Spec::GatewayClass { controller: "example.org/c".to_owned() });
    let table = [
        ("{}", "spec: the field `controllerName` is missing"),
        ("{controllerName: ''}", "\"\" has 0 characters, 1 to 253 are allowed"),
        ("{controllerName: c}", "\"c\" is not a name such as `example.org/controller`"),
    ];
    for (spec, error) in table {
        expect(&document("GatewayClass", "v1", spec), error);
    }
    let (_, warnings) =
        spec_and_warnings(&document("GatewayClass", "v1beta1", "{controllerName: a.b/c, parametersRef: {}}"));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn grants_have_1_to_16_of_each_side() {
    let yaml = |from: &str, to: &str| {
        document("ReferenceGrant", "v1beta1", &format!("{{from: [{from}], to: [{to}]}}"))
    };
    let (from, to) = ("{group: g.io, kind: K, namespace: m}", "{group: '', kind: Service}");
    let Spec::ReferenceGrant(grant) = spec_of(&yaml(
        from,
        &format!("{to}, {{group: '', kind: S, name: x}}, {{group: '', kind: S, name: ''}}"),
    )) else {
        panic!()
    };
    let text = |text: &str| text.to_owned();
    assert_eq!(grant.from, [GrantFrom { group: text("g.io"), kind: text("K"), namespace: text("m") }]);
    let grant_to = |kind: &str, name: Option<&str>| GrantTo {
        group: String::new(),
        kind: text(kind),
        name: name.map(str::to_owned),
    };
    assert_eq!(grant.to, [grant_to("Service", None), grant_to("S", Some("x")), grant_to("S", None)]);
    let table = [
        (times(16, from), times(16, to), ""),
        (times(17, from), to.to_owned(), "spec.from: there are 17 items, at most 16 are allowed"),
        (from.to_owned(), times(17, to), "spec.to: there are 17 items, at most 16 are allowed"),
        (String::new(), to.to_owned(), "spec.from: at least one item is required"),
        (from.to_owned(), String::new(), "spec.to: at least one item is required"),
        ("{group: g, kind: K}".to_owned(), to.to_owned(), "spec.from[0]: the field `namespace` is missing"),
        (from.to_owned(), "{kind: Service}".to_owned(), "spec.to[0]: the field `group` is missing"),
    ];
    for (from, to, error) in table {
        expect(&yaml(&from, &to), error);
    }
    expect(
        &document("ReferenceGrant", "v1", &format!("{{to: [{to}]}}")),
        "spec: the field `from` is missing",
    );
}

const TARGET: &str = "{group: '', kind: Service, name: s}";
const CA: &str = "{group: '', kind: ConfigMap, name: ca}";

fn policy(targets: &str, validation: &str) -> String {
    document("BackendTLSPolicy", "v1", &format!("{{targetRefs: [{targets}], validation: {{{validation}}}}}"))
}

fn read(yaml: &str) -> (BackendTlsPolicy, Vec<String>) {
    let (spec, warnings) = spec_and_warnings(yaml);
    let Spec::BackendTlsPolicy(policy) = spec else { panic!("{spec:?}") };
    (*policy, warnings)
}

#[test]
fn a_policy_is_read() {
    let alt_names =
        "subjectAltNames: [{type: Hostname, hostname: '*.b.com'}, {type: URI, uri: 'spiffe://x/y'}]";
    let targets = "{group: '', kind: Service, name: s, sectionName: grpc}";
    let yaml = policy(targets, &format!("caCertificateRefs: [{CA}], hostname: a.com, {alt_names}"));
    for yaml in [yaml.clone(), yaml.replace("io/v1", "io/v1alpha3")] {
        let (policy, warnings) = read(&yaml);
        assert!(warnings.is_empty(), "{warnings:?}");
        let (target, section) = policy.targets.first().expect("one");
        assert_eq!(
            (&*target.kind, &*target.namespace, &*target.name, section.as_deref()),
            ("Service", "n", "s", Some("grpc"))
        );
        assert_eq!(
            policy.ca_certificates.first().map(|one| (&*one.kind, &*one.name)),
            Some(("ConfigMap", "ca"))
        );
        assert_eq!((policy.uses_system_certificates, &*policy.hostname), (false, "a.com"));
        assert_eq!(policy.alt_names, ["*.b.com", "spiffe://x/y"]);
        assert_eq!(policy.spot.path.to_string(), "spec.validation");
    }
    let (policy, _) = read(&policy(TARGET, "wellKnownCACertificates: System, hostname: a.com"));
    assert_eq!((policy.uses_system_certificates, policy.ca_certificates.len()), (true, 0));
}

#[test]
fn certificates_that_nobody_knows_leave_none_so_that_requests_fail() {
    let (policy, warnings) =
        read(&policy(TARGET, "wellKnownCACertificates: example.org/own, hostname: a.com"));
    assert_eq!((policy.uses_system_certificates, policy.ca_certificates.len()), (false, 0));
    let expected = "spec.validation.wellKnownCACertificates: \"example.org/own\" is unknown, so requests to the backend fail; only \
                    `System` is supported";
    assert_eq!(warnings, [expected]);
}

#[test]
fn bad_policies_are_refused_with_the_words_of_the_api() {
    let system = "wellKnownCACertificates: System, hostname: a.com";
    let with = |rest: &str| format!("{system}, {rest}");
    let table = [
        (String::new(), system.to_owned(), "spec.targetRefs: at least one item is required"),
        (
            numbered(17, "{group: '', kind: Service, name: s{}}"),
            system.to_owned(),
            "there are 17 items, at most 16 are allowed",
        ),
        (
            TARGET.to_owned(),
            "hostname: a.com".to_owned(),
            "spec.validation: must specify either CACertificateRefs or WellKnownCACertificates",
        ),
        (
            TARGET.to_owned(),
            with(&format!("caCertificateRefs: [{CA}]")),
            "spec.validation: must not contain both CACertificateRefs and WellKnownCACertificates",
        ),
        (
            TARGET.to_owned(),
            "wellKnownCACertificates: System".to_owned(),
            "spec.validation: the field `hostname` is missing",
        ),
        (
            TARGET.to_owned(),
            "wellKnownCACertificates: System, hostname: '*.a.com'".to_owned(),
            "a wildcard is not allowed here",
        ),
        (
            TARGET.to_owned(),
            format!("hostname: a.com, caCertificateRefs: [{}]", times(9, CA)),
            "there are 9 items, at most 8 are allowed",
        ),
        (
            times(2, TARGET),
            system.to_owned(),
            "sectionName must be unique when targetRefs includes 2 or more references to the same target",
        ),
        (
            format!("{TARGET}, {{group: '', kind: Service, name: s, sectionName: a}}"),
            system.to_owned(),
            "sectionName must be specified when targetRefs includes 2 or more references to the same target",
        ),
    ];
    for (targets, validation, error) in table {
        expect(&policy(&targets, &validation), error);
    }
    assert_eq!(errors_of(&policy("{name: s}", system)).len(), 2, "group and kind are missing");
    expect(
        &document("BackendTLSPolicy", "v1", &format!("{{targetRefs: [{TARGET}]}}")),
        "spec: the field `validation` is missing",
    );
}

#[test]
fn other_names_have_what_their_type_says() {
    let six = numbered(6, "{type: Hostname, hostname: a{}.b}");
    let table = [
        ("{type: Hostname}", "SubjectAltName element must contain Hostname, if Type is set to Hostname"),
        ("{type: URI}", "SubjectAltName element must contain URI, if Type is set to URI"),
        (
            "{type: URI, uri: 'a://b', hostname: c.d}",
            "SubjectAltName element must not contain Hostname, if Type is not set to Hostname",
        ),
        (
            "{type: Hostname, uri: 'a://b', hostname: c.d}",
            "SubjectAltName element must not contain URI, if Type is not set to URI",
        ),
        ("{type: URI, uri: a}", "\"a\" is not a URI such as `spiffe://example.org/service`"),
        ("{type: DNS}", "\"DNS\" is not one of Hostname, URI"),
        (&*six, "subjectAltNames: there are 6 items, at most 5 are allowed"),
    ];
    for (names, error) in table {
        let rest = format!("wellKnownCACertificates: System, hostname: a.com, subjectAltNames: [{names}]");
        expect(&policy(TARGET, &rest), error);
    }
}
