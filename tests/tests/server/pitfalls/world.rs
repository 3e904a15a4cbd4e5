//! A server with its configuration, and a marker that proves silence.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tonic::transport::Channel;
use xds_tests::raw::{self, DeltaStream, SotwStream, path};
use xds_tests::seen::{delta_names, names, resources};
use xds_tests::server::{Server, Setup};

const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
/// As many silences as one stream can prove.
const N_MARKERS: usize = 20;

/// A server without files.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) channel: Channel,
}

impl World {
    /// Starts a server that serves these resources.
    pub(crate) async fn serving(first: &[Value]) -> Result<Self> {
        Self::with(Setup::new()?, first).await
    }

    pub(crate) async fn with(setup: Setup, first: &[Value]) -> Result<Self> {
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        let channel = raw::connect(server.xds()).await?;
        let world = Self { server, channel };
        world.publish(first).await?;
        Ok(world)
    }

    /// Publishes exactly these resources, and the markers.
    pub(crate) async fn publish(&self, all: &[Value]) -> Result<Value> {
        let marker = |i| json!({"@type": RUNTIME, "name": name(i), "layer": {}});
        let all: Vec<_> = all.iter().cloned().chain((0..N_MARKERS).map(marker)).collect();
        self.server.put("/v1/groups/default/resources", &resources(&all)).await
    }

    /// A State of the World ADS stream; nothing is sent yet.
    pub(crate) fn sotw(&self, node: &str) -> SotwStream {
        SotwStream::open(self.channel.clone(), path::ADS, raw::node(node, "c"))
    }

    /// An incremental ADS stream.
    pub(crate) fn delta(&self, node: &str) -> DeltaStream {
        DeltaStream::open(self.channel.clone(), path::ADS_DELTA, raw::node(node, "c"))
    }

    /// The status of one type of a node, when it is as it should be.
    pub(crate) async fn wait_type(
        &self,
        node: &str,
        type_url: &str,
        is_good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let path = format!("/v1/nodes/{node}");
        let found = self.server.wait_json(&path, |node| is_good(&node["types"][type_url])).await?;
        found["types"].get(type_url).cloned().context("type")
    }
}

/// Proves that a stream is owed nothing: it asks for one more marker, whose answer must be the next response.
#[derive(Debug, Default)]
pub(crate) struct Silence(usize);

impl Silence {
    pub(crate) async fn of_sotw(&mut self, stream: &mut SotwStream) -> Result<()> {
        let wanted: Vec<_> = (0..=self.0).map(name).collect();
        let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
        let answer = stream.expect_silence_by_marker(raw::sotw_request(RUNTIME, &wanted), RUNTIME).await?;
        ensure!(names(&answer)?.contains(&self.next()?), "not the marker: {answer:?}");
        Ok(())
    }

    pub(crate) async fn of_delta(&mut self, stream: &mut DeltaStream) -> Result<()> {
        let request = raw::delta_request(RUNTIME, &[&name(self.0)], &[]);
        let answer = stream.expect_silence_by_marker(request, RUNTIME).await?;
        ensure!(delta_names(&answer) == [self.next()?], "not the marker: {answer:?}");
        Ok(())
    }

    fn next(&mut self) -> Result<String> {
        self.0 += 1;
        ensure!(self.0 < N_MARKERS, "no marker left");
        Ok(name(self.0 - 1))
    }
}

fn name(i: usize) -> String {
    format!("marker-{i}")
}
