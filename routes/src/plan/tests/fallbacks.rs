//! Fallbacks as aggregate clusters (gRFC A37).

use super::backends_support::{backend, default_plan, fallback, route_plan, service, shown, to};
use super::support::{documents, grpc};
use crate::input::Options;
use crate::model::Document;
use crate::plan::Discovery;

/// The outcome of a route to the Backend `a/b0`: its action, and the problem's reason and message.
fn outcome(list: Vec<Document>) -> (String, String) {
    let documents = documents(list.into_iter().chain([grpc("a/r", "", "", vec![to("a/b0")])]));
    let plan = route_plan(&documents, "GRPCRoute a/r");
    let problem = plan.problems.first();
    let problem = problem.map(|problem| format!("{}: {}", problem.reason, problem.message));
    (shown(&plan.routes[0].action), problem.unwrap_or_default())
}

/// `a/b0` to `a/b<n-1>`, each falling back to the next, the last one with endpoints.
fn chain(n: usize) -> Vec<Document> {
    let mut list: Vec<Document> =
        (0..n - 1).map(|index| fallback(&format!("a/b{index}"), &format!("a/b{}", index + 1))).collect();
    list.push(backend(&format!("a/b{}", n - 1), "10.0.0.1:80"));
    list
}

/// B178.
#[test]
fn sixteen_clusters_on_a_path_are_fine_and_seventeen_are_not() {
    assert_eq!(outcome(chain(16)), ("a/b0*1".to_owned(), String::new()));
    let (action, problem) = outcome(chain(17));
    assert_eq!(action, "fail");
    assert!(
        problem.starts_with(
            "BackendNotFound: the Backend a/b0 cannot be used: a chain of fallbacks can have at most 16"
        ),
        "{problem}"
    );
    assert!(problem.contains("this one has 17 (a/b0 → a/b1 →") && problem.ends_with("→ a/b16)"), "{problem}");
    let mut list = chain(17);
    list.push(grpc("a/x", "", "", vec![to("a/b1")]));
    let plan = route_plan(&documents(list), "GRPCRoute a/x");
    assert!(plan.problems.is_empty(), "what is below the first is fine by itself");
}

/// B179.
#[test]
fn a_cycle_is_refused_and_printed() {
    let leaf = || backend("a/leaf", "10.0.0.1:80");
    let table = [
        (vec![fallback("a/b0", "a/b0")], "(a/b0 → a/b0)"),
        (vec![fallback("a/b0", "a/leaf a/b1"), fallback("a/b1", "a/leaf a/b0")], "(a/b0 → a/b1 → a/b0)"),
        (vec![fallback("a/b0", "a/b1"), fallback("a/b1", "a/b1")], "(a/b0 → a/b1 → a/b1)"),
        (
            vec![fallback("a/b0", "a/b2"), fallback("a/b1", "a/b2"), fallback("a/b2", "a/b1")],
            "(a/b0 → a/b2 → a/b1 → a/b2)",
        ),
    ];
    for (mut list, cycle) in table {
        list.push(leaf());
        let (action, problem) = outcome(list);
        assert_eq!(action, "fail");
        assert!(problem.ends_with(cycle), "{problem} has no {cycle}");
    }
}

#[test]
fn a_diamond_is_no_cycle_and_repeats_count_once() {
    let list = vec![
        fallback("a/b0", "a/b1 a/b2 a/b1 a/s:80 Service=a/s"),
        fallback("a/b1", "a/b3"),
        fallback("a/b2", "a/b3"),
        backend("a/b3", "10.0.0.1:80"),
        service("a/s", "x:80"),
        grpc("a/r", "", "", vec![to("a/b0")]),
    ];
    let documents = documents(list);
    let (plan, _) = default_plan(&documents);
    let Discovery::Aggregate(members) = &plan.clusters["a/b0"].discovery else { panic!() };
    assert_eq!(*members, ["a/b1", "a/b2", "a/s/80"]);
    assert_eq!(plan.clusters.len(), 5);
    assert!(!plan.assignments.contains_key("a/b0"));
}

/// Fourteen levels of eight members each have more paths than could ever be walked.
#[test]
fn wide_diamonds_are_judged_in_time() {
    let name = |level: usize, index: usize| {
        if level == 0 { "a/b0".to_owned() } else { format!("a/l{level}-{index}") }
    };
    let mut list = Vec::new();
    for level in 0..14 {
        for index in 0..8 {
            let members: Vec<String> = (0..8).map(|below| name(level + 1, below)).collect();
            list.push(fallback(&name(level, index), &members.join(" ")));
        }
    }
    list.extend((0..8).map(|index| backend(&name(14, index), "10.0.0.1:80")));
    let documents = documents(list.into_iter().chain([grpc("a/r", "", "", vec![to("a/b0")])]));
    let (plan, _) = default_plan(&documents);
    assert_eq!(plan.clusters.len(), 1 + 14 * 8);
}

#[test]
fn a_missing_member_breaks_the_whole_and_is_named_with_its_path() {
    let table = [
        ("a/none", "BackendNotFound", "there is no Backend a/none (a/b0 → a/b1 → a/none)"),
        ("a/none:80", "BackendNotFound", "there is no Service a/none (a/b0 → a/b1 → a/none)"),
        ("a/s:81", "BackendNotFound", "has no port 81"),
        ("b/far", "RefNotPermitted", "no ReferenceGrant that lets a Backend of a refer to the Backend far"),
        ("Gateway=a/x", "InvalidKind", "is not a kind of backend"),
    ];
    for (member, reason, message) in table {
        let list = vec![
            fallback("a/b0", "a/s:80 a/b1"),
            fallback("a/b1", &format!("a/s:80 {member}")),
            service("a/s", "x:80"),
            backend("b/far", "10.0.0.1:80"),
        ];
        let (action, problem) = outcome(list);
        assert_eq!(action, "fail", "{member}");
        assert!(problem.starts_with(reason) && problem.contains(message), "{member}: {problem}");
    }
}

#[test]
fn backends_are_told_whether_they_can_be_used() {
    let documents = documents([fallback("a/b0", "a/b0"), backend("a/fine", "10.0.0.1:80")]);
    let conditions = crate::memo::plan(&documents, &Options::default()).conditions;
    let reasons: Vec<&str> =
        conditions.objects.values().map(|status| status.conditions[0].reason.as_str()).collect();
    assert_eq!(reasons, ["Invalid", "Accepted"]);
}

/// Neither how deep nor how long it is may cost the stack, or more memory than the documents.
#[test]
fn endless_chains_and_cycles_are_refused_without_recursion() {
    let (action, problem) = outcome(chain(20_000));
    assert!(action == "fail" && problem.len() < 1_000, "{problem}");
    let mut list = chain(20_000);
    list.pop();
    list.push(fallback("a/b19999", "a/b0"));
    let (action, problem) = outcome(list);
    assert!(action == "fail" && problem.len() < 1_000, "{problem}");
}
