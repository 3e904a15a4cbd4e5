//! The cost of one change to a running server, and its memory, by the size of what it serves.
//!
//! ```console
//! $ cargo bench -p xds-tests --bench world                        # both tables, at 100, 1,000 and 10,000
//! $ cargo bench -p xds-tests --bench world -- routes 100 30000    # other sizes
//! $ cargo bench -p xds-tests --bench world -- groups 10 5000
//! $ cargo bench -p xds-tests --bench world -- plot docs/performance.svg   # 100 to 30,000 routes, or other sizes behind it
//! $ cargo bench -p xds-tests --bench world -- soak 600   # 20 changes a second with 1,000 clients, for ten minutes
//! $ cargo bench -p xds-tests --bench world -- tls 1000 10000   # connections in plaintext, with TLS, and with client certificates
//! $ cargo bench -p xds-tests --bench world -- replicas 1000 10000   # a store that servers share; clients of another server
//! $ cargo bench -p xds-tests --bench world -- page 10000 500   # the page of the admin port: nodes, and open pages
//! ```
//!
//! It builds the server with optimisation, or takes the one that `XDS_TESTS_SERVER` names. Ratios between sizes of one run are what it
//! says; absolute times hold for one machine.

#![expect(clippy::print_stdout, reason = "a measurement for whoever runs it")]

mod clients;
mod groups;
mod page;
mod plot;
mod replicas;
mod routes;
mod samples;
mod soak;
mod tls;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let sizes = |sizes: &[String], default: &[usize]| -> Result<Vec<usize>> {
        let parsed: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
        let parsed = parsed.with_context(|| format!("sizes, not {sizes:?}"))?;
        Ok(if parsed.is_empty() { default.to_vec() } else { parsed })
    };
    match arguments.split_first() {
        None => {
            println!("{}", routes::table(&ROUTES).await?);
            println!("{}", groups::table(&GROUPS).await?);
        }
        Some((what, rest)) => match what.as_str() {
            "routes" => println!("{}", routes::table(&sizes(rest, &ROUTES)?).await?),
            "groups" => println!("{}", groups::table(&sizes(rest, &GROUPS)?).await?),
            "plot" => {
                let (path, rest) = rest.split_first().context("a file to write the plot to")?;
                plot::write(path, &sizes(rest, &plot::SIZES)?).await?;
            }
            "soak" => {
                let seconds = rest.first().map_or(Ok(600), |seconds| seconds.parse()).context("seconds")?;
                println!("{}", soak::run(Duration::from_secs(seconds)).await?);
            }
            "replicas" => {
                println!("{}", replicas::table().await?);
                println!("{}", replicas::failover().await?);
                for n_clients in sizes(rest, &SHARED)? {
                    println!("{}", replicas::acks(n_clients).await?);
                }
            }
            "page" => {
                let sizes = sizes(rest, &LOOKED_AT)?;
                let [n_nodes, n_pages] = sizes[..] else { bail!("how many nodes, and how many pages") };
                println!("{}", page::table(n_nodes, n_pages).await?);
            }
            "tls" => tls::print(&sizes(rest, &CONNECTIONS)?).await?,
            other => bail!("routes, groups, plot, soak, replicas, page or tls, not {other}"),
        },
    }
    Ok(())
}

const ROUTES: [usize; 3] = [100, 1_000, 10_000];
const GROUPS: [usize; 3] = [10, 1_000, 5_000];
const SHARED: [usize; 2] = [1_000, 10_000];
const LOOKED_AT: [usize; 2] = [10_000, 500];
const CONNECTIONS: [usize; 2] = [1_000, 10_000];
