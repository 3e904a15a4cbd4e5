//! Messages of clients.

use anyhow::Result;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use prost::bytes::Bytes;
use tonic::Code;
use xds_tests::config::{CLUSTER, ENDPOINTS};
use xds_tests::raw::{self, DeltaStream, SotwStream, Stream, path};
use xds_tests::seen::{names, plain_cluster, resources, timeout_of};
use xds_tests::server::{Server, Setup};

#[tokio::test]
async fn a_malformed_message_ends_its_stream_with_words_and_no_other() -> Result<()> {
    let server = serving().await?;
    let channel = raw::connect(server.xds()).await?;
    let mut good = SotwStream::open(channel.clone(), path::ADS, raw::node("good", "c"));
    good.subscribe(CLUSTER, &[]).await?;
    good.expect_type(CLUSTER).await?;

    // Its first field is a number where a text must be.
    let mut bad = Stream::<ProtoDuration, DiscoveryResponse>::open(channel, path::ADS, raw::node("bad", "c"));
    bad.send(ProtoDuration { seconds: 1, nanos: 0 }).await?;
    let status = bad.expect_end().await?;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("malformed DiscoveryRequest"), "{status:?}");
    still_served(&server, &mut good).await
}

#[tokio::test]
async fn a_million_names_are_refused_with_the_limit_and_hurt_nobody() -> Result<()> {
    let server = serving().await?;
    let channel = raw::connect(server.xds()).await?;
    let mut good = SotwStream::open(channel.clone(), path::ADS, raw::node("good", "c"));
    good.subscribe(CLUSTER, &[]).await?;
    good.expect_type(CLUSTER).await?;

    let many: Vec<String> = (0..1_000_000).map(|i| format!("name-{i}")).collect();
    let mut sotw = SotwStream::open(channel.clone(), path::ADS, raw::node("many", "c"));
    let request = DiscoveryRequest {
        node: Some(raw::node("many", "c")),
        resource_names: many.clone(),
        ..raw::sotw_request(ENDPOINTS, &[])
    };
    sotw.send(request).await?;
    let status = sotw.expect_end().await?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("more than 250000 names"), "{status:?}");

    let mut delta = DeltaStream::open(channel, path::ADS_DELTA, raw::node("many", "c"));
    let request = DeltaDiscoveryRequest {
        node: Some(raw::node("many", "c")),
        resource_names_subscribe: many,
        ..raw::delta_request(ENDPOINTS, &[], &[])
    };
    delta.send(request).await?;
    let status = delta.expect_end().await?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("more than 250000 names"), "{status:?}");
    still_served(&server, &mut good).await
}

#[tokio::test]
async fn an_unknown_type_leaves_the_stream_alive_and_an_empty_or_wrong_one_ends_it() -> Result<()> {
    let server = serving().await?;
    let channel = raw::connect(server.xds()).await?;
    let mut stream = SotwStream::open(channel.clone(), path::ADS, raw::node("n", "c"));
    stream.subscribe("type.googleapis.com/no.such.Type", &["a"]).await?;
    let marker = stream.expect_silence_by_marker(raw::sotw_request(CLUSTER, &[]), CLUSTER).await;
    // An unknown type may be answered with nothing, or not at all; the stream lives.
    if let Err(error) = marker {
        assert!(format!("{error:#}").contains("no.such.Type"), "{error:#}");
        stream.expect_type(CLUSTER).await?;
    }
    let mut empty = SotwStream::open(channel.clone(), path::ADS, raw::node("n", "c"));
    empty.subscribe("", &[]).await?;
    let status = empty.expect_end().await?;
    assert_eq!((status.code(), status.message().contains("type_url")), (Code::InvalidArgument, true));

    let (_, clusters, clusters_delta, _) = path::PER_TYPE[3];
    let mut wrong = SotwStream::open(channel.clone(), clusters, raw::node("n", "c"));
    wrong.subscribe(ENDPOINTS, &["a"]).await?;
    let status = wrong.expect_end().await?;
    assert_eq!((status.code(), status.message().contains(ENDPOINTS)), (Code::InvalidArgument, true));
    let mut wrong = DeltaStream::open(channel, clusters_delta, raw::node("n", "c"));
    wrong.subscribe(ENDPOINTS, &["a"]).await?;
    let status = wrong.expect_end().await?;
    assert_eq!((status.code(), status.message().contains(ENDPOINTS)), (Code::InvalidArgument, true));
    still_served(&server, &mut stream).await
}

#[tokio::test]
async fn a_first_message_without_node_is_refused_on_every_service() -> Result<()> {
    let server = serving().await?;
    let channel = raw::connect(server.xds()).await?;
    let per_type = path::PER_TYPE.iter().map(|(type_url, stream, delta, _)| (*type_url, *stream, *delta));
    for (type_url, sotw, delta) in [(CLUSTER, path::ADS, path::ADS_DELTA)].into_iter().chain(per_type) {
        let mut stream = SotwStream::open(channel.clone(), sotw, raw::node("", ""));
        stream.send(raw::sotw_request(type_url, &["a"])).await?;
        let status = stream.expect_end().await?;
        assert_eq!(status.code(), Code::InvalidArgument, "{sotw} {status:?}");
        assert!(status.message().contains("`node.id`"), "{sotw} {status:?}");
        let mut stream = DeltaStream::open(channel.clone(), delta, raw::node("", ""));
        stream.subscribe(type_url, &["a"]).await?;
        let status = stream.expect_end().await?;
        assert_eq!(status.code(), Code::InvalidArgument, "{delta} {status:?}");
        assert!(status.message().contains("`node.id`"), "{delta} {status:?}");
    }
    for (type_url, _, _, fetch) in path::PER_TYPE {
        let status =
            raw::fetch(channel.clone(), fetch, raw::sotw_request(type_url, &["a"])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{fetch} {status:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_with_it() -> Result<()> {
    let server = Server::start_with(Setup::new()?.arg("--max-message-bytes").arg("1MiB")).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    let channel = raw::connect(server.xds()).await?;
    let mut good = SotwStream::open(channel.clone(), path::ADS, raw::node("good", "c"));
    good.subscribe(CLUSTER, &[]).await?;
    good.expect_type(CLUSTER).await?;
    let mut bad = SotwStream::open(channel, path::ADS, raw::node("bad", "c"));
    let name = "n".repeat(4_000);
    let request = DiscoveryRequest {
        node: Some(raw::node("bad", "c")),
        resource_names: (0..500).map(|i| format!("{i}{name}")).collect(),
        ..raw::sotw_request(ENDPOINTS, &[])
    };
    bad.send(request).await?;
    let status = bad.expect_end().await?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("1048576"), "{status:?}");
    still_served(&server, &mut good).await
}

/// The payload of an `Any` is not the server's to judge, nor are fields that it does not know: they come back as sent.
#[tokio::test]
async fn unknown_fields_of_a_request_are_no_fault() -> Result<()> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Newer {
        #[prost(message, optional, tag = "2")]
        node: Option<envoy_types::pb::envoy::config::core::v3::Node>,
        #[prost(string, tag = "4")]
        type_url: String,
        #[prost(bytes = "bytes", tag = "1000")]
        news: Bytes,
    }
    let server = serving().await?;
    let channel = raw::connect(server.xds()).await?;
    let node = raw::node("n", "c");
    let mut stream = Stream::<Newer, DiscoveryResponse>::open(channel, path::ADS, node.clone());
    let news = Bytes::from_static(b"news");
    stream.send(Newer { node: Some(node), type_url: CLUSTER.to_owned(), news }).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["a"]);
    Ok(())
}

async fn serving() -> Result<Server> {
    let server = Server::start_with(Setup::new()?).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    Ok(server)
}

/// Proves that a stream of clusters is served as if nothing had happened.
async fn still_served(server: &Server, good: &mut SotwStream) -> Result<()> {
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 2)])).await?;
    assert_eq!(timeout_of(&good.expect_type(CLUSTER).await?, "a")?, 2);
    Ok(())
}
