//! The work that unsupported policies make.

use std::cell::Cell;

use super::support::*;
use crate::input::{Documents, Placed, of_kinds as of_range};
use crate::model::{
    AllowedNamespaces, Document, DocumentKey, ForeignPolicy, Kind, LabelSelector, PolicyTarget, Spec,
    TargetName,
};
use crate::plan::{Targets, affected};

/// Documents that count how often one of them is looked at.
struct Counted<'d> {
    documents: &'d Documents,
    n: &'d Cell<usize>,
}

impl<'d> Targets<'d> for Counted<'d> {
    fn document(&self, key: &DocumentKey) -> Option<&'d Document> {
        self.n.set(self.n.get() + 1);
        self.documents.get(key).map(|placed| &*placed.document)
    }

    fn of_kind(&self, kind: Kind) -> Box<dyn Iterator<Item = &'d Placed> + 'd> {
        let n = self.n;
        let all = of_range(self.documents, kind..=kind).map(|(_, placed)| placed);
        Box::new(all.inspect(move |_| n.set(n.get() + 1)))
    }

    fn is_known(&self, _: &DocumentKey) -> bool {
        true
    }
}

fn target(name: TargetName) -> PolicyTarget {
    PolicyTarget { spot: spot("spec.targetRefs"), kind: Kind::HttpRoute, name, section: None }
}

/// A policy for fifteen routes by name, and for all routes by labels.
fn policy(at: usize, n_routes: usize) -> Document {
    let by_name =
        |one: usize| TargetName::Object { namespace: None, name: format!("r{}", (at * 7 + one) % n_routes) };
    let labels = LabelSelector { values: vec![], keys: vec![(format!("k{at}"), false)] };
    let by_labels = TargetName::Selector { namespaces: AllowedNamespaces::Same, labels };
    let targets = (0..15).map(by_name).chain([by_labels]).map(target).collect();
    let name = format!("p{at}");
    let spec = ForeignPolicy { kind: "Limit".to_owned(), name: name.clone(), targets };
    document(Kind::Policy, &format!("default/{name}"), Spec::Policy(spec))
}

/// The number of documents that are looked at, and of reports.
fn looked_at(n_routes: usize, n_policies: usize) -> (usize, usize) {
    let routes = (0..n_routes).map(|at| web(&format!("default/r{at}"), "default/edge", "", vec![]));
    let documents = documents(routes.chain((0..n_policies).map(|at| policy(at, n_routes))));
    let (n, mut diagnostics) = (Cell::new(0), Vec::new());
    let conditions = affected(&Counted { documents: &documents, n: &n }, &mut diagnostics);
    assert_eq!(conditions.len(), n_routes, "every route is a target");
    (n.get(), diagnostics.len())
}

#[test]
fn policies_look_at_their_targets_and_compare_no_more_labels_than_all_may() {
    // Each policy itself, its fifteen names, and all routes.
    assert_eq!(looked_at(20, 50), (50 * (1 + 15 + 20), 50));
    // 400,000 comparisons would be needed. The first 1,000 policies make half of them; the others look at one route more each.
    assert_eq!(looked_at(200, 2_000), (2_000 * (1 + 15) + 200_000 + 1_000, 2_000));
}
