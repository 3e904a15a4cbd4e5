//! Load reports, read field by field for the board (row A213).
//!
//! A decoder would make a tree of a report, which takes a hundred times its bytes before its size is known. Here, a report stays the
//! bytes that came. They are read twice: first to check that the whole report is sound and within the limits, and then cluster by
//! cluster for the board. So a report is taken in as a whole or not at all, and takes the memory of its largest cluster, which is
//! bounded.

use std::time::Duration;

use xds_cache::Locality;
use xds_cache::loads::{ClusterReport, Counts, LocalityReport, MAX_METRICS, Metric, PriorityLocality};
use xds_cache::wire::{Field, Fields, WireError};

use crate::grpc::node::MAX_TEXT_BYTES;

/// An `envoy.service.load_stats.v3.LoadStatsRequest` that is sound and within the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadReport<'a> {
    /// The encoded node, not checked; the last one, if there are several.
    pub(crate) node: Option<&'a [u8]>,
    /// The number of reported clusters.
    pub(crate) n_clusters: usize,
    message: &'a [u8],
}

/// A load report that cannot be taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportError {
    /// The bytes are not a report.
    #[error("malformed LoadStatsRequest: {0}")]
    Malformed(#[from] WireError),
    /// A list is too long.
    #[error("`{path}` has more than {limit} entries")]
    TooMany {
        /// The field.
        path: String,
        /// The limit of entries.
        limit: usize,
    },
    /// A text is too long.
    #[error("`{path}` has {length} bytes; at most {limit} are allowed")]
    TooLong {
        /// The field.
        path: String,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl<'a> LoadReport<'a> {
    /// Reads a report, and keeps only a reference to its bytes.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if the bytes are not a valid report, or one that passes a limit.
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, ReportError> {
        let mut report = Self { node: None, n_clusters: 0, message };
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                NODE => report.node = Some(field.bytes()?),
                CLUSTER_STATS => {
                    let index = report.n_clusters;
                    check_number("cluster_stats", index, MAX_CLUSTERS)?;
                    read_cluster(field.bytes()?).map_err(|error| error.within("cluster_stats", index))?;
                    report.n_clusters += 1;
                }
                _ => {}
            }
        }
        Ok(report)
    }

    /// The reports, cluster by cluster.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterReport> + use<'a> {
        // It has been read before, without an error.
        let stats = Fields::of(self.message).flatten().filter(|field| field.number == CLUSTER_STATS);
        stats.filter_map(|field| read_cluster(field.bytes().ok()?).ok())
    }
}

impl ReportError {
    /// The error as seen from the message around it, which has the broken one as an entry of a list.
    fn within(mut self, list: &str, index: usize) -> Self {
        match &mut self {
            Self::Malformed(_) => {}
            Self::TooMany { path, .. } | Self::TooLong { path, .. } => {
                *path = format!("{list}[{index}].{path}");
            }
        }
        self
    }
}

/// Reads an `envoy.config.endpoint.v3.ClusterStats`.
fn read_cluster(bytes: &[u8]) -> Result<ClusterReport, ReportError> {
    let (mut cluster, mut service) = ("", "");
    let mut interval = Interval::default();
    let mut report = ClusterReport::default();
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => cluster = text("cluster_name", &field)?,
            2 => {
                let (list, index) = ("upstream_locality_stats", report.localities.len());
                check_number(list, index, MAX_LOCALITIES)?;
                let locality = read_locality(field.bytes()?).map_err(|error| error.within(list, index))?;
                report.localities.push(locality);
            }
            3 => report.dropped = field.number()?,
            4 => interval.read(field.bytes()?)?,
            5 => {
                let (list, index) = ("dropped_requests", report.dropped_by.len());
                check_number(list, index, MAX_DROP_CATEGORIES)?;
                let drops = read_drops(field.bytes()?).map_err(|error| error.within(list, index))?;
                report.dropped_by.push(drops);
            }
            6 => service = text("cluster_service_name", &field)?,
            _ => {}
        }
    }
    report.interval = interval.duration();
    cluster.clone_into(&mut report.cluster);
    service.clone_into(&mut report.service);
    Ok(report)
}

/// Reads an `envoy.config.endpoint.v3.UpstreamLocalityStats`. Endpoints are counted and passed over: they are never asked for.
fn read_locality(bytes: &[u8]) -> Result<LocalityReport, ReportError> {
    let mut priority = 0;
    let mut locality = ["", "", ""];
    let mut counts = Counts::default();
    let mut in_progress = 0;
    let mut utilization = [None; 3];
    let mut named = Vec::new();
    let (mut n_named, mut n_endpoints) = (0, 0);
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => read_place(field.bytes()?, &mut locality)?,
            2 => counts.successful = field.number()?,
            3 => in_progress = field.number()?,
            4 => counts.errors = field.number()?,
            5 => {
                let list = "load_metric_stats";
                check_number(list, n_named, MAX_NAMED_METRICS)?;
                let (name, metric) =
                    read_metric(field.bytes()?).map_err(|error| error.within(list, n_named))?;
                n_named += 1;
                // The board takes no more, so more must not take memory.
                if named.len() < MAX_METRICS && metric.is_kept_as(name) {
                    named.push((name.to_owned(), metric));
                }
            }
            // A number of 32 bits has the lower bits of the varint.
            6 => priority = field.number()? as u32,
            7 => {
                field.bytes()?;
                check_number("upstream_endpoint_stats", n_endpoints, MAX_ENDPOINTS)?;
                n_endpoints += 1;
            }
            8 => counts.issued = field.number()?,
            12 => read_utilization(&field, &mut utilization[0])?,
            13 => read_utilization(&field, &mut utilization[1])?,
            14 => read_utilization(&field, &mut utilization[2])?,
            _ => {}
        }
    }
    let utilization = UTILIZATION.into_iter().zip(utilization);
    let utilization = utilization.filter_map(|(name, metric)| Some((name.to_owned(), metric?)));
    let [region, zone, sub_zone] = locality.map(ToOwned::to_owned);
    Ok(LocalityReport {
        place: PriorityLocality { priority, locality: Locality { region, zone, sub_zone } },
        counts,
        in_progress,
        metrics: utilization.chain(named).collect(),
    })
}

/// Reads an `envoy.config.core.v3.Locality`: its region, zone and sub-zone.
fn read_place<'a>(bytes: &'a [u8], locality: &mut [&'a str; 3]) -> Result<(), ReportError> {
    let [region, zone, sub_zone] = locality;
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => *region = text("locality.region", &field)?,
            2 => *zone = text("locality.zone", &field)?,
            3 => *sub_zone = text("locality.sub_zone", &field)?,
            _ => {}
        }
    }
    Ok(())
}

/// Reads an `EndpointLoadMetricStats`.
fn read_metric(bytes: &[u8]) -> Result<(&str, Metric), ReportError> {
    let (mut name, mut metric) = ("", Metric::default());
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => name = text("metric_name", &field)?,
            2 => metric.n_requests = field.number()?,
            3 => metric.sum = field.double()?,
            _ => {}
        }
    }
    Ok((name, metric))
}

/// Reads an `UnnamedEndpointLoadMetricStats`, which may come in parts.
fn read_utilization(field: &Field<'_>, metric: &mut Option<Metric>) -> Result<(), WireError> {
    let metric = metric.get_or_insert_default();
    for field in Fields::of(field.bytes()?) {
        let field = field?;
        match field.number {
            1 => metric.n_requests = field.number()?,
            2 => metric.sum = field.double()?,
            _ => {}
        }
    }
    Ok(())
}

/// Reads a `ClusterStats.DroppedRequests`.
fn read_drops(bytes: &[u8]) -> Result<(String, u64), ReportError> {
    let (mut category, mut n_dropped) = ("", 0);
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => category = text("category", &field)?,
            2 => n_dropped = field.number()?,
            _ => {}
        }
    }
    Ok((category.to_owned(), n_dropped))
}

/// A `google.protobuf.Duration`, which may come in parts.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    seconds: i64,
    nanos: i32,
}

impl Interval {
    fn read(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => self.seconds = field.number()? as i64,
                2 => self.nanos = field.number()? as i32,
                _ => {}
            }
        }
        Ok(())
    }

    /// A negative duration counts as none.
    fn duration(self) -> Duration {
        let nanos = u32::try_from(self.nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND);
        let seconds = u64::try_from(self.seconds).ok();
        seconds.zip(nanos).map_or(Duration::ZERO, |(seconds, nanos)| Duration::new(seconds, nanos))
    }
}

fn text<'a>(name: &'static str, field: &Field<'a>) -> Result<&'a str, ReportError> {
    let text = field.text()?;
    if text.len() > MAX_TEXT_BYTES {
        let (path, length) = (name.to_owned(), text.len());
        return Err(ReportError::TooLong { path, length, limit: MAX_TEXT_BYTES });
    }
    Ok(text)
}

/// Refuses an entry of a list that is full.
fn check_number(list: &str, n_before: usize, limit: usize) -> Result<(), ReportError> {
    if n_before >= limit {
        return Err(ReportError::TooMany { path: list.to_owned(), limit });
    }
    Ok(())
}

/// The clusters that the board has room for by default, and several times as many as any known fleet gives to one client.
pub(crate) const MAX_CLUSTERS: usize = 50_000;
/// Clouds have some hundred zones in all their regions; the board keeps 64 of a cluster.
const MAX_LOCALITIES: usize = 1000;
/// Clients have a handful; the board keeps 8.
const MAX_DROP_CATEGORIES: usize = 100;
/// Backends choose these; the board keeps 16.
const MAX_NAMED_METRICS: usize = 1000;
/// The server never asks for endpoints, so clients are not expected to send many.
const MAX_ENDPOINTS: usize = 10_000;

/// The names that metrics have for the fields `cpu_utilization` and those behind it.
const UTILIZATION: [&str; 3] = ["cpu_utilization", "mem_utilization", "application_utilization"];
/// `LoadStatsRequest.node`.
pub(crate) const NODE: u32 = 1;
/// `LoadStatsRequest.cluster_stats`.
const CLUSTER_STATS: u32 = 2;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

#[cfg(test)]
mod tests;
