//! The work of each unit.

mod attachment;
mod context;
mod detail;
mod envoy;
mod gateways;
mod grpc;
mod hosts;
mod mesh;
mod outline;
mod policies;
mod status;
mod surroundings;

use self::context::Context;
use super::made::Made;
use super::names::NamePool;
use super::reader::Reader;
use super::unit::Unit;
use crate::encode::Encoder;
use crate::input::Options;

/// Runs a unit; `None` if it no longer exists.
pub(super) fn run(
    unit: &Unit,
    reader: &Reader<'_>,
    names: &NamePool,
    encoder: &mut Encoder<'_>,
    options: &Options,
    goes_on: &dyn Fn() -> bool,
) -> Option<Made> {
    let context = Context { reader, names, encoder, options };
    match unit {
        Unit::Outline(key) => outline::outline(reader, key),
        Unit::Fallbacks => context.fallbacks(),
        Unit::Gateways => context.gateways(),
        Unit::Attachment(key) => context.attachment(key),
        Unit::Ledger => context.ledger(goes_on),
        Unit::Bids(key) => context.bids(key),
        Unit::Kinds(listener) => context.kinds(listener),
        Unit::Implicit(group) => context.implicit(group),
        Unit::Split(key) => context.split(key),
        Unit::Wishes(key) => context.wishes(key),
        Unit::Names(label) => context.namesakes(label),
        Unit::Port(group, port) => context.port(group, *port),
        Unit::Mesh(service) => context.mesh(&service.0, &service.1),
        Unit::Borrow(group, port) => context.borrow(group, *port),
        Unit::Loan(host) => context.loan(host),
        Unit::MeshTable(group, port) => context.mesh_table(group, *port),
        Unit::Group(name) => context.group(name),
        Unit::Host(host) => context.host(host),
        Unit::Policies => context.policies(),
        Unit::Rules(key) => context.rules(key),
        Unit::Backend(name) => context.backend(name),
        Unit::Part(host) => context.part(host),
        Unit::Listener(listener) => context.listener(listener),
        Unit::Table(table) => context.table(table),
        Unit::Dialled(host) => context.dialled(host),
        Unit::GrpcRoot(name) => context.grpc_root(name),
        Unit::GrpcCluster(name) => context.grpc_cluster(name),
        Unit::Cluster(name) => context.cluster(name),
        Unit::Assignment(name) => context.assignment(name),
        Unit::Secret(name) => context.secret(name),
        Unit::Unavailable(group, profile) => context.unavailable(group, *profile),
        Unit::Status(key) => context.status(key),
    }
}
