//! Filter chains that no connection reaches (L5).

use envoy_types::pb::envoy::config::listener::v3::Listener;
use xds_cache::Resource;

use crate::explanation::Part;
use crate::lint::report::{Doubt, DoubtCode};
use crate::space::connection::{ChainIndex, ways};

pub(super) fn look(resource: &Resource, listener: &Listener, doubts: &mut Vec<Doubt>) {
    let has_tree = listener.filter_chain_matcher.is_some();
    if listener.filter_chains.len() < 2 && !has_tree {
        return;
    }
    let (ways, undecided) = ways([listener, listener]);
    if undecided.is_some() {
        return;
    }
    for (index, chain) in listener.filter_chains.iter().enumerate() {
        let wanted: Option<ChainIndex> = Some(Some(index));
        if ways.keys().any(|[reached, _]| *reached == wanted) {
            continue;
        }
        let name = if chain.name.is_empty() { String::new() } else { format!(" {:?}", chain.name) };
        let why = match has_tree {
            true => "filter_chain_matcher leads no connection to it",
            false => "for each that it would take, another chain is more specific in an earlier step",
        };
        let path = format!("filter_chains[{index}]");
        let part = Part { resource: resource.key().clone(), path, route: None };
        let message = format!("no connection reaches the filter chain{name}: {why}");
        doubts.push(Doubt::new(DoubtCode::UnreachableChain, part, message));
    }
}
