//! What people watch: the page in a real browser, and metrics, alerts and dashboards in a real Prometheus.

mod monitoring;
mod page;
