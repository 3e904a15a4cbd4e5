//! Weights that get nothing (L6), and time limits that are off (L8).

use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::RandomValueSpecifier;
use envoy_types::pb::envoy::config::route::v3::{RouteAction, WeightedCluster};

use crate::draw::Chance;
use crate::explanation::Part;
use crate::lint::report::{Doubt, DoubtCode};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::route::Route;
use crate::semantics::Difference;
use crate::space::values::Arrival;

pub(super) fn look(route: &Route, part: &Part, arrival: &Arrival<'_>, doubts: &mut Vec<Doubt>) {
    let Some(Action::Route(action)) = &route.message.action else { return };
    if let Some(ClusterSpecifier::WeightedClusters(split)) = &action.cluster_specifier
        && arrival.semantics.has(Difference::OneDraw)
        && !draws_apart(split)
    {
        weights(route, split, part, arrival, doubts);
    }
    if arrival.semantics.has(Difference::ActsAsProxy) {
        timeouts(action, part, arrival, doubts);
    }
}

/// Returns `true` if something else than the random number of the request decides about the weights.
fn draws_apart(split: &WeightedCluster) -> bool {
    match &split.random_value_specifier {
        Some(RandomValueSpecifier::HeaderName(_)) => true,
        Some(RandomValueSpecifier::UseHashPolicy(flag)) => flag.value,
        None => false,
    }
}

fn weights(
    route: &Route,
    split: &WeightedCluster,
    part: &Part,
    arrival: &Arrival<'_>,
    doubts: &mut Vec<Doubt>,
) {
    let Some(fraction) = route.fraction.as_ref().filter(|fraction| fraction.runtime_key.is_empty()) else {
        return;
    };
    let weights: Vec<u32> =
        split.clusters.iter().map(|one| one.weight.as_ref().map_or(0, |weight| weight.value)).collect();
    let sum: u128 = weights.iter().copied().map(u128::from).sum();
    let chance = Chance::new(&Request::default(), arrival.semantics);
    let Some((Some(inside), _)) = chance.split(fraction) else { return };
    let Some(real) = inside.weighted(&weights) else { return };
    let written = weights.iter().map(|weight| Ratio::new(u128::from(*weight), sum).times(fraction.ratio()));
    let told: Vec<(&str, Ratio, Ratio)> = split
        .clusters
        .iter()
        .zip(written)
        .zip(real)
        .filter_map(|((member, written), real)| Some((&*member.name, written?, real)))
        .collect();
    for (name, ..) in told.iter().filter(|(_, written, real)| real.is_zero() && !written.is_zero()) {
        let message = format!(
            "the cluster {name:?} has a weight and gets no request: an Envoy has one random number for the fraction and the weights of a route"
        );
        doubts.push(Doubt::new(DoubtCode::WeightNeverApplies, part.clone(), message));
    }
}

/// XA5: if `max_stream_duration` is there, even empty, `timeout` is off.
fn timeouts(action: &RouteAction, part: &Part, arrival: &Arrival<'_>, doubts: &mut Vec<Doubt>) {
    let Some(max) = &action.max_stream_duration else { return };
    let has_limit =
        |limit: &envoy_types::pb::google::protobuf::Duration| limit.seconds > 0 || limit.nanos > 0;
    let own = max.max_stream_duration.as_ref();
    let common = arrival.managers[0].and_then(|manager| manager.common_http_protocol_options.as_ref());
    let stream = own.or(common.and_then(|common| common.max_stream_duration.as_ref()));
    let message = if action.timeout.as_ref().is_some_and(has_limit) {
        "the timeout has no effect, because max_stream_duration is set beside it"
    } else if stream.is_none() && max.grpc_timeout_header_max.is_none() {
        "max_stream_duration says nothing, and switches the default timeout of 15 s off"
    } else {
        return;
    };
    doubts.push(Doubt::new(DoubtCode::TimeoutOff, part.clone(), message));
}
