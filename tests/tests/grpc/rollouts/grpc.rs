//! Rollouts that are judged by what gRPC clients report.

use anyhow::{Result, ensure};
use serde_json::json;
use xds_tests::worker::{Calls, Library};

use crate::rollouts::support::{fails_within_two_intervals, grpc_route, grpc_world};

#[tokio::test]
async fn a_failing_canary_is_taken_back_by_the_load_reports_of_grpcio_within_two_intervals() -> Result<()> {
    let world = grpc_world().await?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter.example.com").await?;
    assert_eq!(channel.who().await?, "v1");
    let hold = channel.hold(&Calls::new(0), 100).await?;
    world.backends["v2"].fail(0.5);
    let fields = json!({"route": grpc_route(), "steps": [
        {"setWeight": 20},
        {"analysis": {"interval": "4s", "count": 100, "minRequests": 20, "maxErrorRateOverStable": 5, "maxErrorRate": 100}},
    ]});
    let failed = fails_within_two_intervals(&world.server, &fields).await?;
    let events = failed["events"].to_string();
    ensure!(events.contains("of the canary"), "{failed:#}");
    assert_eq!(failed["weights"], json!({"stable": 100, "canary": 0}));
    assert_eq!(failed["acked"], json!({"n": 1, "of": 1, "nacked": 0}));

    // Everything is back on v1, and calls that failed were those of v2.
    let counts = hold.stop().await?;
    let n_failed: u64 = counts.errors.values().sum();
    ensure!(counts.n_of("v1") > 100 && n_failed > 0 && n_failed < counts.n_of("v1") / 4, "{counts:?}");
    let before = world.backends["v2"].n_requests();
    let counts = channel.call(&Calls::new(500)).await?;
    counts.ensure_no_errors()?;
    assert_eq!((counts.n_of("v1"), world.backends["v2"].n_requests()), (500, before));
    Ok(())
}
