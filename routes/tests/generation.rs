//! Resources that short documents may give: routes for each host of each listener, and no more than the limits say.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use xds_cache::{GroupName, Profile};
use xds_codec::{Codec, Limits, Syntax};
use xds_routes::{
    Bounds, Documents, GenerationLimits, Options, Placed, Purpose, ReadOutcome, Stopped, Translation, read,
    translate, translate_within,
};

use crate::{ALLOCATOR, alone};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

fn documents(text: &str) -> Documents {
    let mut documents = Documents::new();
    for tree in xds_codec::parse("f.yaml", text.as_bytes(), Syntax::Yaml, &Limits::default()).unwrap() {
        let ReadOutcome::Objects(objects) = read(&"f.yaml".into(), &tree, xds_routes::UnknownFields::Refuse)
        else {
            panic!("{tree:?}")
        };
        for object in objects {
            let (document, _) = object.outcome.unwrap();
            let placed = Placed::new(document, GroupName::default_group());
            documents.insert(object.key, placed);
        }
    }
    documents
}

/// So many native listeners, and so many routes that every one of them takes.
fn listeners_and_routes(n_listeners: usize, n_routes: usize) -> String {
    let mut text = "version: xds-server/v1\nlisteners:\n".to_owned();
    (0..n_listeners).for_each(|n| writeln!(text, "  l{n}: {{port: {}}}", 10_000 + n).unwrap());
    text.push_str("routes:\n");
    (0..n_routes).for_each(|n| writeln!(text, "  r{n:04}: {{to: b}}").unwrap());
    text.push_str("backends:\n  b: {endpoints: \"127.0.0.1:80\"}\n");
    text
}

fn limited(max_routes: usize) -> Options {
    let limits = GenerationLimits { max_routes, ..GenerationLimits::default() };
    Options { limits, ..Options::default() }
}

fn n_routes(translation: &Translation) -> usize {
    let group = translation.groups.values().next().unwrap();
    let resources = group.profiles[&Profile::Envoy].values();
    let json = resources.map(|resource| CODEC.to_json(resource));
    let hosts = json.flat_map(|json| json["virtual_hosts"].as_array().cloned().unwrap_or_default());
    hosts.map(|host| host["routes"].as_array().map_or(0, Vec::len)).sum()
}

/// Routes that are not admitted, by their names.
fn refused(translation: &Translation) -> Vec<String> {
    let is_refused =
        |(_, status): &(&xds_routes::DocumentKey, &std::sync::Arc<xds_routes::conditions::ObjectStatus>)| {
            let conditions =
                status.conditions.iter().chain(status.parents.iter().flat_map(|one| &one.conditions));
            conditions.into_iter().any(|condition| condition.reason.as_str() == "LimitExceeded")
        };
    let objects = translation.conditions.objects.iter().filter(is_refused);
    objects.map(|(key, _)| key.name.to_string()).collect()
}

#[test]
fn what_passes_the_limit_is_told_at_its_document_and_the_rest_is_served() {
    let _alone = alone();
    let all = documents(&listeners_and_routes(20, 30));
    let everything = translate(&CODEC, &all, &limited(600), None);
    assert_eq!((n_routes(&everything), refused(&everything).len()), (600, 0));

    let translation = translate(&CODEC, &all, &limited(500), None);
    assert_eq!(n_routes(&translation), 500);
    assert_eq!(refused(&translation), ["r0025", "r0026", "r0027", "r0028", "r0029"]);
    let told: Vec<_> =
        translation.diagnostics.iter().filter(|one| one.code == "too-much-generated").collect();
    assert!(told.len() >= 5 && told.iter().all(|one| one.place.line > 20), "{told:?}");
    assert!(told[0].message.contains("500 (--max-generated-routes)"), "{}", told[0].message);
    assert!(told[0].message.contains("20 routes in virtual hosts"), "{}", told[0].message);
}

#[test]
fn one_route_that_is_too_much_leaves_room_for_younger_ones() {
    let _alone = alone();
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  gatewayClassName: x\n  listeners: [{name: a, port: 80, protocol: HTTP}]\n";
    let route = |name: &str, n_hosts: usize| {
        let hosts: Vec<String> = (0..n_hosts).map(|n| format!("{name}{n}.example.com")).collect();
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec: {{parentRefs: [{{name: g}}], hostnames: [{}], rules: [{{}}]}}\n",
            hosts.join(", ")
        )
    };
    let text = [gateway.to_owned(), route("a", 16), route("b", 3), route("c", 3)].concat();
    let limits = GenerationLimits { max_hosts: 10, ..GenerationLimits::default() };
    let options = Options { limits, ..Options::default() };
    let translation = translate(&CODEC, &documents(&text), &options, None);
    assert_eq!(refused(&translation), ["a"]);
    assert_eq!(n_routes(&translation), 6);
    let limits = GenerationLimits { max_bytes: 1_500, ..GenerationLimits::default() };
    let options = Options { limits, ..Options::default() };
    assert_eq!(refused(&translate(&CODEC, &documents(&text), &options, None)), ["a"]);
}

#[test]
fn which_one_is_told_depends_on_age_and_not_on_order() {
    let _alone = alone();
    let route = |name: &str, created: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, creationTimestamp: \"{created}\"}}\nspec: {{rules: [{{}}]}}\n"
        )
    };
    let parts = [
        listeners_and_routes(10, 0),
        route("a", "2024-03-01T00:00:00Z"),
        route("b", "2024-01-01T00:00:00Z"),
        route("c", "2024-02-01T00:00:00Z"),
    ];
    let names: Vec<String> = (0..10).map(|n| format!("{{name: l{n}}}")).collect();
    let with_parents =
        |text: &str| text.replace("spec: {", &format!("spec: {{parentRefs: [{}], ", names.join(", ")));
    let text: Vec<String> = parts.iter().map(|part| with_parents(part)).collect();
    let mut backwards = text.clone();
    backwards.reverse();
    for text in [text.join("---\n"), backwards.join("---\n")] {
        let translation = translate(&CODEC, &documents(&text), &limited(20), None);
        assert_eq!(refused(&translation), ["a"], "the youngest");
    }
}

#[test]
fn ports_of_services_count_too() {
    let _alone = alone();
    let ports: Vec<String> = (1..=100).map(|n| format!("{{name: p{n}, port: {n}}}")).collect();
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{}]}}\n",
        ports.join(", ")
    );
    for n in 0..10 {
        text.push_str(&format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}}}\nspec: {{parentRefs: [{{group: \"\", kind: Service, name: s}}], rules: [{{}}]}}\n"
        ));
    }
    let all = documents(&text);
    assert!(refused(&translate(&CODEC, &all, &limited(1_000), None)).is_empty());
    assert_eq!(refused(&translate(&CODEC, &all, &limited(750), None)), ["r7", "r8", "r9"]);
}

#[test]
fn row_8_a_thousand_listeners_and_three_hundred_routes_stay_within_the_default() {
    let _alone = alone();
    let text = listeners_and_routes(1_000, 300);
    assert!(text.len() < 40_000);
    let all = documents(&text);
    // A tenth of the default, so that it takes a moment in a test.
    let options = limited(GenerationLimits::default().max_routes / 10);
    LazyLock::force(&CODEC);
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let translation = translate(&CODEC, &all, &options, None);
    let peak = ALLOCATOR.peak_usage() - before;
    assert_eq!(refused(&translation).len(), 290);
    // Counts are of things that take memory: some kilobytes for each route.
    assert!(peak < 10_000 * MOST_FOR_A_ROUTE, "{peak} bytes");
}

/// Bytes, at the worst moment.
const MOST_FOR_A_ROUTE: usize = 20_000;

/// Documents that generate far more than their text, each in another way.
fn multiplying() -> [(&'static str, String); 4] {
    let hosts = |n: usize| (0..n).map(|n| format!("h{n}.example.com")).collect::<Vec<_>>().join(", ");
    let listeners =
        (0..40).map(|n| format!("{{name: l{n}, port: {}, protocol: HTTP}}", 10_000 + n)).collect::<Vec<_>>();
    let mut with_hosts = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec: {{gatewayClassName: x, listeners: [{}]}}\n",
        listeners.join(", ")
    );
    let ports = (1..=100).map(|n| format!("{{name: p{n}, port: {n}}}")).collect::<Vec<_>>().join(", ");
    let mut calls =
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{ports}]}}\n");
    for n in 0..20 {
        writeln!(
            with_hosts,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}}}\nspec: {{parentRefs: [{{name: g}}], hostnames: [{}], rules: [{{}}]}}",
            hosts(16)
        )
        .unwrap();
        writeln!(
            calls,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}}}\nspec: {{parentRefs: [{{group: \"\", kind: Service, name: s}}], rules: [{{}}]}}"
        )
        .unwrap();
    }
    let matches = (0..64).map(|n| format!("{{path: {{value: /{n}}}}}")).collect::<Vec<_>>().join(", ");
    let names = (1..=64)
        .map(|n| format!("{{name: a{n}, port: {n}, protocol: HTTP, hostname: h{n}.example.com}}"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut rules = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec: {{gatewayClassName: x, listeners: [{names}]}}\n"
    );
    for n in 0..4 {
        writeln!(
            rules,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}}}\nspec: {{parentRefs: [{{name: g}}], rules: [{{matches: [{matches}]}}]}}"
        )
        .unwrap();
    }
    [
        ("routes of many listeners", listeners_and_routes(60, 60)),
        ("hosts of many listeners", with_hosts),
        ("calls of many ports", calls),
        ("matches at many hosts", rules),
    ]
}

#[test]
fn a_trial_takes_no_more_memory_than_its_documents_justify() {
    let _alone = alone();
    LazyLock::force(&CODEC);
    for (shape, text) in multiplying() {
        let all = documents(&text);
        let run = |trial_bytes: usize| {
            let limits = GenerationLimits { trial_bytes, ..GenerationLimits::default() };
            let options = Options { limits, ..Options::default() };
            ALLOCATOR.reset_peak_usage();
            let before = ALLOCATOR.current_usage();
            let bounds = Bounds { goes_on: &|| true, purpose: Purpose::Trial };
            let done = translate_within(&CODEC, &all, &options, None, bounds);
            (done.map(|_| ()), ALLOCATOR.peak_usage() - before)
        };
        let (done, whole) = run(64 << 20);
        assert_eq!(done, Ok(()), "{shape}");
        let (done, peak) = run(1_000);
        let Err(Stopped::TooMuch { n_bytes, most, n_text, .. }) = done else { panic!("{shape}: {done:?}") };
        assert!(n_bytes > most && whole > 3 * peak, "{shape}: {n_bytes} bytes of {most}, {peak} of {whole}");
        assert!(peak < 2 * most + (256 << 10), "{shape}: {peak} bytes for {n_text} bytes of text");
    }
}

#[test]
fn it_stops_when_nobody_waits() {
    let _alone = alone();
    let all = documents(&listeners_and_routes(50, 50));
    let n_steps = |most: usize| {
        let n_asked = AtomicUsize::new(0);
        let goes_on = || n_asked.fetch_add(1, Ordering::Relaxed) < most;
        let bounds = Bounds { goes_on: &goes_on, purpose: Purpose::Serving };
        let is_done = translate_within(&CODEC, &all, &Options::default(), None, bounds).is_ok();
        (is_done, n_asked.into_inner())
    };
    let (is_done, n_whole) = n_steps(usize::MAX - 1);
    assert!(is_done && n_whole > 200, "{n_whole}");
    for most in [0, 1, 10, 60, 120, n_whole - 1] {
        let (is_done, n_asked) = n_steps(most);
        assert!(!is_done && n_asked <= n_whole + 10, "{most}: {n_asked}");
    }
}
