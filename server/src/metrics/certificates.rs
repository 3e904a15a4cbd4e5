//! Metrics of TLS: the ends of certificates, changes of files, handshakes.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::listen::{Outcome, Tls, TlsStatus};

/// The ports that speak TLS.
#[derive(Debug)]
pub(super) struct Certificates(pub(super) Vec<Arc<Tls>>);

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ports: Vec<TlsStatus> = self.0.iter().map(|tls| tls.status()).collect();
        if ports.is_empty() {
            return Ok(());
        }
        let help = "Expiry of the certificate of a port (leaf), of the first authority of its clients to expire (client_ca), of the authorities of the first trust domain to lose its last one (trust_domain), or of the first CRL (crl), in Unix seconds";
        let mut ends = encoder.encode_descriptor(
            "xds_tls_certificate_not_after_seconds",
            help,
            None,
            MetricType::Gauge,
        )?;
        for status in &ports {
            for (part, end) in status.ends() {
                ends.encode_family(&[("listener", status.port), ("part", part)])?
                    .encode_gauge(&seconds(end))?;
            }
        }
        let help = "TLS configurations used so far, the present one included";
        let mut generations =
            encoder.encode_descriptor("xds_tls_generation", help, None, MetricType::Gauge)?;
        for TlsStatus { port, generation, .. } in &ports {
            generations.encode_family(&[("listener", *port)])?.encode_gauge(generation)?;
        }
        let help = "Changes of TLS files: used, or unusable so that the last good ones were kept";
        let mut reloads = encoder.encode_descriptor("xds_tls_reloads", help, None, MetricType::Counter)?;
        for TlsStatus { port, generation, n_kept, .. } in &ports {
            for (outcome, n) in [("ok", generation.saturating_sub(1)), ("kept", *n_kept)] {
                let labels = [("listener", *port), ("outcome", outcome)];
                reloads.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
            }
        }
        let help = "Completed TLS handshakes";
        let mut completed =
            encoder.encode_descriptor("xds_tls_handshakes", help, None, MetricType::Counter)?;
        for TlsStatus { port, handshakes, .. } in &ports {
            for (outcome, n) in handshakes {
                let Outcome::Completed(version) = outcome else { continue };
                let labels = [("listener", *port), ("version", version)];
                completed.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(n, None)?;
            }
        }
        let help = "Failed TLS handshakes";
        let mut failed =
            encoder.encode_descriptor("xds_tls_handshake_failures", help, None, MetricType::Counter)?;
        for TlsStatus { port, handshakes, .. } in &ports {
            for (outcome, n) in handshakes {
                let Outcome::Failed(reason) = outcome else { continue };
                let labels = [("listener", *port), ("reason", reason)];
                failed.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(n, None)?;
            }
        }
        Ok(())
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
