//! A name server that knows one name, which has several addresses.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The name server. Dropping it ends it.
#[derive(Debug)]
pub struct Names {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Names {
    /// Answers every question for addresses with these.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn start(addresses: &[Ipv4Addr]) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let (addr, addresses) = (socket.local_addr()?, addresses.to_vec());
        let task = tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                if let Some(answer) = buffer.get(..n).and_then(|question| answer(question, &addresses)) {
                    // Whoever asks asks again.
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        Ok(Self { addr, task })
    }

    /// Where it answers.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The name and a port, as a target of gRPC that is looked up here.
    #[must_use]
    pub fn target(&self, port: u16) -> String {
        format!("dns://{}/servers.test:{port}", self.addr)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer to a message with one question (RFC 1035, section 4).
fn answer(message: &[u8], addresses: &[Ipv4Addr]) -> Option<Vec<u8>> {
    let mut end = HEADER;
    while let n @ 1.. = usize::from(*message.get(end)?) {
        end += 1 + n;
    }
    let question = message.get(HEADER..end + 5)?;
    let is_for_addresses = question.ends_with(&[0, 1, 0, 1]);
    let addresses = if is_for_addresses { addresses } else { &[] };
    let mut answer = message.get(..2)?.to_vec();
    answer.extend([0x85, 0x80, 0, 1, 0, u8::try_from(addresses.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(question);
    for address in addresses {
        // The name of the question, an address of the Internet, for one second.
        answer.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

const HEADER: usize = 12;
