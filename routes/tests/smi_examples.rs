//! The sixteen examples of SMI's pages on splits, each by its number, against what these pages expect: the routes to
//! the root for both kinds of clients, and what is said of the documents.
//!
//! 1 to 7, 9 and 10 are the examples as they stand, of `fixtures/seeds`; the others are in `golden`, where all that is served for
//! each of them is written too.

use serde_json::Value as Json;
use xds_cache::{GroupName, Profile, ResourceType};
use xds_codec::{Limits, Syntax};
use xds_routes::{Options, Translation};

use crate::support::{CODEC, Reading, fixtures, yaml_files};

/// An example and what becomes of it.
struct Example {
    number: u32,
    directory: &'static str,
    /// The root's name and port, and its routes for Envoys.
    envoy: &'static [(&'static str, &'static [&'static str])],
    /// The same for gRPC clients.
    grpc: &'static [(&'static str, &'static [&'static str])],
    /// The codes of what is said, sorted.
    said: &'static [&'static str],
}

#[test]
fn the_sixteen_examples_of_smi_become_what_the_paper_says() {
    let numbers: Vec<u32> = EXAMPLES.iter().map(|example| example.number).collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<u32>>());
    for example in EXAMPLES {
        let (translation, mut said) = translate(example);
        let name = format!("{} {}", example.number, example.directory);
        for (profile, expected) in [(Profile::Envoy, example.envoy), (Profile::Grpc, example.grpc)] {
            for (root, routes) in expected {
                assert_eq!(routes_of(&translation, profile, root), *routes, "{name}: {root} for {profile:?}");
            }
        }
        said.sort_unstable();
        assert_eq!(said, example.said, "{name}");
    }
}

/// Example 3: the port of the endpoints is each backend's own, here as their slices in `around.yaml` say it.
#[test]
fn target_ports_are_those_of_the_backends() {
    let example = EXAMPLES.iter().find(|example| example.number == 3).expect("example 3");
    let (translation, _) = translate(example);
    for profile in [Profile::Envoy, Profile::Grpc] {
        let ports = ["birds/8080", "blue-birds/8080", "green-birds/8080"].map(|name| {
            let endpoints = message(
                &translation,
                profile,
                ResourceType::ClusterLoadAssignment,
                &format!("default/{name}"),
            )?;
            endpoints
                .pointer("/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/port_value")?
                .as_u64()
        });
        assert_eq!(ports, [None, Some(8_082), Some(8_081)], "{profile:?}");
    }
}

/// Example 8: whoever is at the root, with the split and without, the root has a route.
#[test]
fn a_split_that_is_deleted_leaves_no_hole() {
    let directory = fixtures().join("seeds/smi-rollout-end");
    let files = yaml_files(&directory);
    let with = Reading::of_files(&files).translate(&Options::default());
    let around: Vec<_> = files.into_iter().filter(|(name, _)| name == "around.yaml").collect();
    let without = Reading::of_files(&around).translate(&Options::default());
    assert_eq!(routes_of(&with, Profile::Grpc, "foobar:10010"), ["/ -> default/foobar-v2/10010"]);
    assert_eq!(routes_of(&without, Profile::Grpc, "foobar:10010"), ["/ -> default/foobar/10010"]);
}

fn translate(example: &Example) -> (Translation, Vec<&'static str>) {
    let golden = fixtures().join("../routes/tests/golden").join(example.directory);
    let directory = if golden.is_dir() { golden } else { fixtures().join("seeds").join(example.directory) };
    let reading = Reading::of_files(&yaml_files(&directory));
    let translation = reading.translate(&Options::default());
    let said = reading.diagnostics.iter().chain(&translation.diagnostics).map(|found| found.code).collect();
    (translation, said)
}

/// The routes of a Service, `name:port`, in the order in which a client tries them: `path header=value -> target*weight`.
fn routes_of(translation: &Translation, profile: Profile, root: &str) -> Vec<String> {
    let (name, port) = root.split_once(':').expect("a name and a port");
    let (table, host) = match profile {
        Profile::Envoy => (format!("mesh/{port}"), format!("default/{name}")),
        Profile::Grpc => (format!("grpc/mesh/default/{name}/{port}"), name.to_owned()),
    };
    let Some(table) = message(translation, profile, ResourceType::RouteConfiguration, &table) else {
        return Vec::new();
    };
    let hosts = table["virtual_hosts"].as_array().expect("virtual hosts");
    let host = hosts.iter().find(|one| one["name"] == host).unwrap_or_else(|| panic!("{root}: {hosts:?}"));
    host["routes"].as_array().into_iter().flatten().map(shown).collect()
}

fn shown(route: &Json) -> String {
    let matches = &route["match"];
    assert_eq!(matches["case_sensitive"], true, "{matches}");
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    let mut parts = vec![match (&matches["prefix"], &matches["path"], &matches["safe_regex"]["regex"]) {
        (Json::String(prefix), Json::Null, Json::Null) => prefix.clone(),
        (Json::Null, Json::String(path), Json::Null) => format!("={path}"),
        (Json::Null, Json::Null, Json::String(regex)) => format!("~{regex}"),
        other => panic!("{other:?}"),
    }];
    for header in matches["headers"].as_array().into_iter().flatten() {
        let value = match &header["string_match"] {
            exact if exact["exact"].is_string() => format!("={}", text(&exact["exact"])),
            regex => format!("~{}", text(&regex["safe_regex"]["regex"])),
        };
        parts.push(text(&header["name"]) + &value);
    }
    parts.push("->".to_owned());
    let action = &route["route"];
    parts.extend(action["cluster"].as_str().map(str::to_owned));
    let clusters = action["weighted_clusters"]["clusters"].as_array().into_iter().flatten();
    parts.extend(clusters.map(|cluster| format!("{}*{}", text(&cluster["name"]), cluster["weight"])));
    parts.join(" ")
}

/// A resource of the default group as a message.
fn message(translation: &Translation, profile: Profile, of: ResourceType, name: &str) -> Option<Json> {
    let group = &translation.groups[&GroupName::default_group()];
    let resources = group.profiles.get(&profile)?;
    let resource = resources.values().find(|one| one.key().resource_type == of && &**one.name() == name)?;
    let trees =
        xds_codec::parse("resource", CODEC.to_yaml(resource).as_bytes(), Syntax::Yaml, &Limits::default());
    Some(trees.expect("YAML").first()?.to_json())
}

const EXAMPLES: &[Example] = &[
    Example {
        number: 1,
        directory: "smi-canary",
        envoy: &[("website:10010", &["/ -> default/website-v1/10010*90 default/website-v2/10010*10"])],
        grpc: &[("website:10010", &["/ -> default/website-v1/10010*90 default/website-v2/10010*10"])],
        said: &["missing-version"],
    },
    Example {
        number: 2,
        directory: "smi-ab-test",
        envoy: &[(
            "website:10010",
            &[
                "/ user-agent~.*Firefox.* -> default/website-v1/10010*0 default/website-v2/10010*100",
                "/ -> default/website/10010",
            ],
        )],
        grpc: &[("website:10010", &["/ -> default/website/10010"])],
        said: &["missing-version", "missing-version", "not-for-grpc"],
    },
    Example {
        number: 3,
        directory: "smi-birds",
        envoy: &[
            ("birds:8080", &["/ -> default/blue-birds/8080/h2*1 default/green-birds/8080/h2*1"]),
            ("birds:9090", &["/ -> default/blue-birds/9090*1 default/green-birds/9090*1"]),
        ],
        grpc: &[
            ("birds:8080", &["/ -> default/blue-birds/8080*1 default/green-birds/8080*1"]),
            ("birds:9090", &["/ -> default/blue-birds/9090*1 default/green-birds/9090*1"]),
        ],
        said: &[],
    },
    Example {
        number: 4,
        directory: "smi-birds-mismatch",
        envoy: &[("birds:8080", &["/ -> default/green-birds/8080/h2"])],
        grpc: &[("birds:8080", &["/ -> default/green-birds/8080"])],
        said: &["split-port-mismatch"],
    },
    Example {
        number: 5,
        directory: "smi-rollout-begin",
        envoy: &[("foobar:10010", &["/ -> default/foobar-v1/10010"])],
        grpc: &[("foobar:10010", &["/ -> default/foobar-v1/10010"])],
        said: &["missing-version"],
    },
    Example {
        number: 6,
        directory: "smi-rollout-third",
        envoy: &[("foobar:10010", &["/ -> default/foobar-v1/10010*1000 default/foobar-v2/10010*500"])],
        grpc: &[("foobar:10010", &["/ -> default/foobar-v1/10010*1000 default/foobar-v2/10010*500"])],
        said: &["missing-version"],
    },
    Example {
        number: 7,
        directory: "smi-rollout-end",
        envoy: &[("foobar:10010", &["/ -> default/foobar-v2/10010"])],
        grpc: &[("foobar:10010", &["/ -> default/foobar-v2/10010"])],
        said: &["missing-version"],
    },
    Example {
        number: 8,
        directory: "smi-08-split-deleted",
        envoy: &[("foobar:80", &["/ -> default/foobar/80"])],
        grpc: &[("foobar:80", &["/ -> default/foobar/80"])],
        said: &[],
    },
    Example {
        number: 9,
        directory: "smi-self-reference",
        envoy: &[("foobar:10010", &["/ -> default/foobar-next/10010*100 default/foobar/10010*900"])],
        grpc: &[("foobar:10010", &["/ -> default/foobar-next/10010*100 default/foobar/10010*900"])],
        said: &["missing-version", "self-referential-split"],
    },
    Example {
        number: 10,
        directory: "smi-implementation",
        envoy: &[("web:10010", &["/ -> default/web-next/10010*100 default/web-current/10010*900"])],
        grpc: &[("web:10010", &["/ -> default/web-next/10010*100 default/web-current/10010*900"])],
        said: &["missing-version"],
    },
    Example {
        number: 11,
        directory: "smi-11-quantities",
        envoy: &[
            ("three:80", &["/ -> default/v1/80*10 default/v2/80*100 default/v3/80*1500"]),
            ("all:80", &["/ -> default/v1/80*1000 default/v2/80*0"]),
            ("half:80", &["/ -> default/v1/80*1000 default/v2/80*500"]),
        ],
        grpc: &[
            ("three:80", &["/ -> default/v1/80*10 default/v2/80*100 default/v3/80*1500"]),
            ("all:80", &["/ -> default/v1/80*1000 default/v2/80*0"]),
            ("half:80", &["/ -> default/v1/80*1000 default/v2/80*500"]),
        ],
        said: &[],
    },
    Example {
        number: 12,
        directory: "smi-12-paths-and-methods",
        envoy: &[(
            "website:80",
            &[
                "~(?:/metrics).* :method=GET -> default/website-v1/80*0 default/website-v2/80*100",
                "~(?:/ping).* -> default/website-v1/80*0 default/website-v2/80*100",
                "/ -> default/website/80",
            ],
        )],
        grpc: &[(
            "website:80",
            &["~(?:/ping).* -> default/website-v1/80*0 default/website-v2/80*100", "/ -> default/website/80"],
        )],
        said: &["not-for-grpc"],
    },
    Example {
        number: 13,
        directory: "smi-13-everything",
        envoy: &[(
            "website:80",
            &["/ -> default/website-v1/80*0 default/website-v2/80*100", "/ -> default/website/80"],
        )],
        grpc: &[(
            "website:80",
            &["/ -> default/website-v1/80*0 default/website-v2/80*100", "/ -> default/website/80"],
        )],
        said: &[],
    },
    Example {
        number: 14,
        directory: "smi-14-headers",
        envoy: &[(
            "website:80",
            &[
                "/ cookie~^(.*?;)?(type=insider)(;.*)?$ user-agent~.*Android.* -> default/website-v1/80*0 \
                 default/website-v2/80*100",
                "/ -> default/website/80",
            ],
        )],
        grpc: &[("website:80", &["/ -> default/website/80"])],
        said: &["not-for-grpc"],
    },
    Example {
        number: 15,
        directory: "smi-15-matches",
        envoy: &[(
            "website:80",
            &[
                "/ cookie~^(.*?;)?(type=insider)(;.*)?$ user-agent~.*Android.* -> default/website-v1/80*0 \
                 default/website-v2/80*100",
                "/ user-agent~.*Firefox.* -> default/website-v1/80*0 default/website-v2/80*100",
                "/ -> default/website/80",
            ],
        )],
        grpc: &[("website:80", &["/ -> default/website/80"])],
        said: &["not-for-grpc"],
    },
    Example {
        number: 16,
        directory: "smi-16-all-together",
        envoy: &[(
            "website:80",
            &[
                "~(?:/api/.*).* user-agent~.*iPhone.* :method~GET|HEAD -> default/website-v1/80*0 default/website-v2/80*100",
                "/ -> default/website/80",
            ],
        )],
        grpc: &[("website:80", &["/ -> default/website/80"])],
        said: &["not-for-grpc"],
    },
];
