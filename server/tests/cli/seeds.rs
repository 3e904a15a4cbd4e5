//! The examples of the design documents are explained as their texts say.

use super::*;

/// For each client, where a call goes: the name of the cluster, or the status without one, each with its share in percent.
fn explained(line: &str) -> Vec<(String, Vec<(String, u64)>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (_, stdout, stderr) = outcome(&root, &format!("explain {line} --output json"));
    let answer: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let ways = |explanation: &Value| {
        let outcomes = explanation["outcomes"].as_array().unwrap().iter();
        let way = |one: &Value| {
            let to = one["cluster"]["name"].as_str().or(one["status"].as_str()).unwrap_or_default();
            let share = [&one["share"][0], &one["share"][1]].map(|part| part.as_u64().unwrap());
            (to.to_owned(), share[0] * 100 / share[1])
        };
        (explanation["client"].as_str().unwrap().to_owned(), outcomes.map(way).collect())
    };
    answer["explanations"].as_array().unwrap().iter().map(ways).collect()
}

fn assert_explained(line: &str, n_clients: usize, expected: &[(&str, u64)]) {
    let all = explained(line);
    assert_eq!(all.len(), n_clients, "{line}: {all:?}");
    let expected: Vec<(String, u64)> =
        expected.iter().map(|(to, percent)| ((*to).to_owned(), *percent)).collect();
    for (client, ways) in all {
        assert_eq!(ways, expected, "{line} of {client}");
    }
}

#[test]
fn a28_calls_go_where_its_examples_say() {
    let split = [("cluster_1", 75), ("cluster_2", 25)];
    for (target, call, expected) in [
        ("service", "service_1/method_1", &[("cluster_1", 100)][..]),
        ("service", "service_1/method_2", &[("cluster_1", 100)]),
        ("service", "service_1/method_3", &[("grpc 14 UNAVAILABLE", 100)]),
        ("service", "service_2/method_2", &split),
        // The route of the regular expression comes later, and is not reached.
        ("service", "service_2/method_3", &split),
        // "the first match wins", though the second route is exact.
        ("picking", "MyService/MyMethod", &[("cluster_1", 100)]),
    ] {
        let line = format!("fixtures/seeds/a28 --profile grpc --host {target} --call {call}");
        assert_explained(&line, 4, expected);
    }
}

#[test]
fn gep_1016_calls_go_where_its_example_says() {
    let call = "fixtures/seeds/gep-1016 --call helloworld.Greeter/SayHello";
    let split = [("default/foo-v1/50051/h2", 90), ("default/foo-v2/50051/h2", 10)];
    for host in ["foo.com", "bar.com"] {
        assert_explained(&format!("{call} --host {host} --header magic=foo"), 1, &split);
        let nothing = [("grpc 12 UNIMPLEMENTED", 100)];
        assert_explained(&format!("{call} --host {host}"), 1, &nothing);
        assert_explained(&format!("{call} --host {host} --header magic=bar"), 1, &nothing);
    }
    let other = "fixtures/seeds/gep-1016 --call helloworld.Greeter/Other --host foo.com --header magic=foo";
    assert_explained(other, 1, &[("grpc 12 UNIMPLEMENTED", 100)]);
}
